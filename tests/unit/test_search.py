"""What is measured next: first points in order, then the sampler, then the leaders again."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

from builders import config, crash, measured, study_data, trial

from objectives.protocol import Choices
from objectives.schema import LoaderConfig, Outcome, canonical
from storage.records import StudyData
from tuner.search import MAX_SLICES, next_configuration, predict
from tuner.space import SearchSpace, build_space

BASELINE = LoaderConfig(1, 2, True, True)
IDENTITY = {"workload.gradient_accumulation_steps": 8, "workload.per_device_train_batch_size": 1}


def space(workers: int = 8) -> SearchSpace:
    """Return a space of 0 to 8 workers."""
    values: dict[str, tuple[int | bool, ...]] = {
        "num_workers": tuple(range(workers + 1)),
        "prefetch_factor": (1, 2, 4, 8),
        "persistent_workers": (False, True),
        "pin_memory": (False, True),
    }
    return build_space(Choices(values, {}), BASELINE)


def speed(config: LoaderConfig) -> Outcome:
    """Return a loader-bound outcome that saturates at 4 workers; the loader alone makes 2 batches/s a worker."""
    rate = min(max(config.num_workers, 0.5), 4.0)
    return measured(rate, loader_batches_per_s=2.0 * max(1, config.num_workers), wait_fraction=1 - rate / 4.0)


def play(data: StudyData, searched: SearchSpace, total: int) -> list[tuple[LoaderConfig, str]]:
    """Run a study without noise and return what was measured and why."""
    asked = []
    while len(data.trials) < total:
        chosen, origin = next_configuration(data, searched, total)
        asked.append((chosen, origin))
        found = replace(trial(len(data.trials), chosen.key, speed(chosen)), origin=origin)
        data = replace(data, trials=(*data.trials, found))
    return asked


def test_the_first_points_come_in_order() -> None:
    """Baseline, no workers, the predicted point, 2 workers, 4 x 2: each once."""
    asked = play(study_data([], [7.0], identity=IDENTITY), space(), 25)[:5]
    assert [c.key for c, _ in asked] == [
        "w1 p2 persist pin", "w0 pin", "w4 p2 persist pin", "w2 p2 persist pin", asked[4][0].key,
    ]  # fmt: skip
    assert [origin for _, origin in asked[:4]] == ["baseline", "seed", "seed", "seed"]
    assert asked[4][1] == "search", "4 x 2 is the predicted point and not measured twice"


def test_the_prediction_beats_the_demand_and_holds_a_group() -> None:
    """The fewest workers above 1.1 x demand, with a queue as deep as the accumulation group; None without figures."""
    data = study_data([("w0 pin", measured(1.0, loader_batches_per_s=2.0))], [7.0], identity=IDENTITY)
    predicted = predict(data, space())
    assert predicted == LoaderConfig(4, 2, True, True)
    assert predict(study_data([], [7.0], identity=IDENTITY), space()) is None


def test_the_last_fifth_measures_leaders_again_and_never_back_to_back() -> None:
    """No configuration follows itself; the sampler spends at most two slices on one; repeats are at the end."""
    asked = play(study_data([], [7.0], identity=IDENTITY), space(), 25)
    configs = [c for c, _ in asked]
    assert all(a != b for a, b in itertools.pairwise(configs))
    assert {origin for _, origin in asked[-5:]} == {"repeat"}
    assert "repeat" not in {origin for _, origin in asked[:-5]}
    assert max(Counter(c for c, origin in asked if origin != "repeat").values()) <= MAX_SLICES
    assert BASELINE in configs[-5:]


def test_the_same_trials_and_seed_give_the_same_next_point() -> None:
    """A resumed study goes on as if it had not stopped."""
    data = study_data([(k, speed(config(k))) for k in ("w1 p2 persist pin", "w0 pin", "w4 p2 persist pin")], [7.0])
    data = replace(data, trials=(*data.trials, trial(3, "w2 p2 persist pin", 2.0), trial(4, "w6 p4 pin", 4.0)))
    assert next_configuration(data, space(), 30) == next_configuration(data, space(), 30)


def test_nothing_larger_than_a_crash_is_a_first_point() -> None:
    """When 2 x 2 has crashed, the advice 4 x 2 is skipped: more workers will not cure it."""
    data = study_data([("w1 p2 persist pin", 1.0), ("w0 pin", 0.5), ("w2 p2 persist pin", crash())])
    chosen, _ = next_configuration(data, space(), 30)
    assert chosen != canonical(4, 2, True, True)


def test_a_space_that_is_used_up_is_measured_again() -> None:
    """More trials than configurations: repeats go on, none back to back."""
    small = build_space(Choices({"num_workers": (0, 1), "prefetch_factor": (2,)}, {}), BASELINE)
    asked = play(study_data([], []), small, 7)
    configs = [c for c, _ in asked]
    assert set(configs) == set(small.configurations)
    assert all(a != b for a, b in itertools.pairwise(configs))

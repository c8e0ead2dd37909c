"""What is measured next: first points in order, then what is expected to gain, then the leaders again."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

from builders import config, crash, measured, study_data, trial
from simulated import searched, truths

from objectives.protocol import Choices
from objectives.schema import LoaderConfig, Outcome, canonical
from objectives.synthetic_job import SyntheticJob
from storage.records import StudyData
from tuner.search import MAX_SLICES, next_configuration, predict, stop_reason
from tuner.selection import select
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
    """With series: no configuration follows itself, the search spends few slices on one, repeats are at the end."""
    job = SyntheticJob(slice_noise_sd=0.1)
    data, _ = searched(job, 15)
    configs = [t.config for t in data.trials]
    assert all(a != b for a, b in itertools.pairwise(configs))
    assert {t.origin for t in data.trials[-3:]} == {"repeat"}
    assert max(Counter(t.config for t in data.trials if t.origin != "repeat").values()) <= MAX_SLICES
    assert BASELINE in configs[-3:]


def test_the_search_finds_what_is_enough() -> None:
    """On a data-bound job the choice is within 1 % of the best, though slices scatter by 10 %; on any of 5 seeds."""
    job = SyntheticJob(slice_noise_sd=0.10, step_noise_sd=0.15)
    for seed in range(5):
        data, known = searched(job, 10, seed)
        truth = truths(replace(job, slice_noise_sd=0.0, step_noise_sd=0.0), known)
        chosen = select(data).best
        assert chosen is not None
        assert truth[chosen.config] > 0.99 * max(truth.values())


def test_it_stops_when_the_loader_is_not_the_limit() -> None:
    """Data for free would gain less than 1 %: three slices are enough, and the reason says how much there is."""
    data, known = searched(SyntheticJob(service_s=0.0005, slice_noise_sd=0.1), 3)
    reason = stop_reason(data, known)
    assert reason is not None
    assert re.fullmatch(r"at most 0\.\d % to gain: the loader is not the limit", reason)
    assert stop_reason(replace(data, trials=data.trials[:2]), known) is None


def test_it_stops_when_nothing_better_is_expected() -> None:
    """A data-bound job is searched on until its first points are measured and nothing is expected to gain."""
    data, known = searched(SyntheticJob(slice_noise_sd=0.01), 12)
    assert stop_reason(replace(data, trials=data.trials[:3]), known) is None
    assert stop_reason(data, known) == "no other configuration is expected to gain 0.5 %"


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

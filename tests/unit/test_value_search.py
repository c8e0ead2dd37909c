"""Studies of one number per trial: the model of the score, memory and crashes, the next trial, the choice."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from builders import config, crash, measured, study_data, trial

from objectives.protocol import Choices
from objectives.schema import LoaderConfig
from storage.records import TrialRecord
from tuner.space import SearchSpace, build_space
from tuner.value_appraisal import appraise_values, choose
from tuner.value_search import next_by_value

BASELINE = LoaderConfig(1, 2, True, True)


def space(workers: int = 8) -> SearchSpace:
    """Return a space of 0 to 8 workers."""
    values: dict[str, tuple[int | bool, ...]] = {
        "num_workers": tuple(range(workers + 1)),
        "prefetch_factor": (2, 4, 8),
        "persistent_workers": (False, True),
        "pin_memory": (False, True),
    }
    return build_space(Choices(values, {}), BASELINE)


def rate(found: LoaderConfig) -> float:
    """Return a throughput that saturates at 4 workers; pinning brings 3 %."""
    return min(max(found.num_workers, 0.4), 4.0) * (1.03 if found.pin_memory else 1.0)


def play(total: int, noise: float, seed: int = 1) -> list[TrialRecord]:
    """Run a study and return its trials."""
    rng, done = random.Random(seed), [trial(0, BASELINE.key, rate(BASELINE))]
    while len(done) < total:
        found = next_by_value(done, space())
        assert found is not None
        value = rate(found[0]) * math.exp(rng.gauss(0.0, noise))
        done.append(replace(trial(len(done), found[0].key, value), origin=found[1]))
    return done


def test_the_knee_is_found_without_first_points() -> None:
    """From the baseline alone, with 2 % noise, 20 trials choose 4 or 5 workers, pinned, none back to back."""
    done = play(20, 0.02)
    chosen = choose(appraise_values(done, ()), BASELINE)
    assert chosen is not None
    assert chosen.num_workers in (4, 5)
    assert chosen.pin_memory
    assert all(a.config != b.config for a, b in itertools.pairwise(done))


def test_one_stall_does_not_make_a_configuration_slow() -> None:
    """Of three equal values one reads 10 % slow: the mean moves by much less than the third of it."""
    keys = ["w1 p2 persist pin", "w2 p2 persist pin", "w4 p2 persist pin", "w6 p2 persist pin"]
    rows = [(key, rate(config(key))) for key in keys] * 3
    rows[-2] = ("w4 p2 persist pin", 0.9 * rate(config("w4 p2 persist pin")))
    found = appraise_values(study_data(rows).trials, ())[config("w4 p2 persist pin")]
    assert found.log_score_mean > math.log(rate(config("w4 p2 persist pin"))) - 0.02


def test_memory_is_predicted_for_what_was_not_measured() -> None:
    """Memory is a line in workers and batches: from four peaks it is told, and what is above 92 % is not fit."""

    def peak(found: LoaderConfig) -> float:
        return 0.2 + 0.06 * found.num_workers + 0.01 * found.depth

    keys = ["w1 p2 persist pin", "w2 p2 persist pin", "w2 p8 persist pin", "w4 p2 persist pin"]
    rows = [(key, measured(rate(config(key)), peak_memory_fraction=peak(config(key)))) for key in keys]
    found = appraise_values(study_data(rows).trials, space().configurations)
    near, far = config("w6 p2 persist pin"), config("w8 p8 persist pin")
    assert found[near].memory_fraction == pytest.approx(peak(near), abs=0.03)
    assert found[near].fit
    assert not found[far].fit


def test_what_crashed_once_is_never_chosen_nor_anything_that_needs_as_much() -> None:
    """The fastest crashed once and survived twice: it is not fit, a larger one neither, a smaller one is chosen."""
    rows = [
        ("w1 p2 persist pin", 1.0),
        ("w2 p2 persist pin", 2.0),
        ("w4 p2 persist pin", 4.0),
        ("w4 p2 persist pin", crash()),
        ("w4 p2 persist pin", 4.1),
    ]
    found = appraise_values(study_data(rows).trials, space().configurations)
    assert not found[config("w4 p2 persist pin")].fit
    assert not found[config("w5 p4 persist pin")].fit
    assert choose(found, BASELINE) == config("w2 p2 persist pin")


def test_the_cheaper_of_equals_is_chosen() -> None:
    """4 and 8 workers read the same again and again: 4 are chosen."""
    keys = ["w1 p2 persist pin", "w4 p2 persist pin", "w8 p2 persist pin"]
    rows = [(key, rate(config(key))) for key in keys] * 4
    assert choose(appraise_values(study_data(rows).trials, ()), BASELINE) == config("w4 p2 persist pin")


def test_without_a_measured_trial_nothing_is_said() -> None:
    """Only crashes: no appraisal, no suggestion, no choice."""
    data = study_data([("w1 p2 persist pin", crash())])
    assert appraise_values(data.trials, space().configurations) == {}
    assert next_by_value(data.trials, space()) is None
    assert choose({}, BASELINE) is None

"""The length of a slice, from how steps and slices scatter."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping
from dataclasses import replace

import pytest
from builders import study_data

from objectives.protocol import JsonScalar
from objectives.schema import Measurement, RawSlice, StepSeries
from storage.records import StudyData
from tuner.slice_length import LEAST_STEPS, MOST_GROWTH, best_length, fix_length, is_due, step_noise

STEPS = 60


def slices(
    seed: int, *, step: float, between: float, count: int = 40, steps: int = STEPS, correlation: float = 0.0
) -> list[Measurement]:
    """Return slices of steps of 0.5 s; rows differ by up to a half, the same in all, steps follow each other."""
    draw = random.Random(seed)
    rows = [0.4 + 0.2 * draw.random() for _ in range(steps)]
    found = []
    for _ in range(count):
        level, error, times_s = draw.gauss(1.0, between), 0.0, []
        for row in rows:
            error = correlation * error + draw.gauss(0.0, step * math.sqrt(1.0 - correlation**2))
            times_s.append(row * (level + error))
        zeros = (0.0,) * steps
        series = StepSeries(tuple(times_s), zeros, zeros, zeros, (16,) * steps, (0,) * steps)
        found.append(Measurement(32.0, raw=RawSlice("trial", series, wall_s={"train": sum(times_s) + 2.0})))
    return found


@pytest.mark.parametrize(("step", "between"), [(0.2, 0.116), (0.2, 0.057), (0.1, 0.02), (0.05, 0.005)])
def test_the_length_is_the_one_of_least_variance(step: float, between: float) -> None:
    """With many slices the answer costs at most a tenth more than the best length for the noise they were made with."""
    overhead_s, step_s = 3.0, 0.5

    def cost(steps: float) -> float:
        return (between**2 + step**2 / steps) * (overhead_s + steps * step_s)

    best = min(cost(n) for n in range(LEAST_STEPS, 400))
    for seed in range(5):
        found = best_length(slices(seed, step=step, between=between), overhead_s)
        assert found is not None
        assert cost(found) < 1.1 * best


def test_steps_that_follow_each_other_weigh_more() -> None:
    """Correlated steps make a mean worse than independent ones of the same scatter, and the noise says so."""
    alone, together = (
        statistics.fmean(
            noise.step
            for seed in range(5)
            if (noise := step_noise(slices(seed, step=0.2, between=0.05, correlation=correlation)))
        )
        for correlation in (0.0, 0.4)
    )
    assert alone == pytest.approx(0.2**2, rel=0.15)
    assert together > 1.5 * alone


def test_what_a_row_costs_is_no_noise() -> None:
    """Rows that differ by half of a step, the same ones in every slice, leave nothing."""
    noise = step_noise(slices(1, step=1e-6, between=1e-6))
    assert noise is not None
    assert noise.step < 1e-9


def test_no_difference_between_slices_is_not_believed_without_end() -> None:
    """Slices that happen to agree may grow by a factor, not without limit."""
    assert best_length(slices(1, step=0.3, between=0.0, steps=9), 100.0) == 9 * MOST_GROWTH


@pytest.mark.parametrize(("count", "steps"), [(3, 60), (40, 3), (0, 0)])
def test_too_little_gives_no_length(count: int, steps: int) -> None:
    """Few slices, short ones, none, or slices without their series say nothing."""
    assert best_length(slices(1, step=0.2, between=0.1, count=count, steps=steps), 3.0) is None
    assert best_length([Measurement(32.0)] * 9, 3.0) is None


def test_a_cold_start_is_left_out() -> None:
    """A first slice that reads twice too slow does not make the others look different."""
    warm = slices(1, step=0.2, between=0.02)
    cold = slices(2, step=0.2, between=0.02, count=1)[0]
    assert cold.raw is not None
    slow = replace(cold.raw, steps=replace(cold.raw.steps, step_s=tuple(2.2 * s for s in cold.raw.steps.step_s)))
    assert best_length([replace(cold, raw=slow), *warm], 3.0) == best_length(warm, 3.0)


class Ruler:
    """Takes any length."""

    def resize(self, timed_steps: int) -> Mapping[str, JsonScalar]:
        """Return the plan."""
        return {"timed_steps": timed_steps}


def a_study(count: int) -> StudyData:
    """Return a study of that many noisy slices."""
    return study_data(
        [("w1 p2", m) for m in slices(3, step=0.2, between=0.1, count=count)], remember={"epochs": 0, "timed_steps": 60}
    )


def test_the_length_is_fixed_once_after_five_slices() -> None:
    """Four slices are too few; then the plan is changed and remembered, and never again; a table has no length."""
    assert fix_length(Ruler(), a_study(4)) is None
    data = a_study(5)
    remembered = fix_length(Ruler(), data)
    assert remembered is not None
    assert remembered["epochs"] == 0
    assert remembered["timed_steps"] == best_length([t.outcome for t in data.trials], 2.0)  # type: ignore[misc]
    assert fix_length(Ruler(), replace(data, study=replace(data.study, remember=dict(remembered)))) is None
    assert fix_length(object(), data) is None
    again = replace(data, study=replace(data.study, remember=dict(remembered)))
    assert [is_due(Ruler(), d) for d in (a_study(4), data, again)] == [False, True, False]
    assert not is_due(object(), data)


def test_slices_that_cannot_tell_keep_the_length() -> None:
    """Five slices without their series fix the length they had."""
    data = study_data([("w1 p2", 1.0)] * 5, remember={"timed_steps": 60})
    assert fix_length(Ruler(), data) == {"timed_steps": 60, "length_fixed": True}

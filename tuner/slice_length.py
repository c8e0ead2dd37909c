"""How many steps a slice should time: where one step more tells as much as one slice more.

Runs in: parent. Pure, but for `fix_length`, which asks the objective to keep the answer.
*Not covered*: the first length, from the wanted seconds (`objectives.lora`).

A mean of m slices of n steps has the variance (between + step / n) / m and costs m x (overhead + n x step_s). At a
given cost it is least at n = sqrt(overhead / step_s x step / between), where `step` is the variance of the mean of n
steps times n (steps are correlated, so batch means tell it, not the scatter of single steps) and `between` is what
equal slices differ beyond that (the usual split of a nested design: Cochran, Sampling Techniques, 10.6). All slices
time the same rows, so what a row costs is no noise: it is taken out by the mean of each position.

What it gives on the recorded slices of one H200, at an overhead of 4 and of 10 steps:

- launch-bound: 6 and 9 (text, 34 slices of 10 steps), 4 and 7 (text, 7 of 48), 4 and 5 (12 MP photos), 4 and 6 (8 MP,
  accumulation 8); 8 and 13 where slices differ less (4 and 8 MP photos), 12 and 19 in one long run cut into twenties.
  The simulated profile's 5 to 7 is inside that range, not all of it.
- limited by the GPU: equal slices showed no difference that their steps do not explain, so the answer is that of
  `LEAST_BETWEEN` alone: 59 and 94 (8 MP photos), 103 and 162 (text); slices as short as those recorded (10 and 24
  steps) may grow to 40 and 96 only.

Five slices drawn at random from the 34 gave 4 to 40 steps (10 to 90 %), median 5 and 9.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from objectives.protocol import JsonScalar, Resizable
from objectives.schema import Measurement
from storage.records import StudyData

FIXED_AFTER = 5
"""Slices after which the length is chosen, once for the whole study."""
LEAST_STEPS, MOST_STEPS = 4, 400
MIN_SLICES = 4
MIN_STEPS = 4
"""Per slice; shorter ones cannot be parted into batch means."""
LEAST_BETWEEN = 0.003**2
"""Below this a variance between slices is not believed: five slices often show none, and then the length would have no
limit. On the quietest job recorded the medians of equal slices repeat to ± 0.3 %."""
MOST_GROWTH = 4
"""The new length is at most this many times the old one: a few slices may show no difference between them by luck (of
five slices of 10 launch-bound steps one draw in eight did), and a slice too long costs more than one too short."""
COLD_FACTOR = 1.5
"""A slice whose compute is this many times the median is a cold start, not noise."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What the compute of equal slices scatters, relative to its mean; both are variances."""

    step: float
    """Of the mean of n steps, times n."""
    between: float
    """Of slices, beyond what their steps explain; not below 0."""
    step_s: float
    """Compute of one step, mean, in seconds."""
    steps: int
    """Of the slices it was told from."""


def best_length(slices: Sequence[Measurement], overhead_s: float) -> int | None:
    """Return the number of steps that tells most for the time it takes; None when too little was measured.

    Args:
        slices: Trials or ceilings of one study with their raw series.
        overhead_s: What a slice costs besides its timed steps, in seconds.

    Raises:
        ValueError: If `overhead_s` is negative.
    """
    if overhead_s < 0:
        raise ValueError(f"overhead_s must be at least 0 but got {overhead_s}.")
    noise = step_noise(slices)
    if noise is None:
        return None
    wanted = math.sqrt(overhead_s / noise.step_s * noise.step / max(noise.between, LEAST_BETWEEN))
    return min(max(round(wanted), LEAST_STEPS), MOST_STEPS, noise.steps * MOST_GROWTH)


def step_noise(slices: Sequence[Measurement]) -> Noise | None:
    """Return the two variances, or None when fewer than 4 slices have 4 equal steps or more."""
    series = _warm([s for m in slices if (s := _per_sample_s(m)) and len(s) >= MIN_STEPS])
    if len(series) < MIN_SLICES:
        return None
    steps = min(map(len, series))
    grand_s = statistics.fmean(statistics.fmean(s[:steps]) for s in series)
    places = [statistics.fmean(s[k] for s in series) for k in range(steps)]
    # Relative to the mean of its position, so that long rows neither count as noise nor weigh more.
    table = [[s[k] / places[k] for k in range(steps)] for s in series]
    means = [statistics.fmean(row) for row in table]
    length = math.isqrt(steps)
    count = steps // length
    squares = 0.0
    for row in table:
        batches = [statistics.fmean(row[i * length : (i + 1) * length]) for i in range(count)]
        middle = statistics.fmean(batches)
        squares += math.fsum((b - middle) ** 2 for b in batches)
    # The positions' means took one slice's worth of freedom.
    step = squares / ((len(series) - 1) * (count - 1)) * length
    between = max(0.0, statistics.variance(means) - step / steps)
    samples = next(m.raw.steps.samples for m in slices if m.raw is not None and m.raw.steps.samples)
    return Noise(step, between, grand_s * statistics.fmean(samples[:steps]), steps)


def overhead_s(slices: Sequence[Measurement]) -> float | None:
    """Return what a slice takes besides its timed steps: building, draining, shutting down; median, in seconds."""
    spent_s = [max(0.0, sum(m.raw.wall_s.values()) - sum(m.raw.steps.step_s)) for m in slices if m.raw and m.raw.wall_s]
    return statistics.median(spent_s) if spent_s else None


def fix_length(objective: object, data: StudyData) -> Mapping[str, JsonScalar] | None:
    """Choose the length after the first slices, tell the objective, and return what the study must remember.

    None: nothing to change, because it was chosen before, too little was measured, or slices have no length to choose
    (a recorded table). The caller stores the answer in `StudyRecord.remember` before the next slice.

    Args:
        objective: The one that measures.
        data: The study with the raw series.
    """
    if not isinstance(objective, Resizable) or data.study.remember.get("length_fixed"):
        return None
    slices = [t.outcome for t in data.trials if t.state == "complete" and isinstance(t.outcome, Measurement)]
    if len(slices) < FIXED_AFTER:
        return None
    cost_s = overhead_s(slices)
    steps = best_length(slices, cost_s) if cost_s is not None else None
    if steps is None:
        return None
    return {**data.study.remember, **objective.resize(steps), "length_fixed": True}


def _per_sample_s(measured: Measurement) -> list[float]:
    """Return the compute of each step per sample, in seconds; empty without the series."""
    if measured.raw is None:
        return []
    steps = measured.raw.steps
    return [compute_s / max(1, n) for compute_s, n in zip(steps.compute_s, steps.samples, strict=True)]


def _warm(series: list[list[float]]) -> list[list[float]]:
    """Return the slices of a warm device; what one reads that started cold says nothing of those to come."""
    if not series:
        return []
    usual_s = statistics.median(statistics.fmean(s) for s in series)
    return [s for s in series if statistics.fmean(s) <= COLD_FACTOR * usual_s and min(s) > 0]

"""How long a slice is, and when a device is warm enough for slices to compare.

Runs in: parent. Pure. *Not covered*: measuring the ceilings (`objectives.lora`).
"""

from __future__ import annotations

import statistics

from objectives.schema import Measurement, SlicePlan

MIN_STEPS = 4
MAX_STEPS = 400
AGREE_FRACTION = 0.05
"""Two ceilings in a row within this are taken as a warm device: the first slices of a process read up to 2.2 times
too slow."""
MAX_CEILINGS = 5
WARM_PLAN_STEPS = 2


def short_plan(epoch_batches: int, accumulation: int) -> SlicePlan:
    """Return the plan of the very first slice of a study, from which the length of the others follows."""
    groups = -(-epoch_batches // accumulation)
    if groups <= WARM_PLAN_STEPS:
        return SlicePlan(timed_steps=groups, epochs=1, epoch_batches=epoch_batches)
    return SlicePlan(timed_steps=WARM_PLAN_STEPS, epochs=0, epoch_batches=epoch_batches)


def choose_plan(warm: Measurement, slice_seconds: float, epoch_batches: int, accumulation: int) -> SlicePlan:
    """Return as many steps as fill the wanted time; whole epochs when one fits.

    Args:
        warm: A ceiling with its raw series.
        slice_seconds: How long the timed part is wanted.
        epoch_batches: Batches of one real epoch.
        accumulation: Batches of an optimizer step.
    """
    groups = -(-epoch_batches // accumulation)
    assert warm.raw is not None
    # The first step is slow and the last may be a part of a group: the quickest sample tells, times a whole group.
    per_sample_s = min(t / k for t, k in zip(warm.raw.steps.step_s, warm.raw.steps.samples, strict=True))
    steps = min(max(round(slice_seconds / (per_sample_s * max(warm.raw.steps.samples))), MIN_STEPS), MAX_STEPS)
    if groups <= steps:
        epochs = steps // groups
        return SlicePlan(timed_steps=epochs * groups, epochs=epochs, epoch_batches=epoch_batches)
    return SlicePlan(timed_steps=steps, epochs=0, epoch_batches=epoch_batches)


def is_warm(ceilings: list[Measurement]) -> bool:
    """Return whether no more ceilings are needed: the last two agree, or enough were tried."""
    if len(ceilings) < 2:
        return False
    last, before = (_median_sample_s(c) for c in ceilings[:-3:-1])
    return abs(last / before - 1) <= AGREE_FRACTION or len(ceilings) >= MAX_CEILINGS


def _median_sample_s(ceiling: Measurement) -> float:
    assert ceiling.raw is not None
    return statistics.median(t / k for t, k in zip(ceiling.raw.steps.step_s, ceiling.raw.steps.samples, strict=True))

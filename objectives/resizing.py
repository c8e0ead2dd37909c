"""Gives a study's slices another length without making them another kind of slice.

Runs in: parent. Pure. *Not covered*: which length is best (`tuner.slice_length`).
"""

from __future__ import annotations

from dataclasses import replace

from objectives.schema import SlicePlan


def resized(plan: SlicePlan, timed_steps: int, accumulation: int) -> SlicePlan:
    """Return the plan with about this many steps: whole epochs stay whole, at least one; others stay inside an epoch.

    The slice begins at the same row as before, so its steps are the ones that slices of the old length had too.

    Args:
        plan: As it was.
        timed_steps: Wanted optimizer steps.
        accumulation: Batches of one step.

    Raises:
        ValueError: If `timed_steps` is below 1.
    """
    if timed_steps < 1:
        raise ValueError(f"timed_steps must be at least 1 but got {timed_steps}.")
    groups = -(-plan.epoch_batches // accumulation)
    if not plan.epochs:
        return replace(plan, timed_steps=min(timed_steps, max(1, groups - 1)))
    epochs = max(1, round(timed_steps / groups))
    return replace(plan, timed_steps=epochs * groups, epochs=epochs)

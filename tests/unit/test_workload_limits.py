"""A study's slices take another length, and rows another time: what is kept and what is refused."""

from __future__ import annotations

import math

import pytest

from objectives.errors import UserError
from objectives.lora import LoraObjective
from objectives.protocol import Resizable
from objectives.resizing import resized
from objectives.schema import SlicePlan, Workload
from objectives.workload import resolve


@pytest.mark.parametrize(
    ("accumulation", "epochs", "asked", "steps", "kept"),
    [(16, 3, 7, 8, 2), (16, 1, 1, 4, 1), (16, 1, 9, 8, 2), (1, 0, 7, 7, 0), (1, 0, 400, 49, 0)],
)
def test_a_new_length_keeps_the_kind_of_slice(
    accumulation: int, epochs: int, asked: int, steps: int, kept: int
) -> None:
    """50 rows are 4 groups of 16, or 50 single steps; what is asked becomes the nearest that is possible."""
    plan = SlicePlan(timed_steps=12, epochs=epochs, epoch_batches=50)
    assert resized(plan, asked, accumulation) == SlicePlan(timed_steps=steps, epochs=kept, epoch_batches=50)


@pytest.mark.parametrize("delay_ms", [-1.0, math.nan, math.inf, 60_000.0])
def test_a_delay_no_slice_survives_is_refused(delay_ms: float) -> None:
    """What cannot be slept, or would look like a hang, is refused before anything is started."""
    with pytest.raises(UserError, match="--row-delay-ms"):
        resolve(Workload(row_delay_ms=delay_ms))


def test_a_length_is_at_least_a_step() -> None:
    """No steps are no slice; and the training objective is one whose length can be chosen."""
    with pytest.raises(ValueError, match="timed_steps must be at least 1"):
        resized(SlicePlan(timed_steps=12, epochs=0, epoch_batches=50), 0, 1)
    assert issubclass(LoraObjective, Resizable)

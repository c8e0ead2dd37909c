"""A study's slices take another length: whole epochs stay whole, and the others inside one epoch."""

from __future__ import annotations

import sys

import pytest

from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices, Resizable
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
    work = Workload(torch_dtype="float32", gradient_accumulation_steps=accumulation)
    objective = LoraObjective(resolve(work), Choices({}, {}), LoraOptions(1.0, sys.executable))
    objective._plan = SlicePlan(timed_steps=12, epochs=epochs, epoch_batches=50)
    assert isinstance(objective, Resizable)
    assert objective.resize(asked) == {"timed_steps": steps, "epochs": kept, "epoch_batches": 50}
    with pytest.raises(ValueError, match="timed_steps must be at least 1"):
        objective.resize(0)

"""When a device is warm, and how long a slice is."""

from __future__ import annotations

from typing import Any

import pytest
from builders import BASELINE, measured

from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import Crash, Measurement, RawSlice, SlicePlan, StepSeries, Workload
from objectives.warmth import MAX_CEILINGS, choose_plan, is_warm
from objectives.wire import pack
from objectives.workload import resolve

ZEROS = (0.0,) * 4


def raw(step_s: float) -> RawSlice:
    """Return a ceiling of four steps of 16 samples."""
    return RawSlice("ceiling", StepSeries((step_s,) * 4, ZEROS, ZEROS, ZEROS, (16,) * 4, (900,) * 4))


def ceiling(step_s: float) -> Measurement:
    """Return its measurement."""
    return measured(16 / step_s, raw=raw(step_s))


def test_two_ceilings_in_a_row_must_agree() -> None:
    """Two within 5 % are warm; equal ones that are not neighbours are not; five are enough in any case."""
    assert not is_warm([])
    assert not is_warm([ceiling(1.0)])
    assert is_warm([ceiling(2.2), ceiling(1.0), ceiling(1.04)])
    assert not is_warm([ceiling(1.0), ceiling(2.0), ceiling(1.0)])
    assert is_warm([ceiling(2.0**i) for i in range(MAX_CEILINGS)])


@pytest.mark.parametrize(
    ("epoch_batches", "expected"),
    [(50, SlicePlan(8, 2, 50)), (10_000, SlicePlan(10, 0, 10_000))],
)
def test_a_slice_fills_the_wanted_time(epoch_batches: int, expected: SlicePlan) -> None:
    """Steps of a second make ten of ten seconds, or the whole epochs of four steps that fit."""
    assert choose_plan(ceiling(1.0), 10.0, epoch_batches, 16) == expected


class Child:
    """A child whose ceilings take these times and that then dies at a trial."""

    pid = 1

    def __init__(self, steps_s: list[float]) -> None:
        self.steps_s = iter(steps_s)
        self.asked: list[str] = []

    def ask(self, request: dict[str, Any], _on_phase: object) -> dict[str, Any]:
        """Answer as the real one does."""
        self.asked.append(request["op"])
        if request["op"] == "measure":
            failed = {"event": "failed", "phase": "train", "step": 1, "exception": "RuntimeError", "message": "boom"}
            return {**failed, "traceback": "", "worker_exits": []}
        return {"event": "slice", "raw": pack(raw(next(self.steps_s)))}

    def log_tail(self) -> str:
        """Return nothing."""
        return ""

    def close(self, _grace_s: float) -> None:
        """Do nothing."""


def test_a_replaced_child_is_warmed_like_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash ceilings are repeated until two agree before the next slice."""
    children = [Child([9.0, 2.0, 1.0, 1.01]), Child([2.2, 1.5, 1.0, 1.0])]
    given = iter(children)
    objective = LoraObjective(resolve(Workload(torch_dtype="float32")), Choices({}, {}), LoraOptions(4.0, "python"))

    def opened(_progress: object) -> dict[str, Any]:
        objective._child = next(given)  # type: ignore[assignment]
        return {"event": "opened", "facts": {}}

    monkeypatch.setattr(objective, "_open", opened)
    first = objective.prepare({}, lambda _text: None)
    assert [c.raw and c.raw.steps.step_s[0] for c in first.ceilings] == [2.0, 1.0, 1.01]
    assert isinstance(objective.measure(BASELINE, lambda _text: None), Crash)
    assert isinstance(objective.measure(BASELINE, lambda _text: None), Crash)
    assert children[1].asked == ["ceiling"] * 4 + ["measure"]

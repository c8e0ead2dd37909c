"""What one row of a recorded table means: a CSV row of a guide's table, or one JSON line of a recorded slice.

Runs in: parent. *Not covered*: files, headers and which line it was (`objectives.recording`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from objectives.recording_slice import measurement
from objectives.schema import Crash, LoaderConfig, Measurement, Outcome, canonical

CSV_REQUIRED = ("num_workers", "micro_step_ms")
CSV_COLUMNS = (
    "num_workers", "prefetch_factor", "persistent_workers", "pin_memory",
    "gpu_util_percent", "micro_step_ms", "cpu_percent", "worker_crash",
)  # fmt: skip

_CRASHES = re.compile(r"(no|none|occasional|frequent|continuous)\b", re.IGNORECASE)
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


class BadCell(ValueError):
    """A value that cannot be; the reader adds file and row."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why


@dataclass(frozen=True, slots=True)
class Row:
    """One recorded outcome of a configuration."""

    config: LoaderConfig
    outcome: Outcome
    repeat: int
    content: str
    """The known fields in a fixed form: equal rows have equal content."""


def csv_row(cells: Mapping[str, str]) -> Row:
    """Return a row of a table with `micro_step_ms`, the time of one micro-batch of one sample.

    A knob without a column, or with an empty cell, takes PyTorch's default. `worker_crash` is free text that begins
    with `no`, `occasional`, `frequent` or `continuous`; the last is a `Crash`. An empty `cpu_percent` or
    `gpu_util_percent` is unknown.

    Raises:
        BadCell: If a cell cannot be understood.
    """
    known = {name: cells[name].strip() for name in CSV_COLUMNS if name in cells}
    config = _config(
        {
            "num_workers": _whole(known["num_workers"], "num_workers", at_least=0),
            "prefetch_factor": _whole(known.get("prefetch_factor") or "2", "prefetch_factor", at_least=1),
            "persistent_workers": _boolean(known.get("persistent_workers", ""), "persistent_workers"),
            "pin_memory": _boolean(known.get("pin_memory", ""), "pin_memory"),
        }
    )
    return Row(config, _csv_outcome(known), 0, json.dumps(known, sort_keys=True))


def _csv_outcome(known: Mapping[str, str]) -> Outcome:
    cpu = _percent(known.get("cpu_percent", ""), "cpu_percent")
    gpu = _percent(known.get("gpu_util_percent", ""), "gpu_util_percent")
    text = known.get("worker_crash", "")
    match = _CRASHES.match(text or "no")
    if match is None:
        raise BadCell(
            f"worker_crash is '{text}'", "it must begin with no, occasional, frequent or continuous, or be empty"
        )
    word = match.group(1).lower()
    if word == "continuous":
        return Crash(
            kind="worker_killed",
            blame="config",
            phase="train",
            message=f"workers crashed all the time ({text}, as recorded)",
            remedy="Use fewer workers or a lower prefetch, or give the machine more memory and /dev/shm.",
        )
    micro_step_s = _number(known["micro_step_ms"], "micro_step_ms", above=0.0) / 1000.0
    frequency: dict[str, Literal["occasional", "frequent"]] = {"occasional": "occasional", "frequent": "frequent"}
    return Measurement(
        samples_per_s=1.0 / micro_step_s,
        cpu_busy_fraction=cpu,
        gpu_util_fraction=gpu,
        crash_frequency=frequency.get(word, "none"),
    )


def jsonl_row(record: Mapping[str, Any]) -> Row:
    """Return a `kind: configuration` line: one slice with its steps.

    Raises:
        BadCell: If a field is missing or cannot be.
    """
    if "num_workers" not in record:
        raise BadCell("num_workers is missing", "a configuration is known by its knobs")
    config = _config(record)
    repeat = record.get("repeat", 0)
    if type(repeat) is not int:
        raise BadCell(f"repeat is {repeat!r}", "it must be a whole number")
    return Row(config, _measured(record), repeat, json.dumps(record, sort_keys=True))


def ceiling(record: Mapping[str, Any]) -> Measurement:
    """Return a `kind: ceiling` line.

    Raises:
        BadCell: If a field is missing or cannot be.
    """
    return _measured(record)


def _measured(record: Mapping[str, Any]) -> Measurement:
    try:
        return measurement(record)
    except KeyError as error:
        raise BadCell(f"a batch has no {error}", "its stamps cannot be placed without it") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BadCell(str(error), "its steps cannot be added up without it") from None


def _config(values: Mapping[str, Any]) -> LoaderConfig:
    workers, prefetch = values["num_workers"], values.get("prefetch_factor")
    flags = values.get("persistent_workers", False), values.get("pin_memory", False)
    if not all(isinstance(flag, bool) for flag in flags):
        raise BadCell(f"persistent_workers and pin_memory are {flags}", "each must be true or false")
    try:
        if prefetch is not None and type(prefetch) is not int:
            raise ValueError(f"prefetch_factor must be an integer of at least 1 but got {prefetch!r}.")
        if prefetch is not None and prefetch < 1:
            raise ValueError(f"prefetch_factor must be an integer of at least 1 but got {prefetch!r}.")
        return canonical(workers, prefetch, *flags)
    except (ValueError, TypeError) as error:
        raise BadCell(str(error).rstrip("."), "PyTorch's DataLoader refuses anything else") from None


def _whole(text: str, name: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise BadCell(f"{name} is '{text}'", f"it must be a whole number of at least {at_least}")
    return value


def _number(text: str, name: str, *, above: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > above):
        raise BadCell(f"{name} is '{text}'", f"it must be a number above {above:g}")
    return value


def _percent(text: str, name: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 100.0:
        raise BadCell(f"{name} is '{text}'", "it must be a number from 0 to 100, of all usable CPUs or of the GPU")
    return value / 100.0


def _boolean(text: str, name: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise BadCell(f"{name} is '{text}'", "it must be true or false")
    return _BOOLEANS[text.lower()]

"""A configuration as flags that `swift sft` accepts, and what it would have run with instead.

Runs in: parent. *Not covered*: which configuration is exported (`tuner.report`) and where it is printed (`tuner.cli`).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from objectives.schema import KNOBS, LoaderConfig, canonical
from tuner.pooling import varied_knobs
from tuner.swift_versions import swift_version, target_of

if TYPE_CHECKING:
    from storage.records import StudyData
    from tuner.report import Report

Value = int | bool | None


def defaults(target: str) -> tuple[LoaderConfig, str]:
    """Return what the trainer runs with when no loader flag is given, and the trainer with its version."""
    version = swift_version(target)
    return version.defaults, version.name


def flags(config: LoaderConfig, target: str) -> list[str]:
    """Return every flag that applies, so that nothing is left to a default that changes between releases.

    Without workers there is no prefetch flag: transformers refuses any value of it then. Turning
    `persistent_workers` off is still said: 4.5.3 turns it on unasked and then fails.
    """
    flagged = swift_version(target).flagged
    argv: list[str] = []
    for knob in KNOBS:
        value = _value(config, knob)
        if knob in flagged and value is not None:
            argv += [f"--dataloader_{knob}", _text(value)]
    return argv


def export_line(config: LoaderConfig, target: str) -> str:
    """Return the flags as one line that a shell splits back into the same words."""
    return shlex.join(flags(config, target))


def with_flags(report: Report, data: StudyData) -> Report:
    """Return the report with the flags of what it recommends, for the trainer whose defaults the baseline is."""
    target = target_of(report.baseline_of)
    if report.recommended is None or target is None:
        return report
    known, _ = unmeasured(report.recommended, varied_knobs(data.trials), target)
    known, _ = unsupported(known, target)
    return replace(report, flags=export_line(known, target))


def unmeasured(config: LoaderConfig, measured_knobs: Collection[str], target: str) -> tuple[LoaderConfig, list[str]]:
    """Return the configuration with unmeasured knobs at the trainer's defaults, and one sentence for each.

    A study holds a knob it does not measure at some value, and that value says nothing about what is best. Knobs
    that do nothing with 0 workers are not named.

    Example:
        >>> unmeasured(LoaderConfig(4, 8, False, True), ["num_workers", "prefetch_factor", "pin_memory"], "swift")[1]
        ['persistent_workers was not measured: exported at the default of ms-swift 4.6.0, true']
    """
    version = swift_version(target)
    measured = set(measured_knobs)
    if config.num_workers == 0 and "num_workers" not in measured:
        # The trainer's own workers come in, and how they should fetch was never tried.
        measured &= {"pin_memory"}
    result = _from_values({knob: _value(config if knob in measured else version.defaults, knob) for knob in KNOBS})
    notes = []
    for knob in _active(result):
        if knob not in measured:
            fate = f"exported at the default of {version.name}, {_text(_value(result, knob))}"
            if knob not in version.flagged:
                fate = f"{version.name} has no flag for it and uses {_text(_value(result, knob))}"
            notes.append(f"{knob} was not measured: {fate}")
    return result, notes


def unsupported(config: LoaderConfig, target: str) -> tuple[LoaderConfig, list[str]]:
    """Return what the trainer will really run with, and one sentence for each knob it has no flag for.

    Empty for a trainer that has all four flags, and where the value is the one it uses anyway.
    """
    version = swift_version(target)
    result = _from_values(
        {knob: _value(config if knob in version.flagged else version.defaults, knob) for knob in KNOBS}
    )
    return result, [
        f"{version.name} has no flag for {knob}: it uses {_text(_value(result, knob))}, "
        f"where the study chose {_text(_value(config, knob))}"
        for knob in _active(result)
        if _value(config, knob) != _value(result, knob)
    ]


def _active(config: LoaderConfig) -> list[str]:
    return [knob for knob in KNOBS if config.num_workers > 0 or knob in ("num_workers", "pin_memory")]


def _from_values(values: dict[str, Value]) -> LoaderConfig:
    workers, prefetch = values["num_workers"], values["prefetch_factor"]
    return canonical(int(workers or 0), prefetch, bool(values["persistent_workers"]), bool(values["pin_memory"]))


def _value(config: LoaderConfig, knob: str) -> Value:
    value: Value = getattr(config, knob)
    return value


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

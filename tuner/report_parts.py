"""The parts of a report that are read off the records: counts, crashes, knobs, host.

Runs in: parent. Pure. *Not covered*: pooled figures and what follows from them (`tuner.report`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from objectives.schema import KNOBS, Crash, LoaderConfig, Measurement
from storage.records import StudyData, StudyRecord
from tuner.wording import plain

HOST_FACTS = ("cpu_model", "usable_cpus", "quota_cpus", "physical_cores", "memory_bytes", "shm_bytes", "versions")
GPU_FACTS = ("name", "memory_bytes", "driver")
"""What of the host's record a report repeats: what bears on speed, nothing that names the machine."""
LEFT_OUT_PREFIX = "left out: "
"""Key prefix in `StudyRecord.reasons` of configurations this host cannot hold."""


@dataclass(frozen=True, slots=True)
class CrashNote:
    """A trial without a measurement, and what to do about it."""

    trial: int
    config: LoaderConfig
    kind: str
    blame: str
    phase: str
    message: str
    remedy: str
    counted: bool
    """False for a trial lost to the host or the user: nothing was learnt of its configuration."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Finished trials of the study. `repeats` are those of a configuration already tried."""

    trials: int
    measured: int
    crashed: int
    lost: int
    configurations: int
    repeats: int
    space: int
    """Configurations there are to choose from."""


@dataclass(frozen=True, slots=True)
class KnobNote:
    """Which values of a knob were open to the search and why; without `measured` it was held at `held`."""

    knob: str
    measured: bool
    values: tuple[int | bool, ...]
    held: int | bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class Spent:
    """Optimizer steps that were timed."""

    per_slice: int | None
    """Of the slices from now on; None where slices have no length (a recorded table)."""
    trials: int
    ceilings: int
    confirmations: int


def spent_steps(data: StudyData) -> Spent:
    """Return the timed steps of the study, as far as their series were read."""

    def steps(outcomes: Iterable[object]) -> int:
        return sum(len(o.raw.steps) for o in outcomes if isinstance(o, Measurement) and o.raw is not None)

    length = data.study.remember.get("timed_steps")
    return Spent(
        per_slice=None if length is None else int(length),
        trials=steps(t.outcome for t in data.trials),
        ceilings=steps(data.ceilings),
        confirmations=steps(s.outcome for c in data.confirmations for s in c.slices),
    )


def count(data: StudyData) -> Counts:
    """Return how many trials came to what; running and waiting ones are left out."""
    done = [t for t in data.trials if t.state == "complete"]
    states = Counter(t.state for t in data.trials)
    configurations = len({t.config for t in done})
    return Counts(
        trials=states["complete"] + states["failed"],
        measured=sum(isinstance(t.outcome, Measurement) for t in done),
        crashed=sum(isinstance(t.outcome, Crash) for t in done),
        lost=states["failed"],
        configurations=configurations,
        repeats=len(done) - configurations,
        space=data.study.configurations,
    )


def crash_notes(data: StudyData) -> tuple[CrashNote, ...]:
    """Return every trial that ended without a measurement and says why, in order."""
    return tuple(
        CrashNote(
            trial=t.number,
            config=t.config,
            kind=t.outcome.kind,
            blame=t.outcome.blame,
            phase=t.outcome.phase,
            message=plain(t.outcome.message),
            remedy=plain(t.outcome.remedy),
            counted=t.state == "complete",
        )
        for t in data.trials
        if isinstance(t.outcome, Crash)
    )


def knob_notes(study: StudyRecord) -> tuple[KnobNote, ...]:
    """Return every knob with its values, or the value it was held at, and the reason."""
    return tuple(
        KnobNote(
            knob=knob,
            measured=knob in study.measured_knobs,
            values=tuple(study.values.get(knob, ())),
            held=None if knob in study.measured_knobs else _held(study, knob),
            reason=plain(study.reasons.get(knob, "")),
        )
        for knob in KNOBS
    )


def _held(study: StudyRecord, knob: str) -> int | bool | None:
    """Return the one value of a knob, or the baseline's; a baseline without workers has no prefetch."""
    named = study.values.get(knob, [])
    value: int | bool | None = named[0] if len(named) == 1 else getattr(study.baseline, knob)
    return value


def left_out(study: StudyRecord) -> dict[str, int]:
    """Return how many configurations this host cannot hold, per reason."""
    return {
        plain(key.removeprefix(LEFT_OUT_PREFIX)): int(number)
        for key, number in study.reasons.items()
        if key.startswith(LEFT_OUT_PREFIX)
    }


def host_facts(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the host bears on speed; empty for a study that measured nothing on it."""
    if host.get("bound") == {}:
        return {}
    facts = {key: host[key] for key in HOST_FACTS if key in host}
    gpus = [{key: gpu[key] for key in GPU_FACTS if key in gpu} for gpu in host.get("gpus") or ()]
    return {**facts, "gpus": gpus}

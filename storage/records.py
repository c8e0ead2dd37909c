"""What is read back from a study: plain values, no database handle inside.

Runs in: parent. *Not covered*: how they are stored (`storage.store`) or judged (`tuner.report`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from objectives.schema import LoaderConfig, Measurement, Outcome, Score

Origin = Literal["baseline", "seed", "search", "repeat", "retry"]
"""Why a trial was run: the defaults, a first point, the sampler's choice, a leader measured again, a lost trial."""

Arm = Literal["baseline", "finalist"]
"""Label of one side of a confirmation; the settings behind two labels may be equal."""

TrialState = Literal["complete", "failed", "running", "waiting"]


@dataclass(frozen=True, slots=True)
class StudyRecord:
    """One study: what it is bound to and how it was set up. Times are UTC."""

    name: str
    uuid: str
    objective: str
    identity: dict[str, Any]
    """The objective's identity: workload, data set, options (`Objective.identity`)."""
    host: dict[str, Any]
    """The host it was measured on, as `objectives.host.HostInfo` has it."""
    fingerprint: str
    """Hash of identity and host; a run that differs is refused."""
    baseline: LoaderConfig
    baseline_of: str
    """The export target whose defaults the baseline is, with its version, such as `ms-swift 4.6.0`."""
    measured_knobs: tuple[str, ...]
    """Knobs that had more than one value to choose from; the others are held at the baseline's value."""
    values: dict[str, list[int | bool]]
    """Values per knob that were open to the search."""
    reasons: dict[str, str]
    """Why, one line per knob."""
    configurations: int
    """Size of the space."""
    seed: int
    created_at: datetime
    score_policy: dict[str, float] = field(default_factory=dict)
    remember: dict[str, Any] = field(default_factory=dict)
    """What preparing fixed for the whole study, such as the slice's length (`objectives.protocol.Prepared`)."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: versions, parameters, threads."""
    options: dict[str, Any] = field(default_factory=dict)
    """What the user asked for, by the names of the command line; empty where an older version made the study."""
    stopped: str | None = None
    """Why the last run of this study ended, such as `30 trials done`; None while it runs or after a kill."""
    spent_s: float = 0.0
    """Wall time of all runs of this study so far, as far as it was recorded."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial with its outcome. `outcome` and `score` are None unless it is complete or failed with a reason."""

    number: int
    state: TrialState
    config: LoaderConfig
    origin: Origin
    slice_uuid: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class ConfirmationSlice:
    """One slice of a confirmation."""

    round: int
    """0 is the first."""
    arm: Arm
    config: LoaderConfig
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Confirmation:
    """One interleaved re-measurement of finalist and baseline. Times are UTC."""

    uuid: str
    baseline: LoaderConfig
    finalist: LoaderConfig
    began_at: datetime
    slices: tuple[ConfirmationSlice, ...] = ()
    """In order of measurement."""
    judgement: dict[str, Any] | None = None
    """What was told at its end (`tuner.confirmation.Judgement`); None while it runs or after a kill."""


@dataclass(frozen=True, slots=True)
class StudyData:
    """Everything a report or a sampler needs: the study, its trials in order and its ceilings, oldest first."""

    study: StudyRecord
    trials: tuple[TrialRecord, ...]
    ceilings: tuple[Measurement, ...]
    confirmations: tuple[Confirmation, ...] = ()
    """Oldest first; the last one counts."""

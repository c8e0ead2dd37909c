"""What an objective is: it turns one configuration into one outcome.

Runs in: parent. *Not covered*: which configuration comes next (`tuner.search`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from objectives.schema import LoaderConfig, Measurement, Outcome

JsonScalar = str | int | float | bool | None

Progress = Callable[[str], None]
"""Called with a short text such as `step 3/12` while a slice runs; must return at once."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What an objective can measure: the values per knob, or an explicit list of configurations.

    A knob that is missing from `values` is not measured: it is held at the baseline's value and never reported as
    a finding. `configurations`, when given, is the whole space (a recorded table).
    """

    values: Mapping[str, tuple[int | bool, ...]]
    reasons: Mapping[str, str]
    """Why each knob's values are what they are, one line each."""
    configurations: tuple[LoaderConfig, ...] | None = None
    baseline: LoaderConfig | None = None
    """None: the defaults of the export target."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What preparing found: the ceilings, oldest first, and what later runs of the study must keep."""

    ceilings: tuple[Measurement, ...] = ()
    remember: Mapping[str, JsonScalar] = field(default_factory=dict)
    facts: Mapping[str, JsonScalar] = field(default_factory=dict)
    """For the record: versions, parameters, threads."""


@runtime_checkable
class Objective(Protocol):
    """Measures configurations. Used as a context manager; leaving it must leave no process and no file behind."""

    name: str

    def identity(self) -> Mapping[str, JsonScalar]:
        """Return what makes two studies comparable; a study is bound to it by a fingerprint."""
        ...

    def choices(self) -> Choices:
        """Return the values that can be measured here, with the reason of each bound."""
        ...

    def prepare(self, remembered: Mapping[str, JsonScalar], progress: Progress) -> Prepared:
        """Make ready, warm the device and measure the ceilings.

        Args:
            remembered: What an earlier run of the same study fixed (`Prepared.remember`); empty for a new study.
            progress: Called while it works.

        Raises:
            objectives.errors.UserError: If the workload cannot be trained at all.
        """
        ...

    def measure(self, config: LoaderConfig, progress: Progress) -> Outcome:
        """Return the outcome of one slice. A configuration that fails is a `Crash`, never an exception."""
        ...

    def ceiling(self, progress: Progress) -> Measurement | None:
        """Return one more ceiling, to see whether the device drifts; None where there is none to be had."""
        ...

    def close(self) -> None:
        """Release everything. May be called twice."""
        ...


@runtime_checkable
class Resizable(Protocol):
    """An objective whose slices have a length to choose."""

    def resize(self, timed_steps: int) -> Mapping[str, JsonScalar]:
        """Time this many optimizer steps from the next slice on; return what later runs of the study must keep."""
        ...

"""The made-up job of the synthetic objective: its times, its noise, its memory and the crashes it is told to have.

Runs in: parent. *Not covered*: what a loader makes of it (`objectives.synthetic_pipeline`).
"""

from __future__ import annotations

import json
import math
import operator
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from objectives.protocol import JsonScalar
from objectives.schema import Blame, Crash, CrashKind, LoaderConfig, SlicePlan

_RULE = re.compile(r"(num_workers|prefetch_factor|depth|memory_fraction) *(<=|>=|==|<|>) *(\d+(?:\.\d+)?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_BLAME: dict[str, Blame] = {
    "data_error": "data", "gpu_oom": "user", "interrupted": "user", "gpu_lost": "host", "child_killed": "host",
}  # fmt: skip
_POSITIVE = ("compute_s", "service_s", "memory_bytes")
_COUNTS = ("cores", "batch_size", "accumulation", "epoch_batches", "timed_steps")


@dataclass(frozen=True, slots=True)
class SyntheticJob:
    """A job to load data for. The defaults are data-bound with 0 or 1 workers and flat from 4 on, on 8 cores.

    `crashes` maps the ordinal of a measurement (0 is the first of the study) or a rule such as `depth > 64` (of
    num_workers, prefetch_factor, depth or memory_fraction) to the kind of crash. A configuration that needs more
    memory than there is crashes with `host_oom` without being told to.

    Raises:
        ValueError: If a value is out of range, or a crash is not understood.
    """

    cores: int = 8
    batch_size: int = 1
    accumulation: int = 8
    epoch_batches: int = 800
    timed_steps: int = 12
    """Steps of a slice; whole epochs when one fits."""
    compute_s: float = 0.4
    """Compute of an optimizer step."""
    service_s: float = 0.15
    """What one worker takes for one batch."""
    h2d_s: float = 0.004
    """Copies of one step from pinned memory."""
    unpinned_factor: float = 3.0
    """How much longer they take from pageable memory."""
    trainer_cpu_fraction: float = 0.5
    """Share of the compute part in which the trainer's threads need a core."""
    contention: float = 0.1
    """Compute takes e^(contention x share of threads above the cores) as long."""
    startup_per_worker_s: float = 0.05
    restart_kept_s: float = 0.001
    slice_noise_sd: float = 0.02
    """Scatter of log compute between slices, which longer slices do not remove."""
    step_noise_sd: float = 0.05
    service_noise_sd: float = 0.15
    memory_bytes: int = 32 << 30
    base_bytes: int = 8 << 30
    worker_bytes: int = 512 << 20
    batch_bytes: int = 8 << 20
    crashes: Mapping[int | str, CrashKind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in _COUNTS and (type(value) is not int or value < 1):
                raise ValueError(f"{f.name} must be an integer of at least 1 but got {value!r}.")
            if f.name in _POSITIVE and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{f.name} must be above 0 but got {value!r}.")
            if f.name != "crashes" and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{f.name} must be at least 0 but got {value!r}.")
        for when, kind in self.crashes.items():
            if kind not in typing.get_args(CrashKind):
                raise ValueError(f"crashes[{when!r}] must be a kind of crash but got {kind!r}.")
            if isinstance(when, str) and _RULE.fullmatch(when.strip()) is None:
                raise ValueError(
                    f"crashes must be keyed by an ordinal or a rule such as 'depth > 64' but got {when!r}."
                )
            if not isinstance(when, str) and (type(when) is not int or when < 0):
                raise ValueError(f"crashes must be keyed by an ordinal of at least 0 but got {when!r}.")

    @property
    def plan(self) -> SlicePlan:
        """Return the length of a slice: whole epochs if one fits in `timed_steps`, else that many steps."""
        groups = len(self.epoch_groups)
        if groups > self.timed_steps:
            return SlicePlan(timed_steps=self.timed_steps, epochs=0, epoch_batches=self.epoch_batches)
        epochs = self.timed_steps // groups
        return SlicePlan(timed_steps=epochs * groups, epochs=epochs, epoch_batches=self.epoch_batches)

    @property
    def epoch_groups(self) -> tuple[int, ...]:
        """Return the batches of each optimizer step of an epoch; the last may be short."""
        full, rest = divmod(self.epoch_batches, self.accumulation)
        return (self.accumulation,) * full + ((rest,) if rest else ())

    def memory_fraction(self, config: LoaderConfig) -> float:
        """Return how much of the host's memory a configuration needs; above 1 it does not fit."""
        held = max(config.depth, 1) * self.batch_bytes
        return (self.base_bytes + config.num_workers * self.worker_bytes + held) / self.memory_bytes

    def slowdown(self, config: LoaderConfig) -> float:
        """Return how much longer compute takes beside the workers; 1.0 while every thread has a core."""
        above = max(0, config.num_workers + 1 - self.cores) / self.cores
        return math.exp(self.contention * above)

    def crash(self, config: LoaderConfig, ordinal: int) -> Crash | None:
        """Return the crash this measurement ends in, if any."""
        memory = self.memory_fraction(config)
        for when, kind in self.crashes.items():
            if when == ordinal if isinstance(when, int) else self._holds(when, config):
                return Crash(
                    kind=kind,
                    blame=_BLAME.get(kind, "config"),
                    phase="train",
                    message=f"{kind} as scripted ({'measurement ' if isinstance(when, int) else ''}{when})",
                    remedy="Nothing to mend: the synthetic job was told to crash here.",
                    peak_memory_fraction=min(memory, 1.0),
                )
        if memory > 1.0:
            return Crash(
                kind="host_oom",
                blame="config",
                phase="drain",
                message=f"{config.num_workers} workers need {memory:.0%} of the synthetic host's memory",
                remedy="Use fewer workers or a lower prefetch.",
                peak_memory_fraction=1.0,
            )
        return None

    def parameters(self) -> dict[str, JsonScalar]:
        """Return every parameter as a plain value."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "crashes"}
        return {**plain, "crashes": json.dumps({str(k): v for k, v in self.crashes.items()}, sort_keys=True)}

    def _holds(self, rule: str, config: LoaderConfig) -> bool:
        match = _RULE.fullmatch(rule.strip())
        assert match is not None, "checked when the job was made"
        name, sign, limit = match.groups()
        value = self.memory_fraction(config) if name == "memory_fraction" else getattr(config, name) or 0
        return _COMPARE[sign](value, float(limit))

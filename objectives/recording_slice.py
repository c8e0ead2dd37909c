"""Turns one recorded slice, a JSON line with its steps, into a measurement with its raw series.

Runs in: parent. *Not covered*: reading files (`objectives.recording`).

A line holds `steps` (each with `step_s`, `data_wait_s` and, where recorded, `h2d_s`, `tokens`, `run_delay_s`,
`trainer_cpu_s`), `batch_size`, `accumulation`, and may hold `batches` (stamps of the workers, in seconds since
`iter()` on the timed epoch), `startup_s`, `restart_s`, `loader_batches_per_s`, `cpu_busy_percent`,
`gpu_util_percent`, `worker_uss_mb`. The recorded `step_s` of the first step leaves the restart out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from objectives.estimate import t_quantile
from objectives.schema import BatchSeries, Measurement, RawSlice, StepSeries

ROUNDING_S = 1e-4
"""Recorded seconds have five decimals; parts of a step may exceed it by that much."""


def measurement(record: Mapping[str, Any]) -> Measurement:
    """Return the figures of a recorded slice: samples over the mean step as it was recorded.

    How long a real epoch was is not recorded, so no restart is counted in; `restart_s` tells it apart. The CPU time
    of the main thread alone, which older recordings hold, is left out: it hides a core filled by autograd's thread.

    Raises:
        ValueError: If a field is missing or cannot be.
    """
    steps = record.get("steps")
    if not isinstance(steps, list) or not steps:
        raise ValueError("steps is missing or empty")
    step_s = [_seconds(step, "step_s") for step in steps]
    wait_s = [_seconds(step, "data_wait_s") for step in steps]
    h2d_s = [_seconds(step, "h2d_s", default=0.0) for step in steps]
    for number, (whole, wait, h2d) in enumerate(zip(step_s, wait_s, h2d_s, strict=True)):
        if whole <= 0 or wait + h2d > whole + ROUNDING_S:
            raise ValueError(f"step {number} is {whole} s long, data wait {wait} s and copy {h2d} s of it")
    batch_size, accumulation = _count(record, "batch_size"), _count(record, "accumulation")
    total_s, n, tokens = sum(step_s), len(steps), sum(int(step.get("tokens", 0)) for step in steps)
    samples_per_s = batch_size * accumulation * n / total_s
    raw = _raw(record, step_s, wait_s, h2d_s, batch_size * accumulation)
    return Measurement(
        samples_per_s=samples_per_s,
        step_s=total_s / n,
        tokens_per_s=tokens / total_s if tokens else None,
        half_width_per_s=_half_width_fraction(step_s) * samples_per_s if n >= 3 else None,
        wait_fraction=sum(wait_s) / total_s,
        h2d_fraction=sum(h2d_s) / total_s,
        compute_s=(total_s - sum(wait_s) - sum(h2d_s)) / n,
        restart_s=_optional(record, "restart_s"),
        startup_s=raw.startup_s,
        loader_batches_per_s=raw.drain_batches_per_s,
        cpu_busy_fraction=raw.cpu_busy_fraction,
        run_delay_fraction=sum(raw.steps.run_delay_s) / total_s if raw.steps.run_delay_s else None,
        trainer_cpu_fraction=sum(raw.steps.trainer_cpu_s) / total_s if raw.steps.trainer_cpu_s else None,
        gpu_util_fraction=_scaled(record, "gpu_util_percent", 0.01),
        worker_uss_bytes=raw.worker_uss_bytes,
        tokens=tokens or None,
        timed_s=total_s,
        raw=raw,
    )


def _raw(
    record: Mapping[str, Any], step_s: list[float], wait_s: list[float], h2d_s: list[float], samples: int
) -> RawSlice:
    restart_s = _optional(record, "restart_s") or 0.0
    steps = record["steps"]
    uss_bytes = _scaled(record, "worker_uss_mb", 1e6)
    return RawSlice(
        kind="ceiling" if record.get("kind") == "ceiling" else "trial",
        steps=StepSeries(
            step_s=(restart_s + step_s[0], *step_s[1:]),
            restart_s=(restart_s, *(0.0 for _ in step_s[1:])),
            data_wait_s=tuple(wait_s),
            h2d_s=tuple(h2d_s),
            samples=tuple(samples for _ in steps),
            tokens=tuple(int(step.get("tokens", 0)) for step in steps),
            run_delay_s=_everywhere(steps, "run_delay_s"),
            trainer_cpu_s=_everywhere(steps, "trainer_cpu_s"),
        ),
        batches=_batches(record, restart_s, step_s, wait_s),
        startup_s=_optional(record, "startup_s"),
        drain_batches_per_s=_optional(record, "loader_batches_per_s"),
        worker_uss_bytes=None if uss_bytes is None else round(uss_bytes),
        cpu_busy_fraction=_scaled(record, "cpu_busy_percent", 0.01),
    )


def _batches(record: Mapping[str, Any], restart_s: float, step_s: list[float], wait_s: list[float]) -> BatchSeries:
    """Return the stamped batches of the timed steps.

    When each was asked for is not recorded, but follows: the trainer pulls its group at the start of the step, one
    after the other, and the waits of the group add up to the step's.
    """
    stamps, per_step = record.get("batches") or [], _count(record, "accumulation")
    series: dict[str, list[Any]] = {name: [] for name in BatchSeries.__dataclass_fields__}
    begins_s = 0.0
    for step, (whole_s, wait) in enumerate(zip(step_s, wait_s, strict=True)):
        group = stamps[step * per_step : (step + 1) * per_step]
        asked_s, until_s = begins_s, begins_s + wait
        if step == 0:
            until_s += restart_s
        for place, stamp in enumerate(group):
            start_s, end_s = float(stamp["start_s"]), float(stamp["end_s"])
            if step == 0 and place == 0 and restart_s:
                got_s = restart_s
            else:
                got_s = until_s if place == len(group) - 1 else min(max(asked_s, end_s), until_s)
            for name, value in (("step", step), ("worker", stamp["worker"]), ("service_start_s", start_s)):
                series[name].append(value)
            for name, value in (("service_end_s", end_s), ("requested_s", asked_s), ("got_s", got_s)):
                series[name].append(value)
            asked_s = got_s
        begins_s += whole_s + (restart_s if step == 0 else 0.0)
    return BatchSeries(**{name: tuple(values) for name, values in series.items()})


def _half_width_fraction(step_s: list[float]) -> float:
    """Return half of the 95 % interval of the mean step, relative to it, as if steps were independent."""
    error_s = statistics.stdev(step_s) / math.sqrt(len(step_s))
    return t_quantile(0.975, len(step_s) - 1) * error_s / statistics.fmean(step_s)


def _seconds(step: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = step.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} of a step is {value!r}")
    return float(value)


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is {value!r}")
    return value


def _optional(record: Mapping[str, Any], name: str) -> float | None:
    return None if record.get(name) is None else _seconds(record, name)


def _scaled(record: Mapping[str, Any], name: str, factor: float) -> float | None:
    value = _optional(record, name)
    return None if value is None else value * factor


def _everywhere(steps: list[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(_seconds(step, name) for step in steps) if all(name in step for step in steps) else ()

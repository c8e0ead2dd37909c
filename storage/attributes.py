"""What Optuna is told of a trial: parameters, small scalar attributes for the dashboard, and the memory constraint.

Runs in: parent. *Not covered*: the full outcome, which is in our own tables (`storage.codec`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from objectives.errors import UserError
from objectives.schema import Crash, LoaderConfig, Measurement, Outcome, Score, canonical
from objectives.score import CRASH_VIOLATION, MEMORY_LIMIT_FRACTION
from storage.codec import clean
from storage.records import Origin, StudyRecord

Scalar = str | int | float | bool

SLICE_UUID = "slice_uuid"
STUDY_UUID = "study_uuid"

CONSTRAINTS = "constraints"
"""Optuna's old system attribute, a list. The dashboard reads no other, and Optuna still honours it."""

MESSAGE_LENGTH = 200

MIN_MAX_WORKERS = 16
MIN_MAX_PREFETCH = 16

SHOWN = (
    "samples_per_s", "tokens_per_s", "step_s", "wait_fraction", "h2d_fraction", "gpu_util_fraction",
    "cpu_busy_fraction", "own_cpu_fraction", "run_delay_fraction", "peak_memory_fraction", "startup_s", "restart_s",
    "timed_s",
)  # fmt: skip
"""Figures of a measurement that the dashboard shows as columns."""


def ranges(record: StudyRecord, max_workers: int) -> tuple[int, int]:
    """Return the largest worker count and prefetch factor of a study, fixed for its life.

    A range that changed later would drop the knob from the sampler's space. What the user asked for is inside.
    """
    workers = [int(v) for v in record.values.get("num_workers", [])]
    prefetch = [int(v) for v in record.values.get("prefetch_factor", [])]
    return (
        max(MIN_MAX_WORKERS, max_workers, record.baseline.num_workers, *workers),
        max(MIN_MAX_PREFETCH, record.baseline.prefetch_factor or 0, *prefetch),
    )


def distributions(max_workers: int, max_prefetch: int) -> dict[str, BaseDistribution]:
    """Return the range of each knob."""
    return {
        "num_workers": IntDistribution(0, max_workers),
        "prefetch_factor": IntDistribution(1, max_prefetch),
        "persistent_workers": CategoricalDistribution([False, True]),
        "pin_memory": CategoricalDistribution([False, True]),
    }


def params(config: LoaderConfig, record: StudyRecord, max_workers: int, max_prefetch: int) -> dict[str, int | bool]:
    """Return one value per knob; a knob that does nothing without workers has the baseline's.

    Raises:
        UserError: If the configuration is outside the study's ranges.
    """
    dormant = config.num_workers == 0
    prefetch = record.baseline.prefetch_factor if dormant else config.prefetch_factor
    found: dict[str, int | bool] = {
        "num_workers": config.num_workers,
        "prefetch_factor": prefetch or 2,
        "persistent_workers": record.baseline.persistent_workers if dormant else config.persistent_workers,
        "pin_memory": config.pin_memory,
    }
    for knob, highest in (("num_workers", max_workers), ("prefetch_factor", max_prefetch)):
        if found[knob] > highest:
            raise UserError(
                f"{knob}={found[knob]} is above {highest}, the most that study '{record.name}' allows",
                "the range of a knob is fixed when a study is made: one that changed would mislead its sampler",
                f"tuner run --study {record.name}-2",
            )
    return found


def config_of(found: Mapping[str, Any]) -> LoaderConfig:
    """Return the configuration of a trial's parameters, without what does nothing."""
    return canonical(
        found["num_workers"], found["prefetch_factor"], found["persistent_workers"], found["pin_memory"]
    )  # fmt: skip


def at_begin(config: LoaderConfig, origin: Origin, slice_uuid: str) -> dict[str, Scalar]:
    """Return what is known of a trial before it is measured."""
    return {"configuration": config.key, "origin": origin, SLICE_UUID: slice_uuid}


def at_end(outcome: Outcome, score: Score | None) -> dict[str, Scalar]:
    """Return what the dashboard shows of an outcome; what was not measured is left out."""
    found: dict[str, Scalar] = {}
    if isinstance(outcome, Measurement):
        found = {name: value for name in SHOWN if (value := getattr(outcome, name)) is not None}
    else:
        found = {"crash_kind": outcome.kind, "crash_message": short(outcome.message), "remedy": short(outcome.remedy)}
        if outcome.peak_memory_fraction is not None:
            found["peak_memory_fraction"] = outcome.peak_memory_fraction
    if score is not None:
        found["penalty"] = 1.0 - math.prod(1.0 - p.fraction for p in score.penalties)
        if score.penalties:
            found["penalties"] = short("; ".join(f"{p.name} -{p.fraction:.1%}" for p in score.penalties))
    return found


def constraint(outcome: Outcome) -> list[float]:
    """Return the memory constraint, feasible up to 0; every completed trial has it, or the sampler refuses them all."""
    if isinstance(outcome, Crash):
        return [CRASH_VIOLATION]
    return [(outcome.peak_memory_fraction or 0.0) - MEMORY_LIMIT_FRACTION]


def short(text: str) -> str:
    """Return the text as one line of at most 200 characters."""
    line = " ".join(str(clean(text)).split())
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"

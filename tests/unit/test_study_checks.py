"""What disturbed a study: each check speaks when it should, is quiet when not, and is left out where nothing tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import HOST, config, measured, study_data

from objectives.schema import BatchSeries, LoaderConfig, Measurement, RawSlice, StepSeries
from storage.records import StudyData
from tuner.checks import Check
from tuner.study_checks import check_study

BASE = "w1 p2 persist pin"
GIB = 2**30
WORKLOAD = {
    "workload.per_device_train_batch_size": 2,
    "workload.gradient_accumulation_steps": 8,
    "workload.max_length": 512,
    "slice.isolation": "resident",
}


def check(data: StudyData, code: str, mismatch: dict[LoaderConfig, float] | None = None) -> Check | None:
    """Return one check of a study, None if it is left out."""
    found = [c for c in check_study(data, mismatch) if c.code == code]
    assert len(found) <= 1
    return found[0] if found else None


def one(code: str, rows: list[tuple[str, Any]], **study: Any) -> Check | None:
    """Return one check of a study of these rows."""
    return check(study_data(rows, **study), code)


def raw(
    *,
    steps: int = 10,
    wait_s: float = 0.0,
    first_wait_s: float | None = None,
    service_s: float = 0.1,
    tokens: int = 100,
    begins_s: float = 0.0,
    **figures: Any,
) -> RawSlice:
    """Return a slice of steps of a second of compute, two batches each, the first of them served from `begins_s` on."""
    waits = (wait_s if first_wait_s is None else first_wait_s, *[wait_s] * (steps - 1))
    zeros, n = (0.0,) * steps, 2 * steps
    starts = tuple(begins_s + service_s * i for i in range(n))
    ends = tuple(start_s + service_s for start_s in starts)
    batches = BatchSeries(tuple(i // 2 for i in range(n)), (7,) * n, starts, ends, starts, ends)
    series = StepSeries(tuple(1 + w for w in waits), zeros, waits, zeros, (2,) * steps, (tokens,) * steps)
    return RawSlice("trial", series, batches, **figures)


def slice_of(**figures: Any) -> Measurement:
    """Return a measurement with its series; figures of the measurement itself go by `seen`."""
    seen = figures.pop("seen", {})
    return measured(2.0, raw=raw(**figures), **seen)


def drifting(*ceilings: float) -> StudyData:
    """Return a study with these ceilings."""
    return study_data([(BASE, 1.0)], ceilings)


def noisy(*rates: float, wait: float) -> StudyData:
    """Return a study whose baseline was measured at these rates."""
    figures = {"wait_fraction": wait, "restart_fraction": 0.0, "h2d_fraction": 0.0, "timed_s": 10.0}
    return study_data([(BASE, measured(r, **figures)) for r in rates])


FED = {"wait_fraction": 0.001, "restart_fraction": 0.0}
SPEAKS: dict[str, tuple[StudyData, StudyData, str]] = {
    "noise": (noisy(1.0, 1.2, 0.8, 1.1, wait=0.03), noisy(1.0, 1.01, 0.99, 1.0, wait=0.03), "confirmation"),
    "foreign_cpu": (
        study_data([(BASE, measured(1.0, foreign_cpu_fraction=f)) for f in (0.01, 0.3)]),
        study_data([(BASE, measured(1.0, foreign_cpu_fraction=f)) for f in (0.01, 0.05)]),
        "top",
    ),
    "foreign_gpu": (
        study_data([(BASE, measured(1.0, gpu_other_processes=n)) for n in (0, 2)]),
        study_data([(BASE, measured(1.0, gpu_other_processes=0))]),
        "--device",
    ),
    "drift": (
        drifting(2.0, 1.95, 1.9, 1.86, 1.8),
        drifting(2.0, 1.9, 2.05, 1.95, 1.98),
        "confirmation",
    ),
    "gpu_clock": (
        study_data([(BASE, measured(1.0, gpu_clock_hz=hz)) for hz in (1.9e9, 1.5e9)]),
        study_data([(BASE, measured(1.0, gpu_clock_hz=hz)) for hz in (1.9e9, 1.85e9)]),
        "nvidia-smi",
    ),
    "gpu_idle": (
        study_data([("w4 p2", measured(1.0, gpu_util_fraction=0.3, **FED))], identity=WORKLOAD),
        study_data([("w4 p2", measured(1.0, gpu_util_fraction=0.95, **FED))], identity=WORKLOAD),
        "--per-device-train-batch-size 4 --gradient-accumulation-steps 4",
    ),
    "worker_output": (
        study_data([(BASE, measured(1.0, log_bytes=90_000))], remember={"timed_steps": 10}),
        study_data([(BASE, measured(1.0, log_bytes=90))], remember={"timed_steps": 10}),
        "silence",
    ),
    "cold_cache": (
        study_data([(BASE, 1.0)], facts={"dataset_bytes": 90 * GIB}, host={**HOST, "memory_available_bytes": 60 * GIB}),
        study_data([(BASE, 1.0)], facts={"dataset_bytes": 9 * GIB}, host={**HOST, "memory_available_bytes": 60 * GIB}),
        "--row-delay-ms",
    ),
    "long_rows": (
        study_data([(BASE, 1.0)], facts={"long_rows": 3.0, "touched_rows": 50.0}, identity=WORKLOAD),
        study_data([(BASE, 1.0)], facts={"long_rows": 0.0, "touched_rows": 50.0}, identity=WORKLOAD),
        "--truncation_strategy right",
    ),
    "buffer_drained": (
        study_data([(BASE, slice_of(begins_s=-0.5))], identity=WORKLOAD),
        study_data([(BASE, slice_of())], identity=WORKLOAD),
        "--isolation process",
    ),
    "equal_tokens": (
        study_data([(BASE, slice_of()), ("w2 p2", slice_of(tokens=103))]),
        study_data([(BASE, slice_of()), ("w2 p2", slice_of(steps=6))]),
        "new study",
    ),
    "service_growth": (
        study_data([(key, slice_of(service_s=s)) for key, s in ((BASE, 0.1), ("w4 p2", 0.11), ("w16 p2", 0.2))]),
        study_data([(BASE, slice_of(service_s=0.1)), ("w4 p2", slice_of(service_s=0.11))]),
        "above 4 workers",
    ),
    "uneven_cores": (
        study_data([(BASE, slice_of(busiest_cpu_fraction=1.0, cpu_busy_fraction=0.1))]),
        study_data([(BASE, slice_of(busiest_cpu_fraction=0.6, cpu_busy_fraction=0.5))]),
        "taskset",
    ),
}


@pytest.mark.parametrize("code", SPEAKS)
def test_a_check_speaks_when_it_should(code: str) -> None:
    """What is wrong is a warning with advice; what is not passes without any; both name what was seen."""
    wrong, right, advice = SPEAKS[code]
    loud, quiet = check(wrong, code), check(right, code)
    assert loud is not None
    assert quiet is not None
    assert (loud.status, quiet.status, quiet.advice) == ("warn", "ok", "")
    assert advice in loud.advice
    assert loud.observed is not None
    assert quiet.observed is not None
    assert any(character.isdigit() for character in loud.message)


def test_what_cannot_be_told_is_left_out() -> None:
    """A table of throughputs alone passes nothing and fails nothing."""
    assert check_study(study_data([(BASE, 1.0), ("w4 p2", 1.1)], [1.2, 1.2])) == ()


def test_a_model_that_misses_a_wait_is_named() -> None:
    """The worst configuration stands in the message, whichever way the model is off."""
    data = study_data([(BASE, 1.0)])
    off = {config("w1 p2"): 0.002, config("w4 p2"): -0.03}
    loud, quiet = check(data, "model_fit", off), check(data, "model_fit", {config("w1 p2"): 0.002})
    assert loud is not None
    assert quiet is not None
    assert (loud.status, loud.observed, quiet.status) == ("warn", 0.03, "ok")
    assert "w4 p2" in loud.message
    assert check(data, "model_fit") is None


def test_noise_says_how_long_it_would_take() -> None:
    """± 30 % of scatter resolve a gain of 3 % after some hours of slices of 10 s; a gain of nothing needs none."""
    loud = check(noisy(1.0, 1.2, 0.8, 1.1, wait=0.03), "noise")
    assert loud is not None
    assert isinstance(loud.observed, float)
    needed = 2 * (loud.observed / (0.03 / 0.97)) ** 2
    assert f"{int(needed) + 1} slices each" in loud.message
    assert " h " in loud.message
    nothing = check(noisy(1.0, 1.2, 0.8, 1.1, wait=0.001), "noise")
    assert nothing is not None
    assert (nothing.status, nothing.threshold) == ("ok", None)


def test_a_slow_loader_must_make_the_first_step_wait() -> None:
    """2 batches a step at 0.5/s make each step wait 3 s: one that starts without a wait had a full queue."""
    slow = {"wait_s": 3.0, "drain_batches_per_s": 0.5}
    full = one("buffer_drained", [("w2 p8", slice_of(first_wait_s=0.0, **slow))])
    empty = one("buffer_drained", [("w2 p8", slice_of(first_wait_s=4.0, **slow))])
    quick = one("buffer_drained", [("w2 p8", slice_of(drain_batches_per_s=50.0))])
    assert [c.status for c in (full, empty, quick) if c] == ["warn", "ok", "ok"]
    assert one("buffer_drained", [("w0 pin", slice_of(first_wait_s=0.0, **slow))]) is None, "no workers, no queue"


@pytest.mark.parametrize(("own", "cause"), [(0.95, "CPUs are full"), (0.3, "disk"), (None, "disk or for CPUs")])
def test_growing_service_times_name_their_cause(own: float | None, cause: str) -> None:
    """Full CPUs and slow disks look alike in the stamps; the slice's own load tells them apart."""
    rows = [("w2 p2", slice_of(service_s=0.1)), ("w8 p2", slice_of(service_s=0.3, seen={"own_cpu_fraction": own}))]
    found = one("service_growth", rows)
    assert found is not None
    assert cause in found.advice


def test_a_full_core_may_be_the_trainers_own() -> None:
    """A trainer whose threads fill a core is told that launches are the limit."""
    full = {"busiest_cpu_fraction": 1.0, "cpu_busy_fraction": 0.1}
    found = one("uneven_cores", [(BASE, slice_of(**full, seen={"trainer_cpu_fraction": 0.97}))])
    assert found is not None
    assert "launching" in found.advice


def test_a_starved_gpu_is_not_called_idle() -> None:
    """A GPU that waits for data is the loader's business, not the launches'."""
    assert one("gpu_idle", [("w0 pin", measured(1.0, gpu_util_fraction=0.3, wait_fraction=0.5))]) is None


def test_what_was_not_counted_disturbs_nothing() -> None:
    """A trial that failed was measured again: what disturbed it is of no account."""
    data = study_data(
        [(BASE, measured(1.0, foreign_cpu_fraction=0.0)), (BASE, measured(1.0, foreign_cpu_fraction=0.9))]
    )
    failed = replace(data, trials=(data.trials[0], replace(data.trials[1], state="failed")))
    found = check(failed, "foreign_cpu")
    assert found is not None
    assert found.status == "ok"

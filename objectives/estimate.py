"""Derives the figures of one slice from its raw series, in this one place.

Runs in: parent. *Not covered*: pooling slices of a study and comparing configurations (`tuner.selection`).
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeVar

from objectives.schema import LoadSample, Measurement, RawSlice, SlicePlan, StepSeries

_Number = TypeVar("_Number", int, float)


def summarise(
    raw: RawSlice,
    *,
    plan: SlicePlan,
    workload_batch_size: int,
    load: tuple[LoadSample, ...] = (),
    depth: int = 0,
    log_bytes: int | None = None,
) -> Measurement:
    """Return the measurement of a slice: throughput of steady running, with each epoch's restart paid once.

    A slice of whole epochs holds every cost in its true proportion, so its throughput is samples over time. A slice
    inside a longer epoch starts on an empty queue and holds one restart too many for its length: there the data wait
    is taken from the steps after the queue could fill, and the restart is spread over the whole epoch.

    Args:
        raw: What the child saw; at least one step.
        plan: Length of the slice and of a real epoch.
        workload_batch_size: Samples per batch.
        load: Host samples taken while it ran.
        depth: Batches the loader may hold ready (`num_workers x prefetch_factor`); 0 for none.
        log_bytes: What was printed while it ran.

    Raises:
        ValueError: If the slice holds no steps.
    """
    steps = raw.steps
    if len(steps) == 0:
        raise ValueError("raw.steps must hold at least one step but got 0.")
    samples = sum(steps.samples)
    restart_s = max(steps.restart_s[0], 0.0)
    ramp = 0 if plan.epochs > 0 else _ramp_steps(raw, depth)
    if plan.epochs > 0:
        total_s, wait_s, restarts_s = sum(steps.step_s), sum(steps.data_wait_s), sum(steps.restart_s)
    else:
        wait_s = _steady_wait_s(raw, ramp)
        restarts_s = restart_s * samples / max(samples, plan.epoch_batches * workload_batch_size)
        total_s = sum(steps.compute_s) + sum(steps.h2d_s) + wait_s + restarts_s
    samples_per_s = samples / total_s
    timed_s = sum(steps.step_s)
    return Measurement(
        samples_per_s=samples_per_s,
        step_s=total_s / len(steps),
        tokens_per_s=sum(steps.tokens) / total_s,
        half_width_per_s=_half_width_per_s(steps, ramp, samples_per_s),
        wait_fraction=wait_s / total_s,
        h2d_fraction=sum(steps.h2d_s) / total_s,
        compute_s=sum(steps.compute_s) / len(steps),
        restart_s=restart_s,
        restart_fraction=restarts_s / total_s,
        startup_s=raw.startup_s,
        loader_batches_per_s=raw.drain_batches_per_s,
        cpu_busy_fraction=raw.cpu_busy_fraction,
        own_cpu_fraction=raw.own_cpu_fraction,
        foreign_cpu_fraction=_foreign(raw.cpu_busy_fraction, raw.own_cpu_fraction),
        cpu_pressure_fraction=raw.cpu_pressure_fraction,
        run_delay_fraction=sum(steps.run_delay_s) / timed_s if steps.run_delay_s else None,
        trainer_cpu_fraction=sum(steps.trainer_cpu_s) / timed_s if steps.trainer_cpu_s else None,
        gpu_util_fraction=_mean([s.gpu_util_fraction for s in load if s.t_s >= 0]),
        gpu_clock_hz=_mean([s.gpu_clock_hz for s in load if s.t_s >= 0]),
        gpu_other_processes=_peak([s.gpu_other_processes for s in load if s.t_s >= 0]),
        gpu_peak_bytes=raw.gpu_peak_bytes,
        peak_memory_fraction=_peak([s.memory_fraction for s in load]),
        peak_shm_bytes=_peak([s.shm_used_bytes for s in load]),
        batch_bytes=raw.batch_bytes,
        worker_uss_bytes=raw.worker_uss_bytes,
        tokens=sum(steps.tokens),
        timed_s=timed_s,
        log_bytes=log_bytes,
        raw=raw,
        load=load,
    )


def _ramp_steps(raw: RawSlice, depth: int) -> int:
    """Return the steps a queue that starts empty may take to fill; at most half of the slice."""
    group = max(1, raw.batches.step.count(0))
    return min(math.ceil(depth / group), len(raw.steps) // 2)


def _steady_wait_s(raw: RawSlice, ramp: int) -> float:
    """Return the data wait of all steps, in seconds, had the queue been in its steady state from the first."""
    waits = raw.steps.data_wait_s
    steady = waits[ramp:]
    return sum(steady) / len(steady) * len(waits)


def _half_width_per_s(steps: StepSeries, left_out: int, samples_per_s: float) -> float | None:
    """Return half of the 95 % interval of the throughput from the scatter of the steps; None below 3 steps.

    The ratio estimator of time over samples (Cochran, Sampling Techniques, 6.4), turned into a rate. Restarts and
    the first `left_out` steps, which fill the queue, are no scatter. Steps of one slice are correlated and slices
    scatter more than their steps explain, so this is a lower bound.
    """
    times_s = [t - r for t, r in zip(steps.step_s, steps.restart_s, strict=True)][left_out:]
    samples = steps.samples[left_out:]
    n = len(times_s)
    if n < 3:
        return None
    per_sample_s = sum(times_s) / sum(samples)
    residuals = [t - per_sample_s * k for t, k in zip(times_s, samples, strict=True)]
    variance = sum(r * r for r in residuals) / (n - 1)
    standard_error_s = math.sqrt(variance / n) / (sum(samples) / n)
    return t_quantile(0.975, n - 1) * standard_error_s / per_sample_s * samples_per_s


def t_quantile(probability: float, degrees: float) -> float:
    """Return Student's t quantile by its expansion around the normal one (Abramowitz and Stegun 26.7.5).

    Within 1 % of the exact value from 3 degrees of freedom on; the child's interpreter need not have scipy.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, start=1))


def _foreign(busy: float | None, own: float | None) -> float | None:
    """Return what others use of the CPUs; the two are counted by different clocks and may differ by a tick."""
    return None if busy is None or own is None else max(0.0, busy - own)


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _peak(values: list[_Number | None]) -> _Number | None:
    return max((v for v in values if v is not None), default=None)

"""Takes the time of a sample apart: data wait, restarts, copy and compute.

Runs in: parent. Pure. *Not covered*: which configuration is chosen (`tuner.selection`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tuner.pooling import Pooled

MIN_HEADROOM_FRACTION = 0.03
"""Below this headroom no job is called data-bound: nobody would notice."""
FULL_CORE_FRACTION = 0.90
"""The trainer's threads, running or waiting for a CPU, fill a core above this."""
IDLE_GPU_FRACTION = 0.50
"""A GPU below this is waiting for launches, given a full core."""

Bound = Literal["data-bound", "cpu-bound", "compute-bound"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Best against baseline, as measured; not a claim.

    The savings are shares of the baseline's time per sample, positive when the best is better. They repeat within
    tenths of a percent where compute scatters by many.
    """

    rate_fraction: float
    """`best / baseline - 1` of the raw samples/s."""
    noise_fraction: float | None
    """What `rate_fraction` may be by noise alone, 95 %; None if not known."""
    wait_saved_fraction: float | None
    restart_saved_fraction: float | None
    h2d_saved_fraction: float | None
    compute_fraction: float | None
    """`best / baseline - 1` of the compute time per sample: positive is slower, and noise unless repeated often."""


@dataclass(frozen=True, slots=True)
class _Split:
    """Seconds per sample."""

    wait_s: float
    restart_s: float
    h2d_s: float
    compute_s: float


def headroom(pooled: Pooled) -> float | None:
    """Return `(wait + restart) / compute`; None where the split was not measured.

    Not taken from raw ceilings: those are as noisy as any slice, and this ratio hardly scatters.
    """
    split = _split(pooled)
    return None if split is None else (split.wait_s + split.restart_s) / split.compute_s


def bound_of(
    pooled: Pooled, noise: float | None, room: float | None = None, room_half_width: float = 0.0
) -> Bound | None:
    """Return what limits a configuration; None where its split was not measured.

    Args:
        pooled: The configuration.
        noise: Noise floor of one slice's throughput; counts where the headroom is not modelled.
        room: Its modelled headroom; None takes it from the split.
        room_half_width: Half of the interval of the modelled headroom.
    """
    split, measured_room = _split(pooled), headroom(pooled)
    if split is None or measured_room is None:
        return None
    floor = (noise or 0.0) / math.sqrt(pooled.slices) if room is None else room_half_width
    room = measured_room if room is None else room
    if room > max(MIN_HEADROOM_FRACTION, floor) and split.wait_s / split.compute_s > measured_room / 2:
        return "data-bound"
    core = (pooled.trainer_cpu_fraction or 0.0) + (pooled.run_delay_fraction or 0.0)
    gpu = pooled.gpu_util_fraction
    return "cpu-bound" if core > FULL_CORE_FRACTION and gpu is not None and gpu < IDLE_GPU_FRACTION else "compute-bound"


def compare(best: Pooled, baseline: Pooled, noise: float | None) -> Difference | None:
    """Return how the best differs from the baseline; None if one of them was never measured.

    Args:
        best: The configuration chosen.
        baseline: The trainer's defaults.
        noise: Noise floor of the difference of the two means.
    """
    if not best.samples_per_s or not baseline.samples_per_s:
        return None
    rate, whole_s = best.samples_per_s / baseline.samples_per_s - 1.0, 1.0 / baseline.samples_per_s
    new, old = _split(best), _split(baseline)
    if new is None or old is None:
        return Difference(rate, noise, None, None, None, None)
    return Difference(
        rate_fraction=rate,
        noise_fraction=noise,
        wait_saved_fraction=(old.wait_s - new.wait_s) / whole_s,
        restart_saved_fraction=(old.restart_s - new.restart_s) / whole_s,
        h2d_saved_fraction=(old.h2d_s - new.h2d_s) / whole_s,
        compute_fraction=new.compute_s / old.compute_s - 1.0,
    )


def _split(pooled: Pooled) -> _Split | None:
    """Return the split of the mean time per sample; None where wait or compute is not known."""
    if not pooled.samples_per_s or pooled.wait_fraction is None:
        return None
    sample_s = 1.0 / pooled.samples_per_s
    wait, restart, h2d = pooled.wait_fraction, pooled.restart_fraction or 0.0, pooled.h2d_fraction or 0.0
    compute = 1.0 - wait - restart - h2d
    if compute <= 0.0:
        return None
    return _Split(sample_s * wait, sample_s * restart, sample_s * h2d, sample_s * compute)

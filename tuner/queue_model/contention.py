"""How much slower the trainer computes beside busy workers: one parameter, with a prior.

Runs in: parent. Pure numpy. Compute scatters by 10 % and more between equal slices, so a contention of 5 % is seen by
chance only; without the prior the search would go for configurations whose slices were lucky.
*Not covered*: which slices count as loaded (`tuner.queue_model.fit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tuner.queue_model.recursion import Array

PRIOR_MEAN, PRIOR_SD = 0.02, 0.03
"""Of the log of compute under load. Chosen on simulated surfaces, judged on others (docs/measuring.md)."""
WIDE_SD, WIDE_SHARE = 0.30, 0.10
"""On hosts with few CPUs the trainer may lose a third of its speed: one prior in ten is wide enough for it."""
WINSOR_SDS = 3.0
MIN_SLICE_SD = 0.005


@dataclass(frozen=True, slots=True)
class Contention:
    """Posterior of the log factor on compute under load, and the scatter it was seen through."""

    mean: float
    sd: float
    slice_sd: float
    """Standard deviation of log compute between slices of equal load."""
    loaded_slices: int

    def draws(self, rng: np.random.Generator, count: int) -> Array:
        """Return (count,) draws; a normal cut off at nothing stands for the mixture: load makes no trainer faster."""
        return np.maximum(rng.normal(self.mean, self.sd, count), 0.0)


def slice_levels(compute_s: list[Array]) -> Array:
    """Return (S,) the log of each slice's compute, relative to what is usual for the same steps.

    Args:
        compute_s: Per slice the compute of its steps, in seconds; step i is the same work in all.
    """
    length = max(len(c) for c in compute_s)
    table = np.full((len(compute_s), length), np.nan)
    for row, series in zip(table, compute_s, strict=True):
        row[: len(series)] = series
    usual_s = np.nanmedian(table, axis=0)
    sums = [(np.sum(c), np.sum(usual_s[: len(c)])) for c in compute_s]
    return np.log([own / usual for own, usual in sums])


def fit_contention(levels: Array, load: Array) -> Contention:
    """Return the posterior, given the level of each slice and whether it was loaded.

    Args:
        levels: (S,) logs of compute.
        load: (S,) 1.0 for a loaded slice, else 0.0.
    """
    middle = np.median(levels)
    spread = 1.4826 * np.median(np.abs(levels - middle))
    clipped = np.clip(levels, middle - WINSOR_SDS * spread, middle + WINSOR_SDS * spread) if spread > 0 else levels
    under, free = clipped[load > 0], clipped[load == 0]
    parts = [part for part in (under, free) if len(part)]
    degrees = len(levels) - len(parts)
    squares = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts)
    slice_sd = max(float(np.sqrt(squares / degrees)) if degrees > 0 else 0.10, MIN_SLICE_SD)
    if not len(under) or not len(free):
        return Contention(*_not_negative(PRIOR_MEAN, PRIOR_SD), slice_sd, len(under))
    seen = float(under.mean() - free.mean())
    variance = slice_sd**2 * (1 / len(under) + 1 / len(free))
    means, variances, weights = [], [], []
    for mean, sd, share in ((PRIOR_MEAN, PRIOR_SD, 1 - WIDE_SHARE), (0.0, WIDE_SD, WIDE_SHARE)):
        kept = sd**2 / (sd**2 + variance)
        means.append(mean + kept * (seen - mean))
        variances.append(kept * variance)
        total = sd**2 + variance
        weights.append(share / np.sqrt(total) * np.exp(-((seen - mean) ** 2) / (2 * total)))
    weight = np.array(weights) / np.sum(weights)
    mean = float(weight @ np.array(means))
    variance = float(weight @ (np.array(variances) + (np.array(means) - mean) ** 2))
    return Contention(*_not_negative(mean, float(np.sqrt(variance))), slice_sd, len(under))


def _not_negative(mean: float, sd: float) -> tuple[float, float]:
    """Return mean and standard deviation of a normal cut off below zero (Johnson, Kotz, Balakrishnan 13.10)."""
    normal = NormalDist()
    cut = -mean / sd
    hazard = normal.pdf(cut) / max(1.0 - normal.cdf(cut), 1e-12)
    variance = sd**2 * max(1.0 + cut * hazard - hazard**2, 1e-6)
    return mean + sd * hazard, float(np.sqrt(variance))

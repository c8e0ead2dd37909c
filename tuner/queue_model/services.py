"""What one batch takes in its worker, for every worker count: a smooth curve through what was measured.

Runs in: parent. Pure numpy. Services grow as workers share CPUs, caches and the disk, but 5 workers cannot be much
quicker than 6: where few batches were seen, neighbours tell more of a worker count than its own lucky slice. The curve
is a Gaussian process over the logarithm of the worker count (Rasmussen and Williams 2006, equations 2.25 and 2.26).
*Not covered*: which slices lend their series (`tuner.queue_model.donors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.queue_model.evidence import Window
from tuner.queue_model.recursion import Array, Ints

AMPLITUDE = 0.25
"""Standard deviation of log service between worker counts that have nothing to do with each other."""
LENGTH_DOUBLINGS = 2.0
"""Doublings of workers over which services stay alike."""
CROWDING_POWERS = (0.5, 1.0, 0.75, 0.25, 0.0)
"""Of the workers per CPU, from one worker a CPU on: services grow with power 1 if they only compute, and with 0 if they
only wait for a disk. The likeliest is taken; the first if none was seen."""
NOISE_FLOOR = 0.01
"""Relative error of a mean service that more batches do not remove."""


@dataclass(frozen=True, slots=True, eq=False)
class ServiceCurve:
    """Log mean services and their covariance; (K,) and (K, K) over `workers`."""

    workers: Ints
    """(K,) worker counts asked for; 0 stands for reading in the trainer itself."""
    log_mean: Array
    covariance: Array

    def mean_s(self, workers: int) -> float:
        """Return the mean service with so many workers, in seconds."""
        return float(np.exp(self.log_mean[np.searchsorted(self.workers, workers)]))

    def errors(self, workers: Sequence[int], rng: np.random.Generator, draws: int) -> Array:
        """Return (draws, C) relative errors; worker counts that are alike share most of theirs."""
        root = np.linalg.cholesky(self.covariance + 1e-12 * np.eye(len(self.workers)))
        drawn: Array = (rng.normal(size=(draws, len(self.workers))) @ root.T)[:, np.searchsorted(self.workers, workers)]
        return drawn


def fit_services(windows: Sequence[Window], asked: Sequence[int], usable_cpus: float) -> ServiceCurve:
    """Return the curve at these worker counts; `windows` holds at least one of a trial.

    Args:
        windows: Of slices and ceilings.
        asked: Worker counts to know of.
        usable_cpus: From so many workers on each gets a smaller share of the CPUs, as far as it needs one.
    """
    series: dict[int, list[Array]] = {}
    for window in windows:
        if window.config is not None:
            series.setdefault(window.config.num_workers, []).append(window.service_s)
    measured = np.array(sorted(series))
    services = [np.concatenate(series[w]) for w in measured]
    seen = np.log([s.mean() for s in services])
    noise = np.array([s.var() / s.mean() ** 2 / len(s) + NOISE_FLOOR**2 for s in services])
    workers = np.unique(np.array(list(asked)))
    known = _kernel(measured, measured) + np.diag(noise)
    shares = np.maximum(measured / max(usable_cpus, 1.0), 1.0)
    power = max(CROWDING_POWERS, key=lambda p: _likelihood(seen - p * np.log(shares), known, noise))
    rest = seen - power * np.log(shares)
    level = _level(rest, noise)
    cross = _kernel(workers, measured)
    gain = np.linalg.solve(known, cross.T).T
    crowded = power * np.log(np.maximum(workers / max(usable_cpus, 1.0), 1.0))
    return ServiceCurve(
        workers=workers,
        log_mean=level + gain @ (rest - level) + crowded,
        covariance=_kernel(workers, workers) - gain @ cross.T,
    )


def _level(values: Array, noise: Array) -> float:
    return float(np.average(values, weights=1.0 / (noise + AMPLITUDE**2)))


def _likelihood(values: Array, known: Array, noise: Array) -> float:
    """Return the log likelihood of what was seen, up to a constant that is the same for all."""
    apart = values - _level(values, noise)
    return float(-0.5 * apart @ np.linalg.solve(known, apart))


def _kernel(a: Ints, b: Ints) -> Array:
    """Return how alike services are; those of the trainer itself are as far from 1 worker's as 4 workers' are."""
    places_a, places_b = (np.where(w > 0, np.log2(np.maximum(w, 1)), -LENGTH_DOUBLINGS) for w in (a, b))
    apart = (places_a[:, None] - places_b[None, :]) / LENGTH_DOUBLINGS
    alike: Array = AMPLITUDE**2 * np.exp(-0.5 * apart**2)
    return alike

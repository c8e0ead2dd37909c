"""Estimators that lost to the queue model, kept beside it: seconds per sample of every measured configuration.

Each takes the study's records and knows nothing of the job. *Not covered*: the queue model (`tuner.queue_model`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig, Measurement
from storage.records import StudyData

Estimator = Callable[[StudyData], Mapping[LoaderConfig, float]]
BLOCKS = 5


@dataclass(frozen=True, slots=True)
class _Slice:
    """Seconds per sample."""

    loader_s: float
    """Wait, restarts and copies, in a steady state."""
    compute_s: float
    median_s: float
    """Median step, restarts apart."""
    variance: float
    """Of the logarithm of its mean compute, from blocks of its steps."""


def raw_mean(data: StudyData) -> Mapping[LoaderConfig, float]:
    """Return the mean time of each configuration's slices."""
    return _means(data, lambda s: s.loader_s + s.compute_s)


def median_step(data: StudyData) -> Mapping[LoaderConfig, float]:
    """Return the mean over slices of the median step."""
    return _means(data, lambda s: s.median_s)


def shrunken_compute(data: StudyData) -> Mapping[LoaderConfig, float]:
    """Return own loader time plus compute shrunk to the study's mean by what steps scatter within slices.

    Empirical Bayes (Efron and Morris 1975). Steps of a slice are correlated, so the variance within is too small and
    most of the noise is kept.
    """
    slices = [s for found in _slices(data).values() for s in found]
    logs = np.log([s.compute_s for s in slices])
    within = float(np.mean([s.variance for s in slices]))
    total = float(logs.var(ddof=1)) if len(logs) > 1 else 0.0
    kept = max(total - within, 0.0) / total if total > 0 else 0.0
    mean = float(logs.mean())
    return _means(data, lambda s: s.loader_s + math.exp(mean + kept * (math.log(s.compute_s) - mean)))


def pooled_compute(data: StudyData) -> Mapping[LoaderConfig, float]:
    """Return own loader time plus the mean compute of the study: unbiased only if wait did not depend on compute."""
    slices = [s for found in _slices(data).values() for s in found]
    mean_s = float(np.mean([s.compute_s for s in slices]))
    return _means(data, lambda s: s.loader_s + mean_s)


LOSERS: Mapping[str, Estimator] = {
    "raw mean": raw_mean,
    "median step": median_step,
    "shrunken compute": shrunken_compute,
    "own wait + pooled compute": pooled_compute,
}


def best_trial(data: StudyData) -> tuple[LoaderConfig, float]:
    """Return what Optuna's `best_trial` is, and the gain over the first baseline trial that its two numbers claim."""
    done = [t for t in data.trials if t.state == "complete" and t.score is not None and t.score.value > 0]
    best = max(done, key=lambda t: t.score.value if t.score else 0.0)
    base = next(t for t in done if t.config == data.study.baseline)
    assert best.score is not None
    assert base.score is not None
    return best.config, math.log(best.score.throughput / base.score.throughput)


def _means(data: StudyData, of: Callable[[_Slice], float]) -> dict[LoaderConfig, float]:
    return {config: float(np.mean([of(s) for s in found])) for config, found in _slices(data).items()}


def _slices(data: StudyData) -> dict[LoaderConfig, list[_Slice]]:
    found: dict[LoaderConfig, list[_Slice]] = {}
    for trial in data.trials:
        if trial.state == "complete" and isinstance(trial.outcome, Measurement):
            found.setdefault(trial.config, []).append(_slice(trial.outcome))
    return found


def _slice(measured: Measurement) -> _Slice:
    assert measured.raw is not None
    steps = measured.raw.steps
    samples = np.array(steps.samples, dtype=float)
    compute = np.array(steps.compute_s)
    compute_s = float(compute.sum() / samples.sum())
    each_s = (np.array(steps.step_s) - np.array(steps.restart_s)) / samples
    logs = np.log(compute / samples)
    blocks = np.array([part.mean() for part in np.array_split(logs, min(BLOCKS, len(logs)))])
    return _Slice(
        loader_s=1.0 / measured.samples_per_s - compute_s,
        compute_s=compute_s,
        median_s=float(np.median(each_s)) + (measured.restart_fraction or 0.0) / measured.samples_per_s,
        variance=float(blocks.var(ddof=1) / len(blocks)),
    )

"""How near a configuration is to running out of memory, and how likely it is to crash.

Runs in: parent. Peak memory hardly scatters and is nearly linear: a base, a share per worker (more if workers are
kept), a share per queued batch, a little for pinning. So a few trials tell it for the whole space.
*Not covered*: the score (`tuner.surface`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectives.schema import LoaderConfig

Array = NDArray[np.float64]

FULL_WIDTH = 0.05
"""Standard deviation of a whole run's peak around that of a slice, as a share of memory. An assumption: it makes a
peak of 92 % a risk of 5 %, one of 85 % a risk of 0.1 %."""
MEMORY_NOISE = 0.012
"""Relative scatter of one peak."""
OFF_THE_LINE = 0.03
"""Where the mean of what was seen is further from the line than this, the line is wrong there."""
CRASHED_BEFORE = 0.9
"""Crash probability of a configuration that has crashed: once is enough, even if it survived other times."""
LARGER_THAN_A_CRASH = 0.5
"""The same of one with no fewer workers and no fewer queued batches than one that has crashed."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Per configuration of the space: predicted peak share of memory (NaN: not known) and crash probability."""

    memory_fraction: Array
    crash_probability: Array


def fit_edge(
    space: Sequence[LoaderConfig],
    survived: Sequence[tuple[LoaderConfig, float | None]],
    crashed: Sequence[LoaderConfig],
) -> Edge:
    """Return memory and crash probability over the space.

    Args:
        space: The configurations.
        survived: Measured slices with their peak share of memory.
        crashed: Configurations of slices that crashed.
    """
    known = [(config, memory) for config, memory in survived if memory is not None]
    fraction, sd = _memory(space, known)
    for i, config in enumerate(space):
        seen = [memory for other, memory in known if other == config]
        if seen and abs(gap := sum(seen) / len(seen) - fraction[i]) > OFF_THE_LINE:
            fraction[i] += gap
    risk = np.zeros(len(space)) if not known else _normal_cdf((fraction - 1.0) / np.sqrt(FULL_WIDTH**2 + sd**2))
    places = {config: i for i, config in enumerate(space)}
    for config in dict.fromkeys(crashed):
        larger = np.array([_no_smaller(c, config) for c in space])
        if known and config in places:  # without persistence or pinning a little less memory is needed
            larger &= fraction >= fraction[places[config]] - 1e-9
        risk = np.maximum(risk, np.where(larger, LARGER_THAN_A_CRASH, 0.0))
        risk = np.maximum(risk, np.array([CRASHED_BEFORE if c == config else 0.0 for c in space]))
    return Edge(fraction, risk)


def _no_smaller(config: LoaderConfig, than: LoaderConfig) -> bool:
    return config.num_workers >= than.num_workers > 0 and config.depth >= than.depth


def _memory(space: Sequence[LoaderConfig], known: Sequence[tuple[LoaderConfig, float]]) -> tuple[Array, Array]:
    """Return predicted share and its standard deviation: Bayesian regression with a prior of a plausible job."""
    if not known:
        return np.full(len(space), np.nan), np.full(len(space), np.nan)
    prior_mean = np.array([0.2, 0.005, 0.0, 0.0, 0.001])
    prior_sd = np.array([0.5, 0.05, 0.01, 0.02, 0.01])
    a = np.stack([_shape(c) for c, _ in known])
    y = np.array([memory for _, memory in known])
    noise = MEMORY_NOISE * np.maximum(y, 0.05)
    scaled = a / noise[:, None]
    precision = scaled.T @ scaled + np.diag(prior_sd**-2)
    covariance = np.linalg.inv(precision)
    weights = covariance @ (scaled.T @ (y / noise) + prior_mean / prior_sd**2)
    x = np.stack([_shape(c) for c in space])
    return x @ weights, np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", x, covariance, x), 0.0))


def _shape(config: LoaderConfig) -> Array:
    kept = config.num_workers if config.persistent_workers else 0
    return np.array([1.0, config.num_workers, config.depth, config.pin_memory, kept], dtype=float)


def _normal_cdf(z: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr(z))

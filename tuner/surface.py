"""A model of the score over the whole space, from one number per trial.

Runs in: parent. Bayesian linear-Gaussian regression of log score, averaged over a grid of hyper-parameters instead of
fitting them: with 5 to 30 noisy trials a fitted length scale is a guess. The prior is what every loader has: workers
pay in proportion until something else is the limit (the knee), then little changes; no workers is a case of its own;
pinning, persistence and queue depth act much alike everywhere; what is left is smooth in the workers.
*Not covered*: memory and crashes (`tuner.edge`), what to measure next (`tuner.value_search`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from objectives.schema import LoaderConfig

Array = NDArray[np.float64]

KNEES = (0.7, 1.2, 1.7, 2.4, 3.2, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0)
"""Worker counts up to which throughput grows in proportion; 0.7: one worker is enough."""
NOISE_SDS = (0.007, 0.014, 0.025, 0.045)
"""Scatter of one log score."""
EFFECT_SCALES = (0.3, 1.0, 3.0)
ROUGHNESS = (0.02, 0.10)
"""Standard deviation of what the knee does not explain, in log score."""
MIN_WEIGHT = 0.005
"""Hyper-parameters below this weight are left out."""
OUTLIER_DEGREES = 4.0
"""Degrees of freedom of the Student t that noise follows: a rare stall reads 5 to 10 % slow."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Log score of every configuration of the space: mean and covariance; `noise_sd` is that of one trial."""

    mean: Array
    covariance: Array
    noise_sd: float


def fit_surface(space: Sequence[LoaderConfig], measured: Sequence[int], log_values: Sequence[float]) -> Surface:
    """Return the posterior over the space.

    Args:
        space: The configurations.
        measured: Index into the space of each measurement; repeats are welcome.
        log_values: Natural logarithm of each score.
    """
    prior = _prior(tuple(space))
    index = np.asarray(measured, dtype=int)
    y = np.asarray(log_values, dtype=float)
    centre = float(np.median(y)) if len(y) else 0.0
    spread = np.ones(len(y))
    fit = _fit(prior, index, y - centre, spread)
    for _ in range(2):
        fit = _fit(prior, index, y - centre, spread := _spread(prior, fit, index, y - centre, spread))
    mean, covariance = _mixture(prior, fit, index)
    return Surface(mean + centre, covariance, float(np.exp(fit.weights @ np.log(prior.noise_sd))))


@dataclass(frozen=True, slots=True)
class _Prior:
    """One row per set of hyper-parameters."""

    parts: Array
    """Covariance over the space of each component at scale 1 (components x space x space)."""
    scales: Array
    """Variance of each component (sets x components)."""
    means: Array
    """Prior mean over the space (sets x space)."""
    noise_sd: Array
    log_weight: Array


@dataclass(frozen=True, slots=True)
class _Fit:
    weights: Array
    inverse: Array
    """Of the data's covariance (sets x n x n)."""
    residual: Array
    """Data less prior mean (sets x n)."""


P = dict(
    pin=0.01,
    pin_sd=0.02,
    pin0_sd=0.01,
    per=0.004,
    per_sd=0.008,
    perw=0.01,
    perw_sd=0.03,
    block=-0.5,
    block_sd=0.5,
    deep=-0.015,
    deep_sd=0.03,
    hinge=0.97,
    hinge_sd=0.08,
    slope=-0.04,
    slope_sd=0.12,
    zero_sd=0.2,
    smooth_log=0.5,
    smooth_lin=0.6,
    inter=0.006,
    kink=6.0,
    inter_w=0.5,
    inter_p=1.5,
    inter_f=1.5,
)


@lru_cache(maxsize=4)
def _prior(space: tuple[LoaderConfig, ...]) -> _Prior:
    p = P
    workers = np.array([c.num_workers for c in space], dtype=float)
    depth = np.array([c.depth for c in space], dtype=float)
    on = (workers > 0).astype(float)
    persist = np.array([c.persistent_workers for c in space], dtype=float)
    pin = np.array([c.pin_memory for c in space], dtype=float)
    prefetch = np.array([c.prefetch_factor or 0 for c in space], dtype=float)
    size = len(space)

    def outer(*columns: Array) -> Array:
        return sum((np.outer(c, c) for c in columns), np.zeros((size, size)))

    position = np.stack([np.log2(1 + workers) / 4.1, workers / 16], axis=1)
    everything = np.stack([np.log2(1 + workers) / 4.1, prefetch / 6, persist, pin], axis=1)
    shared = [
        outer(np.full(size, 2.0)),
        outer(
            p["pin_sd"] * pin,
            p["pin0_sd"] * pin * (1 - on),
            p["per_sd"] * persist,
            p["perw_sd"] * persist * workers / 16,
            p["deep_sd"] * depth / 128,
        )
        + p["inter"] ** 2 * _matern(everything, np.array([p["inter_w"], p["inter_p"], p["inter_f"], p["inter_f"]])),
        _matern(position, np.array([p["smooth_log"], p["smooth_lin"]])) * np.outer(on, on)
        + p["kink"] ** 2 * outer(*(np.maximum(0.0, workers - j) / 16 for j in range(1, 16))),
    ]
    common = p["pin"] * pin + p["per"] * persist + p["perw"] * persist * workers / 16 + p["deep"] * depth / 128
    means, fixed, scaled = [], [], []
    for knee in KNEES:
        hinge = np.where(workers > 0, np.minimum(0.0, np.log(np.maximum(workers, 1) / knee)), 0.0)
        beyond = on * np.maximum(0.0, workers - knee) / 16
        rho = np.exp(-np.abs(np.log(np.maximum(workers, 1) / knee)) - 1e-6)
        blocked = on * (1 - rho) * rho**depth / (1 - rho ** (depth + 1))
        means.append(
            p["hinge"] * hinge + p["slope"] * beyond + p["block"] * blocked - np.log1p(knee) * (1 - on) + common
        )
        fixed.append(outer(p["hinge_sd"] * hinge, p["zero_sd"] * (1 - on), p["block_sd"] * blocked))
        scaled.append(outer(p["slope_sd"] * beyond))
    parts = [*shared, *fixed, *scaled]
    rows, levels, noises = [], [], []
    for k, noise, scale, rough in itertools.product(range(len(KNEES)), NOISE_SDS, EFFECT_SCALES, ROUGHNESS):
        row = np.zeros(len(parts))
        row[:3] = 1.0, scale**2, rough**2
        row[3 + k] = 1.0
        row[3 + len(KNEES) + k] = scale**2
        rows.append(row)
        levels.append(means[k])
        noises.append(noise)
    return _Prior(np.stack(parts), np.stack(rows), np.stack(levels), np.array(noises), np.zeros(len(rows)))


def _matern(position: Array, scale: Array) -> Array:
    """Return the Matern-5/2 correlation."""
    gap = (position[:, None, :] - position[None, :, :]) / scale
    r = np.sqrt(5.0 * (gap**2).sum(-1))
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))


def _fit(prior: _Prior, index: Array, y: Array, spread: Array) -> _Fit:
    n = len(y)
    among = prior.parts[:, index[:, None], index[None, :]]
    covariance = np.tensordot(prior.scales, among, axes=1)
    covariance[:, np.arange(n), np.arange(n)] += prior.noise_sd[:, None] ** 2 * spread**2
    residual = y[None, :] - prior.means[:, index]
    lower = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(covariance)
    solved = np.einsum("sij,sj->si", inverse, residual)
    log_det = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(1)
    log_weight = prior.log_weight - 0.5 * (np.einsum("si,si->s", residual, solved) + log_det)
    weights = np.exp(log_weight - log_weight.max())
    return _Fit(weights / weights.sum(), inverse, residual)


def _spread(prior: _Prior, fit: _Fit, index: Array, y: Array, spread: Array) -> Array:
    """Return how many times the usual noise each datum has, from what the others say of it (leave one out)."""
    if len(y) < 5:
        return spread
    precision = np.diagonal(fit.inverse, axis1=1, axis2=2)
    gap = np.einsum("sij,sj->si", fit.inverse, fit.residual) / precision
    variance = 1.0 / precision - prior.noise_sd[:, None] ** 2 * (spread**2 - 1)
    square = fit.weights @ (gap**2 / variance)
    return np.asarray(np.sqrt(np.maximum(1.0, (OUTLIER_DEGREES + square) / (OUTLIER_DEGREES + 1))))


def _mixture(prior: _Prior, fit: _Fit, index: Array) -> tuple[Array, Array]:
    """Return mean and covariance over the space of the weighted sets."""
    kept = np.flatnonzero(fit.weights >= min(MIN_WEIGHT, fit.weights.max()))
    weights = fit.weights[kept] / fit.weights[kept].sum()
    cross = np.tensordot(prior.scales[kept], prior.parts[:, :, index], axes=1)
    gain = cross @ fit.inverse[kept]
    means = prior.means[kept] + np.einsum("sij,sj->si", gain, fit.residual[kept])
    mean = weights @ means
    covariance = np.tensordot(weights @ prior.scales[kept], prior.parts, axes=1)
    covariance -= np.einsum("s,sin,sjn->ij", weights, gain, cross, optimize=True)
    off = means - mean
    covariance += np.einsum("s,si,sj->ij", weights, off, off, optimize=True)
    return mean, covariance

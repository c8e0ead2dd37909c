"""The score over the whole space, from one number per trial.

Runs in: parent. Gaussian regression of the log score on the prior of `tuner.surface_prior`, averaged over its sets of
hyper-parameters by their likelihood: with 5 to 30 noisy trials a fitted length scale would be a guess. Noise is
Student's t by reweighting, so that a rare stall does not count in full.
*Not covered*: memory and crashes (`tuner.edge`), what to measure next (`tuner.value_search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from objectives.schema import LoaderConfig
from tuner.surface_prior import Prior, build_prior

Array = NDArray[np.float64]
Index = NDArray[np.int64]

MIN_WEIGHT = 0.003
"""Sets of hyper-parameters with less weight than this are left out of the average."""
MIN_WEIGHT_BEFORE = 1e-5
"""The same while outliers are not yet known."""
OUTLIER_DEGREES = 4.0
"""Degrees of freedom of the noise."""
MIN_FOR_OUTLIERS = 6
"""Trials from which on the others can tell that one is an outlier."""
ROUNDS = 2
"""Reweightings; more change nothing."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Log score of every configuration of the space."""

    mean: Array
    covariance: Array
    noise_sd: float
    """Of one trial."""


@dataclass(frozen=True, slots=True)
class _Fit:
    """Per set of hyper-parameters: weight, inverse covariance of the data, data less prior mean."""

    weights: Array
    inverse: Array
    residual: Array


def fit_surface(space: Sequence[LoaderConfig], measured: Sequence[int], log_values: Sequence[float]) -> Surface:
    """Return the posterior over the space.

    Args:
        space: The configurations.
        measured: Place in the space of each measurement, at least one; repeats are welcome.
        log_values: Natural logarithm of each score.
    """
    prior = build_prior(tuple(space))
    at = np.asarray(measured, dtype=np.int64)
    values = np.asarray(log_values, dtype=float)
    centre = float(np.median(values))
    among = prior.among(at, at)
    inflation = np.ones(len(at))
    fit = _fit(prior, among, at, values - centre, inflation)
    if len(at) >= MIN_FOR_OUTLIERS:
        prior, fit = _keep(prior, fit, MIN_WEIGHT_BEFORE)
        for _ in range(ROUNDS):
            inflation = _inflation(prior, fit, inflation)
            fit = _fit(prior, among, at, values - centre, inflation)
    prior, fit = _keep(prior, fit, MIN_WEIGHT)
    mean, covariance = _average(prior, fit, at)
    return Surface(mean + centre, covariance, float(np.exp(fit.weights @ np.log(prior.noise_sd))))


def _fit(prior: Prior, among: Array, at: Index, values: Array, inflation: Array) -> _Fit:
    n = len(at)
    covariance = np.tensordot(prior.variances, among, axes=1)
    covariance[:, np.arange(n), np.arange(n)] += np.outer(prior.noise_sd**2, inflation)
    residual = values - prior.means[:, at]
    inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    misfit = np.einsum("si,sij,sj->s", residual, inverse, residual, optimize=True)
    log_weight = -0.5 * (misfit + np.linalg.slogdet(covariance)[1])
    weights = np.exp(log_weight - log_weight.max())
    return _Fit(np.asarray(weights / weights.sum()), inverse, residual)


def _keep(prior: Prior, fit: _Fit, least: float) -> tuple[Prior, _Fit]:
    """Return the sets that weigh at least so much, and the heaviest in any case."""
    kept = np.flatnonzero(fit.weights >= min(least, fit.weights.max()))
    weights = fit.weights[kept] / fit.weights[kept].sum()
    smaller = replace(prior, variances=prior.variances[kept], means=prior.means[kept], noise_sd=prior.noise_sd[kept])
    return smaller, _Fit(weights, fit.inverse[kept], fit.residual[kept])


def _inflation(prior: Prior, fit: _Fit, before: Array) -> Array:
    """Return by how much the noise variance of each trial is raised, from what the others say of it."""
    precision = np.diagonal(fit.inverse, axis1=1, axis2=2)
    off = np.einsum("sij,sj->si", fit.inverse, fit.residual) / precision
    usual = 1.0 / precision - np.outer(prior.noise_sd**2, before - 1.0)
    square = fit.weights @ (off**2 / usual)
    return np.asarray(np.maximum(1.0, (OUTLIER_DEGREES + square) / (OUTLIER_DEGREES + 1.0)))


def _average(prior: Prior, fit: _Fit, at: Index) -> tuple[Array, Array]:
    """Return mean and covariance over the space of the weighted sets, their disagreement included."""
    everywhere = np.arange(prior.means.shape[1])
    cross = np.tensordot(prior.variances, prior.among(everywhere, at), axes=1)
    gain = cross @ fit.inverse
    means = prior.means + np.einsum("sin,sn->si", gain, fit.residual)
    mean = fit.weights @ means
    average = fit.weights @ prior.variances
    covariance = np.zeros((len(everywhere), len(everywhere)))
    for part, group in zip(average, prior.groups, strict=False):
        covariance += part * (group @ group.T)
    for part, dense in zip(average[len(prior.groups) :], prior.dense, strict=True):
        covariance += part * dense
    flat = np.moveaxis(gain * fit.weights[:, None, None], 0, 1).reshape(len(everywhere), -1)
    covariance -= flat @ np.moveaxis(cross, 0, 1).reshape(len(everywhere), -1).T
    off = means - mean
    covariance += (off * fit.weights[:, None]).T @ off
    return np.asarray(mean), covariance

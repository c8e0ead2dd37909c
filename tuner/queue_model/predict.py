"""What the queue model says of every configuration, measured or not, on equal terms: the same compute for all.

Runs in: parent. Pure numpy. *Not covered*: fitting it (`tuner.queue_model.fit`), choosing (`tuner.selection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig
from tuner.queue_model.donors import handover_lenders, lanes_for, service_lenders, starts_for, tiled
from tuner.queue_model.fit import QueueModel
from tuner.queue_model.recursion import Array, joined, parts_for, run_lanes
from tuner.queue_model.services import ServiceCurve, fit_services

PROBE_FACTOR = 1.10
"""Services this much longer tell how much the wait depends on them."""
SLOPE_STRIDE = 4
"""Every so many windows are enough to tell it."""
UNSEEN_SD = 0.01
"""Of the step, for a configuration that was never measured: what a model cannot know."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Modelled times of configurations, in seconds per sample; arrays are (C,) in the order of `configs`."""

    configs: tuple[LoaderConfig, ...]
    compute_s: Array
    h2d_s: Array
    wait_s: Array
    restart_s: Array
    draws_s: Array
    """(D, C) draws of the total: compute that came otherwise, contention, services, what the model cannot know."""
    ideal_s: Array
    """(D,) draws of the time with data for free."""

    @property
    def total_s(self) -> Array:
        """Return (C,) compute, copies, waits and restarts together."""
        return self.compute_s + self.h2d_s + self.wait_s + self.restart_s

    def index(self, config: LoaderConfig) -> int:
        """Return the place of a configuration."""
        return self.configs.index(config)


def predict(model: QueueModel, configs: Sequence[LoaderConfig], *, draws: int = 400, seed: int = 0) -> Predictions:
    """Return the predictions for these configurations; the same for the same model and seed."""
    rng = np.random.default_rng(seed)
    load = np.array([model.load_of(c) for c in configs])
    slower = np.exp(model.contention.mean * load)
    h2d = np.array([_h2d_s(model, c) for c in configs])
    curve = fit_services(model.windows, [c.num_workers for c in configs], model.usable_cpus)
    waits = _waits(model, configs, curve, slower, h2d)
    wait, restart = waits.wait, waits.restart
    longer = _waits(model, configs, curve, slower, h2d, PROBE_FACTOR, SLOPE_STRIDE)
    slope = (longer.lanes - waits.lanes[:, ::SLOPE_STRIDE]).mean(axis=1) / np.log(PROBE_FACTOR)
    beyond = np.array([model.beyond_s.get(c, 0.0) for c in configs])
    loader = np.maximum(wait + restart + beyond[:, None], 0.0)
    compute = model.base_compute_s.sum(axis=1)
    weights = _slice_weights(model, rng, draws)
    gammas = model.contention.draws(rng, draws) - model.contention.mean
    own = slope * curve.errors([c.num_workers for c in configs], rng, draws)
    step = compute.mean() * slower + h2d + loader.mean(axis=1)
    unseen = np.array([_unseen_sd(model, c) for c in configs]) * step * rng.normal(size=(draws, len(configs)))
    computed = (weights @ compute)[:, None] * slower * np.exp(gammas[:, None] * load)
    totals = computed + h2d + np.maximum(weights @ loader.T + own, 0.0) + unseen
    least_h2d = h2d.min() if len(h2d) else 0.0
    samples = model.samples
    return Predictions(
        configs=tuple(configs),
        compute_s=compute.mean() * slower / samples,
        h2d_s=h2d / samples,
        wait_s=(loader.mean(axis=1) - np.minimum(restart.mean(axis=1), loader.mean(axis=1))) / samples,
        restart_s=np.minimum(restart.mean(axis=1), loader.mean(axis=1)) / samples,
        draws_s=totals / samples,
        ideal_s=(weights @ compute + least_h2d) / samples,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """In seconds per window, at an average place in the epoch."""

    wait: Array
    """(C, w)"""
    restart: Array
    """(C, w)"""
    lanes: Array
    """(C, R) wait of each lane."""


def _waits(
    model: QueueModel,
    configs: Sequence[LoaderConfig],
    curve: ServiceCurve,
    slower: Array,
    h2d: Array,
    factor: float = 1.0,
    stride: int = 1,
) -> _Waits:
    """Return the waits of every configuration over the compute of every window.

    A lane is a chain of windows: the first ones fill the queue, the others show its steady state; together the chains
    cover every window once. What the first window has more is paid once per epoch. A whole epoch is a chain of its own.
    Services have the same pattern for all configurations and the mean of the worker count.
    """
    count, steps = len(model.base_compute_s), len(model.groups)
    depth = max(c.depth for c in configs)
    parts, warm = (1, 0) if model.whole_epochs else parts_for(depth, model.groups)
    chains = (np.arange(0, count, (parts - warm) * stride)[:, None] + np.arange(parts)) % count
    patterns = _table([w.service_s / w.service_s.mean() for w in service_lenders(model.windows)], model)
    services = patterns[chains % len(patterns)].reshape(len(chains), -1)
    lanes = []
    for place, config in enumerate(configs):
        handovers = _table([w.overhead_s for w in handover_lenders(config, model.windows)], model)
        busy_s = model.base_compute_s[chains] * slower[place] + h2d[place] / steps
        lanes.append(
            lanes_for(
                config,
                busy_s.reshape(len(chains), -1),
                services * (factor * model.factor * curve.mean_s(config.num_workers)),
                handovers[chains % len(handovers)].reshape(len(chains), -1),
                starts_for(config, model.windows),
            )
        )
    found = run_lanes(joined(lanes), model.groups, parts=parts)
    waits = found.wait_s.reshape(parts, len(configs), len(chains))
    restart = found.restart_s.reshape(len(configs), len(chains))
    steady = waits[warm:].mean(axis=0)
    extra = 0.0 if model.whole_epochs else (waits[0] - steady).mean(axis=1, keepdims=True) / model.epoch_windows
    spread = np.repeat(steady.mean(axis=1, keepdims=True), count, axis=1)
    for part in range(warm, parts):
        spread[:, chains[:, part]] = waits[part]
    return _Waits(
        wait=np.maximum(spread + extra, 0.0),
        restart=_over_windows(restart, count, model) / model.epoch_windows,
        lanes=steady,
    )


def _over_windows(restart: Array, count: int, model: QueueModel) -> Array:
    """Return (C, w) restarts: each epoch's own, or the mean where windows are parts of one."""
    if model.whole_epochs and restart.shape[1] == count:
        return restart
    return np.repeat(restart.mean(axis=1, keepdims=True), count, axis=1)


def _table(series: Sequence[Array], model: QueueModel) -> Array:
    """Return the series as rows of equal length, one value per batch of a window."""
    return np.array([tiled(one, int(model.groups.sum())) for one in series])


def _slice_weights(model: QueueModel, rng: np.random.Generator, draws: int) -> Array:
    """Return (draws, w) weights of the windows that sum to 1: the Bayesian bootstrap over slices (Rubin 1981)."""
    slices, places = np.unique(model.window_slices, return_inverse=True)
    shares = rng.dirichlet(np.ones(len(slices)), draws)
    return shares[:, places] / np.bincount(places)[places]


def _h2d_s(model: QueueModel, config: LoaderConfig) -> float:
    """Return the copies of a window: its own, else of those pinned alike, else of all, in seconds."""
    steps = len(model.groups)
    trials = [w for w in model.windows if w.config is not None]
    for alike in (
        [w for w in trials if w.config == config],
        [w for w in trials if w.config is not None and w.config.pin_memory == config.pin_memory],
        trials,
    ):
        if alike:
            return float(np.mean([w.h2d_s.mean() * steps for w in alike]))
    return 0.0


def _unseen_sd(model: QueueModel, config: LoaderConfig) -> float:
    """Return what the model may miss of a configuration, as a share of the step."""
    if config not in model.beyond_s:
        return UNSEEN_SD
    return 0.0 if model.fits(config) else abs(model.mismatch_fraction[config]) / 2

"""Fits the queue model to the slices of a study.

Runs in: parent. Pure numpy. Three things are fitted: one factor on all services, so that modelled and observed
waits agree; the contention of compute under load; what the loader of a measured configuration takes beyond that.
*Not covered*: what the model says of a configuration (`tuner.queue_model.predict`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from objectives.schema import LoaderConfig, Measurement
from storage.records import StudyData
from tuner.pooling import settled
from tuner.queue_model.contention import Contention, fit_contention, slice_levels
from tuner.queue_model.donors import lanes_for, starts_for, tiled
from tuner.queue_model.evidence import Window, windows_of
from tuner.queue_model.recursion import Array, Ints, Lanes, joined, run_lanes
from tuner.queue_model.terms import SliceTerms, terms_of

FACTORS = np.array([0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.45])
"""Grid of the factor on services. Rates of a loader that drains are 6 to 25 % better than those while it trains."""
SMALL_WAIT_FRACTION = 0.02
"""Waits count in the fit by `log(1 + wait / this share of compute)`: one data-bound slice must not outweigh all."""
FIT_FRACTION = 0.01
"""A configuration whose wait the model misses by more than this share of its step is not described by it."""
DELAY_FRACTION = 0.002
"""Run-queue delay above what ceilings have that marks a slice as loaded."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueModel:
    """The fitted model. Times are seconds per window: one epoch, or one slice inside an epoch."""

    windows: tuple[Window, ...]
    groups: Ints
    samples: int
    """Samples of a window."""
    whole_epochs: bool
    epoch_windows: float
    """Windows of a real epoch: 1 with whole epochs."""
    base_compute_s: Array
    """(w, T) compute of every window without load."""
    window_slices: Ints
    """(w,) index of the slice each window belongs to."""
    factor: float
    contention: Contention
    usable_cpus: float
    loaded_from: float
    """Workers from which on they compete with the trainer for CPUs."""
    beyond_s: dict[LoaderConfig, float] = field(default_factory=dict)
    """Per measured configuration, observed minus modelled loader time of its windows."""
    mismatch_fraction: dict[LoaderConfig, float] = field(default_factory=dict)
    """The same as a share of the window's time."""

    def load_of(self, config: LoaderConfig | None) -> float:
        """Return 1.0 if the trainer has to share its CPUs with the workers, else 0.0 (None: a ceiling has none)."""
        return load_of(config, self.loaded_from)

    def fits(self, config: LoaderConfig) -> bool:
        """Return whether the model describes this configuration, as far as it was measured."""
        return abs(self.mismatch_fraction.get(config, 0.0)) <= FIT_FRACTION


def fit_model(data: StudyData) -> QueueModel | None:
    """Return the model of a study, or None if there are no series to fit it to: no trial, or a recorded table."""
    measured: list[tuple[LoaderConfig | None, Measurement]] = [(None, c) for c in settled(data.ceilings)]
    for trial in data.trials:
        if trial.state == "complete" and isinstance(trial.outcome, Measurement):
            measured.append((trial.config, trial.outcome))
    return fit_slices(measured, terms_of(data.study))


def fit_slices(measured: Sequence[tuple[LoaderConfig | None, Measurement]], terms: SliceTerms) -> QueueModel | None:
    """Return the model of these slices; None without a slice of a trial that has its series.

    Args:
        measured: Configuration (None: ceiling) and slice, in order.
        terms: What slices are made of, and what trainer and workers share.
    """
    windows: list[Window] = []
    for index, (config, measurement) in enumerate(measured):
        windows.extend(windows_of(measurement, config, index=index, terms=terms))
    trials = [w for w in windows if w.config is not None]
    if not trials:
        return None
    longest = max(trials, key=lambda w: len(w.groups))
    windows = [w for w in windows if np.array_equal(w.groups, longest.groups[: len(w.groups)])]
    steps = len(longest.groups)
    slices = np.array([w.slice for w in windows])
    by_slice = [np.concatenate([w.compute_s for w in windows if w.slice == s]) for s in dict.fromkeys(slices)]
    order = list(dict.fromkeys(slices))
    loaded_from = _loaded_from(measured, terms.usable_cpus)
    load = np.array([load_of(measured[s][0], loaded_from) for s in order])
    contention = fit_contention(slice_levels(by_slice), load)
    relief = {s: math.exp(-contention.mean * x) for s, x in zip(order, load, strict=True)}
    base_s = np.array([tiled(w.compute_s, steps) * relief[w.slice] for w in windows])
    batches = int(longest.groups.sum())
    model = QueueModel(
        windows=tuple(windows),
        groups=longest.groups,
        samples=longest.samples,
        whole_epochs=terms.epochs > 0,
        epoch_windows=terms.epoch_windows(batches),
        base_compute_s=base_s,
        window_slices=slices,
        factor=1.0,
        contention=contention,
        usable_cpus=terms.usable_cpus,
        loaded_from=loaded_from,
    )
    return _calibrated(model)


def _calibrated(model: QueueModel) -> QueueModel:
    """Return the model with its factor, and with what each measured configuration takes beyond it.

    Each measured window is run again as it was: own compute, own services, from its own empty queue.
    """
    trials = [w for w in model.windows if w.config is not None]
    steps = len(model.groups)
    own = joined([_as_it_was(model, w, steps) for w in trials])
    observed_s = np.array([_loader_s(w, steps) for w in trials])
    compute_s = np.array([float(tiled(w.compute_s, steps).sum()) for w in trials])
    scale_s = SMALL_WAIT_FRACTION * compute_s
    wide = joined([_scaled(own, factor) for factor in FACTORS])
    waits = run_lanes(wide, model.groups)
    modelled_s = (waits.wait_s[0] + waits.restart_s).reshape(len(FACTORS), len(trials))
    totals = np.log1p(modelled_s / scale_s).sum(axis=1)
    wanted = float(np.log1p(observed_s / scale_s).sum())
    totals = np.maximum.accumulate(totals)
    factor = float(np.interp(wanted, totals, FACTORS)) if totals[-1] - totals[0] > 0.01 * len(trials) else 1.0
    waits = run_lanes(_scaled(own, factor), model.groups)
    missing_s = observed_s - waits.wait_s[0] - waits.restart_s
    beyond: dict[LoaderConfig, float] = {}
    mismatch: dict[LoaderConfig, float] = {}
    for config in dict.fromkeys(w.config for w in trials if w.config is not None):
        mine = np.array([w.config == config for w in trials])
        beyond[config] = float(missing_s[mine].mean())
        mismatch[config] = beyond[config] / float((observed_s + compute_s)[mine].mean())
    return replace(model, factor=factor, beyond_s=beyond, mismatch_fraction=mismatch)


def _as_it_was(model: QueueModel, window: Window, steps: int) -> Lanes:
    assert window.config is not None
    batches = int(model.groups.sum())
    return lanes_for(
        window.config,
        tiled(window.compute_s + window.h2d_s, steps)[None],
        tiled(window.service_s, batches)[None],
        tiled(window.overhead_s, batches)[None],
        starts_for(window.config, model.windows),
    )


def _scaled(lanes: Lanes, factor: float) -> Lanes:
    return replace(lanes, service_s=factor * lanes.service_s)


def _loader_s(window: Window, steps: int) -> float:
    """Return what the trainer waited for its loader in a window, scaled to the full number of steps."""
    return window.restart_s + float(window.wait_s.sum()) * steps / len(window.wait_s)


def load_of(config: LoaderConfig | None, loaded_from: float) -> float:
    """Return 1.0 for a configuration whose workers compete with the trainer for CPUs, else 0.0."""
    return 0.0 if config is None else float(config.num_workers > 0 and config.num_workers >= loaded_from)


def _loaded_from(measured: Sequence[tuple[LoaderConfig | None, Measurement]], usable_cpus: float) -> float:
    """Return the worker count from which on slices are loaded: the CPUs, or fewer if the trainer is seen to be delayed.

    Ceilings have no workers: what their threads are delayed is the host's own.
    """
    usual = [m.run_delay_fraction for c, m in measured if c is None and m.run_delay_fraction is not None]
    delays: dict[int, list[float]] = {}
    for config, measurement in measured:
        if config is not None and config.num_workers > 0 and measurement.run_delay_fraction is not None:
            delays.setdefault(config.num_workers, []).append(measurement.run_delay_fraction)
    limit = max(usual) + DELAY_FRACTION if usual else math.inf
    delayed = [workers for workers, seen in delays.items() if sum(seen) / len(seen) > limit]
    return min([max(usable_cpus, 1.0), *delayed])

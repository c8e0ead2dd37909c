"""Appraises configurations by the queue model: expected times, expected losses, what is still to be gained.

Runs in: parent. Pure. Every configuration is judged over the same compute, so a lucky slice makes none faster.
*Not covered*: the model (`tuner.queue_model`), studies without series (`tuner.selection` pools their scores).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig
from storage.records import StudyData
from tuner.pooling import Pooled, pool
from tuner.queue_model.fit import QueueModel, fit_model
from tuner.queue_model.predict import Predictions, predict
from tuner.queue_model.recursion import Array

INTERVAL = (2.5, 97.5)
"""Percentiles of a 95 % interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Appraisal:
    """What the model says of a study's configurations; arrays are in the order of `predictions.configs`."""

    model: QueueModel
    predictions: Predictions
    kept: Array
    """(C,) share of the throughput that penalties leave; 1.0 where nothing was measured."""

    @property
    def costs_s(self) -> Array:
        """Return (D, C) draws of seconds per sample, penalties counted as time."""
        return self.predictions.draws_s / self.kept

    def samples_per_s(self, config: LoaderConfig) -> float:
        """Return the modelled throughput."""
        return float(1.0 / self.predictions.total_s[self.predictions.index(config)])

    def interval_per_s(self, config: LoaderConfig) -> tuple[float, float]:
        """Return the 95 % interval of the modelled throughput; how fast compute is in the long run counts in it."""
        draws = self.predictions.draws_s[:, self.predictions.index(config)]
        slow, fast = np.percentile(draws, INTERVAL[::-1])
        return float(1.0 / slow), float(1.0 / fast)

    def wait_fraction(self, config: LoaderConfig) -> float:
        """Return the modelled wait as a share of the time."""
        place = self.predictions.index(config)
        return float(self.predictions.wait_s[place] / self.predictions.total_s[place])

    def loss(self, config: LoaderConfig) -> float:
        """Return the share of the best throughput of all that this one does not reach."""
        totals = self.predictions.total_s / self.kept
        return float(1.0 - totals.min() / totals[self.predictions.index(config)])

    def expected_losses(self, among: Sequence[LoaderConfig]) -> dict[LoaderConfig, float]:
        """Return for each of these what it is expected to lose to the best of them."""
        places = [self.predictions.index(c) for c in among]
        costs = self.costs_s[:, places]
        losses = (costs / costs.min(axis=1, keepdims=True) - 1.0).mean(axis=0)
        return dict(zip(among, map(float, losses), strict=True))

    def expected_gains(self, chosen: LoaderConfig) -> dict[LoaderConfig, float]:
        """Return for every configuration how much it is expected to beat the chosen one: mean of max(0, gain)."""
        costs = self.costs_s
        own = costs[:, [self.predictions.index(chosen)]]
        gains = np.maximum(own / costs - 1.0, 0.0).mean(axis=0)
        return dict(zip(self.predictions.configs, map(float, gains), strict=True))

    def headroom(self, config: LoaderConfig) -> tuple[float, float, float]:
        """Return what data for free would bring, and the ends of its 95 % interval."""
        ratios = self.predictions.draws_s[:, self.predictions.index(config)] / self.predictions.ideal_s - 1.0
        low, high = np.percentile(ratios, INTERVAL)
        return float(np.median(ratios)), max(float(low), 0.0), max(float(high), 0.0)


def appraise(data: StudyData, configs: Sequence[LoaderConfig]) -> Appraisal | None:
    """Return the appraisal of these configurations and of all measured ones; None without series.

    Args:
        data: The study, with raw series.
        configs: Further configurations, such as the whole space.
    """
    model = fit_model(data)
    if model is None:
        return None
    pooled = {p.config: p for p in pool(data.trials)}
    wanted = tuple(dict.fromkeys([*(c for c, p in pooled.items() if p.slices), *configs]))
    kept = np.array([_kept(pooled.get(c)) for c in wanted])
    return Appraisal(model, predict(model, wanted, seed=data.study.seed), kept)


def _kept(pooled: Pooled | None) -> float:
    """Return what the penalties leave of a configuration's throughput."""
    return math.prod(1.0 - p.fraction for p in pooled.penalties) if pooled is not None else 1.0

"""What is expected of a score before anything is measured, over the whole space.

Runs in: parent. Log score = a level + what workers bring + small effects + what none of this explains. Workers pay in
proportion up to a knee, where something else becomes the limit; beyond it more of them cost a little. Around the knee
a short queue blocks now and then, as an M/M/1/K queue does. Without workers batches are made and used in turn, which
takes `1 + knee` times as long. The knee, the noise, the size of the effects and how badly this description fits are
not fitted but averaged over: one set of hyper-parameters for each combination.
*Not covered*: what the data say (`tuner.surface`).
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
"""Workers that keep up with the trainer; below 1 one worker is more than enough."""
NOISE_SDS = (0.007, 0.014, 0.025, 0.045)
"""Scatter of the log score of equal trials."""
EFFECT_SCALES = (0.3, 1.0, 3.0)
"""Factors on the small effects."""

# Means and standard deviations of log score, tuned on simulated machines (`benchmarks/search.py`), which is also where
# they were checked on machines they were not tuned on. A user's job may have other effects: hence the factors above.
LEVEL_SD = 2.0
PIN, PIN_SD, PIN_ALONE_SD = 0.013, 0.008, 0.004
"""Pinned memory, with workers and how much that differs without."""
KEPT, KEPT_SD = 0.005, 0.005
KEPT_PER_WORKER, KEPT_PER_WORKER_SD = 0.01 / 16, 0.038 / 16
"""Workers kept between epochs; a restart takes longer the more there are."""
DEEP, DEEP_SD = -0.015 / 128, 0.021 / 128
"""Per batch in the queue: memory and caches."""
BLOCKED, BLOCKED_SD = -0.48, 0.68
"""Times the blocking probability."""
RISE_SD = 0.14
CROWD, CROWD_SD = -0.052 / 16, 0.12 / 16
"""Per worker beyond the knee."""
ALONE_SD = 0.10
KINK_SD = 4.2 / 16
"""Change of slope at any number of workers, times the misfit: the host runs out of cores at some number."""
WORKERS_SCALE = (0.3, 1.2)
"""Length scales of the smooth misfit, in log and in linear workers."""
ALL_SCALES = (0.53, 1.4, 1.4, 1.4)
"""Length scales of the misfit in everything: log workers, prefetch, persistence, pinning."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Standard deviations of what the description misses: in the workers, and in all knobs together."""

    workers_sd: float
    all_sd: float


MISFITS = (Misfit(0.02, 0.002), Misfit(0.10, 0.004))


@dataclass(frozen=True, slots=True)
class Prior:
    """One row per set of hyper-parameters; `groups` of components share a variance in every set."""

    groups: tuple[Array, ...]
    """Columns over the space (space x columns): their outer products are covariances."""
    dense: tuple[Array, ...]
    """Covariances over the space that are no outer products."""
    variances: Array
    """Per set, of each group and then of each dense one."""
    means: Array
    """Per set, over the space."""
    noise_sd: Array
    """Per set."""

    def among(self, rows: NDArray[np.int64], columns: NDArray[np.int64] | slice) -> Array:
        """Return the covariance blocks of all components at variance 1 (components x rows x columns)."""
        blocks = [group[rows] @ group[columns].T for group in self.groups]
        blocks += [dense[rows][:, columns] for dense in self.dense]
        return np.stack(blocks)


@lru_cache(maxsize=4)
def build_prior(space: tuple[LoaderConfig, ...]) -> Prior:
    """Return the prior over the configurations of a space."""
    workers = np.array([c.num_workers for c in space], dtype=float)
    depth = np.array([c.depth for c in space], dtype=float)
    prefetch = np.array([c.prefetch_factor or 0 for c in space], dtype=float)
    kept = np.array([c.persistent_workers for c in space], dtype=float)
    pin = np.array([c.pin_memory for c in space], dtype=float)
    some = np.minimum(workers, 1.0)
    at_least_one = np.maximum(workers, 1.0)
    log_workers = np.log2(1 + workers) / np.log2(17)

    effects = [
        PIN_SD * pin, PIN_ALONE_SD * pin * (1 - some), KEPT_SD * kept, KEPT_PER_WORKER_SD * kept * workers,
        DEEP_SD * depth,
    ]  # fmt: skip
    effect_mean = PIN * pin + KEPT * kept + KEPT_PER_WORKER * kept * workers + DEEP * depth
    kinks = [KINK_SD * np.maximum(0.0, workers - at) for at in range(1, max(2, int(workers.max())))]
    groups = [np.full((len(space), 1), LEVEL_SD), np.stack(effects, axis=1), np.stack(kinks, axis=1)]
    smooth = _matern(np.stack([log_workers, workers / 16], axis=1), WORKERS_SCALE) * np.outer(some, some)
    everything = _matern(np.stack([log_workers, prefetch / 6, kept, pin], axis=1), ALL_SCALES)

    means = []
    for knee in KNEES:
        rise = some * np.minimum(0.0, np.log(at_least_one / knee))
        crowd = some * np.maximum(0.0, workers - knee)
        blocked = some * _blocking(np.exp(-np.abs(np.log(at_least_one / knee))), depth)
        means.append(rise + CROWD * crowd + BLOCKED * blocked - np.log1p(knee) * (1 - some) + effect_mean)
        groups += [
            np.stack([RISE_SD * rise, BLOCKED_SD * blocked, ALONE_SD * (1 - some)], axis=1),
            CROWD_SD * crowd[:, None],
        ]
    sets = list(itertools.product(range(len(KNEES)), NOISE_SDS, EFFECT_SCALES, MISFITS))
    variances = np.zeros((len(sets), len(groups) + 2))
    for row, (knee, _noise, scale, misfit) in zip(variances, sets, strict=True):
        row[:3] = 1.0, scale**2, misfit.workers_sd**2
        row[3 + 2 * knee : 5 + 2 * knee] = 1.0, scale**2
        row[-2:] = misfit.workers_sd**2, (scale * misfit.all_sd) ** 2
    return Prior(
        groups=tuple(groups),
        dense=(smooth, everything),
        variances=variances,
        means=np.stack([means[knee] for knee, *_ in sets]),
        noise_sd=np.array([noise for _, noise, *_ in sets]),
    )


def _blocking(rho: Array, depth: Array) -> Array:
    """Return how often a queue of that depth blocks (M/M/1/K), for a load below 1; 1 / (depth + 1) in the limit."""
    rho = np.minimum(rho, 1.0 - 1e-6)
    return np.asarray((1 - rho) * rho**depth / (1 - rho ** (depth + 1)))


def _matern(position: Array, scales: Sequence[float]) -> Array:
    """Return the Matern-5/2 correlation of points."""
    scaled = position / np.asarray(scales)
    square = ((scaled[:, None, :] - scaled[None, :, :]) ** 2).sum(axis=-1)
    r = np.sqrt(5.0 * square)
    return np.asarray((1 + r + r * r / 3) * np.exp(-r))

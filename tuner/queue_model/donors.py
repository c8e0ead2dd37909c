"""Which measured series stand for a configuration: its own, else those of the most similar one.

Runs in: parent. Pure numpy. A service depends on how many workers share the CPUs, a handover on whether batches are
pinned, a worker's start on whether it was kept: each is taken from where it was measured.
*Not covered*: the recursion they are fed to (`tuner.queue_model.recursion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import linear_regression, median

import numpy as np

from objectives.schema import LoaderConfig
from tuner.queue_model.evidence import Point, Window
from tuner.queue_model.recursion import Array, Lanes


@dataclass(frozen=True, slots=True, eq=False)
class Donors:
    """Windows whose series a configuration borrows."""

    services: tuple[Window, ...]
    handovers: tuple[Window, ...]

    def service_mean_s(self) -> float:
        """Return the mean service of the lenders, in seconds."""
        return float(np.concatenate([w.service_s for w in self.services]).mean())


def donors_for(config: LoaderConfig, windows: Sequence[Window]) -> Donors:
    """Return the best donors for a configuration; `windows` holds at least one of a trial.

    All slices with as many workers lend their services, not only the configuration's own: services that were short by
    chance would make it look fast, and a search over many would find it. Handovers depend on pinning too.
    """
    trials = [w for w in windows if w.config is not None]
    return Donors(
        services=_most_alike(trials, [_unlike_services(config, w) for w in trials]),
        handovers=_most_alike(trials, [_unlike_handovers(config, w) for w in trials]),
    )


def starts_for(config: LoaderConfig, windows: Iterable[Window]) -> tuple[float, float]:
    """Return when the first worker can start after an epoch's beginning, and how much later each further one can.

    PyTorch starts all workers, one after the other, before it hands out the first batch: the first one waits longer
    the more there are. Workers that were kept are there at once.
    """
    keeps = config.persistent_workers or config.num_workers == 0
    points: list[Point] = []
    for window in windows:
        if window.config is not None and (window.config.num_workers == 0) == (config.num_workers == 0):
            points.extend(window.kept if keeps else window.fresh)
    firsts: dict[int, list[float]] = {}
    for workers, place, start_s in points:
        if place == 0:
            firsts.setdefault(workers, []).append(start_s)
    later = [start_s - median(firsts[workers]) for workers, place, start_s in points if place > 0 and workers in firsts]
    places = [place for workers, place, _ in points if place > 0 and workers in firsts]
    stagger_s = median(gap_s / place for gap_s, place in zip(later, places, strict=True)) if later else 0.0
    known = {workers: median(starts) for workers, starts in sorted(firsts.items())}
    if not known:
        first_s = 0.0
    elif keeps:
        first_s = median(known.values())
    elif len(known) == 1:
        ((workers, start_s),) = known.items()
        first_s = start_s * config.num_workers / workers
    else:
        slope, level = linear_regression(list(known), list(known.values()))
        first_s = level + slope * config.num_workers
    return max(first_s, 0.0), max(stagger_s, 0.0)


def lanes_for(
    config: LoaderConfig,
    busy_s: Array,
    services: Sequence[Window],
    handovers: Sequence[Window],
    starts: tuple[float, float],
    *,
    factor: float = 1.0,
) -> Lanes:
    """Return one lane per row of `busy_s`, (w, T), each with the services and handovers of the lenders beside it.

    Args:
        config: The configuration of all lanes.
        busy_s: Compute and copies of each step, in seconds.
        services: Windows that lend their services, one per row.
        handovers: Windows that lend their handovers, one per row.
        starts: When workers can start (`starts_for`).
        factor: On the services.
    """
    batches = int(max((w.groups for w in services), key=len).sum())
    count = len(busy_s)
    return Lanes(
        workers=np.full(count, config.num_workers),
        depth=np.full(count, config.depth),
        busy_s=busy_s,
        service_s=factor * np.array([tiled(w.service_s, batches) for w in services]),
        overhead_s=np.array([tiled(w.overhead_s, batches) for w in handovers]),
        ready_s=np.full(count, starts[0]),
        stagger_s=np.full(count, starts[1]),
    )


def tiled(series: Array, length: int) -> Array:
    """Return a series of that length, repeated or cut."""
    return np.resize(series, length)


def _most_alike(trials: Sequence[Window], distances: Sequence[tuple[bool, float]]) -> tuple[Window, ...]:
    least = min(distances)
    return tuple(w for w, distance in zip(trials, distances, strict=True) if distance == least)


def _unlike_services(config: LoaderConfig, window: Window) -> tuple[bool, float]:
    """Return how little a window's services tell of a configuration: workers at all, then how many."""
    assert window.config is not None
    return (config.num_workers == 0) != (window.config.num_workers == 0), _doublings(config, window)


def _unlike_handovers(config: LoaderConfig, window: Window) -> tuple[bool, float]:
    """Return how little a window's handovers tell of a configuration: workers at all and pinning, then how many."""
    assert window.config is not None
    other = window.config
    differs = (config.num_workers == 0) != (other.num_workers == 0)
    return differs, 10.0 * (config.pin_memory != other.pin_memory) + _doublings(config, window)


def _doublings(config: LoaderConfig, window: Window) -> float:
    assert window.config is not None
    return abs(float(np.log2((config.num_workers + 0.5) / (window.config.num_workers + 0.5))))

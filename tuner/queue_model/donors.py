"""Which measured series stand for a configuration.

Runs in: parent. Pure numpy. The pattern of services is shared by all, a handover depends on whether batches are pinned,
a worker's start on whether it was kept: each is taken from where it was measured.
*Not covered*: the recursion they are fed to (`tuner.queue_model.recursion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import linear_regression, median

import numpy as np

from objectives.schema import LoaderConfig
from tuner.queue_model.evidence import Point, Window
from tuner.queue_model.recursion import Array, Lanes


def service_lenders(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows that lend the pattern of their services: all of trials with workers, else all of trials.

    Only the mean depends on the worker count (`tuner.queue_model.services`). Were each configuration to keep its own
    pattern, one whose slice had no slow batch by chance would look fast, and a search over many would find it.
    """
    trials = [w for w in windows if w.config is not None]
    return tuple([w for w in trials if w.config is not None and w.config.num_workers > 0] or trials)


def handover_lenders(config: LoaderConfig, windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows most like a configuration in what a handover depends on: workers at all, pinning, how many."""
    trials = [w for w in windows if w.config is not None]
    distances = [_unlike(config, w) for w in trials]
    least = min(distances)
    return tuple(w for w, distance in zip(trials, distances, strict=True) if distance == least)


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
    config: LoaderConfig, busy_s: Array, service_s: Array, overhead_s: Array, starts: tuple[float, float]
) -> Lanes:
    """Return the lanes of one configuration; a lane per row of the series, `starts` as `starts_for` returns them."""
    count = len(busy_s)
    return Lanes(
        workers=np.full(count, config.num_workers),
        depth=np.full(count, config.depth),
        busy_s=busy_s,
        service_s=service_s,
        overhead_s=overhead_s,
        ready_s=np.full(count, starts[0]),
        stagger_s=np.full(count, starts[1]),
    )


def tiled(series: Array, length: int) -> Array:
    """Return a series of that length, repeated or cut."""
    return np.resize(series, length)


def _unlike(config: LoaderConfig, window: Window) -> tuple[bool, bool, float]:
    assert window.config is not None
    other = window.config
    doublings = abs(float(np.log2((config.num_workers + 0.5) / (other.num_workers + 0.5))))
    return (config.num_workers == 0) != (other.num_workers == 0), config.pin_memory != other.pin_memory, doublings

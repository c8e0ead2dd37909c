"""Which measured series stand for a configuration: its own, else those of the most similar one.

Runs in: parent. Pure numpy. A service depends on how many workers share the CPUs, a handover on whether batches are
pinned, a worker's start on whether it was kept: each is taken from where it was measured.
*Not covered*: the recursion they are fed to (`tuner.queue_model.recursion`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig
from tuner.queue_model.evidence import Point, Window
from tuner.queue_model.recursion import Array, Lanes


@dataclass(frozen=True, slots=True, eq=False)
class Donors:
    """Windows whose services and handovers a configuration borrows, and the factor on the services."""

    windows: tuple[Window, ...]
    factor: float
    distance: float
    """0.0 for its own windows or ones with as many workers; else how far the worker counts are apart, in doublings."""


def donors_for(config: LoaderConfig, windows: Sequence[Window]) -> Donors:
    """Return the best donors for a configuration; `windows` holds at least one of a trial."""
    trials = [w for w in windows if w.config is not None]
    own = [w for w in trials if w.config == config]
    if own:
        return Donors(tuple(own), 1.0, 0.0)
    best = min(_unlikeness(config, w.config) for w in trials if w.config is not None)
    alike = [w for w in trials if w.config is not None and _unlikeness(config, w.config) == best]
    lender = alike[0].config
    assert lender is not None
    if lender.num_workers == config.num_workers:
        return Donors(tuple(alike), 1.0, 0.0)
    counts = _mean_services(trials)
    factor = _interpolated(config.num_workers, counts) / counts[lender.num_workers]
    apart = abs(np.log2((config.num_workers + 0.5) / (lender.num_workers + 0.5)))
    return Donors(tuple(alike), float(factor), float(apart))


def starts_for(config: LoaderConfig, windows: Iterable[Window]) -> tuple[float, float]:
    """Return when the first worker can start after an epoch's beginning, and how much later each further one can."""
    keeps = config.persistent_workers or config.num_workers == 0
    points: list[Point] = []
    for window in windows:
        if window.config is not None and (window.config.num_workers == 0) == (config.num_workers == 0):
            points.extend(window.kept if keeps else window.fresh)
    if not points:
        return 0.0, 0.0
    places, starts_s = np.array([p for p, _ in points], dtype=float), np.array([s for _, s in points])
    first_s = float(np.median(starts_s[places == 0])) if (places == 0).any() else 0.0
    if not (places > 0).any():
        return max(first_s, 0.0), 0.0
    later = (starts_s[places > 0] - first_s) / places[places > 0]
    return max(first_s, 0.0), max(float(np.median(later)), 0.0)


def lanes_for(
    config: LoaderConfig, busy_s: Array, lenders: Sequence[Window], starts: tuple[float, float], *, factor: float = 1.0
) -> Lanes:
    """Return one lane per row of `busy_s`, (w, T), each with the services and handovers of the lender beside it.

    Args:
        config: The configuration of all lanes.
        busy_s: Compute and copies of each step, in seconds.
        lenders: Windows that lend their series; used in turn if there are fewer than rows.
        starts: When workers can start (`starts_for`).
        factor: On the services.
    """
    chosen = [lenders[row % len(lenders)] for row in range(len(busy_s))]
    batches = int(max((w.groups for w in chosen), key=len).sum())
    count = len(busy_s)
    return Lanes(
        workers=np.full(count, config.num_workers),
        depth=np.full(count, config.depth),
        busy_s=busy_s,
        service_s=factor * np.array([tiled(w.service_s, batches) for w in chosen]),
        overhead_s=np.array([tiled(w.overhead_s, batches) for w in chosen]),
        ready_s=np.full(count, starts[0]),
        stagger_s=np.full(count, starts[1]),
    )


def tiled(series: Array, length: int) -> Array:
    """Return a series of that length, repeated or cut."""
    return np.resize(series, length)


def _unlikeness(config: LoaderConfig, other: LoaderConfig) -> tuple[bool, bool, float, int]:
    """Return how little another configuration tells of this one: workers at all, pinning, worker count, depth."""
    return (
        (config.num_workers == 0) != (other.num_workers == 0),
        config.pin_memory != other.pin_memory,
        abs(np.log((config.num_workers + 0.5) / (other.num_workers + 0.5))),
        abs(config.depth - other.depth),
    )


def _mean_services(trials: Sequence[Window]) -> dict[int, float]:
    """Return the mean service per worker count, in seconds."""
    series: dict[int, list[Array]] = {}
    for window in trials:
        if window.config is not None:
            series.setdefault(window.config.num_workers, []).append(window.service_s)
    return {workers: float(np.mean(np.concatenate(found))) for workers, found in sorted(series.items())}


def _interpolated(workers: int, services_s: dict[int, float]) -> float:
    """Return the mean service for a worker count, linear between those measured and flat outside."""
    known = [w for w in services_s if w > 0] or list(services_s)
    return float(np.interp(workers, known, [services_s[w] for w in known]))

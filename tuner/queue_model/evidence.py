"""Takes from each slice what the queue model needs: series of one epoch, or of one slice inside an epoch.

Runs in: parent. Pure numpy. Every slice of a study trains the same rows in the same order, so step i and batch k stand
for the same work in all of them.
*Not covered*: what is made of them (`tuner.queue_model.fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig, Measurement, RawSlice
from tuner.queue_model.recursion import Array, Ints
from tuner.queue_model.terms import SliceTerms

Point = tuple[int, int, float]
"""Workers of the loader, a worker's place among them, and when it began, in seconds after the epoch's beginning."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The series of one epoch of a slice, or of a slice that is a part of one. Times in seconds."""

    slice: int
    """Index of the slice it was taken from."""
    config: LoaderConfig | None
    """None for a ceiling."""
    groups: Ints
    """(T,) batches of each optimizer step."""
    compute_s: Array
    """(T,)"""
    h2d_s: Array
    """(T,)"""
    wait_s: Array
    """(T,)"""
    restart_s: float
    samples: int
    service_s: Array
    """(N,) from when the worker could start until it was done; empty for a ceiling."""
    overhead_s: Array
    """(N,) from when the batch was both wanted and done until the trainer had it."""
    fresh: tuple[Point, ...]
    """Starts of workers that were started anew."""
    kept: tuple[Point, ...]
    """Starts of workers that were kept, or of the trainer's own reading."""


def windows_of(measurement: Measurement, config: LoaderConfig | None, *, index: int, terms: SliceTerms) -> list[Window]:
    """Return the windows of one slice; none if its series are missing or broken off.

    Args:
        measurement: The slice.
        config: Its configuration; None for a ceiling.
        index: Its place among the slices.
        terms: What slices of this study are made of; one of whole epochs may hold more or fewer than others.
    """
    raw = measurement.raw
    if raw is None or len(raw.steps) == 0:
        return []
    steps = len(raw.steps)
    sizes = _groups(raw, terms.batch_size)
    parts = max(round(sizes.sum() / terms.epoch_batches), 1) if terms.epochs and terms.epoch_batches else 1
    if steps % parts:
        return []
    length = steps // parts
    found = []
    for part in range(parts):
        window = _window(raw, config, index, sizes, slice(part * length, (part + 1) * length))
        if window is not None:
            found.append(window)
    return found


def _window(raw: RawSlice, config: LoaderConfig | None, index: int, sizes: Ints, part: slice) -> Window | None:
    steps = raw.steps
    compute_s = np.array(steps.compute_s[part])
    if not (np.isfinite(compute_s).all() and (compute_s > 0).all()):
        return None
    began_s = sum(steps.step_s[: part.start])
    service_s = overhead_s = np.empty(0)
    fresh: list[Point] = []
    kept: list[Point] = []
    if config is not None:
        first, count = int(sizes[: part.start].sum()), int(sizes[part].sum())
        stamps = _stamps(raw, first, count)
        if stamps is None:
            return None
        service_s, overhead_s, starts = _services(stamps, config)
        points = [(config.num_workers, place, start_s - began_s) for place, start_s in enumerate(starts)]
        (kept if config.persistent_workers or config.num_workers == 0 else fresh).extend(points)
        if part.start == 0 and config.num_workers:
            fresh.extend(_drain_starts(raw, config))
    return Window(
        slice=index,
        config=config,
        groups=sizes[part],
        compute_s=compute_s,
        h2d_s=np.array(steps.h2d_s[part]),
        wait_s=np.array(steps.data_wait_s[part]),
        restart_s=float(sum(steps.restart_s[part])),
        samples=int(sum(steps.samples[part])),
        service_s=service_s,
        overhead_s=overhead_s,
        fresh=tuple(fresh),
        kept=tuple(kept),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Stamps:
    start_s: Array
    end_s: Array
    requested_s: Array
    got_s: Array


def _groups(raw: RawSlice, batch_size: int) -> Ints:
    """Return the batches of each step, counted; from the samples where no batch was stamped."""
    counts = np.bincount(np.array([s for s in raw.batches.step if s >= 0], dtype=np.int64), minlength=len(raw.steps))
    if len(counts) == len(raw.steps) and counts.all():
        return counts.astype(np.int64)
    return np.array([-(-samples // batch_size) for samples in raw.steps.samples], dtype=np.int64)


def _stamps(raw: RawSlice, first: int, count: int) -> _Stamps | None:
    batches = raw.batches
    timed = [i for i, step in enumerate(batches.step) if step >= 0][first : first + count]
    if len(timed) < count:
        return None
    take = slice(timed[0], timed[-1] + 1)
    return _Stamps(
        np.array(batches.service_start_s[take]), np.array(batches.service_end_s[take]),
        np.array(batches.requested_s[take]), np.array(batches.got_s[take]),
    )  # fmt: skip


def _services(stamps: _Stamps, config: LoaderConfig) -> tuple[Array, Array, Sequence[float]]:
    """Return service and handover of each batch, and when each worker could first start.

    A service counts from when the worker could have started: waking up is a part of what it costs.
    """
    own_s = stamps.end_s - stamps.start_s
    overhead_s = np.maximum(stamps.got_s - np.maximum(stamps.requested_s, stamps.end_s), 0.0)
    workers, depth = config.num_workers, config.depth
    if workers == 0:
        service_s = np.maximum(stamps.end_s - stamps.requested_s, own_s)
        service_s[0] = own_s[0]
        return service_s, overhead_s, [float(stamps.start_s[0])]
    could_s = np.full(len(own_s), -np.inf)
    could_s[workers:] = stamps.end_s[:-workers] if workers < len(own_s) else []
    if depth < len(own_s):
        could_s[depth:] = np.maximum(could_s[depth:], stamps.got_s[:-depth])
    service_s = np.where(np.isfinite(could_s), np.maximum(stamps.end_s - could_s, own_s), own_s)
    return service_s, overhead_s, [float(s) for s in stamps.start_s[:workers]]


def _drain_starts(raw: RawSlice, config: LoaderConfig) -> list[Point]:
    """Return when each worker of the drain epoch could start: they were all started anew."""
    if raw.startup_s is None or not raw.batches.step or raw.batches.step[0] >= 0:
        return []
    began_s = raw.batches.got_s[0] - raw.startup_s
    starts = raw.batches.service_start_s[: config.num_workers]
    return [(config.num_workers, place, start_s - began_s) for place, start_s in enumerate(starts)]

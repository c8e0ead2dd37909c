"""The recursion of an in-order loader in front of a trainer, over many lanes at once.

Runs in: parent. Pure numpy. Batch k of an epoch goes to worker `k mod W`. The worker starts it when it is done with
batch `k - W` and the trainer has taken batch `k - W x p`, which makes room in the queue; the trainer has it at
`max(requested, done)` plus what the handover takes. It asks for all batches of an optimizer step, one after the other,
then computes, as `transformers.Trainer` does. Source: `_MultiProcessingDataLoaderIter` of `torch.utils.data`.
*Not covered*: where the series come from (`tuner.queue_model.evidence`), what is made of the waits
(`tuner.queue_model.predict`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """What the recursion is fed with: one row per lane, an epoch of `T` steps and `N` batches. Times in seconds."""

    workers: Ints
    """(L,)"""
    depth: Ints
    """(L,) batches the loader may hold, `num_workers x prefetch_factor`; ignored without workers."""
    busy_s: Array
    """(L, T) what the trainer does between its last batch of a step and its first request of the next."""
    service_s: Array
    """(L, N) from when a worker could start a batch until it is done."""
    overhead_s: Array
    """(L, N) from `max(requested, done)` until the trainer has the batch."""
    ready_s: Array
    """(L,) from the epoch's beginning until the first worker can start."""
    stagger_s: Array
    """(L,) how much later each further worker can."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """What the trainer waited for, in seconds per epoch: (passes, L) each."""

    wait_s: Array
    restart_s: Array
    """Epoch's beginning to its first batch; 0 after the first pass, which goes on without a boundary."""


def joined(lanes: Sequence[Lanes]) -> Lanes:
    """Return all lanes in one, in order."""
    return Lanes(*(np.concatenate([getattr(part, name) for part in lanes]) for name in Lanes.__slots__))


def average_waits(lanes: Lanes, groups: Ints, *, whole_epochs: bool, epoch_windows: float) -> tuple[Array, Array]:
    """Return wait and restart per lane, (L,) each, in seconds per window, at an average place in a real epoch.

    A window that is a part of an epoch is run through twice: the second time shows the steady state, and what the
    first has more, on its empty queue, is paid once per epoch. A whole epoch is run once, from its boundary.

    Args:
        lanes: The lanes.
        groups: (T,) batches of each optimizer step.
        whole_epochs: Whether a window is an epoch.
        epoch_windows: Windows of a real epoch; not looked at with whole epochs.
    """
    found = run_lanes(lanes, groups, passes=1 if whole_epochs else 2)
    if whole_epochs:
        return found.wait_s[0], found.restart_s[0]
    first, steady = found.wait_s
    return np.maximum(steady + (first - steady) / epoch_windows, 0.0), found.restart_s[0] / epoch_windows


def run_lanes(lanes: Lanes, groups: Ints, *, passes: int = 1) -> Waits:
    """Return the waits of every lane.

    Args:
        lanes: The lanes.
        groups: (T,) batches of each optimizer step.
        passes: How often the series are run through without a boundary in between. The first pass starts on an empty
            queue; the last one shows the steady state.
    """
    count, total = len(lanes.workers), int(groups.sum())
    lane = np.arange(count)
    inline = lanes.workers == 0
    behind_worker = lane - np.maximum(lanes.workers, 1) * count
    behind_queue = lane - np.maximum(lanes.depth, 1) * count
    done, got = np.zeros((passes * total, count)), np.zeros((passes * total, count))
    done_flat, got_flat = done.ravel(), got.ravel()
    service = np.ascontiguousarray(lanes.service_s.T)
    overhead = np.ascontiguousarray(lanes.overhead_s.T)
    busy = np.ascontiguousarray(lanes.busy_s.T)
    widest, deepest = int(lanes.workers.max(initial=0)), int(lanes.depth.max(initial=0))
    wait, restart = np.zeros((passes, count)), np.zeros((passes, count))
    now, k = np.zeros(count), 0
    for run in range(passes):
        for step, size in enumerate(groups):
            asked = now
            for _ in range(size):
                at = k * count
                free = done_flat.take(np.maximum(behind_worker + at, 0))
                if k < widest:
                    free = np.where(k < lanes.workers, lanes.ready_s + k * lanes.stagger_s, free)
                room = got_flat.take(np.maximum(behind_queue + at, 0))
                if k < deepest:
                    room = np.where(k < lanes.depth, 0.0, room)
                start = np.where(inline, np.maximum(now, lanes.ready_s), np.maximum(free, room))
                done[k] = start + service[k % total]
                now = np.maximum(now, done[k]) + overhead[k % total]
                got[k] = now
                if k == 0:
                    restart[0] = asked = now
                k += 1
            wait[run] += now - asked
            now = now + busy[step]
    return Waits(wait, restart)

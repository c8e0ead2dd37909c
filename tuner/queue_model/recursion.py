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

MOST_WARM_PARTS = 3
"""Parts that may be spent on filling the deepest queue."""


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """What the recursion is fed with: one row per lane, of `T` steps and `N` batches a part. Times in seconds."""

    workers: Ints
    """(L,)"""
    depth: Ints
    """(L,) batches the loader may hold, `num_workers x prefetch_factor`; ignored without workers."""
    busy_s: Array
    """(L, parts x T) what the trainer does between its last batch of a step and its first request of the next."""
    service_s: Array
    """(L, parts x N) from when a worker could start a batch until it is done."""
    overhead_s: Array
    """(L, parts x N) from `max(requested, done)` until the trainer has the batch."""
    ready_s: Array
    """(L,) from the epoch's beginning until the first worker can start."""
    stagger_s: Array
    """(L,) how much later each further worker can."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """What the trainer waited for, in seconds."""

    wait_s: Array
    """(parts, L)"""
    restart_s: Array
    """(L,) epoch's beginning to its first batch, in the first part."""


def joined(lanes: Sequence[Lanes]) -> Lanes:
    """Return all lanes in one, in order."""
    return Lanes(*(np.concatenate([getattr(part, name) for part in lanes]) for name in Lanes.__slots__))


def run_lanes(lanes: Lanes, groups: Ints, *, parts: int = 1) -> Waits:
    """Return the waits of every lane.

    Args:
        lanes: The lanes; their series hold so many parts, one after the other, without a boundary in between. The first
            part starts on an empty queue, later ones show the steady state.
        groups: (T,) batches of each optimizer step of one part.
        parts: See above.
    """
    count, total = len(lanes.workers), parts * int(groups.sum())
    lane = np.arange(count)
    inline = lanes.workers == 0
    behind_worker = lane - np.maximum(lanes.workers, 1) * count
    behind_queue = lane - np.maximum(lanes.depth, 1) * count
    done, got = np.zeros((total, count)), np.zeros((total, count))
    done_flat, got_flat = done.ravel(), got.ravel()
    service = np.ascontiguousarray(lanes.service_s.T)
    overhead = np.ascontiguousarray(lanes.overhead_s.T)
    busy = np.ascontiguousarray(lanes.busy_s.T)
    widest, deepest = int(lanes.workers.max(initial=0)), int(lanes.depth.max(initial=0))
    wait, restart = np.zeros((parts, count)), np.zeros(count)
    now, k = np.zeros(count), 0
    for step, size in enumerate(np.tile(groups, parts)):
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
            done[k] = start + service[k]
            now = np.maximum(now, done[k]) + overhead[k]
            got[k] = now
            if k == 0:
                restart = asked = now
            k += 1
        wait[step // len(groups)] += now - asked
        now = now + busy[step]
    return Waits(wait, restart)


def parts_for(depth: int, groups: Ints) -> tuple[int, int]:
    """Return how many parts show the steady state of a queue this deep, and how many of them only lead there."""
    warm = min(max(1, -(-depth // int(groups.sum()))), MOST_WARM_PARTS)
    return warm + max(2, warm), warm

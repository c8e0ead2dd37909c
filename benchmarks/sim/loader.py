"""torch's in-order loader in front of a trainer, batch by batch, for one series (floats) or many at once (arrays).

Batch k belongs to worker k mod W. The loader hands out `W x p` indices at the start and one more each time the trainer
takes a batch, so worker k mod W starts batch k once it is done with batch k - W and batch k - W x p was taken. A batch
reaches the trainer `transport_s` after the worker is done; taking it costs `handover_s`. The trainer asks for all
batches of its accumulation group one after the other, copies them, then computes.
Source: `_MultiProcessingDataLoaderIter` in `torch.utils.data.dataloader`; `Trainer.get_batch_samples`.
*Not covered*: how long anything takes (`benchmarks.sim.job`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from objectives.schema import LoaderConfig

Seconds = Any
"""A float, or an array with one entry per replicate."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What goes through the loader costs, in seconds."""

    service: Callable[[], Seconds]
    """Called once per batch, in order of the batches."""
    fresh_s: float
    """Epoch start to workers that can begin, when they are started anew."""
    kept_s: float
    """The same when they were kept, and without workers."""
    handover_s: float = 0.0004
    transport_s: float = 0.0003


@dataclass(slots=True)
class Trace:
    """What happened: one row per step and one per batch."""

    steps: list[tuple[Seconds, Seconds, Seconds, Seconds]] = field(default_factory=list)
    """restart, wait, copy, compute"""
    batches: list[tuple[int, int, Seconds, Seconds, Seconds, Seconds]] = field(default_factory=list)
    """step, worker (0 for the trainer), start, end, requested, got"""
    end_s: Seconds = 0.0


def run(
    config: LoaderConfig,
    groups: Sequence[Sequence[int]],
    compute_s: Callable[[int], Seconds],
    h2d_s: Callable[[int], Seconds],
    costs: Costs,
    *,
    larger: Callable[[Seconds, Seconds], Seconds] = max,
    fresh: bool = False,
) -> Trace:
    """Return the trace of whole epochs, one after the other, each from an empty queue.

    Args:
        config: The loader's settings.
        groups: Per epoch, the batches of each of its steps.
        compute_s: Compute of step i.
        h2d_s: Copies of a step with n batches.
        costs: Of the loader.
        larger: `max` for floats, `numpy.maximum` for arrays.
        fresh: The first epoch starts its workers anew whatever the settings.
    """
    trace, now, step = Trace(), 0.0, 0
    workers, room = config.num_workers, config.depth
    for epoch, sizes in enumerate(groups):
        anew = workers > 0 and (not config.persistent_workers or (fresh and epoch == 0))
        ready = now + (costs.fresh_s if anew else costs.kept_s)
        done: list[Seconds] = []
        got: list[Seconds] = []
        for place, size in enumerate(sizes):
            began, restart = now, 0.0 * now
            for n in range(size):
                k, asked = len(got), now
                if workers:
                    start = larger(done[k - workers] if k >= workers else ready, got[k - room] if k >= room else ready)
                    end = start + costs.service()
                    now = larger(asked, end + costs.transport_s) + costs.handover_s
                else:
                    start = larger(asked, ready)
                    end = now = start + costs.service()
                done.append(end)
                got.append(now)
                trace.batches.append((step, 1 + k % workers if workers else 0, start, end, asked, now))
                if place == 0 and n == 0:
                    restart = now - began
            wait, copy, compute = now - began - restart, h2d_s(size), compute_s(step)
            now = now + copy + compute
            trace.steps.append((restart, wait, copy, compute))
            step += 1
    trace.end_s = now
    return trace

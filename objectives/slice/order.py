"""Which rows a slice reads, and in which batches: the same for every configuration.

Runs in: child. *Not covered*: reading them.
"""

from __future__ import annotations

import math

import torch

from objectives.schema import LoaderConfig, SlicePlan

Batches = list[list[int]]


def epoch_batches(rows: int, batch_size: int, seed: int, epoch: int) -> Batches:
    """Return the batches of one epoch in ms-swift's order: a permutation seeded by `seed + epoch`, none dropped."""
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    order = torch.randperm(rows, generator=generator).tolist()
    return [order[i : i + batch_size] for i in range(0, rows, batch_size)]


def timed_batches(
    rows: int, batch_size: int, accumulation: int, seed: int, plan: SlicePlan, ahead: int = 0
) -> list[Batches]:
    """Return the batches of the timed epochs; a slice inside an epoch always starts at the epoch's first batch.

    Such a slice has `ahead` batches more than are trained: without them a deep queue would hold the whole slice at
    once, and its workers would be idle while the steps are timed.
    """
    if plan.epochs:
        return [epoch_batches(rows, batch_size, seed, epoch) for epoch in range(plan.epochs)]
    return [epoch_batches(rows, batch_size, seed, 0)[: plan.timed_steps * accumulation + ahead]]


def drain_batches(rows: int, batch_size: int, seed: int, config: LoaderConfig) -> tuple[Batches, int]:
    """Return the batches of the drain epoch and how many of them only fill the queue.

    `num_workers x prefetch_factor` batches are ready before anyone asks; then at least 16, and 4 per worker, tell
    the loader's own rate. They come from the epoch's end, away from the timed rows as far as the data set allows.
    """
    filling = config.depth
    wanted = filling + max(4 * config.num_workers, 16)
    backwards = epoch_batches(rows, batch_size, seed, 0)[::-1]
    return (backwards * math.ceil(wanted / len(backwards)))[:wanted], filling

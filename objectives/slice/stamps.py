"""Stamps every batch in the process that makes it, so that service times are the loader's own truth.

Runs in: child and its workers. *Not covered*: when the trainer asked for a batch (`objectives.slice.clock`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Dataset


class Stamped(NamedTuple):
    """A batch with the times its service began and ended; a tuple, so that the pinning thread passes it on."""

    batch: Any
    start_s: float
    end_s: float
    pid: int


class StampedDataset(Dataset):
    """Wraps a map-style data set so that the fetch of each whole batch is stamped at its start."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.start_s = 0.0

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of one batch; PyTorch's fetcher calls this once a batch, in the worker."""
        self.start_s = time.monotonic()
        whole = getattr(self.dataset, "__getitems__", None)
        return whole(indices) if whole else [self.dataset[i] for i in indices]


class StampedCollate:
    """Wraps a collate function; what it returns carries the stamps of its batch."""

    def __init__(self, collate: Callable[[list[Any]], Any], dataset: StampedDataset) -> None:
        self.collate = collate
        self.dataset = dataset

    def __call__(self, samples: list[Any]) -> Stamped:
        """Return the collated batch with its stamps, `time.monotonic` seconds, one clock for all processes."""
        batch = self.collate(samples)
        return Stamped(batch, self.dataset.start_s, time.monotonic(), os.getpid())

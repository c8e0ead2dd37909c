"""The loader a slice trains from: ms-swift's, with the batches of the slice in place of the whole epoch.

Runs in: child and its workers. ms-swift's `DataLoaderShard` copies each batch to the device with a blocking `.to()`
and does not look ahead, unlike the loader accelerate prepares; the settings are exported to ms-swift, so its
behaviour is what is measured.
*Not covered*: what the batches are (`objectives.slice.measure`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from objectives.schema import LoaderConfig
from objectives.slice.clock import SliceClock
from objectives.slice.stamps import StampedCollate, StampedDataset

Batches = Sequence[Sequence[int]]


class PlannedBatches:
    """A batch sampler whose epochs are set from outside.

    Persistent workers keep the sampler they were started with, so it is changed in place, never replaced.
    """

    def __init__(self) -> None:
        self.epochs: Sequence[Batches] = [[]]
        self.epoch = 0

    def plan(self, epochs: Sequence[Batches]) -> None:
        """Serve these epochs from the next `iter()` on."""
        self.epochs, self.epoch = epochs, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch the next `iter()` serves; the trainer calls it."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Sequence[int]]:
        return iter(self.epochs[self.epoch])

    def __len__(self) -> int:
        return len(self.epochs[self.epoch])


class ShardLoader(DataLoader):
    """A loader that moves each batch to the device before it hands it on, as ms-swift's `DataLoaderShard`."""

    def __init__(self, dataset: Any, *, device: torch.device, clock: SliceClock, **kwargs: Any) -> None:
        self.device = device
        self.clock = clock
        super().__init__(dataset, **kwargs)

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the batch sampler."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            yield to_device(batch, self.device, self.clock)


class HeldLoader:
    """Serves batches held in memory: the same slice with data for free, from which the ceiling is read."""

    def __init__(self, epochs: Sequence[Sequence[Any]], dataset: Any, device: torch.device, clock: SliceClock) -> None:
        self.epochs = epochs
        self.dataset = dataset
        self.device = device
        self.clock = clock
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch the next `iter()` serves."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.epochs[self.epoch])

    def __iter__(self) -> Iterator[Any]:
        self.clock.epoch_begins()
        for batch in self.epochs[self.epoch]:
            now_s = time.monotonic()
            self.clock.batch(now_s, now_s, now_s, now_s, os.getpid(), batch)
            yield to_device(batch, self.device, self.clock)


def to_device(batch: dict[str, Any], device: torch.device, clock: SliceClock) -> dict[str, Any]:
    """Return the batch on the device; the copy blocks and its time is noted."""
    if device.type == "cpu":
        return batch
    began_s = time.monotonic()
    moved = {name: value.to(device) for name, value in batch.items()}
    clock.copied(time.monotonic() - began_s)
    return moved


def build_loader(
    dataset: Any, collate: Callable[[list[Any]], Any], config: LoaderConfig, device: torch.device, clock: SliceClock
) -> ShardLoader:
    """Return a loader with the configuration's knobs, its batches still to be planned."""
    stamped = StampedDataset(dataset)
    return ShardLoader(
        stamped,
        device=device,
        clock=clock,
        batch_sampler=PlannedBatches(),
        collate_fn=StampedCollate(collate, stamped),
        num_workers=config.num_workers,
        prefetch_factor=config.prefetch_factor,
        persistent_workers=config.persistent_workers,
        pin_memory=config.pin_memory,
        worker_init_fn=guard_worker if config.num_workers else None,
    )


def guard_worker(_worker_id: int) -> None:
    """End this worker as soon as the trainer is gone, even a stuck one.

    PyTorch's own watchdog looks every 5 s and only while the worker waits for work; a thread that joins the parent
    ends it at once, under every start method.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="tuner_guard", daemon=True).start()


def shut_down(loader: DataLoader) -> None:
    """Stop the loader's workers, which outlive the trainer when they are persistent, and wait until they are gone."""
    iterator, loader._iterator = loader._iterator, None
    if iterator is not None and hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
    del iterator
    for process in multiprocessing.active_children():
        process.join(timeout=5)
        if process.is_alive():
            process.kill()
            process.join()

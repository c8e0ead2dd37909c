"""One slice: drain epoch, timed epochs under the real Trainer, workers shut down. The heart of the project.

Runs in: child. The order matters and is told in `docs/measuring.md`: a queue that is full before the first step
would time the buffer, so it is drained in an epoch of its own; the timed epoch then starts at the same row for every
configuration, at a real epoch boundary, with its queue empty.
*Not covered*: what the series mean (`objectives.estimate`).
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader

from objectives.counters import difference, read_counters
from objectives.schema import LoaderConfig, RawSlice, SlicePlan
from objectives.slice.clock import SliceClock, hooked
from objectives.slice.loader import HeldLoader, ShardLoader, build_loader, shut_down
from objectives.slice.order import drain_batches, timed_batches
from objectives.slice.session import Session
from objectives.slice.trainer import build_trainer
from objectives.tree_cpu import own_fraction, tree_cpu_s

HELD_BYTES = 1 << 30
"""Host memory a ceiling's batches may take; a longer slice serves the first ones again."""

Tell = Callable[[str, int], None]
"""Called with the phase and the number of finished steps."""


def measure_trial(session: Session, config: LoaderConfig, plan: SlicePlan, tell: Tell) -> RawSlice:
    """Return the raw series of one slice with this configuration; no worker is left running after a success."""
    wall_s: dict[str, float] = {}
    began_s = time.monotonic()
    tell("build", 0)
    clock = SliceClock(session.synchronize, lambda step: tell("train", step))
    loader = build_loader(session.dataset, session.collate, config, session.device, clock)
    wall_s["build"] = time.monotonic() - began_s
    # On an error the workers are left to the parent, which kills the group: stuck ones would cost 5 s each here,
    # and their exit codes are still to be read.
    with hooked(clock):
        tell("drain", 0)
        drained = _drain(session, loader, config)
        clock.drained()
        wall_s["drain"] = time.monotonic() - began_s - sum(wall_s.values())
        loader.batch_sampler.plan(_timed(session, plan, ahead=config.depth))  # type: ignore[union-attr]
        clock.start(drained["teardown_s"])
        use = _train(session, loader, clock, plan, config, tell)
        wall_s["train"] = time.monotonic() - began_s - sum(wall_s.values())
    tell("shutdown", 0)
    shut_down(loader)
    wall_s["shutdown"] = time.monotonic() - began_s - sum(wall_s.values())
    return RawSlice(
        kind="trial",
        steps=clock.steps(),
        batches=clock.batches(),
        startup_s=drained["startup_s"],
        drain_batches_per_s=drained["batches_per_s"],
        batch_bytes=clock.batch_bytes,
        worker_uss_bytes=drained["worker_uss_bytes"],
        wall_s=wall_s,
        **use,
    )


def measure_ceiling(session: Session, plan: SlicePlan, tell: Tell) -> RawSlice:
    """Return the same slice fed from memory: the batches of the timed steps, in order, data for free."""
    began_s = time.monotonic()
    tell("build", 0)
    clock = SliceClock(session.synchronize, lambda step: tell("train", step))
    loader = HeldLoader(_held(session, plan), session.dataset, session.device, clock)
    clock.start()
    use = _train(session, loader, clock, plan, None, tell)
    return RawSlice(
        kind="ceiling",
        steps=clock.steps(),
        batches=clock.batches(),
        batch_bytes=clock.batch_bytes,
        wall_s={"train": time.monotonic() - began_s},
        **use,
    )


def _timed(session: Session, plan: SlicePlan, ahead: int = 0) -> list[list[list[int]]]:
    work = session.workload
    rows, size, group = len(session.dataset), work.per_device_train_batch_size, work.gradient_accumulation_steps
    return timed_batches(rows, size, group, work.seed, plan, ahead)


def _drain(session: Session, loader: ShardLoader, config: LoaderConfig) -> dict[str, Any]:
    """Run the drain epoch without training; return its figures, times in seconds.

    `DataLoader.__iter__` is called directly: the batches must not travel to the device.
    """
    work = session.workload
    batches, filling = drain_batches(len(session.dataset), work.per_device_train_batch_size, work.seed, config)
    loader.batch_sampler.plan([batches])  # type: ignore[union-attr]
    began_s = time.monotonic()
    iterator = DataLoader.__iter__(loader)
    next(iterator)
    first_s = time.monotonic()
    for _ in range(filling - 1):
        next(iterator)
    filled_s = time.monotonic()
    rest = len(batches) - max(filling, 1)
    for _ in range(rest):
        next(iterator)
    ended_s = time.monotonic()
    workers = getattr(iterator, "_workers", [])
    uss_bytes = max((_uss_bytes(worker.pid) for worker in workers), default=None)
    torn_s = time.monotonic()
    del iterator, workers  # ends the workers unless they are persistent, as the end of a real epoch does
    return {
        "startup_s": first_s - began_s,
        "batches_per_s": rest / (ended_s - filled_s),
        "worker_uss_bytes": uss_bytes,
        "teardown_s": time.monotonic() - torn_s,
    }


def _train(
    session: Session, loader: Any, clock: SliceClock, plan: SlicePlan, config: LoaderConfig | None, tell: Tell
) -> dict[str, Any]:
    """Train the timed epochs; return the CPU and GPU figures of that time."""
    tell("train", 0)
    with tempfile.TemporaryDirectory(prefix="out-") as output_dir, session.untouched_model() as model:
        trainer = build_trainer(
            model, loader, clock, workload=session.workload, plan=plan, config=config, output_dir=output_dir
        )
        if session.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        used_s = tree_cpu_s()
        before = read_counters()
        trainer.train()
        after = read_counters()
        own = own_fraction(before, after, tree_cpu_s() - used_s)
        use = difference(before, after)
        trainer.optimizer = trainer.lr_scheduler = None
        trainer.accelerator.free_memory()
    del trainer
    gc.collect()
    return {
        "cpu_busy_fraction": use.busy_fraction,
        "own_cpu_fraction": own,
        "cpu_pressure_fraction": use.pressure_fraction,
        "busiest_cpu_fraction": use.busiest_cpu_fraction,
        "gpu_peak_bytes": torch.cuda.max_memory_allocated() if session.device.type == "cuda" else None,
    }


def _held(session: Session, plan: SlicePlan) -> Sequence[Sequence[Any]]:
    """Return the batches of the timed epochs as tensors in host memory, pinned on CUDA; made once per plan."""
    if session.held is None or session.held[0] != plan:
        pinned = session.device.type == "cuda"
        pool: list[Any] = []
        held_bytes = 0
        epochs = []
        for batches in _timed(session, plan):
            epoch = []
            for indices in batches:
                if held_bytes < HELD_BYTES:
                    batch = session.collate([session.dataset.at_once(i) for i in indices])
                    pool.append({k: v.pin_memory() if pinned else v for k, v in batch.items()})
                    held_bytes += sum(v.nbytes for v in pool[-1].values())
                    epoch.append(pool[-1])
                else:
                    epoch.append(pool[len(epoch) % len(pool)])
            epochs.append(epoch)
        session.held = (plan, epochs)
    return session.held[1]


def _uss_bytes(pid: int) -> int:
    try:
        return psutil.Process(pid).memory_full_info().uss
    except psutil.Error:
        return 0

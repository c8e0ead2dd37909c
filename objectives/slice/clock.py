"""Times what the trainer does: every request for a batch, every copy to the device, every optimizer step.

Runs in: child. `transformers.Trainer` pulls the whole accumulation group before `on_step_begin`, so callbacks that
bracket a step never see the data wait; the loader's iterator is hooked instead, whatever loader the trainer uses.
*Not covered*: what happened inside a worker (`objectives.slice.stamps`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from objectives.counters import ThreadTimes, read_thread_times
from objectives.schema import BatchSeries, StepSeries
from objectives.slice.stamps import Stamped

DRAIN = -1
"""Step number of the batches that are only drained."""


class SliceClock:
    """Collects the raw series of one slice. All times are `time.monotonic` seconds.

    Args:
        synchronize: Waits for the device; called once per optimizer step.
        on_step: Called with the number of finished steps.
    """

    def __init__(self, synchronize: Callable[[], None], on_step: Callable[[int], None]) -> None:
        self._synchronize = synchronize
        self._on_step = on_step
        self._steps: dict[str, list[Any]] = {name: [] for name in StepSeries.__dataclass_fields__}
        self._batches: dict[str, list[Any]] = {name: [] for name in BatchSeries.__dataclass_fields__}
        self.origin_s = 0.0
        self.batch_bytes = 0
        self._step_began_s = 0.0
        self._boundary_s: float | None = None
        self._carried_s = 0.0
        self._h2d_s = self._wait_s = self._restart_s = 0.0
        self._samples = self._tokens = 0
        self._threads: ThreadTimes | None = None
        self.timing = False

    def start(self, teardown_s: float = 0.0) -> None:
        """Start the timed part: the next `iter()` on the loader begins the first step.

        Args:
            teardown_s: What ending the epoch before took; it belongs to the first restart.
        """
        self.timing, self._carried_s = True, teardown_s

    def epoch_begins(self) -> None:
        """Note `iter()` on the loader: up to the first batch, time is restart and not data wait."""
        if not self.timing:
            return
        now_s = time.monotonic()
        if not self._steps["step_s"] and self._boundary_s is None:
            self.origin_s = self._step_began_s = now_s - self._carried_s
            self._threads = read_thread_times()
        self._boundary_s = self._step_began_s

    def batch(self, requested_s: float, got_s: float, start_s: float, end_s: float, pid: int, batch: Any) -> None:
        """Note one delivered batch."""
        series = self._batches
        series["step"].append(len(self._steps["step_s"]) if self.timing else DRAIN)
        series["worker"].append(pid)
        series["service_start_s"].append(start_s)
        series["service_end_s"].append(end_s)
        series["requested_s"].append(requested_s)
        series["got_s"].append(got_s)
        samples, tokens, nbytes = _size(batch)
        self.batch_bytes = max(self.batch_bytes, nbytes)
        self._samples += samples
        self._tokens += tokens
        if self._boundary_s is not None:
            self._restart_s += got_s - self._boundary_s
            self._boundary_s = None
        else:
            self._wait_s += got_s - requested_s

    def copied(self, seconds: float) -> None:
        """Note one copy of a batch to the device."""
        self._h2d_s += seconds

    def step_ends(self) -> None:
        """Close an optimizer step, after waiting for the device."""
        self._synchronize()
        now_s = time.monotonic()
        threads = read_thread_times()
        steps = self._steps
        steps["step_s"].append(now_s - self._step_began_s)
        steps["restart_s"].append(self._restart_s)
        steps["data_wait_s"].append(self._wait_s)
        steps["h2d_s"].append(self._h2d_s)
        steps["samples"].append(self._samples)
        steps["tokens"].append(self._tokens)
        if self._threads is not None:
            if threads.run_delay_s is not None and self._threads.run_delay_s is not None:
                steps["run_delay_s"].append(threads.run_delay_s - self._threads.run_delay_s)
            steps["trainer_cpu_s"].append(threads.cpu_s - self._threads.cpu_s)
        self._threads = threads
        self._reset_step(now_s)
        self._on_step(len(steps["step_s"]))

    def drained(self) -> None:
        """Forget what the drain epoch added to the sums of a step."""
        self._reset_step(0.0)

    def _reset_step(self, now_s: float) -> None:
        self._step_began_s = now_s
        self._h2d_s = self._wait_s = self._restart_s = 0.0
        self._samples = self._tokens = 0

    def steps(self) -> StepSeries:
        """Return the finished steps."""
        return StepSeries(**{name: tuple(values) for name, values in self._steps.items()})

    def batches(self) -> BatchSeries:
        """Return the batches, times relative to the start of the first timed step."""
        shifted = {
            name: tuple(v - self.origin_s for v in values) if name.endswith("_s") else tuple(values)
            for name, values in self._batches.items()
        }
        return BatchSeries(**shifted)


@contextmanager
def hooked(clock: SliceClock) -> Iterator[None]:
    """Route every loader's `iter()` and `next()` through the clock while the block runs, and take the stamps off.

    The class is hooked, not an instance: a persistent loader hands out the same iterator again and accelerate wraps
    loaders in its own classes. Batches without stamps (some other loader) pass through untouched.
    """
    original_iter, original_next = DataLoader.__iter__, _BaseDataLoaderIter.__next__

    def timed_iter(loader: DataLoader) -> Any:
        clock.epoch_begins()
        return original_iter(loader)

    def timed_next(iterator: _BaseDataLoaderIter) -> Any:
        requested_s = time.monotonic()
        item = original_next(iterator)
        if not isinstance(item, Stamped):
            return item
        clock.batch(requested_s, time.monotonic(), item.start_s, item.end_s, item.pid, item.batch)
        return item.batch

    DataLoader.__iter__ = timed_iter  # type: ignore[method-assign]
    _BaseDataLoaderIter.__next__ = timed_next  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        DataLoader.__iter__ = original_iter  # type: ignore[method-assign]
        _BaseDataLoaderIter.__next__ = original_next  # type: ignore[method-assign]


def _size(batch: Any) -> tuple[int, int, int]:
    """Return samples, tokens (padding included: it is computed too) and bytes of a batch."""
    ids = batch["input_ids"]
    return int(ids.shape[0]), int(ids.numel()), sum(t.nbytes for t in batch.values() if hasattr(t, "nbytes"))

"""The pipeline model behind the synthetic objective: torch's in-order loader in front of a trainer, as arithmetic.

Runs in: parent. Workers are numbers, not processes. Batch k goes to worker k mod W, which starts it as soon as it is
done with batch k - W and the trainer has taken batch k - W x p (that makes room in the queue of W x p):
`start[k] = max(done[k - W], got[k - W x p])`, `got[k] = max(requested[k], done[k])`. The trainer asks for its whole
accumulation group, then computes, as `transformers.Trainer` does. Source: `_MultiProcessingDataLoaderIter` in
`torch.utils.data.dataloader`, which sends the next index to a worker each time the trainer takes a batch.
*Not covered*: where the times come from and how they scatter (`objectives.synthetic`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from objectives.schema import BatchSeries, LoaderConfig, StepSeries

DRAIN = -1
TRAINER = 0
"""Worker number of batches that the trainer makes itself, with 0 workers."""


@dataclass(frozen=True, slots=True)
class Batch:
    """When one batch was made, asked for and taken, in seconds."""

    worker: int
    start_s: float
    end_s: float
    requested_s: float
    got_s: float


@dataclass(slots=True)
class Epoch:
    """The loader through one epoch: an empty queue whose workers can start at `ready_s`."""

    config: LoaderConfig
    ready_s: float
    service_s: Iterator[float]
    _done_s: list[float] = field(default_factory=list)
    _got_s: list[float] = field(default_factory=list)

    def next(self, requested_s: float) -> Batch:
        """Return the next batch, asked for at `requested_s`."""
        workers, depth, k = self.config.num_workers, self.config.depth, len(self._got_s)
        if workers == 0:
            start_s = max(requested_s, self.ready_s)
        else:
            free_s = self._done_s[k - workers] if k >= workers else self.ready_s
            room_s = self._got_s[k - depth] if k >= depth else self.ready_s
            start_s = max(free_s, room_s)
        end_s = start_s + next(self.service_s)
        got_s = max(requested_s, end_s)
        self._done_s.append(end_s)
        self._got_s.append(got_s)
        return Batch(TRAINER if workers == 0 else 1 + k % workers, start_s, end_s, requested_s, got_s)


@dataclass(frozen=True, slots=True)
class Times:
    """What the model is fed with: one entry of `compute_s`, `samples` and `tokens` per step, all in seconds."""

    compute_s: Sequence[float]
    h2d_s: float
    samples: Sequence[int]
    tokens: Sequence[int]
    fresh_s: float
    """`iter()` to workers that can start, workers started anew."""
    kept_s: float
    """The same with workers that were kept."""
    trainer_cpu_fraction: float
    """Share of the compute part in which the trainer's threads run."""
    delayed_fraction: float
    """Share of the compute part in which they wait for a core."""


@dataclass(frozen=True, slots=True)
class Run:
    """One slice as the model has it."""

    steps: StepSeries
    batches: BatchSeries
    startup_s: float
    drain_batches_per_s: float
    service_s: float
    """CPU seconds of all batches of the timed steps."""


def run(config: LoaderConfig, groups: Sequence[Sequence[int]], times: Times, service_s: Iterator[float]) -> Run:
    """Return a drained start-up and the timed epochs after it.

    Args:
        config: The loader's settings.
        groups: Per epoch, the number of batches of each of its optimizer steps.
        times: What steps, copies and starts take.
        service_s: What each batch takes in its worker, in order; endless.
    """
    drained, startup_s, rate = _drain(config, times, service_s)
    ended_s = drained[-1].got_s
    batches = [(DRAIN, Batch(b.worker, *(t - ended_s for t in _times_of(b)))) for b in drained]
    columns: dict[str, list[Any]] = {name: [] for name in StepSeries.__dataclass_fields__}
    begins_s, made_s, step = 0.0, 0.0, 0
    for sizes in groups:
        keeps = config.persistent_workers or config.num_workers == 0
        epoch = Epoch(config, begins_s + (times.kept_s if keeps else times.fresh_s), service_s)
        for place, size in enumerate(sizes):
            restart_s = wait_s = 0.0
            asked_s = begins_s
            for n in range(size):
                batch = epoch.next(asked_s)
                batches.append((step, batch))
                made_s += batch.end_s - batch.start_s
                if place == 0 and n == 0:
                    restart_s = batch.got_s - begins_s
                else:
                    wait_s += batch.got_s - asked_s
                asked_s = batch.got_s
            compute_s = times.compute_s[step]
            step_s = restart_s + wait_s + times.h2d_s + compute_s
            own_service_s = restart_s + wait_s if config.num_workers == 0 else 0.0
            row = {
                "step_s": step_s, "restart_s": restart_s, "data_wait_s": wait_s, "h2d_s": times.h2d_s,
                "samples": times.samples[step], "tokens": times.tokens[step],
                "run_delay_s": compute_s * times.delayed_fraction,
                "trainer_cpu_s": compute_s * times.trainer_cpu_fraction + own_service_s,
            }  # fmt: skip
            for name, value in row.items():
                columns[name].append(value)
            begins_s += step_s
            step += 1
    steps = StepSeries(**{name: tuple(values) for name, values in columns.items()})
    return Run(steps, _series(batches), startup_s, rate, made_s)


def _drain(config: LoaderConfig, times: Times, service_s: Iterator[float]) -> tuple[list[Batch], float, float]:
    """Return an epoch without training: its batches, `iter()` to first batch, and batches/s after the first queue."""
    epoch = Epoch(config, times.fresh_s if config.num_workers else times.kept_s, service_s)
    batches = [epoch.next(0.0)]
    for _ in range(config.depth + max(4 * config.num_workers, 16) - 1):
        batches.append(epoch.next(batches[-1].got_s))
    first = max(config.depth, 1) - 1
    rate = (len(batches) - 1 - first) / (batches[-1].got_s - batches[first].got_s)
    return batches, batches[0].got_s, rate


def _times_of(batch: Batch) -> tuple[float, float, float, float]:
    return batch.start_s, batch.end_s, batch.requested_s, batch.got_s


def _series(batches: Sequence[tuple[int, Batch]]) -> BatchSeries:
    return BatchSeries(
        step=tuple(step for step, _ in batches),
        worker=tuple(b.worker for _, b in batches),
        service_start_s=tuple(b.start_s for _, b in batches),
        service_end_s=tuple(b.end_s for _, b in batches),
        requested_s=tuple(b.requested_s for _, b in batches),
        got_s=tuple(b.got_s for _, b in batches),
    )

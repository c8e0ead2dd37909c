"""Measures slices of a job on a host whose noise goes on between them, in the form the product stores.

A slice is what `objectives.slice.measure` does: workers started, a drain epoch without training, a real epoch end, the
timed epochs from an empty queue.
*Not covered*: the order of slices (`benchmarks.confirmations`, `benchmarks.studies`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.sim.job import SPIKE_CHANCE, VISIBLE_SHAPE, VISIBLE_SHARE, Job
from benchmarks.sim.loader import Trace, run
from benchmarks.sim.noise import Array, factors
from objectives.estimate import summarise
from objectives.schema import BatchSeries, LoaderConfig, Measurement, RawSlice, StepSeries

GAP_S = 4.0
"""Trainer built, workers started, queue drained: what lies between two slices, during which the host drifts on."""
QUIET_DELAY = 0.0003
"""Run-queue delay without load, as a share of compute: recorded below 0.1 %."""
TRAINER_CPU = 0.45
CHUNK_SLICES = 64
BATCH_BYTES = 1 << 20
TOKENS_PER_BATCH = 512
_TRAINER_PID = 1000


@dataclass(slots=True)
class Machine:
    """One host training one job; every slice moves its time on."""

    job: Job
    profile: str
    rng: np.random.Generator
    _noise: Array = field(default_factory=lambda: np.empty(0))
    _at: int = 0

    def measure(self, config: LoaderConfig) -> Measurement:
        """Return one slice of this configuration."""
        job = self.job
        groups = self._groups()
        drained, rate = self._drain(config)
        compute, delays = self._compute(config, [size for epoch in groups for size in epoch])
        costs = job.costs(config, self.rng, None)
        trace = run(config, groups, compute.__getitem__, job.h2d_s(config), costs)
        raw = self._raw(config, trace, drained, rate, [s for epoch in groups for s in epoch], delays)
        return summarise(raw, plan=job.plan, workload_batch_size=1, depth=config.depth)

    def ceiling(self) -> Measurement:
        """Return a slice fed from pinned memory."""
        sizes = [size for epoch in self._groups() for size in epoch]
        free = LoaderConfig(0, None, False, True)
        compute, delays = self._compute(free, sizes)
        copies = [self.job.h2d_s(free)(size) for size in sizes]
        rows = [(0.0, 0.0, copy, c) for copy, c in zip(copies, compute, strict=True)]
        raw = RawSlice(kind="ceiling", steps=_steps(rows, sizes, delays, [0.0] * len(sizes)), batch_bytes=BATCH_BYTES)
        return summarise(raw, plan=self.job.plan, workload_batch_size=1)

    def _groups(self) -> list[tuple[int, ...]]:
        plan, whole = self.job.plan, self.job.epoch_groups
        return [whole] * plan.epochs if plan.epochs else [whole[: plan.timed_steps]]

    def _compute(self, config: LoaderConfig, sizes: list[int]) -> tuple[list[float], list[float]]:
        """Return compute and the run-queue delay in it, per step, in seconds; a gap of the host's noise goes by."""
        job, n = self.job, len(sizes)
        gap = max(1, round(GAP_S / job.compute_s))
        if self._at + n + gap > self._noise.size:
            # A new stretch of the same kind of host; a whole confirmation or study fits into one.
            length = CHUNK_SLICES * (n + gap)
            self._noise = factors(self.profile, self.rng, 1, length, job.compute_s)[0]
            self._at = 0
        noise = self._noise[self._at : self._at + n]
        self._at += n + gap
        whole_s = job.compute_s / job.accumulation * np.array(sizes)
        quiet_s = QUIET_DELAY * whole_s * self.rng.gamma(2.0, 0.5, n)
        extra = job.load(config) - 1.0
        if not extra:
            return (whole_s * noise).tolist(), quiet_s.tolist()
        seen = VISIBLE_SHARE * extra if job.visible else 0.0
        level = seen * self.rng.gamma(VISIBLE_SHAPE, 1.0 / VISIBLE_SHAPE)
        spikes = whole_s * level * (self.rng.random(n) < SPIKE_CHANCE) * self.rng.exponential(size=n) / SPIKE_CHANCE
        return (whole_s * noise * (1.0 + extra - seen) + spikes).tolist(), (quiet_s + spikes).tolist()

    def _drain(self, config: LoaderConfig) -> tuple[Trace, float]:
        """Return the drain epoch and its rate after the first queue."""
        batches = config.depth + max(4 * config.num_workers, 16)
        costs = self.job.costs(config, self.rng, None, self.job.drain_factor)
        trace = run(config, [(1,) * batches], lambda _: 0.0, lambda _: 0.0, costs, fresh=True)
        first = max(config.depth, 1) - 1
        return trace, (batches - 1 - first) / (trace.batches[-1][5] - trace.batches[first][5])

    def _raw(
        self, config: LoaderConfig, trace: Trace, drained: Trace, rate: float, sizes: list[int], delays: list[float]
    ) -> RawSlice:
        made = [0.0] * len(sizes)
        for step, _, start, end, _, _ in trace.batches:
            made[step] += end - start
        steps = _steps(trace.steps, sizes, delays, made if config.num_workers == 0 else [0.0] * len(sizes))
        crowded = max(1.0, config.num_workers / self.job.cores)
        cpu_s = sum(made) / crowded + TRAINER_CPU * sum(steps.compute_s)
        shift = drained.end_s
        early: list[Any] = [(-1, worker, *(t - shift for t in times)) for _, worker, *times in drained.batches]
        columns = list(zip(*early, *trace.batches, strict=True))
        return RawSlice(
            kind="trial",
            steps=steps,
            batches=BatchSeries(columns[0], tuple(_TRAINER_PID + w for w in columns[1]), *columns[2:]),
            startup_s=drained.batches[0][5],
            drain_batches_per_s=rate,
            batch_bytes=BATCH_BYTES,
            cpu_busy_fraction=min(1.0, cpu_s / (sum(steps.step_s) * self.job.cores)),
            wall_s={"build": 0.0, "drain": shift, "train": trace.end_s, "shutdown": 0.0},
        )


def _steps(rows: list[Any], sizes: list[int], delays: list[float], services: list[float]) -> StepSeries:
    restart, wait, copy, compute = zip(*rows, strict=True)
    return StepSeries(
        step_s=tuple(sum(row) for row in rows),
        restart_s=restart,
        data_wait_s=wait,
        h2d_s=copy,
        samples=tuple(sizes),
        tokens=tuple(TOKENS_PER_BATCH * size for size in sizes),
        run_delay_s=tuple(delays),
        trainer_cpu_s=tuple(TRAINER_CPU * c + s for c, s in zip(compute, services, strict=True)),
    )

"""The objective that trains nothing: a pipeline model with seeded noise, milliseconds a slice.

Runs in: parent. For trying the search, the storage and the reports, and for tests: its truth is known.
*Not covered*: the recursion (`objectives.synthetic_pipeline`), the job's parameters (`objectives.synthetic_job`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from objectives.estimate import summarise
from objectives.protocol import Choices, JsonScalar, Prepared, Progress
from objectives.schema import LoaderConfig, LoadSample, Measurement, Outcome, RawSlice, StepSeries
from objectives.synthetic_job import SyntheticJob
from objectives.synthetic_pipeline import Run, Times, run

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16)
PREFETCH = (2, 4, 8)
CEILINGS = 2


class SyntheticObjective:
    """Measures configurations of a made-up job.

    The noise of a slice depends on the seed, the configuration and how often it was measured before, on nothing else:
    the same seed gives the same study in any order of trials.

    Args:
        job: What is loaded for.
        seed: Of the noise.
        measured_before: How often each configuration was measured in earlier runs of the study; a resumed study then
            goes on with fresh noise, and scripted crashes keep their place.
    """

    name = "synthetic"

    def __init__(
        self,
        job: SyntheticJob | None = None,
        *,
        seed: int = 0,
        measured_before: Mapping[LoaderConfig, int] | None = None,
    ) -> None:
        self.job = job or SyntheticJob()
        self.seed = seed
        self._measured = dict(measured_before or {})
        self._ceilings = 0

    def identity(self) -> Mapping[str, JsonScalar]:
        """Return the job's parameters and the seed of its noise."""
        return {**{f"job.{k}": v for k, v in self.job.parameters().items()}, "noise.seed": self.seed}

    def choices(self) -> Choices:
        """Return all four knobs; up to twice as many workers as cores, so that contention can show."""
        workers = tuple(w for w in WORKERS if w <= 2 * self.job.cores)
        return Choices(
            values={
                "num_workers": workers,
                "prefetch_factor": PREFETCH,
                "persistent_workers": (False, True),
                "pin_memory": (False, True),
            },
            reasons={
                "num_workers": f"up to twice the synthetic host's {self.job.cores} cores",
                "prefetch_factor": "the usual values",
                "persistent_workers": "both",
                "pin_memory": "both: the synthetic host has an accelerator",
            },
        )

    def prepare(self, remembered: Mapping[str, JsonScalar], progress: Progress) -> Prepared:
        """Return two ceilings; there is no device to warm."""
        ceilings = tuple(self.ceiling(progress) for _ in range(CEILINGS))
        return Prepared(ceilings, asdict(self.job.plan), {"synthetic.cores": self.job.cores})

    def measure(self, config: LoaderConfig, progress: Progress) -> Outcome:
        """Return the outcome of one slice."""
        ordinal, n = sum(self._measured.values()), self._measured.get(config, 0)
        self._measured[config] = n + 1
        crash = self.job.crash(config, ordinal)
        if crash is not None:
            return crash
        plan, rng = self.job.plan, random.Random(f"{self.seed}|{config.key}|{n}")
        progress(f"step {plan.timed_steps}/{plan.timed_steps}")
        slice_run = run(config, self._groups(), self._times(config, rng), self._services(config, rng))
        raw = self._raw(config, slice_run)
        load = self._load(config, raw)
        return summarise(raw, plan=plan, workload_batch_size=self.job.batch_size, load=load, depth=config.depth)

    def ceiling(self, progress: Progress) -> Measurement:
        """Return the next ceiling."""
        n, self._ceilings = self._ceilings, self._ceilings + 1
        progress(f"ceiling {n + 1}")
        return self._ceiling(random.Random(f"{self.seed}|ceiling|{n}"))

    def close(self) -> None:
        """Release nothing: no process was started and no file opened."""

    def _groups(self) -> list[tuple[int, ...]]:
        """Return the batches of each timed step, per epoch."""
        plan, whole = self.job.plan, self.job.epoch_groups
        return [whole] * plan.epochs if plan.epochs else [whole[: plan.timed_steps]]

    def _times(self, config: LoaderConfig, rng: random.Random) -> Times:
        job, sizes = self.job, [size for epoch in self._groups() for size in epoch]
        slow = job.slowdown(config)
        slice_factor = _lognormal(rng, job.slice_noise_sd)
        per_batch_s = job.compute_s / job.accumulation * slow * slice_factor
        return Times(
            compute_s=[per_batch_s * size * _lognormal(rng, job.step_noise_sd) for size in sizes],
            h2d_s=job.h2d_s * (1.0 if config.pin_memory else job.unpinned_factor),
            samples=[size * job.batch_size for size in sizes],
            tokens=self._tokens(sizes),
            fresh_s=config.num_workers * job.startup_per_worker_s,
            kept_s=job.restart_kept_s,
            trainer_cpu_fraction=job.trainer_cpu_fraction / slow,
            delayed_fraction=1.0 - 1.0 / slow,
        )

    def _tokens(self, sizes: list[int]) -> list[int]:
        """Return the tokens of each step: the same rows in the same order whatever the loader's settings."""
        rows = random.Random(f"{self.seed}|rows")
        return [sum(rows.randint(40, 200) for _ in range(size * self.job.batch_size)) for size in sizes]

    def _services(self, config: LoaderConfig, rng: random.Random) -> Iterator[float]:
        """Yield what each batch takes; more workers than cores share them, so each takes longer."""
        crowded = max(1.0, config.num_workers / self.job.cores)
        while True:
            yield self.job.service_s * crowded * _lognormal(rng, self.job.service_noise_sd)

    def _raw(self, config: LoaderConfig, slice_run: Run) -> RawSlice:
        job, steps = self.job, slice_run.steps
        timed_s, crowded = sum(steps.step_s), max(1.0, config.num_workers / job.cores)
        trainer_s = sum(steps.compute_s) * job.trainer_cpu_fraction / job.slowdown(config)
        return RawSlice(
            kind="trial",
            steps=steps,
            batches=slice_run.batches,
            startup_s=slice_run.startup_s,
            drain_batches_per_s=slice_run.drain_batches_per_s,
            batch_bytes=job.batch_bytes,
            worker_uss_bytes=job.worker_bytes if config.num_workers else None,
            cpu_busy_fraction=min(1.0, (slice_run.service_s / crowded + trainer_s) / (timed_s * job.cores)),
            wall_s={"build": 0.0, "drain": -slice_run.batches.requested_s[0], "train": timed_s, "shutdown": 0.0},
        )

    def _load(self, config: LoaderConfig, raw: RawSlice) -> tuple[LoadSample, ...]:
        """Return one look at the host per step, at its end."""
        samples: list[LoadSample] = []
        t_s = 0.0
        for step_s, compute_s in zip(raw.steps.step_s, raw.steps.compute_s, strict=True):
            t_s += step_s
            samples.append(
                LoadSample(
                    t_s=t_s,
                    cpu_busy_fraction=raw.cpu_busy_fraction,
                    memory_fraction=self.job.memory_fraction(config),
                    shm_used_bytes=config.depth * self.job.batch_bytes,
                    gpu_util_fraction=compute_s / step_s,
                )
            )
        return tuple(samples)

    def _ceiling(self, rng: random.Random) -> Measurement:
        """Return a slice whose batches lie ready in pinned memory."""
        pinned = LoaderConfig(0, None, False, True)
        times = self._times(pinned, rng)
        n = len(times.compute_s)
        zeros = (0.0,) * n
        raw = RawSlice(
            kind="ceiling",
            steps=StepSeries(
                step_s=tuple(times.h2d_s + compute_s for compute_s in times.compute_s),
                restart_s=zeros,
                data_wait_s=zeros,
                h2d_s=(times.h2d_s,) * n,
                samples=tuple(times.samples),
                tokens=tuple(times.tokens),
                run_delay_s=zeros,
                trainer_cpu_s=tuple(compute_s * times.trainer_cpu_fraction for compute_s in times.compute_s),
            ),
            batch_bytes=self.job.batch_bytes,
            cpu_busy_fraction=min(1.0, self.job.trainer_cpu_fraction / self.job.cores),
        )
        return summarise(raw, plan=self.job.plan, workload_batch_size=self.job.batch_size)


def _lognormal(rng: random.Random, sd: float) -> float:
    """Return a factor around 1 whose mean is 1, so that more noise does not make a job slower."""
    return math.exp(sd * rng.gauss(0.0, 1.0) - sd * sd / 2)

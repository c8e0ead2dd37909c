"""A made-up job on a made-up host, and its truth: what a sample takes in the long run with each configuration.

Load: with as many workers as cores or more, compute takes `1 + contention` as long on average; where the kernel would
show it, a part of that arrives as run-queue delay in few steps of few slices (recorded on 6 CPUs: 3.75 ± 2.35 % of
compute with 6x4, 0.87 ± 0.83 % with 12x4, 1.10 ± 0.55 % with 8x8; below 0.1 % with fewer workers than cores).
A truth is over all rows of the data set, whichever a slice reads.
*Not covered*: memory, crashes, other load.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from benchmarks.sim.loader import Costs, run
from benchmarks.sim.noise import Array, factors
from objectives.schema import LoaderConfig, SlicePlan

TRUTH_STEPS = 96_000
"""Steps per configuration behind a truth; every configuration sees the same noise, so differences are far better."""
TRUTH_REPLICATES = 240
VISIBLE_SHARE = 0.35
"""Part of the contention that shows as run-queue delay, on average."""
VISIBLE_SHAPE = 2.5
"""Gamma shape of that delay between slices: recorded coefficients of variation are 0.5 to 0.95."""
ROW_JITTER_SD = 0.1
"""What the service of one and the same batch scatters from slice to slice."""
SPIKE_CHANCE = 0.2
"""Share of a loaded slice's steps that carry the delay."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is trained and where. Times are means, in seconds."""

    name: str
    compute_s: float
    """Of a full step."""
    service_s: float
    """One batch in one worker that has the host to itself."""
    accumulation: int = 1
    cores: int = 6
    epoch_batches: int = 4000
    timed_steps: int = 30
    h2d_fraction: float = 0.002
    """Copies from pinned memory, as a share of compute; three times that from pageable memory."""
    growth: float = 0.03
    """How much longer a service takes for each further worker."""
    tail: Literal["light", "heavy", "harsh"] = "light"
    """Services are 0.8 + 0.2 x exponential, or lognormal with a few batches several times longer."""
    contention: float = 0.0
    visible: bool = True
    same_rows: bool = False
    """Every slice reads the same rows, as real ones do: what is long in one slice is long in all of them."""
    startup_s: float = 0.2
    """Per worker."""
    drain_factor: float = 0.87
    """A service with nothing else to do: 6 to 25 % faster in the recordings."""

    @property
    def plan(self) -> SlicePlan:
        """Return how a slice of this job is measured: whole epochs if one fits."""
        steps = len(self.epoch_groups)
        if steps > self.timed_steps:
            return SlicePlan(self.timed_steps, 0, self.epoch_batches)
        epochs = self.timed_steps // steps
        return SlicePlan(epochs * steps, epochs, self.epoch_batches)

    @property
    def epoch_groups(self) -> tuple[int, ...]:
        """Return the batches of every step of an epoch; the last step may be short."""
        full, rest = divmod(self.epoch_batches, self.accumulation)
        return (self.accumulation,) * full + ((rest,) if rest else ())

    def loaded(self, config: LoaderConfig) -> bool:
        """Return whether the workers compete with the trainer."""
        return config.num_workers >= self.cores

    def load(self, config: LoaderConfig) -> float:
        """Return how much longer compute takes on average beside the workers."""
        return 1.0 + (self.contention if self.loaded(config) else 0.0)

    def h2d_s(self, config: LoaderConfig) -> Callable[[int], float]:
        """Return what the copies of a step with n batches take."""
        whole = self.h2d_fraction * self.compute_s * (1.0 if config.pin_memory else 3.0)
        return lambda batches: whole * batches / self.accumulation

    def costs(
        self, config: LoaderConfig, rng: np.random.Generator, replicates: int | None, factor: float = 1.0
    ) -> Costs:
        """Return what the loader costs; services are arrays over replicates, or floats without."""
        workers = max(1, config.num_workers)
        mean_s = factor * self.service_s * (1 + self.growth * (workers - 1)) * max(1.0, workers / self.cores)
        rows = np.random.default_rng(zlib.crc32(self.name.encode())) if self.same_rows and factor == 1.0 else None
        buffer: list[Array] = []

        def service() -> float | Array:
            if not buffer:
                drawn = mean_s * _shape(self.tail, rows or rng, (64, replicates or 1))
                if rows is not None:
                    drawn *= np.exp(ROW_JITTER_SD * rng.normal(size=drawn.shape) - ROW_JITTER_SD**2 / 2)
                buffer.extend(drawn[::-1] if replicates else drawn[::-1, 0].tolist())
            return buffer.pop()

        return Costs(service, fresh_s=self.startup_s * config.num_workers, kept_s=0.002)


def _shape(tail: str, rng: np.random.Generator, size: tuple[int, int]) -> Array:
    """Return services of mean 1."""
    if tail == "light":
        light: Array = 0.8 + 0.2 * rng.exponential(size=size)
        return light
    heavy: Array = np.exp(0.35 * rng.normal(size=size) - 0.35**2 / 2)
    if tail == "harsh":
        heavy *= (1.0 + 3.0 * rng.exponential(size=size) * (rng.random(size) < 0.05)) / 1.15
    return heavy


def sample_times(job: Job, profile: str, configs: Sequence[LoaderConfig]) -> dict[LoaderConfig, float]:
    """Return seconds per batch in the long run, restarts and all, for every configuration."""
    quiet = replace(job, name="", visible=True, contention=0.0, same_rows=False)
    harmed = replace(quiet, contention=job.contention)
    return {c: _sample_time(harmed if job.loaded(c) else quiet, profile, c) for c in configs}


@lru_cache(maxsize=100_000)
def _sample_time(job: Job, profile: str, config: LoaderConfig) -> float:
    epochs = max(1, 200 // len(job.epoch_groups))
    cut = job.epoch_groups[: max(1, TRUTH_STEPS // TRUTH_REPLICATES)]
    steps = epochs * len(cut)
    noise = _truth_noise(profile, steps, round(job.compute_s, 3))
    scale = job.compute_s * job.load(config) / job.accumulation
    sizes = [size for _ in range(epochs) for size in cut]
    costs = job.costs(config, np.random.default_rng(3), TRUTH_REPLICATES)
    trace = run(
        config, [cut] * epochs, lambda i: scale * sizes[i] * noise[i], job.h2d_s(config), costs, larger=np.maximum
    )
    total_s = float(np.mean(trace.end_s))
    if len(cut) < len(job.epoch_groups):  # the rest of the epoch is like its second half, which has no restart in it
        half = len(cut) // 2
        steady_s = float(np.mean([np.mean(sum(row)) for row in trace.steps[half:]]))
        total_s += steady_s * (len(job.epoch_groups) - len(cut))
    return total_s / (epochs * job.epoch_batches)


@lru_cache(maxsize=32)
def _truth_noise(profile: str, steps: int, step_s: float) -> Array:
    """Return factors of shape (steps, replicates), the same for every configuration."""
    noise: Array = np.ascontiguousarray(factors(profile, np.random.default_rng(7), TRUTH_REPLICATES, steps, step_s).T)
    noise /= noise.mean()
    return noise

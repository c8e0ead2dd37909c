"""A pipeline machine as an objective: one noisy number per trial, memory and load beside it, crashes as values.

The load penalty is part of the machine, so it also gives the score of a trial. *Not covered*: series of steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from benchmarks.surfaces.pipeline import (
    MAX_WORKERS,
    MEMORY_NOISE,
    OUTLIER_FACTOR,
    OUTLIER_SHARE,
    PREFETCH,
    Machine,
    truth,
)
from objectives.protocol import Choices, JsonScalar, Prepared, Progress
from objectives.schema import Crash, LoaderConfig, Measurement, Outcome, Penalty, Score

BASELINE = LoaderConfig(1, 2, True, True)
"""ms-swift's defaults, as in a real study."""


class PipelineObjective:
    """Measures one machine; the same seed gives the same noise, trial by trial."""

    name = "pipeline"

    def __init__(self, machine: Machine, seed: int) -> None:
        self.machine = machine
        self._rng = np.random.default_rng(seed)
        self._aside = np.random.default_rng([seed, 1])  # extras must not shift the noise of the values

    def identity(self) -> Mapping[str, JsonScalar]:
        """Return the machine's name."""
        return {"objective": self.name, "machine": self.machine.name}

    def choices(self) -> Choices:
        """Return the whole space, whatever the host has: a search must find the limits itself."""
        flags = (False, True)
        values: dict[str, tuple[int | bool, ...]] = {
            "num_workers": tuple(range(MAX_WORKERS + 1)),
            "prefetch_factor": PREFETCH,
            "persistent_workers": flags,
            "pin_memory": flags,
        }
        return Choices(values, dict.fromkeys(values, "simulated"), baseline=BASELINE)

    def prepare(self, remembered: Mapping[str, JsonScalar], progress: Progress) -> Prepared:
        """Return two ceilings; there is nothing to start."""
        return Prepared((self.ceiling(progress), self.ceiling(progress)))

    def measure(self, config: LoaderConfig, progress: Progress) -> Outcome:
        """Return one noisy observation, or a crash."""
        real, machine = truth(self.machine, config), self.machine
        crash, noise, outlier, memory = (
            self._rng.random(), self._rng.normal(), self._rng.random(), self._rng.normal(),
        )  # fmt: skip
        if crash < real.crash_probability:
            return Crash("host_oom", "config", "train", "worker killed: out of memory", "Use fewer workers.")
        factor = math.exp(machine.sigma * noise) * (OUTLIER_FACTOR if outlier < OUTLIER_SHARE else 1.0)
        samples_per_s = real.throughput_per_s * factor
        return Measurement(
            samples_per_s=samples_per_s,
            step_s=1.0 / samples_per_s,
            wait_fraction=min(1.0, machine.t_prep * real.throughput_per_s) if config.num_workers == 0 else None,
            loader_batches_per_s=self._loader_rate_per_s(config),
            cpu_busy_fraction=min(1.0, real.load_fraction * math.exp(0.02 * self._aside.normal())),
            peak_memory_fraction=real.memory_fraction * math.exp(MEMORY_NOISE * memory),
        )

    def score(self, config: LoaderConfig, outcome: Outcome) -> Score:
        """Return the machine's own score: the throughput less its load penalty, 0.0 for a crash."""
        if isinstance(outcome, Crash):
            return Score(0.0, 0.0, (Penalty("crash", 1.0, outcome.message),))
        cut = truth(self.machine, config).penalty_fraction
        penalties = (Penalty("cpu_overload", cut, "load above 90 %"),) if cut else ()
        return Score(outcome.samples_per_s * (1.0 - cut), outcome.samples_per_s, penalties)

    def ceiling(self, progress: Progress) -> Measurement:
        """Return the job's speed with pinned batches from memory, as noisy as a trial."""
        machine = self.machine
        step_s = machine.t_main + max(machine.t_gpu, machine.t_h2d * machine.pin_f)
        return Measurement(math.exp(machine.sigma * self._aside.normal()) / step_s)

    def close(self) -> None:
        """Do nothing: there is no process."""

    def _loader_rate_per_s(self, config: LoaderConfig) -> float:
        """Return what the loader alone delivers: an optimistic bound by 6 to 25 %, as in real recordings."""
        machine = self.machine
        parallel = min(max(config.num_workers, 1), max(machine.cores - 0.6, 0.4))
        slow = 1 + machine.membw * config.num_workers
        optimism = self._aside.uniform(1.06, 1.25) if config.num_workers else 1.0
        return float(optimism * parallel / (machine.t_prep * slow))

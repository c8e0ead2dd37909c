"""Jobs to tune: the named ones of the estimation notes, and a set drawn at random that no prior was tuned on.

*Not covered*: noise (`benchmarks.sim.noise`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from benchmarks.sim.job import Job
from objectives.protocol import Choices
from objectives.schema import LoaderConfig
from tuner.space import SearchSpace, build_space

BASELINE = LoaderConfig(1, 2, True, True)
WORKERS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24)
PREFETCH = (1, 2, 4)

NAMED = (
    Job("text", 0.33, 0.0008),
    Job("img12", 0.42, 0.80),
    Job("marg", 0.42, 1.60),
    Job("accum8", 2.8, 0.128, 8, timed_steps=6),
    Job("acc8m", 2.8, 0.70, 8, timed_steps=6),
    Job("epochs", 4.8, 0.05, 16, epoch_batches=50, timed_steps=12),
)
"""Data free; photos, 2 workers nearly enough; 4 workers at the margin; bursts of 8; both; four steps an epoch."""

HELD_OUT = 60
_HELD_OUT_SEED = 20_261_130
"""The second draw: the model was mended after the first one had been seen."""


def held_out() -> tuple[Job, ...]:
    """Return jobs drawn from wide ranges, always the same ones."""
    rng = np.random.default_rng(_HELD_OUT_SEED)
    return tuple(_drawn(f"held out {n}", rng) for n in range(HELD_OUT))


def with_contention(job: Job, share: float, visible: bool) -> Job:
    """Return the job on a host where too many workers slow compute by this share."""
    return replace(job, contention=share, visible=visible)


def space_of(job: Job) -> SearchSpace:
    """Return what may be measured: up to twice as many workers as cores."""
    menus = {
        "num_workers": tuple(w for w in WORKERS if w <= 2 * job.cores),
        "prefetch_factor": PREFETCH,
        "persistent_workers": (False, True),
        "pin_memory": (False, True),
    }
    return build_space(Choices(values=menus, reasons=dict.fromkeys(menus, "simulated")), BASELINE)


def _drawn(name: str, rng: np.random.Generator) -> Job:
    def between(low: float, high: float) -> float:
        return float(math.exp(rng.uniform(math.log(low), math.log(high))))

    accumulation = int(rng.choice([1, 2, 4, 8, 16]))
    cores = int(rng.choice([4, 6, 8, 12, 16]))
    compute_s = accumulation * between(0.1, 0.8)
    keep_up = between(0.05, 0.6 * cores)  # workers that would keep up if more of them were no slower
    whole_epochs = bool(rng.random() < 0.25)
    steps = {1: 30, 2: 16, 4: 10, 8: 6, 16: 6}[accumulation]
    short_epoch = accumulation * int(rng.integers(3, 7)) + int(rng.integers(accumulation))
    return Job(
        name,
        compute_s=compute_s,
        service_s=compute_s * keep_up / accumulation,
        accumulation=accumulation,
        cores=cores,
        epoch_batches=short_epoch if whole_epochs else 4000,
        timed_steps=max(steps, 8) if whole_epochs else steps,
        h2d_fraction=between(0.0005, 0.02),
        growth=float(rng.uniform(0.0, 0.08)),
        tail=str(rng.choice(["light", "heavy", "harsh"], p=[0.45, 0.4, 0.15])),  # type: ignore[arg-type]
        startup_s=between(0.05, 0.5),
        drain_factor=float(rng.uniform(0.75, 0.95)),
    )

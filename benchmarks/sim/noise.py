"""What makes equal steps take unequal time: factors on the compute part of a step, mean 1, as one series in time.

Three profiles are processes: a drift that is continuous over slices and gaps (Ornstein-Uhlenbeck), levels that hold
for a while, rare slow spells, correlated steps and rare stalls. `bootstrap` plays blocks of recorded series. How they
compare with the recordings is printed by `python -m benchmarks.estimators --part calibration`.
*Not covered*: load by the workers (`benchmarks.sim.job`).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter

Array = np.ndarray[Any, np.dtype[np.float64]]

DATA = Path(__file__).parent.parent / "data" / "h200-compute.json"
LAUNCH_BOUND = (
    "text50-7b", "long7b", "img8mp-7b", "img4mp-0.5b-8c", "img1mp-0.5b-50rows", "img12mp-7b-6c",
    "img8mp-7b-accum8-6c", "text50-7b-launchbound-8c",
)  # fmt: skip
GPU_BOUND = ("text-0.5b", "img8mp-0.5b-gpubound-6c")
BLOCK_STEPS = 60
"""Recorded steps played in a row: about two slices and what is between them."""
SPELL_MEAN = 0.85
"""Mean of the uniform 0.3 to 1.4 that scales a slow spell."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of host. Spreads are standard deviations of the logarithm."""

    name: str
    drift_sd: float
    level_sd: float
    spell_chance: float
    """Of a level to be a slow spell."""
    spell_share: float
    """How much slower such a spell is, about."""
    step_sd: float
    step_correlation: float
    stall_chance: float
    """Of a step."""
    stall_share: float
    """Mean of an exponential, in shares of the step."""
    drift_s: float = 34.0
    """Time constant of the drift."""
    level_s: float = 14.0
    """How long a level holds: about one slice and the gap after it."""


PROFILES = {
    "hard": Profile("hard", 0.08, 0.06, 0.06, 0.3, 0.17, 0.35, 0.01, 1.0),
    "mid": Profile("mid", 0.035, 0.03, 0.03, 0.2, 0.10, 0.3, 0.02, 0.7),
    "mild": Profile("mild", 0.001, 0.001, 0.0, 0.0, 0.006, 0.1, 0.03, 0.6),
}
NAMES = (*PROFILES, "bootstrap")


def factors(name: str, rng: np.random.Generator, replicates: int, steps: int, step_s: float) -> Array:
    """Return factors of shape (replicates, steps), expectation 1.

    Args:
        name: One of `NAMES`.
        rng: Source of chance.
        replicates: Independent series.
        steps: Length of each.
        step_s: What a step takes about: drifts and levels last for seconds, not for steps.
    """
    if name == "bootstrap":
        return _bootstrap(rng, replicates, steps)
    profile, shape = PROFILES[name], (replicates, steps)
    drift = profile.drift_sd * _autoregressive(rng, shape, math.exp(-step_s / profile.drift_s))
    hold = max(1, round(profile.level_s / step_s))
    levels = (replicates, steps // hold + 2)
    spell = profile.spell_share * rng.uniform(0.3, 1.4, levels) * (rng.random(levels) < profile.spell_chance)
    level = np.repeat(profile.level_sd * rng.normal(size=levels) + np.log1p(spell), hold, axis=1)
    phase = int(rng.integers(hold))
    jitter = profile.step_sd * _autoregressive(rng, shape, profile.step_correlation)
    stall = profile.stall_share * rng.exponential(size=shape) * (rng.random(shape) < profile.stall_chance)
    series: Array = np.exp(drift + level[:, phase : phase + steps] + jitter) * (1.0 + stall)
    return series / _expected(profile)


def _expected(profile: Profile) -> float:
    spread = profile.drift_sd**2 + profile.level_sd**2 + profile.step_sd**2
    spell = 1.0 + profile.spell_chance * profile.spell_share * SPELL_MEAN
    return math.exp(spread / 2) * spell * (1.0 + profile.stall_chance * profile.stall_share)


def _autoregressive(rng: np.random.Generator, shape: tuple[int, int], correlation: float) -> Array:
    """Return stationary first-order series of unit variance along the second axis."""
    chance = rng.normal(size=shape)
    chance[:, 1:] *= math.sqrt(1.0 - correlation**2)
    filtered: Array = lfilter([1.0], [1.0, -correlation], chance, axis=1)
    return filtered


@lru_cache(maxsize=1)
def recorded() -> dict[str, list[Array]]:
    """Return the recorded compute of every workload, one array of seconds a slice."""
    data: dict[str, list[list[float]]] = json.loads(DATA.read_text(encoding="utf-8"))
    return {workload: [np.array(series) for series in found] for workload, found in data.items()}


@lru_cache(maxsize=1)
def _pool() -> tuple[list[Array], Array]:
    """Return each launch-bound workload as one series in recorded order, mean 1, and how often to draw from it."""
    whole = [np.concatenate(recorded()[w]) for w in LAUNCH_BOUND]
    lengths = np.array([len(s) for s in whole], dtype=float)
    return [s / s.mean() for s in whole], lengths / lengths.sum()


def _bootstrap(rng: np.random.Generator, replicates: int, steps: int) -> Array:
    """Return recorded blocks in a row; each wraps around at its workload's end, so every step is as likely."""
    series, chance = _pool()
    blocks = steps // BLOCK_STEPS + 2
    which = rng.choice(len(series), p=chance, size=(replicates, blocks))
    out = np.empty((replicates, blocks * BLOCK_STEPS))
    for r in range(replicates):
        for b in range(blocks):
            source = series[which[r, b]]
            at = (int(rng.integers(len(source))) + np.arange(BLOCK_STEPS)) % len(source)
            out[r, b * BLOCK_STEPS : (b + 1) * BLOCK_STEPS] = source[at]
    phase = int(rng.integers(BLOCK_STEPS))
    return out[:, phase : phase + steps]

"""The rules of loadtune 0.3.0, applied to our records: which trials it proposes and which one it picks.

Rewritten from `loadtune/heuristic.py` (`HeuristicBrain.propose`), `knobs.py` (`worker_candidates`) and `experiment.py`
(`best_trial`) of the published wheel (MIT licence), with its defaults: one round, at most six trials after a baseline
without workers, one measurement each. Its knobs outside the loader (threads, compile, AMP, non-blocking copies) leave
the loader's settings as they are; here such a trial is one more measurement of the same configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from objectives.schema import LoaderConfig, canonical

INPUT_BOUND = 0.20
HEALTHY = 0.05
CPU_SATURATED_PERCENT = 85.0
MANY_WORKERS = 4
MAX_TRIALS = 6
NOISE_TOLERANCE = 0.02

BASELINE = LoaderConfig(0, None, False, False)
"""PyTorch's defaults: it measures gains against no workers at all."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What it reads off its baseline."""

    data_wait_fraction: float
    cpu_percent: float | None
    cpus: int
    cuda: bool = True


def worker_candidates(cpus: int) -> list[int]:
    """Return the worker counts it would try."""
    found = {0, 1, 2, 4}
    if cpus >= 8:
        found |= {cpus // 2, cpus - 2}
    return sorted(w for w in found if 0 <= w <= cpus)


def proposals(seen: Seen) -> list[LoaderConfig]:
    """Return the trials it proposes after its baseline without workers, in order."""
    found: list[LoaderConfig] = []
    saturated = seen.cpu_percent is not None and seen.cpu_percent >= CPU_SATURATED_PERCENT
    if seen.data_wait_fraction >= INPUT_BOUND:
        for workers in [] if saturated else worker_candidates(seen.cpus):
            if workers == 0:
                continue
            config = canonical(workers, 2, True, False)
            found.append(config)
            if workers >= MANY_WORKERS:
                found.append(config)  # the same loader with fewer threads for the model
    elif seen.cpus >= 2:
        # its rule for a healthy pipeline asks for workers to take away; from 0 it also tries 2
        found.append(canonical(2, 2, True, False))
    if seen.cuda:
        found.append(canonical(2, 2, True, True))
    return found[:MAX_TRIALS]


def choice(baseline_per_s: float, measured: Sequence[tuple[LoaderConfig, float]]) -> LoaderConfig:
    """Return its recommendation: the fewest workers within 2 % of the fastest trial, if that beats the baseline.

    Args:
        baseline_per_s: Throughput of its baseline.
        measured: Its trials that did not fail, with their throughput.
    """
    if not measured:
        return BASELINE
    top = max(rate for _, rate in measured)
    contenders = [(config, rate) for config, rate in measured if rate >= top * (1 - NOISE_TOLERANCE)]
    best, rate = min(contenders, key=lambda found: (found[0].num_workers, -found[1]))
    return best if rate > baseline_per_s else BASELINE

"""The sampler's suggestion: Optuna's Gaussian process on a flat copy of the space.

Runs in: parent. The copy lives in memory for one question: every knob is an index into its menu, dormant knobs sit
at the baseline's, values are logarithms and a crash counts 0.9 x the worst measured, so that the stored study can
stay in samples/s with 0.0 for a crash. One constraint on every trial, peak memory, keeps it off the edge. Measured
against other samplers in docs/measuring.md.
*Not covered*: first points, repeats and the budget (`tuner.search`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from objectives.schema import KNOBS, Crash, LoaderConfig
from objectives.score import CRASH_VIOLATION, MEMORY_LIMIT_FRACTION
from storage.records import TrialRecord
from tuner.space import SearchSpace

CRASH_WORTH = 0.9
STARTUP_TRIALS = 5


def suggest(done: Sequence[TrialRecord], space: SearchSpace, seed: int) -> LoaderConfig:
    """Return the configuration with the best expected improvement; the same for the same trials and seed."""
    import optuna

    menus = {knob: sorted({_value(c, knob, space) for c in space.configurations}) for knob in space.measured_knobs}
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        knob: optuna.distributions.IntDistribution(0, len(menu) - 1) for knob, menu in menus.items()
    }
    if not distributions:
        return space.baseline
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.GPSampler(
        seed=seed, n_startup_trials=STARTUP_TRIALS, warn_independent_sampling=False, deterministic_objective=False
    )
    shadow = optuna.create_study(direction="maximize", sampler=sampler)
    measured = [t.score.value for t in done if t.score is not None and t.score.value > 0]
    worst = min(measured, default=1.0)
    for trial in done:
        if trial.score is None or any(_value(trial.config, knob, space) not in menus[knob] for knob in menus):
            continue  # measured when other values were open to the search
        crashed = isinstance(trial.outcome, Crash) or trial.score.value <= 0
        memory = (trial.outcome.peak_memory_fraction if trial.outcome is not None else None) or 0.0
        shadow.add_trial(
            optuna.trial.create_trial(
                params={knob: menus[knob].index(_value(trial.config, knob, space)) for knob in menus},
                distributions=distributions,
                value=math.log(CRASH_WORTH * worst if crashed else trial.score.value),
                constraints={"memory": CRASH_VIOLATION if crashed else memory - MEMORY_LIMIT_FRACTION},
            )
        )
    with _one_thread():
        asked = shadow.ask(distributions)
    wanted = {knob: menus[knob][asked.params[knob]] for knob in menus}
    return _closest(space, wanted, menus)


def _value(config: LoaderConfig, knob: str, space: SearchSpace) -> int:
    """Return a knob's value; a dormant one counts as the baseline's, or the least there is."""
    value = getattr(config, knob)
    if config.num_workers == 0 and knob in ("prefetch_factor", "persistent_workers"):
        value = getattr(space.baseline, knob)
        if value is None:
            value = min(c.prefetch_factor for c in space.configurations if c.prefetch_factor is not None)
    return int(value)


def _closest(space: SearchSpace, wanted: dict[str, int], menus: dict[str, list[int]]) -> LoaderConfig:
    """Return the configuration nearest to the wanted values, each distance in steps of its menu."""

    def distance(config: LoaderConfig) -> float:
        return sum(
            abs(menus[k].index(_value(config, k, space)) - menus[k].index(v)) / max(1, len(menus[k]) - 1)
            for k, v in wanted.items()
            if not (config.num_workers == 0 and wanted.get("num_workers") == 0 and k not in ("num_workers", KNOBS[3]))
        )

    return min(space.configurations, key=distance)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have PyTorch, which the sampler loads at its first question, start with one OpenMP thread.

    On a busy machine its default made 30 questions take three times as long. The variable is put back, so that the
    trainer's process starts with the user's own.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before

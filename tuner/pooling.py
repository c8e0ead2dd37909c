"""Pools the slices of each configuration and says what repeats of one configuration scatter.

Runs in: parent. Pure. *Not covered*: which configuration to recommend (`tuner.selection`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from objectives.estimate import t_quantile
from objectives.schema import KNOBS, Crash, LoaderConfig, Measurement, Penalty
from storage.records import StudyData, TrialRecord

MIN_DEGREES = 3
"""Degrees of freedom below which no noise floor is given: with 2 the t factor is 4.3 and any answer is a guess."""
PLAYED_BACK_FRACTION = 1e-9
"""Repeats that scatter less are one number played back, not measured twice, and tell nothing of noise."""
CEILING_AGREEMENT_FRACTION = 0.10
"""Two ceilings in a row this close mark a warm device. One rare stall moves the mean of a good slice by 5-10 %."""
COLD_FACTOR = 1.5
"""A ceiling this many times slower than the median of its study is a cold start (those read 1.7 to 2.2 times slow)."""

Figure = Literal["value", "samples_per_s"]


@dataclass(frozen=True, slots=True)
class Pooled:
    """All complete trials of one configuration; every figure is a mean in which each slice weighs the same.

    Figures come from measured slices and are None where none knows them; `value` counts a crash as the 0.0 it scored.
    """

    config: LoaderConfig
    trials: tuple[int, ...]
    """Numbers of the complete trials, crashes included."""
    slices: int
    """Trials that were measured."""
    crashed: bool
    """At least one trial crashed."""
    value: float
    samples_per_s: float | None = None
    sd_per_s: float | None = None
    """Standard deviation of `samples_per_s` over slices; None below 2."""
    wait_fraction: float | None = None
    restart_fraction: float | None = None
    h2d_fraction: float | None = None
    compute_s: float | None = None
    gpu_util_fraction: float | None = None
    cpu_busy_fraction: float | None = None
    trainer_cpu_fraction: float | None = None
    run_delay_fraction: float | None = None
    peak_memory_fraction: float | None = None
    """Highest seen, crashes included."""
    penalties: tuple[Penalty, ...] = ()
    """Mean cut per name over the measured slices, with the latest reason."""


def pool(trials: Iterable[TrialRecord]) -> tuple[Pooled, ...]:
    """Return one entry per configuration that has a complete trial, in order of first appearance."""
    groups: dict[LoaderConfig, list[TrialRecord]] = {}
    for trial in trials:
        if trial.state == "complete" and trial.outcome is not None:
            groups.setdefault(trial.config, []).append(trial)
    return tuple(_pool_one(config, group) for config, group in groups.items())


def noise_floor(data: StudyData, figure: Figure = "value") -> float | None:
    """Return the relative half-width that holds 95 % of single slices of one configuration; None if not known.

    Pools the relative scatter of every configuration measured twice or more and of the settled ceilings. The factor is
    Student's t, not 1.96: the scatter itself is estimated from few repeats. For a mean of n slices divide by sqrt(n).

    Args:
        data: The study.
        figure: `value` scatters with the penalties as well; `samples_per_s` is the throughput alone.
    """
    groups: dict[LoaderConfig | None, list[float]] = {None: [c.samples_per_s for c in settled(data.ceilings)]}
    for trial in data.trials:
        if trial.state == "complete" and isinstance(trial.outcome, Measurement):
            value = _value(trial) if figure == "value" else trial.outcome.samples_per_s
            groups.setdefault(trial.config, []).append(value)
    squares, degrees = 0.0, 0
    for group in groups.values():
        mean = statistics.fmean(group) if group else 0.0
        if len(group) >= 2 and mean > 0.0:
            squares += math.fsum((value / mean - 1.0) ** 2 for value in group)
            degrees += len(group) - 1
    if degrees < MIN_DEGREES or squares <= degrees * PLAYED_BACK_FRACTION**2:
        return None
    return t_quantile(0.975, degrees) * math.sqrt(squares / degrees)


def difference_noise(noise: float | None, slices_a: int, slices_b: int) -> float | None:
    """Return the relative noise floor of the difference of two means, given that of one slice."""
    return None if noise is None else noise * math.sqrt(1.0 / slices_a + 1.0 / slices_b)


def settled(ceilings: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    """Return the ceilings of a warm device: from the first that the next one agrees with, later cold starts dropped.

    A resumed study warms up again, so cold ceilings also turn up in the middle.
    """
    for index in range(len(ceilings) - 1):
        if _agree(ceilings[index], ceilings[index + 1]):
            warm = ceilings[index:]
            slowest_per_s = statistics.median(c.samples_per_s for c in warm) / COLD_FACTOR
            return tuple(c for c in warm if c.samples_per_s >= slowest_per_s)
    return ()


def agreed_ceiling(ceilings: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    """Return the last two ceilings in a row that agree, or nothing."""
    for older, newer in zip(reversed(ceilings[:-1]), reversed(ceilings[1:]), strict=True):
        if _agree(older, newer):
            return (older, newer)
    return ()


def _pool_one(config: LoaderConfig, group: list[TrialRecord]) -> Pooled:
    measured = [t for t in group if isinstance(t.outcome, Measurement)]
    outcomes = [t.outcome for t in measured if isinstance(t.outcome, Measurement)]
    rates = [m.samples_per_s for m in outcomes]
    cuts: dict[str, list[Penalty]] = {}
    for trial in measured:
        for penalty in trial.score.penalties if trial.score else ():
            cuts.setdefault(penalty.name, []).append(penalty)
    return Pooled(
        config=config,
        trials=tuple(t.number for t in group),
        slices=len(outcomes),
        crashed=any(isinstance(t.outcome, Crash) for t in group),
        value=statistics.fmean(_value(t) for t in group),
        samples_per_s=_mean(rates),
        sd_per_s=statistics.stdev(rates) if len(rates) >= 2 else None,
        wait_fraction=_mean(m.wait_fraction for m in outcomes),
        restart_fraction=_mean(m.restart_fraction for m in outcomes),
        h2d_fraction=_mean(m.h2d_fraction for m in outcomes),
        compute_s=_mean(m.compute_s for m in outcomes),
        gpu_util_fraction=_mean(m.gpu_util_fraction for m in outcomes),
        cpu_busy_fraction=_mean(m.cpu_busy_fraction for m in outcomes),
        trainer_cpu_fraction=_mean(m.trainer_cpu_fraction for m in outcomes),
        run_delay_fraction=_mean(m.run_delay_fraction for m in outcomes),
        peak_memory_fraction=max(
            (p for t in group if t.outcome and (p := t.outcome.peak_memory_fraction) is not None), default=None
        ),
        penalties=tuple(
            Penalty(name, math.fsum(p.fraction for p in found) / len(outcomes), found[-1].reason)
            for name, found in cuts.items()
        ),
    )


def _value(trial: TrialRecord) -> float:
    """Return the score of a complete trial; the throughput where none was stored."""
    if trial.score is not None:
        return trial.score.value
    return trial.outcome.samples_per_s if isinstance(trial.outcome, Measurement) else 0.0


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.fmean(known) if known else None


def _agree(a: Measurement, b: Measurement) -> bool:
    return abs(a.samples_per_s - b.samples_per_s) <= CEILING_AGREEMENT_FRACTION * max(a.samples_per_s, b.samples_per_s)


def varied_knobs(trials: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Return the knobs that took more than one value in finished trials: of the others nothing was learnt.

    What sleeps without workers counts only where there are some.
    """
    configs = [t.config for t in trials if t.state == "complete"]
    awake = [c for c in configs if c.num_workers > 0]
    seen = {
        knob: {getattr(c, knob) for c in (awake if knob in ("prefetch_factor", "persistent_workers") else configs)}
        for knob in KNOBS
    }
    return tuple(knob for knob in KNOBS if len(seen[knob]) > 1)

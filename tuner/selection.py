"""Picks one configuration from a study's records: the cheapest that loses nothing worth the name.

Runs in: parent. Pure. Modelled times decide where the slices have their series, pooled scores where they have not.
*Not covered*: interleaved confirmation (`tuner.confirmation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from objectives.score import MEMORY_LIMIT_FRACTION
from storage.records import StudyData
from tuner.appraisal import Appraisal, appraise
from tuner.pooling import Pooled, noise_floor, pool
from tuner.space import cost_of
from tuner.value_appraisal import appraise_values, tied_with_best

__all__ = ["Pooled", "Selection", "Selector", "has_memory_headroom", "noise_floor", "pool", "select"]

LOSS_FRACTION = 0.0025
"""Expected loss that is given away for fewer workers."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What to recommend, and why."""

    best: Pooled | None
    baseline: Pooled | None
    """None until the baseline has a complete trial; it may have crashed."""
    tied: tuple[Pooled, ...]
    """What repeats cannot tell from the highest score, the choice included, cheapest first."""
    reason: str


Selector = Callable[[StudyData], Selection]


def select(data: StudyData, appraisal: Appraisal | None = None) -> Selection:
    """Return the choice among the configurations that were measured, never crashed and left memory free.

    With series: the baseline, else the cheapest configuration, whose expected loss by the queue model is within
    `LOSS_FRACTION` of the least. Without: the same by the model of one score a trial (`tuner.value_appraisal`). The
    highest of many noisy scores is lucky, so neither is a claim of a speed-up.

    Args:
        data: The study, with raw series if there are any.
        appraisal: Of the study as it is, where there is one already.
    """
    pooled = pool(data.trials)
    baseline = next((p for p in pooled if p.config == data.study.baseline), None)
    fit = [p for p in pooled if p.slices and not p.crashed and has_memory_headroom(p)]
    if not fit:
        return Selection(None, baseline, (), _why_none(pooled))
    by_cost = sorted(fit, key=lambda p: cost_of(p.config, data.study.baseline))
    appraisal = appraisal or appraise(data, ())
    if appraisal is not None:
        return _by_model(by_cost, baseline, appraisal)
    leaders = tied_with_best(appraise_values(data.trials, ())) or [max(by_cost, key=lambda p: p.value).config]
    tied = tuple(p for p in by_cost if p.config in leaders) or (max(by_cost, key=lambda p: p.value),)
    best = tied[0]
    if baseline in by_cost and baseline is not None and _no_better(best, baseline, tied):
        best = baseline
    return Selection(best, baseline, tied, _why(best, baseline, tied, noise_floor(data)))


def _no_better(best: Pooled, baseline: Pooled, tied: tuple[Pooled, ...]) -> bool:
    """Return whether to keep the defaults: a tie, or a choice that was not even measured to be better."""
    return baseline in tied or best.value <= baseline.value * (1.0 + LOSS_FRACTION)


def _by_model(by_cost: list[Pooled], baseline: Pooled | None, appraisal: Appraisal) -> Selection:
    losses = appraisal.expected_losses([p.config for p in by_cost])
    least = min(losses.values())
    tied = tuple(p for p in by_cost if losses[p.config] <= least + LOSS_FRACTION)
    best = baseline if baseline is not None and baseline in tied else tied[0]
    beyond = f"within {100 * LOSS_FRACTION:g} % of the least expected loss"
    if best is baseline:
        reason = f"keep the defaults: {beyond}"
    else:
        reason = f"least expected loss of {len(by_cost)}" if len(tied) == 1 else f"cheapest of {len(tied)} {beyond}"
    return Selection(best, baseline, tied, reason)


def has_memory_headroom(pooled: Pooled) -> bool:
    """Return whether every slice stayed within the memory limit, as far as the host could tell."""
    return pooled.peak_memory_fraction is None or pooled.peak_memory_fraction <= MEMORY_LIMIT_FRACTION


def _why(best: Pooled, baseline: Pooled | None, tied: tuple[Pooled, ...], noise: float | None) -> str:
    unknown = "; too few true repeats to know the noise" if noise is None else ""
    within = f"within {100 * LOSS_FRACTION:g} % of the highest expected score"
    if best is baseline:
        return f"keep the defaults: no score is expected to be {100 * LOSS_FRACTION:g} % higher{unknown}"
    return (f"cheapest of {len(tied)} {within}" if len(tied) > 1 else "highest expected score") + unknown


def _why_none(pooled: tuple[Pooled, ...]) -> str:
    if not any(p.slices for p in pooled):
        return "every configuration tried crashed"
    if all(p.crashed for p in pooled if p.slices):
        return "every configuration that was measured also crashed"
    return f"every configuration that did not crash used more than {100 * MEMORY_LIMIT_FRACTION:.0f} % of the memory"

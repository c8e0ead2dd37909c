"""What is known of each configuration when a trial gives one number: score, memory, crashes.

Runs in: parent. Pure. *Not covered*: step series, from which much more is known (`tuner.queue_model`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectives.schema import Crash, LoaderConfig
from objectives.score import MEMORY_LIMIT_FRACTION
from storage.records import TrialRecord
from tuner.edge import Edge, fit_edge
from tuner.space import cost_of
from tuner.surface import Surface, fit_surface

TIE_FRACTION = 0.0025
"""Expected losses this close are a tie; the cheapest configuration wins it."""
TOO_RISKY = 0.4
"""Crash probability from which a configuration is neither measured nor chosen."""


@dataclass(frozen=True, slots=True)
class ValueAppraisal:
    """One configuration as the model has it."""

    log_score_mean: float
    """Natural logarithm of the score in samples/s."""
    log_score_sd: float
    """Of the true score, not of one more trial."""
    crash_probability: float
    memory_fraction: float | None
    """Predicted peak share of host memory; None where no trial knew it."""
    slices: int
    """Trials that were measured."""

    @property
    def log_utility(self) -> float:
        """Return the logarithm of what a run can be expected to yield: a run that crashes yields nothing."""
        return self.log_score_mean + math.log1p(-min(self.crash_probability, 0.999))

    @property
    def fit(self) -> bool:
        """Return whether it may be chosen: memory headroom, and no sign of crashes."""
        roomy = self.memory_fraction is None or self.memory_fraction <= MEMORY_LIMIT_FRACTION
        return roomy and self.crash_probability < TOO_RISKY


@dataclass(frozen=True, slots=True)
class Appraised:
    """The models behind the appraisals, over `configurations` in order."""

    configurations: tuple[LoaderConfig, ...]
    surface: Surface
    edge: Edge
    slices: NDArray[np.int64]

    @property
    def log_utility(self) -> NDArray[np.float64]:
        """Return `ValueAppraisal.log_utility` of each configuration."""
        return np.asarray(self.surface.mean + np.log1p(-np.minimum(self.edge.crash_probability, 0.999)))

    @property
    def fit(self) -> NDArray[np.bool_]:
        """Return `ValueAppraisal.fit` of each configuration."""
        roomy = ~(self.edge.memory_fraction > MEMORY_LIMIT_FRACTION)  # not known (NaN) counts as roomy
        return np.asarray(roomy & (self.edge.crash_probability < TOO_RISKY))


def appraise(trials: Iterable[TrialRecord], configurations: Iterable[LoaderConfig]) -> Appraised | None:
    """Return what the complete trials tell of these configurations and of all measured ones; None without any.

    The configurations given come first, in their order.
    """
    done = [t for t in trials if t.state == "complete" and t.outcome is not None and t.score is not None]
    measured = [(t.config, t.score.value, t.outcome) for t in done if t.score is not None and t.score.value > 0.0]
    if not measured:
        return None
    everything = tuple(dict.fromkeys([*configurations, *(config for config, _, _ in measured)]))
    index = {config: i for i, config in enumerate(everything)}
    places = [index[config] for config, _, _ in measured]
    surface = fit_surface(everything, places, [math.log(value) for _, value, _ in measured])
    edge = fit_edge(
        everything,
        [(config, outcome.peak_memory_fraction if outcome else None) for config, _, outcome in measured],
        [t.config for t in done if isinstance(t.outcome, Crash)],
    )
    return Appraised(everything, surface, edge, np.bincount(places, minlength=len(everything)))


def appraise_values(
    trials: Iterable[TrialRecord], configurations: Iterable[LoaderConfig]
) -> Mapping[LoaderConfig, ValueAppraisal]:
    """Return the appraisal of these configurations and of all measured ones; empty while none was measured.

    Args:
        trials: Of one study; only complete ones count.
        configurations: Further configurations, such as the whole space; none are needed to choose.
    """
    known = appraise(trials, configurations)
    if known is None:
        return {}
    sd = np.sqrt(np.maximum(np.diag(known.surface.covariance), 0.0))
    memory = known.edge.memory_fraction
    return {
        config: ValueAppraisal(
            log_score_mean=float(known.surface.mean[i]),
            log_score_sd=float(sd[i]),
            crash_probability=float(known.edge.crash_probability[i]),
            memory_fraction=None if math.isnan(memory[i]) else float(memory[i]),
            slices=int(known.slices[i]),
        )
        for i, config in enumerate(known.configurations)
    }


def choose(appraisals: Mapping[LoaderConfig, ValueAppraisal], baseline: LoaderConfig) -> LoaderConfig | None:
    """Return the cheapest measured configuration whose expected loss is within 0.25 % of the least; None without any.

    What was never measured is never chosen, however good it looks.
    """
    tied = tied_with_best(appraisals)
    return min(tied, key=lambda c: cost_of(c, baseline), default=None)


def tied_with_best(appraisals: Mapping[LoaderConfig, ValueAppraisal]) -> Sequence[LoaderConfig]:
    """Return the measured, fit configurations within 0.25 % of the highest expected utility."""
    fit = {config: a for config, a in appraisals.items() if a.slices and a.fit}
    highest = max((a.log_utility for a in fit.values()), default=0.0)
    return [config for config, a in fit.items() if a.log_utility >= highest - TIE_FRACTION]

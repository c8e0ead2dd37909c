"""The parts of a report that come from the queue model: headroom, fit, what a choice saves.

Runs in: parent. Pure. *Not covered*: the model itself (`tuner.queue_model`), measured figures (`tuner.report_parts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from objectives.schema import LoaderConfig
from tuner.appraisal import Appraisal


@dataclass(frozen=True, slots=True)
class Headroom:
    """What data for free would bring a configuration, with its 95 % interval, as shares of its own speed."""

    fraction: float
    lower_fraction: float
    upper_fraction: float


@dataclass(frozen=True, slots=True)
class ModelNote:
    """How far the queue model is to be trusted."""

    fits: bool
    """Whether it meets the observed waits of every measured configuration within 1 % of the step."""
    mismatch_fraction: float
    """Largest observed minus modelled loader time, as a share of a step."""
    service_factor: float
    """On services, so that modelled waits agree with observed ones; 1 if the stamps tell all."""
    contention_fraction: float
    """How much slower the trainer computes beside busy workers."""
    contention_sd_fraction: float
    slice_noise_fraction: float
    """Standard deviation of compute between equal slices."""


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When the search has paid for itself, by modelled times."""

    saved_s_per_1000_samples: float
    samples: int
    """Samples of a real run after which the search's wall time is saved."""


def headroom_of(appraisal: Appraisal, config: LoaderConfig) -> Headroom:
    """Return the modelled headroom of a configuration; its compute is the same as with data for free."""
    return Headroom(*appraisal.headroom(config))


def model_note(appraisal: Appraisal) -> ModelNote:
    """Return how well the model describes the study."""
    model = appraisal.model
    worst = max(model.mismatch_fraction.values(), key=abs, default=0.0)
    return ModelNote(
        fits=all(model.fits(config) for config in model.mismatch_fraction),
        mismatch_fraction=worst,
        service_factor=model.factor,
        contention_fraction=math.expm1(model.contention.mean),
        contention_sd_fraction=model.contention.sd,
        slice_noise_fraction=model.contention.slice_sd,
    )


def break_even(appraisal: Appraisal, best: LoaderConfig, baseline: LoaderConfig, spent_s: float) -> BreakEven | None:
    """Return when the choice has paid for a search of `spent_s`; None if it saves nothing."""
    saved_s = 1.0 / appraisal.samples_per_s(baseline) - 1.0 / appraisal.samples_per_s(best)
    if saved_s <= 0.0:
        return None
    return BreakEven(saved_s_per_1000_samples=1000.0 * saved_s, samples=math.ceil(spent_s / saved_s))

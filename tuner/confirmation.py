"""Judges an interleaved re-measurement: two effects, one interval, one of four verdicts.

Runs in: parent. Pure. *Not covered*: measuring the rounds (`tuner.confirm`), which configuration is the finalist
(`tuner.selection`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from objectives.estimate import t_quantile
from objectives.schema import LoaderConfig, Measurement
from storage.records import Arm, ConfirmationSlice
from tuner.queue_model.arms import ARMS, Arms, ArmTimes, arm_times, arms_of
from tuner.queue_model.terms import SliceTerms

ORDER = ("baseline", "finalist", "finalist", "baseline")
"""Slices of one round: drift that is linear in time cancels."""

LOOKS = (4, 8, 12)
"""Rounds after which the verdict may be given; each look spends a third of the error."""

ERROR = 0.05
"""Of all looks together, two-sided."""
GAIN_FRACTION = 0.005
"""A gain is confirmed when its whole interval lies above this: differences nobody would notice are none."""
MARGIN, NOISY_MARGIN = 0.01, 0.025
"""There is no difference when the whole interval lies within this; the wider one on noisy hosts."""
NOISY_SLICE_SD = 0.03
"""Standard deviation of compute between equal slices above which a host is noisy."""
TIGHT_PRIOR_SD, WIDE_PRIOR_SD = 0.01, 0.05
"""Of what compute may differ without and with a sign of load. With the tight one alone a finalist that waits 3 % less
and computes 5 % longer was wrongly confirmed in 59 % of simulations, with the wide one in 0.6 %."""
DELAY_FRACTION = 0.002
"""Difference in run-queue delay between the arms that is a sign of load."""
SLOPE_STEP = 0.02
MAX_ROUNDS_NEEDED = 1000

Verdict = Literal["confirmed", "no difference", "regressed", "not resolved"]
NOT_WORTH_IT: tuple[Verdict, ...] = ("no difference", "regressed")
"""Verdicts after which the baseline is recommended: nobody should change a flag for nothing."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an interleaved re-measurement showed. Gains are shares: `time of baseline / time of finalist - 1`."""

    verdict: Verdict
    rounds: int
    gain_fraction: float
    lower_fraction: float
    """Lower end of the 95 % interval of the gain."""
    upper_fraction: float
    loader_saved_fraction: float
    """Share of the baseline's time that waits, restarts and copies take less in the finalist."""
    loader_half_width: float
    compute_fraction: float
    """`compute of finalist / compute of baseline - 1` as seen, before the prior: positive is slower."""
    compute_half_width: float
    loaded: bool
    """Whether the finalist's workers compete with the trainer for CPUs: compute may then really differ."""
    slice_noise_fraction: float
    """Standard deviation of the compute of equal slices, between slices."""
    rounds_needed: int | None
    """Rounds that would resolve it at this noise, where it is not resolved; None where none would."""
    final: bool
    """False: another look is to come."""


def judge(
    slices: Sequence[ConfirmationSlice],
    *,
    baseline: LoaderConfig,
    finalist: LoaderConfig,
    usable_cpus: float,
    max_rounds: int = LOOKS[-1],
    epochs: int = 0,
    epoch_batches: int = 0,
    batch_size: int = 1,
) -> Judgement:
    """Return the judgement of the complete rounds measured so far.

    The arms are told apart by their labels alone: equal settings are judged like any others. The gain is the sum of
    two effects. What the loaders take is modelled over the compute of all slices, which both arms share; its error is
    the jackknife's over rounds (Miller 1974). What compute differs is seen in pairs of neighbouring slices and shrunk
    to a prior around nothing: tight where no load can make it differ, wide where it can.

    Args:
        slices: In order of measurement, each with its raw series.
        baseline: Settings of the arm `baseline`.
        finalist: Settings of the arm `finalist`.
        usable_cpus: Of the host.
        max_rounds: Rounds after which no more are measured.
        epochs: Whole epochs of a slice; 0 if it is a part of one.
        epoch_batches: Batches of a real epoch; 0 if not known.
        batch_size: Samples of a full batch.

    Raises:
        ValueError: If fewer than two rounds are complete.
    """
    whole = _complete(slices)
    rounds = len(whole) // len(ORDER)
    if rounds < 2:
        raise ValueError(f"slices must hold at least 2 complete rounds but got {rounds}.")
    configs: dict[Arm, LoaderConfig] = {"baseline": baseline, "finalist": finalist}
    arms = arms_of(whole, configs, SliceTerms(epochs, epoch_batches, batch_size, usable_cpus))
    loaded = _loaded(whole, configs, usable_cpus)
    effect = _compute_effect(whole, WIDE_PRIOR_SD if loaded else TIGHT_PRIOR_SD)
    gain, error, slope, saved, saved_error = _loader_effect(arms, effect.shrunk)
    noisy = effect.slice_sd > NOISY_SLICE_SD
    last = rounds >= max_rounds

    def half(level: float) -> float:
        """Return the half-width at a two-sided error.

        The tight prior is knowledge, no error that another look could repeat; the wide one is none.
        """
        own = max(
            t_quantile(1 - (level if loaded else ERROR) / 2, effect.degrees) * effect.posterior_sd,
            t_quantile(1 - level / 2, 2 * rounds - 1) * effect.kept * effect.standard_error,
        )
        return math.hypot(t_quantile(1 - level / 2, rounds - 1) * error, slope * own)

    decided, shown = half(ERROR / len(LOOKS)), half(ERROR)
    verdict = _verdict(gain, decided, NOISY_MARGIN if noisy else MARGIN)
    return Judgement(
        verdict=verdict,
        rounds=rounds,
        gain_fraction=math.expm1(gain),
        lower_fraction=math.expm1(gain - shown),
        upper_fraction=math.expm1(gain + shown),
        loader_saved_fraction=saved,
        loader_half_width=t_quantile(1 - ERROR / 2, rounds - 1) * saved_error,
        compute_fraction=math.expm1(effect.seen),
        compute_half_width=t_quantile(1 - ERROR / 2, 2 * rounds - 1) * effect.standard_error,
        loaded=loaded,
        slice_noise_fraction=effect.slice_sd,
        rounds_needed=None if verdict != "not resolved" else _rounds_needed(gain, rounds, error, slope, effect),
        final=verdict != "not resolved" or last,
    )


@dataclass(frozen=True, slots=True)
class _ComputeEffect:
    """Log of the finalist's compute over the baseline's."""

    seen: float
    standard_error: float
    prior_sd: float
    slice_sd: float
    pairs: int

    @property
    def degrees(self) -> float:
        """Return the degrees of freedom of the posterior: the more the prior leads, the surer its width.

        Satterthwaite (1946): the relative change of the posterior variance with that of the seen one is `kept`.
        """
        return (self.pairs - 1) / self.kept**2

    @property
    def kept(self) -> float:
        """Return the share of what was seen that the prior leaves."""
        return self.prior_sd**2 / (self.prior_sd**2 + self.standard_error**2)

    @property
    def shrunk(self) -> float:
        return self.kept * self.seen

    @property
    def posterior_sd(self) -> float:
        return math.sqrt(self.kept) * self.standard_error


def _complete(slices: Sequence[ConfirmationSlice]) -> list[ConfirmationSlice]:
    """Return the slices of the rounds in which every slice was measured, in order."""
    counts = Counter(s.round for s in slices if isinstance(s.outcome, Measurement))
    return [s for s in slices if counts[s.round] == len(ORDER) and isinstance(s.outcome, Measurement)]


def _loaded(slices: Sequence[ConfirmationSlice], configs: Mapping[Arm, LoaderConfig], usable_cpus: float) -> bool:
    """Return whether workers and trainer share CPUs: as many workers as CPUs, or threads delayed in one arm."""
    if any(0 < usable_cpus <= config.num_workers for config in configs.values()):
        return True
    delays: dict[Arm, list[float]] = {"baseline": [], "finalist": []}
    for part in slices:
        if isinstance(part.outcome, Measurement) and part.outcome.run_delay_fraction is not None:
            delays[part.arm].append(part.outcome.run_delay_fraction)
    if not all(delays.values()):
        return False
    return abs(statistics.fmean(delays["finalist"]) - statistics.fmean(delays["baseline"])) > DELAY_FRACTION


def _compute_effect(slices: Sequence[ConfirmationSlice], prior_sd: float) -> _ComputeEffect:
    """Return what compute differs, from pairs of neighbouring slices, one of each arm."""
    logs = [math.log(sum(s.outcome.raw.steps.compute_s)) for s in slices]  # type: ignore[union-attr]
    pairs = [(logs[i + 1] - logs[i]) * (1.0 if slices[i].arm == "baseline" else -1.0) for i in range(0, len(slices), 2)]
    standard_error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    spread = [statistics.stdev(_logs_of(arm, slices, logs)) for arm in ARMS]
    return _ComputeEffect(
        statistics.fmean(pairs), max(standard_error, 1e-6), prior_sd, statistics.fmean(spread), len(pairs)
    )


def _logs_of(arm: Arm, slices: Sequence[ConfirmationSlice], logs: Sequence[float]) -> list[float]:
    return [log for part, log in zip(slices, logs, strict=True) if part.arm == arm]


def _loader_effect(arms: Arms, effect: float) -> tuple[float, float, float, float, float]:
    """Return log gain, its jackknife error, how much of a compute effect it shows, the loader's part and its error."""
    times, slower = arm_times(arms, effect), arm_times(arms, effect + SLOPE_STEP)

    def log_gain(of: ArmTimes, compute_effect: float, left_out: int | None) -> tuple[float, float]:
        kept = np.ones(len(arms.windows), dtype=bool) if left_out is None else arms.round != left_out
        totals = {}
        for label in ARMS:
            factor = math.exp(compute_effect) if label == "finalist" else 1.0
            totals[label] = of.total_s(label, factor, kept, kept[arms.of(label)])
        compute_s = float(of.compute_s[kept].mean())
        loaders = totals["baseline"] - totals["finalist"] + compute_s * math.expm1(compute_effect)
        return math.log(totals["baseline"] / totals["finalist"]), loaders / totals["baseline"]

    gain, saved = log_gain(times, effect, None)
    slope = (gain - log_gain(slower, effect + SLOPE_STEP, None)[0]) / SLOPE_STEP
    rounds = np.unique(arms.round)
    without = np.array([log_gain(times, effect, int(r)) for r in rounds])
    error, saved_error = np.sqrt((len(rounds) - 1) * without.var(axis=0))
    return gain, float(error), float(slope), saved, float(saved_error)


def _verdict(gain: float, half_width: float, margin: float) -> Verdict:
    if gain - half_width > GAIN_FRACTION:
        return "confirmed"
    if gain + half_width < -GAIN_FRACTION:
        return "regressed"
    return "no difference" if abs(gain) + half_width < margin else "not resolved"


def _rounds_needed(gain: float, rounds: int, error: float, slope: float, effect: _ComputeEffect) -> int | None:
    """Return the rounds that should tell this gain from none, at this noise; None where a thousand would not."""
    for wanted in range(rounds + 1, MAX_ROUNDS_NEEDED):
        share = math.sqrt(rounds / wanted)
        less = replace(effect, standard_error=effect.standard_error * share, pairs=2 * wanted)
        half_width = t_quantile(1 - ERROR / 2, wanted - 1) * math.hypot(error * share, slope * less.posterior_sd)
        if half_width < max(abs(gain) - GAIN_FRACTION, MARGIN - abs(gain)):
            return wanted
    return None

"""Judges an interleaved re-measurement: two effects, one interval, one of four verdicts.

Runs in: parent. Pure. *Not covered*: measuring the rounds (`tuner.confirm`), which configuration is the finalist
(`tuner.selection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from objectives.schema import LoaderConfig
from storage.records import ConfirmationSlice

ORDER = ("baseline", "finalist", "finalist", "baseline")
"""Slices of one round: drift that is linear in time cancels."""

LOOKS = (4, 8, 12)
"""Rounds after which the verdict may be given; each look spends a third of the error."""

Verdict = Literal["confirmed", "no difference", "regressed", "not resolved"]


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
    usable_cpus: int,
    max_rounds: int = LOOKS[-1],
) -> Judgement:
    """Return the judgement of the complete rounds measured so far.

    The arms are told apart by their labels alone: equal settings are judged like any others.

    Args:
        slices: In order of measurement, each with its raw series.
        baseline: Settings of the arm `baseline`.
        finalist: Settings of the arm `finalist`.
        usable_cpus: Of the host.
        max_rounds: Rounds after which no more are measured.

    Raises:
        ValueError: If fewer than two rounds are complete.
    """
    raise NotImplementedError

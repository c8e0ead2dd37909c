"""Puts a confirmation into lines: a round, a look, the verdict.

Runs in: parent. Pure. *Not covered*: when they are printed (`tuner.confirm`, `tuner.cli.confirm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from objectives.schema import Measurement
from storage.records import Arm, Confirmation, ConfirmationSlice
from tuner.confirmation import Judgement
from tuner.wording import decimals_for, percent, plain, rate, signed_percent

SELF_TEST = "A/A self-test"


def arms_text(confirmation: Confirmation, self_test: bool) -> str:
    """Return what is compared with what."""
    if self_test:
        return f"{SELF_TEST}: both arms have the settings {confirmation.baseline.key}"
    return f"{confirmation.finalist.key} against the baseline {confirmation.baseline.key}"


def round_text(slices: Sequence[ConfirmationSlice]) -> str:
    """Return one round's samples/s and wait of both arms, each the mean of its slices."""
    found = {arm: [s.outcome for s in slices if s.arm == arm and isinstance(s.outcome, Measurement)] for arm in _ARMS}
    decimals = decimals_for([m.samples_per_s for seen in found.values() for m in seen])
    return "; ".join(f"{arm} {_figures(seen, decimals)}" for arm, seen in found.items())


def look_text(judgement: Judgement) -> str:
    """Return the interval so far and what follows from it."""
    then = judgement.verdict if judgement.final else "not resolved yet, going on"
    return f"after {judgement.rounds} rounds: gain {interval_text(judgement)}: {then}"


def interval_text(judgement: Judgement) -> str:
    """Return the gain with its interval."""
    ends = f"{signed_percent(judgement.lower_fraction)} to {signed_percent(judgement.upper_fraction)}"
    return f"{signed_percent(judgement.gain_fraction)} (95 % interval {ends})"


def verdict_text(confirmation: Confirmation, judgement: Judgement, reason: str, self_test: bool) -> str:
    """Return the verdict in one line.

    Args:
        confirmation: What was compared.
        judgement: What came of it.
        reason: Why it ended before its time; empty if it did not.
        self_test: Whether both arms had the same settings.
    """
    if self_test:
        passed = judgement.verdict in ("no difference", "not resolved")
        meaning = "passed" if passed else "FAILED, trust no verdict of this host"
        told = f"'{judgement.verdict}' between equal settings, gain {interval_text(judgement)}"
        return f"{SELF_TEST}: {f'ended early, {plain(reason)}' if reason else f'{meaning}: {told}'}"
    arms = f"{confirmation.finalist.key} against {confirmation.baseline.key}"
    if reason:
        return f"{judgement.verdict}: {arms}: {plain(reason)}"
    needed = f"; about {judgement.rounds_needed} rounds would resolve it" if judgement.rounds_needed else ""
    return f"{judgement.verdict}: {arms}, gain {interval_text(judgement)}, {judgement.rounds} rounds{needed}"


_ARMS: tuple[Arm, Arm] = ("baseline", "finalist")


def _figures(seen: Iterable[Measurement], decimals: int) -> str:
    seen = list(seen)
    if not seen:
        return "crashed"
    waits = [m.wait_fraction for m in seen if m.wait_fraction is not None]
    wait = percent(fmean(waits), 1) if waits else "-"
    return f"{rate(fmean(m.samples_per_s for m in seen), decimals)} samples/s, wait {wait}"

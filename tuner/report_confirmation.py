"""The part of a report that an interleaved re-measurement adds.

Runs in: parent. Pure. *Not covered*: judging it (`tuner.confirmation`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from objectives.schema import LoaderConfig
from storage.records import StudyData
from tuner.confirmation import Verdict
from tuner.wording import plain


@dataclass(frozen=True, slots=True)
class ConfirmationNote:
    """What the re-measurement of a finalist showed; shares of 1, as `tuner.confirmation.Judgement` has them."""

    finalist: LoaderConfig
    verdict: Verdict
    slices: int
    rounds: int
    gain_fraction: float
    lower_fraction: float
    upper_fraction: float
    loader_saved_fraction: float
    loader_half_width: float
    compute_fraction: float
    compute_half_width: float
    loaded: bool
    slice_noise_fraction: float
    rounds_needed: int | None
    reason: str
    """The crash that ended it; empty if none did."""


def confirmation_note(data: StudyData, best: LoaderConfig, baseline: LoaderConfig) -> ConfirmationNote | None:
    """Return the last finished confirmation of these two; None if there is none, or only of others."""
    for confirmation in reversed(data.confirmations):
        if confirmation.judgement is None:
            continue
        if (confirmation.finalist, confirmation.baseline) != (best, baseline):
            return None
        names = {f.name for f in fields(ConfirmationNote)} - {"finalist", "slices", "reason"}
        told = {name: value for name, value in confirmation.judgement.items() if name in names}
        reason = plain(str(confirmation.judgement.get("reason") or ""))
        return ConfirmationNote(finalist=confirmation.finalist, slices=len(confirmation.slices), reason=reason, **told)
    return None

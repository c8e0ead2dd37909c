"""Says what the confirmations of a study allow to be recommended.

Runs in: parent. Pure. *Not covered*: how they were judged (`tuner.confirmation`).
"""

from __future__ import annotations

from objectives.schema import LoaderConfig
from storage.records import Confirmation, StudyData
from tuner.confirmation import NOT_WORTH_IT


def last_finished(data: StudyData, config: LoaderConfig) -> Confirmation | None:
    """Return the latest finished confirmation of a configuration against the study's baseline, if there is one."""
    found = (c for c in reversed(data.confirmations) if c.finalist == config and c.baseline == data.study.baseline)
    return next((c for c in found if c.judgement is not None), None)


def allowed(data: StudyData, wanted: LoaderConfig, *, force: bool) -> tuple[LoaderConfig, str]:
    """Return what may be exported for a configuration, and one sentence on how sure it is.

    A configuration that was found slower or no better, or crashed, when it was measured again is replaced by the
    baseline: nobody should change a flag for nothing.

    Args:
        data: The study.
        wanted: What is asked for.
        force: Whether to export it all the same.
    """
    baseline = data.study.baseline
    if wanted == baseline:
        return wanted, "the defaults: there is nothing to confirm"
    last = last_finished(data, wanted)
    if last is None or last.judgement is None:
        return wanted, "not confirmed by interleaved re-measurement: tuner confirm"
    verdict, reason = last.judgement["verdict"], last.judgement.get("reason") or ""
    told = f"{verdict}{f' ({reason})' if reason else ''} by interleaved re-measurement"
    if verdict not in NOT_WORTH_IT:
        return wanted, told if verdict == "confirmed" else f"not confirmed: {told}"
    if force:
        return wanted, f"{wanted.key} {told}; exported because of --force"
    return baseline, f"{wanted.key} {told}: these are the baseline's settings (--force exports it all the same)"

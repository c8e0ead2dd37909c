"""Begins, closes and reads trials in Optuna's tables.

Runs in: parent. Optuna freezes a trial that was told, so everything it is to hold is written before.
*Not covered*: what a trial holds (`storage.attributes`), the slice it measured (`storage.queries`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import RandomSampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunasState

from objectives.schema import Crash
from storage import attributes, dashboard
from storage.queries import StoredSlice
from storage.records import TrialRecord, TrialState

LOST_REASON = "lost_reason"

STATES: dict[OptunasState, TrialState] = {
    OptunasState.COMPLETE: "complete",
    OptunasState.FAIL: "failed",
    OptunasState.PRUNED: "failed",
    OptunasState.RUNNING: "running",
    OptunasState.WAITING: "waiting",
}


def load(storage: RDBStorage, name: str) -> optuna.Study:
    """Return Optuna's study. Its sampler is never asked: what comes next is decided elsewhere."""
    return optuna.load_study(study_name=name, storage=storage, sampler=RandomSampler())


def begin(
    storage: RDBStorage,
    study_id: int,
    params: Mapping[str, int | bool],
    distributions: Mapping[str, BaseDistribution],
    user_attributes: Mapping[str, attributes.Scalar],
) -> FrozenTrial:
    """Return a new running trial.

    It is written with its parameters and attributes in one transaction. To enqueue and then ask would leave, after a
    kill between the two, a waiting trial that nobody owns, and would run a trial that someone else had queued instead.
    """
    template = create_trial(
        state=OptunasState.RUNNING,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs=dict(user_attributes),
    )
    return storage.get_trial(storage.create_new_trial(study_id, template_trial=template))


def close(study: optuna.Study, storage: RDBStorage, trial_id: int, stored: StoredSlice | None, reason: str) -> None:
    """Tell a trial what its committed slice says; without one, or with one that does not count, it fails.

    A trial that is finished already stays as it is, so this may be called again after a kill at any point.

    Args:
        study: Optuna's study.
        storage: Its storage, without a cache: another process may have finished the trial.
        trial_id: Optuna's id.
        stored: The trial's slice, if it was committed.
        reason: Why it fails, if it does.
    """
    if storage.get_trial(trial_id).state.is_finished():
        return
    trial = optuna.Trial(study, trial_id)
    try:
        if stored is not None:
            for name, value in attributes.at_end(stored.outcome, stored.score).items():
                trial.set_user_attr(name, value)
            if isinstance(stored.outcome, Crash):
                dashboard.save_note(trial, dashboard.crash_note(stored.outcome))
        if stored is not None and stored.counted and stored.score is not None:
            constraint = attributes.constraint(stored.outcome)
            storage.set_trial_system_attr(trial_id, attributes.CONSTRAINTS, constraint)
            study.tell(trial, stored.score.value, state=OptunasState.COMPLETE, skip_if_finished=True)
        else:
            trial.set_user_attr(LOST_REASON, attributes.short(reason))
            study.tell(trial, state=OptunasState.FAIL, skip_if_finished=True)
    except UpdateFinishedTrialError:
        return  # someone else, maybe the dashboard, finished it in between


def record(frozen: FrozenTrial, stored: StoredSlice | None) -> TrialRecord:
    """Return the trial as a plain value."""
    return TrialRecord(
        number=frozen.number,
        state=STATES[frozen.state],
        config=attributes.config_of(frozen.params),
        origin=frozen.user_attrs["origin"],
        slice_uuid=slice_uuid(frozen) or "",
        started_at=_utc(frozen.datetime_start),
        ended_at=_utc(frozen.datetime_complete),
        outcome=None if stored is None else stored.outcome,
        score=None if stored is None else stored.score,
    )


def slice_uuid(frozen: FrozenTrial) -> str | None:
    """Return the UUID of a trial's slice; None for a trial that was not begun here."""
    found: Any = frozen.user_attrs.get(attributes.SLICE_UUID)
    return found if isinstance(found, str) else None


def _utc(moment: datetime | None) -> datetime | None:
    # Optuna gives local time without a zone.
    return None if moment is None else moment.astimezone(UTC)

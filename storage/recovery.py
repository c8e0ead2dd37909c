"""Brings a study in order after a kill: every trial that still runs gets exactly one outcome.

Runs in: parent. A slice is committed before its trial is told, so what is known of an unfinished trial decides: a
committed slice is told now, as it would have been; without one nothing was learnt and the trial fails.
*Not covered*: measuring its configuration again (`tuner.study`).
"""

from __future__ import annotations

import optuna
from optuna.trial import TrialState

from storage import lease, ownership, queries, trials
from storage.engine import Database
from storage.records import TrialRecord

REASON = "tuner was killed while this trial ran"


def recover(database: Database, study: optuna.Study, uuid: str) -> list[TrialRecord]:
    """Close the trials whose owner is dead and return those of them that failed, in order.

    Trials that were not begun here, queued by hand for example, are left alone.

    Args:
        database: Where the study is.
        study: Optuna's study.
        uuid: Ours.

    Raises:
        UserError: If a living process works on the study.
    """
    storage, study_id = database.storage, study._study_id
    owner = ownership.claim(database.engine, uuid)
    running = [
        frozen
        for frozen in storage.get_all_trials(study_id, deepcopy=False, states=(TrialState.RUNNING,))
        if trials.slice_uuid(frozen)
    ]
    for held in (owner, *(lease.from_attributes(frozen.user_attrs) for frozen in running)):
        if held is not None and lease.held_by_another(held):
            raise ownership.busy(study.study_name, held)
    slices = queries.read_slices(database.engine, [trials.slice_uuid(f) or "" for f in running], raw=False)
    failed = []
    for frozen in running:
        stored = slices.get(trials.slice_uuid(frozen) or "")
        trials.close(study, storage, frozen._trial_id, stored, REASON)
        record = trials.record(storage.get_trial(frozen._trial_id), stored)
        if record.state == "failed":
            failed.append(record)
    return failed

"""Makes a study: Optuna's and ours, tied by a UUID, safe against a second process and a kill in between.

Runs in: parent. Our row comes first, for a row without a study of Optuna's is never seen; Optuna's unique name then
decides between two processes; the UUID in Optuna's attributes ties them.
*Not covered*: what a study is bound to (`storage.records`).
"""

from __future__ import annotations

from optuna.exceptions import DuplicatedStudyError
from optuna.study import StudyDirection

from objectives.errors import EXIT_STORAGE, UserError
from storage import attributes, dashboard, lease, ownership, queries, trials
from storage.engine import Database
from storage.records import StudyRecord

SHOWN = ("objective", "baseline_of", "configurations", "fingerprint")
"""Fields of the study that the dashboard shows."""


def create_study(database: Database, record: StudyRecord, max_workers: int) -> None:
    """Make the study, with this process as its owner.

    Raises:
        UserError: If a study of that name exists, ours or another program's.
    """
    storage, engine = database.storage, database.engine
    queries.insert_study(engine, record, *attributes.ranges(record, max_workers), lease.own())
    try:
        try:
            study_id = storage.create_new_study([StudyDirection.MAXIMIZE], record.name)
        except DuplicatedStudyError:
            study_id = _half_made(database, record)
    except BaseException:
        queries.delete_study(engine, record.uuid)
        raise
    storage.set_study_user_attr(study_id, attributes.STUDY_UUID, record.uuid)
    for name in SHOWN:
        storage.set_study_user_attr(study_id, name, getattr(record, name))
    storage.set_study_user_attr(study_id, "baseline", record.baseline.key)
    dashboard.name_metric(trials.load(storage, record.name))


def _half_made(database: Database, record: StudyRecord) -> int:
    """Return the id of Optuna's study of this name if a kill left it without its UUID, which it can now have.

    Raises:
        UserError: If it belongs to someone.
    """
    storage = database.storage
    study_id = storage.get_study_id_from_name(record.name)
    tied = attributes.STUDY_UUID in storage.get_study_user_attrs(study_id)
    begun = [key for key in queries.uuids_named(database.engine, record.name) if key != record.uuid]
    if not tied and begun and storage.get_n_trials(study_id) == 0:
        owner = ownership.claim(database.engine, begun[-1])
        if owner is not None:
            raise ownership.busy(record.name, owner)
        queries.delete_study(database.engine, begun[-1])
        return study_id
    what = "was made by another tuner run" if tied else "is another program's"
    raise UserError(
        f"study '{record.name}' in '{database.url}' {what}",
        "two runs cannot make the same study" if tied else "its trials have other parameters",
        f"tuner run --study {record.name}-2",
        exit_code=EXIT_STORAGE,
    )

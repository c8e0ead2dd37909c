"""Keeps studies: the one class that users of this package see.

Runs in: parent. A finished slice is committed to our tables first, then shown to Optuna, then told; a kill between any
two of these is mended by `recover`.
*Not covered*: each step, in `engine`, `creation`, `queries`, `trials`, `attributes`, `dashboard` and `recovery`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import optuna

from objectives.errors import EXIT_STORAGE, UserError
from objectives.schema import Crash, LoaderConfig, Measurement, Outcome, Score
from storage import attributes, confirmations, dashboard, lease, ownership, queries, recovery, trials
from storage.creation import create_study
from storage.engine import Database, open_database
from storage.failures import guarded
from storage.records import Confirmation, ConfirmationSlice, Origin, StudyData, StudyRecord, TrialRecord

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

optuna.logging.set_verbosity(optuna.logging.ERROR)


def open_store(url_or_path: str, *, create: bool) -> Store:
    """Return the store of a database file or URL.

    Args:
        url_or_path: A file, or an SQLAlchemy URL that Optuna accepts.
        create: Whether to make what is missing; else a missing database is an error.

    Raises:
        UserError: If it cannot be opened; then nothing was made or changed.
    """
    return Store(open_database(url_or_path, create=create))


class Store:
    """Studies in one database. A context manager; not for several threads at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._engine = database.engine
        self._storage = database.storage
        self._claimed: set[str] = set()

    @property
    def url(self) -> str:
        """Return the database's address as the user wrote it, without a password."""
        return self._database.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @guarded
    def close(self) -> None:
        """Give up the studies worked on and close the database. May be called twice."""
        try:
            while self._claimed:
                ownership.release(self._engine, self._claimed.pop())
        finally:
            self._database.close()

    @guarded
    def studies(self) -> list[StudyRecord]:
        """Return our studies, oldest first; Optuna's other studies are not among them."""
        named = {
            frozen.user_attrs[attributes.STUDY_UUID]: frozen.study_name
            for frozen in self._storage.get_all_studies()
            if isinstance(frozen.user_attrs.get(attributes.STUDY_UUID), str)
        }
        # The dashboard can rename a study: Optuna's name is the one that counts.
        found = [replace(r, name=named[key]) for key, r in queries.read_studies(self._engine, list(named)).items()]
        return sorted(found, key=lambda record: record.created_at)

    @guarded
    def study(self, name: str) -> StudyRecord | None:
        """Return our study of this name, or None."""
        return next((record for record in self.studies() if record.name == name), None)

    @guarded
    def create_study(self, record: StudyRecord, *, max_workers: int) -> None:
        """Make a study and become its owner.

        Args:
            record: The study.
            max_workers: The largest worker count its range must have; the range never changes again.

        Raises:
            UserError: If a study of that name exists, ours or another program's.
        """
        self._claimed.add(record.uuid)
        create_study(self._database, record, max_workers)

    @guarded
    def begin_trial(self, study: StudyRecord, config: LoaderConfig, origin: Origin) -> TrialRecord:
        """Return a new running trial, owned by this process.

        Raises:
            UserError: If the configuration is outside the ranges the study was made with.
        """
        study_id = self._study_id(study)
        limits = queries.read_ranges(self._engine, study.uuid)
        params = attributes.params(config, study, *limits)
        owner = lease.own()
        self._own(study, owner, stopped=None)
        known = {**attributes.at_begin(config, origin, str(uuid.uuid4())), **lease.to_attributes(owner)}
        frozen = trials.begin(self._storage, study_id, params, attributes.distributions(*limits), known)
        return trials.record(frozen, None)

    @guarded
    def finish_trial(self, study: StudyRecord, trial: TrialRecord, outcome: Outcome, score: Score) -> TrialRecord:
        """Commit a slice, tell Optuna, and return the trial as it is stored. A second call changes nothing."""
        return self._close(study, trial, outcome, score, counted=True, reason="")

    @guarded
    def lose_trial(
        self, study: StudyRecord, trial: TrialRecord, reason: str, outcome: Crash | None = None
    ) -> TrialRecord:
        """Let a trial fail that nothing was learnt from, and return it; it does not count.

        Args:
            study: The study.
            trial: A running trial; one whose slice was committed is completed instead.
            reason: Why, for the dashboard.
            outcome: The crash, if there was one.
        """
        return self._close(study, trial, outcome, None, counted=False, reason=reason)

    @guarded
    def add_ceiling(self, study: StudyRecord, measurement: Measurement) -> None:
        """Commit one ceiling."""
        queries.insert_ceiling(self._engine, study.uuid, str(uuid.uuid4()), measurement)

    @guarded
    def begin_confirmation(self, study: StudyRecord, baseline: LoaderConfig, finalist: LoaderConfig) -> Confirmation:
        """Return a new confirmation without slices, stored; the study is this process's then."""
        self._study_id(study)
        self._own(study, lease.own())
        return confirmations.begin(self._engine, study.uuid, baseline, finalist)

    @guarded
    def add_confirmation_slice(
        self, study: StudyRecord, confirmation: Confirmation, measured: ConfirmationSlice
    ) -> None:
        """Commit one slice of a confirmation; slices are read back in the order in which they were added."""
        self._study_id(study)
        self._own(study, lease.own())
        confirmations.add_slice(self._engine, study.uuid, confirmation.uuid, measured)

    @guarded
    def set_judgement(self, study: StudyRecord, confirmation: Confirmation, judgement: Mapping[str, Any]) -> None:
        """Write what a confirmation has shown: plain values by name. It is finished then."""
        self._study_id(study)
        confirmations.set_judgement(self._engine, confirmation.uuid, judgement)

    @guarded
    def set_remember(self, study: StudyRecord) -> None:
        """Write the record's `remember`, `facts` and `options`."""
        queries.set_remember(self._engine, study)

    @guarded
    def set_stopped(self, study: StudyRecord, stopped: str | None, spent_s: float) -> None:
        """Write why a run ended, and add its wall time to the study's."""
        queries.set_stopped(self._engine, study.uuid, stopped, spent_s)

    @guarded
    def add_spent(self, study: StudyRecord, spent_s: float) -> None:
        """Add wall time to the study's, in seconds."""
        queries.add_spent(self._engine, study.uuid, spent_s)

    @guarded
    def set_note(self, study: StudyRecord, markdown: str) -> None:
        """Write the note that the dashboard shows on the study's page."""
        self._study_id(study)
        dashboard.save_note(trials.load(self._storage, study.name), markdown)

    @guarded
    def data(self, study: StudyRecord, *, raw: bool = False) -> StudyData:
        """Return everything stored of a study, read anew.

        Args:
            study: The study.
            raw: Whether to read the raw series too: about a thousand rows a slice.
        """
        found = self._storage.get_all_trials(self._study_id(study), deepcopy=False)
        keys = {frozen.number: key for frozen in found if (key := trials.slice_uuid(frozen))}
        slices = queries.read_slices(self._engine, list(keys.values()), raw=raw)
        return StudyData(
            study=replace(queries.read_studies(self._engine, [study.uuid])[study.uuid], name=study.name),
            trials=tuple(trials.record(f, slices.get(keys[f.number])) for f in found if f.number in keys),
            ceilings=tuple(
                s.outcome
                for s in queries.read_ceilings(self._engine, study.uuid, raw=raw)
                if isinstance(s.outcome, Measurement)
            ),
            confirmations=tuple(confirmations.read(self._engine, study.uuid, raw=raw)),
        )

    @guarded
    def recover(self, study: StudyRecord) -> list[TrialRecord]:
        """Become the study's owner, close the trials a dead one left running, and return those that failed.

        Raises:
            UserError: If another living process works on the study.
        """
        self._study_id(study)
        self._claimed.add(study.uuid)
        return recovery.recover(self._database, trials.load(self._storage, study.name), study.uuid)

    def dashboard_app(self) -> WSGIApplication:
        """Return the dashboard of this database; it serves as long as the store is open."""
        return dashboard.app(self._storage)

    def _own(self, study: StudyRecord, owner: lease.Lease, **columns: Any) -> None:
        """Write that this process works on the study, as of now."""
        queries.update_study(self._engine, study.uuid, owner_json=lease.to_json(owner), **columns)
        self._claimed.add(study.uuid)

    def _close(
        self,
        study: StudyRecord,
        trial: TrialRecord,
        outcome: Outcome | None,
        score: Score | None,
        *,
        counted: bool,
        reason: str,
    ) -> TrialRecord:
        study_id = self._study_id(study)
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        if outcome is not None:
            queries.insert_trial_slice(
                self._engine, study.uuid, trial.slice_uuid, trial.number, trial.config, trial.origin, outcome, score,
                counted=counted,
            )  # fmt: skip
        stored = queries.read_slices(self._engine, [trial.slice_uuid], raw=True).get(trial.slice_uuid)
        trials.close(trials.load(self._storage, study.name), self._storage, trial_id, stored, reason)
        return trials.record(self._storage.get_trial(trial_id), stored)

    def _study_id(self, study: StudyRecord) -> int:
        """Return Optuna's id, looked up anew: the ids of deleted studies are given out again."""
        try:
            study_id = self._storage.get_study_id_from_name(study.name)
            found = self._storage.get_study_user_attrs(study_id).get(attributes.STUDY_UUID)
        except KeyError:
            found = None
        if found != study.uuid:
            raise UserError(
                f"study '{study.name}' is no longer in '{self.url}'",
                "it was deleted, renamed or replaced while this command ran, maybe in the dashboard",
                "tuner show",
                exit_code=EXIT_STORAGE,
            )
        return study_id

"""Confirmations in a real SQLite file, and a file of version 1 that is read, migrated and gone on with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BASELINE, config, crash, study
from sqlalchemy import event
from test_store import a_slice, run_trial, sql

from objectives.errors import UserError
from storage.records import Arm, Confirmation, ConfirmationSlice
from storage.store import Store, open_store

RECORD = study(stopped=None, spent_s=0.0, options={"model": "embedded", "num_workers": None})
FINALIST = config("w4 p4 persist pin")

STUDY_1 = """CREATE TABLE tuner_study (
uuid VARCHAR(36) NOT NULL, name VARCHAR(512) NOT NULL, host_uuid VARCHAR(36) NOT NULL, objective TEXT NOT NULL,
identity_json TEXT NOT NULL, fingerprint TEXT NOT NULL, baseline_json TEXT NOT NULL, baseline_of TEXT NOT NULL,
measured_knobs_json TEXT NOT NULL, values_json TEXT NOT NULL, reasons_json TEXT NOT NULL,
configurations BIGINT NOT NULL, seed BIGINT NOT NULL, created_at DATETIME NOT NULL, score_policy_json TEXT NOT NULL,
remember_json TEXT NOT NULL, facts_json TEXT NOT NULL, stopped TEXT, spent_s DOUBLE NOT NULL,
max_workers BIGINT NOT NULL, max_prefetch BIGINT NOT NULL, owner_json TEXT, PRIMARY KEY (uuid))"""
SLICE_1 = """CREATE TABLE tuner_slice (
uuid VARCHAR(36) NOT NULL, study_uuid VARCHAR(36) NOT NULL, kind TEXT NOT NULL, number BIGINT NOT NULL,
finished_at DATETIME NOT NULL, counted BOOLEAN NOT NULL, origin TEXT, configuration TEXT, num_workers BIGINT,
prefetch_factor BIGINT, persistent_workers BOOLEAN, pin_memory BOOLEAN, score DOUBLE, throughput DOUBLE,
penalties_json TEXT, outcome TEXT NOT NULL, samples_per_s DOUBLE, step_s DOUBLE, tokens_per_s DOUBLE,
half_width_per_s DOUBLE, wait_fraction DOUBLE, h2d_fraction DOUBLE, compute_s DOUBLE, restart_s DOUBLE,
restart_fraction DOUBLE, startup_s DOUBLE, loader_batches_per_s DOUBLE, cpu_busy_fraction DOUBLE,
cpu_pressure_fraction DOUBLE, run_delay_fraction DOUBLE, trainer_cpu_fraction DOUBLE, gpu_util_fraction DOUBLE,
gpu_peak_bytes BIGINT, peak_memory_fraction DOUBLE, peak_shm_bytes BIGINT, batch_bytes BIGINT,
worker_uss_bytes BIGINT, tokens BIGINT, timed_s DOUBLE, crash_frequency TEXT, raw_json TEXT, crash_kind TEXT,
blame TEXT, phase TEXT, message TEXT, remedy TEXT, exit_code BIGINT, signal TEXT, exception TEXT, log_tail TEXT,
wall_json TEXT, PRIMARY KEY (uuid))"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the database is made."""
    return tmp_path / "tuner.db"


def begun(store: Store) -> Confirmation:
    """Return a new confirmation in a new study."""
    store.create_study(RECORD, max_workers=8)
    return store.begin_confirmation(RECORD, BASELINE, FINALIST)


def one(number: int, arm: Arm = "finalist") -> ConfirmationSlice:
    """Return a slice of the first round."""
    return ConfirmationSlice(0, arm, FINALIST if arm == "finalist" else BASELINE, a_slice(4.0 + number))


def test_what_is_confirmed_is_read_back_in_order(path: Path) -> None:
    """Slices of two confirmations come back equal, in order, with their series; trials and ceilings stay apart."""
    slices = (
        one(0, "baseline"),
        one(1),
        one(2),
        one(3, "baseline"),
        ConfirmationSlice(1, "finalist", FINALIST, crash()),
    )
    with open_store(str(path), create=True) as store:
        first = begun(store)
        trial = run_trial(store, RECORD, "w1 p2", a_slice())
        second = store.begin_confirmation(RECORD, BASELINE, BASELINE)
        for measured_now in slices:
            store.add_confirmation_slice(RECORD, first, measured_now)
        store.add_confirmation_slice(RECORD, second, one(9, "baseline"))
        store.set_judgement(RECORD, first, {"verdict": "regressed", "gain_fraction": -1.0, "reason": "crash"})
        store.add_spent(RECORD, 2.5)
    with open_store(str(path), create=False) as store:
        data, light = store.data(RECORD, raw=True), store.data(RECORD)
    judged = {"verdict": "regressed", "gain_fraction": -1.0, "reason": "crash"}
    assert data.confirmations == (
        replace(first, slices=slices, judgement=judged),
        replace(second, slices=(one(9, "baseline"),)),
    )
    assert data.trials == (trial,)
    assert data.ceilings == ()
    assert (data.study.spent_s, data.study.options) == (2.5, RECORD.options)
    assert [s.outcome for s in light.confirmations[1].slices] == [replace(a_slice(13.0), raw=None, load=())]
    query = "SELECT round, arm, configuration FROM tuner_slice WHERE kind = 'confirmation' AND arm = 'baseline'"
    assert sql(path, query) == [(0, "baseline", BASELINE.key)] * 3


def test_one_slice_of_a_confirmation_is_one_transaction(path: Path) -> None:
    """A slice and its series are committed together, so that a kill leaves all of them or none."""
    with open_store(str(path), create=True) as store:
        confirmation = begun(store)
        writes: list[str] = []

        def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
            if statement.startswith("INSERT"):
                writes.append(statement.split()[2])

        event.listen(store._engine, "before_cursor_execute", note)
        event.listen(store._engine, "commit", lambda _connection: writes.append("commit"))
        store.add_confirmation_slice(RECORD, confirmation, one(0))
        tables = ["tuner_slice", "tuner_step", "tuner_batch", "tuner_load"]
        assert writes == ["commit", *tables, "commit"]  # the first is the lease


def test_a_study_without_its_name_takes_no_slice(path: Path) -> None:
    """A confirmation of a study that was deleted meanwhile is refused as a trial is."""
    with open_store(str(path), create=True) as store:
        confirmation = begun(store)
        with pytest.raises(UserError, match="no longer in"):
            store.add_confirmation_slice(replace(RECORD, uuid="study-2"), confirmation, one(0))


def old_file(path: Path) -> None:
    """Make a file as version 1 left it: a study with a trial and a ceiling."""
    with open_store(str(path), create=True) as store:
        store.create_study(RECORD, max_workers=8)
        run_trial(store, RECORD, "w1 p2", a_slice(5.0))
        store.add_ceiling(RECORD, a_slice(9.0))
    with closing(sqlite3.connect(path)) as connection:
        for table, definition in (("tuner_study", STUDY_1), ("tuner_slice", SLICE_1)):
            connection.execute(f"ALTER TABLE {table} RENAME TO newer")
            connection.execute(definition)
            names = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
            connection.execute(f"INSERT INTO {table} SELECT {names} FROM newer")
            connection.execute("DROP TABLE newer")
        connection.execute("DROP TABLE tuner_confirmation")
        connection.execute("CREATE INDEX ix_tuner_study_name ON tuner_study (name)")
        connection.execute("CREATE INDEX ix_tuner_slice_study_uuid ON tuner_slice (study_uuid)")
        connection.execute("UPDATE tuner_schema SET version = 1")
        connection.commit()


def dump(path: Path) -> set[str]:
    """Return the rows of a database as SQL, without definitions of tables."""
    with closing(sqlite3.connect(path)) as connection:
        return {line for line in connection.iterdump() if line.startswith("INSERT")}


def test_an_older_file_is_read_without_a_change(path: Path) -> None:
    """Version 1, opened to read: its trials, ceilings and no confirmations; not a byte is changed."""
    old_file(path)
    before = path.read_bytes()
    with open_store(str(path), create=False) as store:
        (found,) = store.studies()
        data = store.data(found, raw=True)
    assert path.read_bytes() == before
    assert found == replace(RECORD, options={})
    assert [t.outcome for t in data.trials] == [a_slice(5.0)]
    assert [c.samples_per_s for c in data.ceilings] == [9.0]
    assert data.confirmations == ()


def test_an_older_file_is_migrated_in_place(path: Path) -> None:
    """Version 1, opened to write: no row is lost or changed, confirmations can be stored, the version is 2."""
    old_file(path)
    columns = ", ".join(name for _, name in sql(path, "SELECT cid, name FROM pragma_table_info('tuner_slice')"))
    slices = sql(path, f"SELECT {columns} FROM tuner_slice")
    before = dump(path)
    with open_store(str(path), create=True) as store:
        assert sql(path, f"SELECT {columns} FROM tuner_slice") == slices
        assert {line for line in before if "tuner_s" not in line} <= dump(path)
        (found,) = store.studies()
        trial = run_trial(store, found, "w2 p2", a_slice(6.0))
        confirmation = store.begin_confirmation(found, BASELINE, FINALIST)
        store.add_confirmation_slice(found, confirmation, one(0))
        store.set_remember(replace(found, options={"model": "embedded"}))
        data = store.data(found, raw=True)
    assert [t.outcome for t in data.trials] == [a_slice(5.0), a_slice(6.0)]
    assert trial.number == 1
    assert data.confirmations == (replace(confirmation, slices=(one(0),)),)
    assert data.study.options == {"model": "embedded"}
    assert sql(path, "SELECT version FROM tuner_schema") == [(2,)]
    with open_store(str(path), create=True) as store:
        assert store.data(found, raw=True) == data


def test_a_migration_that_fails_leaves_the_older_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last step fails nothing of the others is kept, and the next run migrates."""
    old_file(path)
    before = dump(path)
    with monkeypatch.context() as patch:
        patch.setattr("storage.migration.SCHEMA_VERSION", 3)  # there is no step to 3
        with pytest.raises(KeyError):
            open_store(str(path), create=True)
    assert dump(path) == before
    assert sql(path, "SELECT name FROM sqlite_master WHERE name = 'tuner_confirmation'") == []
    with open_store(str(path), create=True) as store:
        assert store.data(store.studies()[0]).confirmations == ()


def test_a_file_half_migrated_by_a_database_without_transactions(path: Path) -> None:
    """A column and table that are there already, as MySQL leaves them after a kill, are not made twice."""
    old_file(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE tuner_slice ADD COLUMN arm TEXT")
        connection.commit()
    with open_store(str(path), create=True) as store:
        confirmation = store.begin_confirmation(RECORD, BASELINE, FINALIST)
        store.add_confirmation_slice(RECORD, confirmation, one(0))
        assert store.data(RECORD, raw=True).confirmations == (replace(confirmation, slices=(one(0),)),)


def test_columns_of_the_migration_are_those_of_a_new_file(path: Path, tmp_path: Path) -> None:
    """A migrated file has the same columns, with the same types, as one made today."""
    old_file(path)
    open_store(str(path), create=True).close()
    open_store(str(tmp_path / "new.db"), create=True).close()
    for table in ("tuner_study", "tuner_slice", "tuner_confirmation"):
        query = f"SELECT name, type, \"notnull\" FROM pragma_table_info('{table}')"
        assert set(sql(path, query)) == set(sql(tmp_path / "new.db", query))

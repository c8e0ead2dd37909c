"""Studies in a real SQLite file: what is stored is read back, by us, by plain SQL and by the dashboard."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from builders import config, crash, measured, study
from sqlalchemy import event

from objectives.errors import UserError
from objectives.schema import BatchSeries, LoadSample, Measurement, RawSlice, StepSeries
from objectives.score import ScorePolicy, score
from storage import attributes
from storage.records import StudyRecord, TrialRecord
from storage.store import Store, open_store

KEYS = ("w1 p2 persist pin", "w0 pin", "w4 p2 persist pin", "w2 p4", "w4 p2 persist pin")


@pytest.fixture
def record() -> StudyRecord:
    """Return a study that was not run yet."""
    return study(stopped=None, spent_s=0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the database is made."""
    return tmp_path / "tuner.db"


def a_slice(samples_per_s: float = 5.0, **figures: Any) -> Measurement:
    """Return a measurement with 12 steps, 300 batches and 40 looks at the host."""
    seconds = tuple(0.1 + 0.01 * i for i in range(12))
    stamps = tuple(0.01 * i for i in range(300))
    steps = StepSeries(seconds, seconds, seconds, seconds, samples=(16,) * 12, tokens=(900,) * 12)
    batches = BatchSeries((-1,) * 100 + (0,) * 200, (77,) * 300, stamps, stamps, stamps, stamps)
    raw = RawSlice("trial", steps, batches, startup_s=0.4, wall_s={"build": 0.25, "train": 3.5})
    load = tuple(LoadSample(0.1 * i, cpu_busy_fraction=0.5, shm_used_bytes=2**33) for i in range(40))
    return measured(samples_per_s, raw=raw, load=load, gpu_peak_bytes=2**34, **figures)


def run_trial(store: Store, record: StudyRecord, key: str, outcome: Any) -> TrialRecord:
    """Return the trial of one outcome, stored."""
    trial = store.begin_trial(record, config(key), "search")
    return store.finish_trial(record, trial, outcome, score(outcome, ScorePolicy()))


def sql(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return what plain sqlite3 reads."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_what_is_stored_is_read_back(path: Path, record: StudyRecord) -> None:
    """Five trials, a ceiling and the study come back equal in a later process's store; WAL leaves one file behind."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        assert store.study(record.name) == record
        written = tuple(run_trial(store, record, key, a_slice(4.0 + i)) for i, key in enumerate(KEYS))
        store.add_ceiling(record, a_slice(9.0))
        store.add_ceiling(record, a_slice(8.0))
        store.set_remember(replace(record, remember={"steps": 12}, facts={"torch": "2.13.0"}))
        store.set_stopped(record, "interrupted", 2.0)
        store.set_stopped(record, "5 trials done", 3.0)
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with open_store(f"sqlite:///{path}", create=False) as store:
        data = store.data(record, raw=True)
        light = store.data(record)
    assert data.trials == written
    assert [t.number for t in written] == [0, 1, 2, 3, 4]
    assert [t.config.key for t in written] == list(KEYS)
    assert [t.outcome for t in written] == [a_slice(4.0 + i) for i in range(5)]
    assert [c.samples_per_s for c in data.ceilings] == [9.0, 8.0]
    expected = replace(record, stopped="5 trials done", spent_s=5.0, remember={"steps": 12}, facts={"torch": "2.13.0"})
    assert data.study == expected
    assert [t.outcome for t in light.trials] == [replace(a_slice(4.0 + i), raw=None, load=()) for i in range(5)]


def test_plain_sql_sees_the_same_numbers(path: Path, record: StudyRecord) -> None:
    """Our table and Optuna's agree on number, score and figures without either program."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        for i, key in enumerate(KEYS):
            run_trial(store, record, key, a_slice(4.0 + i, cpu_busy_fraction=0.9 + 0.02 * i, wait_fraction=0.1))
    ours = sql(path, "SELECT number, uuid, score, cpu_busy_fraction FROM tuner_slice ORDER BY number")
    optunas = sql(
        path,
        "SELECT number, u.value_json, v.value, b.value_json FROM trials t JOIN trial_values v USING (trial_id)"
        " JOIN trial_user_attributes u ON u.trial_id = t.trial_id AND u.key = 'slice_uuid'"
        " JOIN trial_user_attributes b ON b.trial_id = t.trial_id AND b.key = 'cpu_busy_fraction' ORDER BY number",
    )
    assert [(n, json.loads(u), v, json.loads(b)) for n, u, v, b in optunas] == ours
    assert len(ours) == 5


def test_optuna_has_dormant_knobs_fixed_ranges_and_scalars(path: Path, record: StudyRecord) -> None:
    """With 0 workers the dormant knobs are the baseline's; ranges are the study's; no attribute is a blob or None."""
    with open_store(str(path), create=True) as store:
        store.create_study(replace(record, values={"num_workers": [0, 20]}), max_workers=8)
        run_trial(store, record, "w0", a_slice(4.0))
    (found,) = optuna.load_study(study_name=record.name, storage=f"sqlite:///{path}").trials
    assert found.params == {
        "num_workers": 0,
        "prefetch_factor": record.baseline.prefetch_factor,
        "persistent_workers": record.baseline.persistent_workers,
        "pin_memory": False,
    }
    assert found.distributions == attributes.distributions(20, 16)
    assert {type(value) for value in found.user_attrs.values()} <= {str, int, float, bool}
    assert found.user_attrs["configuration"] == "w0"


def test_one_slice_is_one_transaction(path: Path, record: StudyRecord) -> None:
    """Slice, steps, batches and load are committed together, so that a kill leaves all of them or none."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        trial = store.begin_trial(record, config("w1 p2"), "seed")
        commits: list[object] = []
        event.listen(store._engine, "commit", commits.append)
        store.finish_trial(record, trial, a_slice(), score(a_slice(), ScorePolicy()))
        assert len(commits) == 1
    counts = [sql(path, f"SELECT count(*) FROM tuner_{name}") for name in ("slice", "step", "batch", "load")]
    assert counts == [[(1,)], [(12,)], [(300,)], [(40,)]]


def test_crashes_count_and_losses_do_not(path: Path, record: StudyRecord) -> None:
    """A crash is COMPLETE with 0.0 and violates the constraint; a lost trial is FAIL, with its reason; both stay."""
    culprit, host_crash = crash(log_tail="last words"), crash("gpu_lost", blame="host")
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        good = run_trial(store, record, "w1 p2", a_slice(peak_memory_fraction=0.5))
        dead = run_trial(store, record, "w4 p4", culprit)
        lost = store.lose_trial(record, store.begin_trial(record, config("w2 p2"), "search"), "GPU lost", host_crash)
        assert store.finish_trial(record, good, a_slice(99.0), score(a_slice(99.0), ScorePolicy())) == good
        assert store.lose_trial(record, dead, "too late") == dead
        assert store.data(record, raw=True).trials == (good, dead, lost)
    assert (dead.state, dead.outcome, dead.score and dead.score.value) == ("complete", culprit, 0.0)
    assert (lost.state, lost.outcome, lost.score) == ("failed", host_crash, None)
    found = optuna.load_study(study_name=record.name, storage=f"sqlite:///{path}").trials
    assert [t.state.name for t in found] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert [t.value for t in found] == [5.0, 0.0, None]
    assert [t.system_attrs.get("constraints") for t in found] == [[0.5 - 0.92], [0.15], None]
    assert found[2].user_attrs["lost_reason"] == "GPU lost"


def ask(app: Any, path: str) -> str:
    """Return the dashboard's answer, without a port."""
    environ: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    environ["wsgi.input"] = io.BytesIO()
    statuses: list[str] = []
    body = b"".join(app(environ, lambda status, headers, *rest: statuses.append(status))).decode()
    assert statuses == ["200 OK"], body
    return body


def test_the_dashboard_shows_trials_constraints_and_notes(path: Path, record: StudyRecord) -> None:
    """The dashboard's own interface gives the trials with constraint, metric name, log note and study note."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        run_trial(store, record, "w1 p2", a_slice(peak_memory_fraction=0.5))
        run_trial(store, record, "w4 p4", crash(log_tail="before\n```\nlast words"))
        store.set_note(record, "| best | w1 p2 |")
        app = store.dashboard_app()
        (summary,) = json.loads(ask(app, "/api/studies"))["study_summaries"]
        found = json.loads(ask(app, f"/api/studies/{summary['study_id']}"))
        header = ask(app, f"/csv/{summary['study_id']}").splitlines()[0].split(",")
    assert [t["constraints"] for t in found["trials"]] == [[0.5 - 0.92], [0.15]]
    assert [t["values"] for t in found["trials"]] == [[5.0], [0.0]]
    assert header[:3] == ["Number", "State", "samples_per_s"]
    assert found["note"]["body"] == "| best | w1 p2 |"
    assert found["trials"][0]["note"]["body"] == ""
    assert "\n````\nbefore\n```\nlast words\n````" in found["trials"][1]["note"]["body"]


def test_what_others_did_in_the_database_is_left_alone(path: Path, record: StudyRecord) -> None:
    """Another program's studies are not ours; a trial queued by hand is neither run nor counted; names stay free."""
    with open_store(str(path), create=True) as store:
        foreign = optuna.create_study(study_name="theirs", storage=f"sqlite:///{path}")
        store.create_study(record, max_workers=8)
        with pytest.raises(UserError, match="'theirs'") as raised:
            store.create_study(replace(record, name="theirs", uuid="study-2"), max_workers=8)
        assert raised.value.exit_code == 4
        assert store.studies() == [record]
        queued = optuna.load_study(study_name=record.name, storage=f"sqlite:///{path}")
        queued.enqueue_trial({"num_workers": 99})
        trial = run_trial(store, record, "w2 p2", a_slice())
        assert trial.number == 1
        assert store.recover(record) == []
        assert store.data(record, raw=True).trials == (trial,)
    assert sql(path, "SELECT name FROM tuner_study") == [(record.name,)]
    assert foreign.trials == []


def test_a_study_deleted_in_the_dashboard_leaves_nothing_to_inherit(path: Path, record: StudyRecord) -> None:
    """A study of the same name, and the same Optuna ids, starts empty; work on the deleted one is refused."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        run_trial(store, record, "w2 p2", a_slice())
        optuna.delete_study(study_name=record.name, storage=f"sqlite:///{path}")
        with pytest.raises(UserError, match="no longer in"):
            store.data(record)
        assert store.studies() == []
        again = replace(record, uuid="study-2")
        store.create_study(again, max_workers=8)
        assert store.data(again).trials == ()
        with pytest.raises(UserError, match="no longer in"):
            store.begin_trial(record, config("w2 p2"), "seed")


def test_a_configuration_outside_the_ranges_is_refused(path: Path, record: StudyRecord) -> None:
    """A worker count above the study's range is a user error and begins no trial."""
    with open_store(str(path), create=True) as store:
        store.create_study(record, max_workers=8)
        with pytest.raises(UserError, match="num_workers=64"):
            store.begin_trial(record, config("w64 p2"), "search")
        assert store.data(record).trials == ()


CREATE = """
import sys
sys.path.insert(0, sys.argv[3])
from builders import study
from objectives.errors import UserError
from storage.store import open_store
sys.stdin.readline()
try:
    with open_store(sys.argv[1], create=True) as store:
        store.create_study(study(uuid=sys.argv[2]), max_workers=8)
        print("made")
except UserError as error:
    print(error.exit_code)
"""


def test_several_processes_make_the_same_study(path: Path, record: StudyRecord) -> None:
    """Of processes that make one database and one study at once, one succeeds, the others get a storage error."""
    here = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", CREATE, str(path)]
    children = [
        subprocess.Popen(
            [*command, f"study-{i}", here], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        for i in range(3)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=60)[0].strip() for child in children]
    assert sorted(said) == ["4", "4", "made"]
    with open_store(str(path), create=False) as store:
        assert [s.uuid for s in store.studies()] == [f"study-{said.index('made')}"]
    assert sql(path, "SELECT count(*), max(owner_json) FROM tuner_study") == [(1, None)]

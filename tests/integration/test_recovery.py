"""A process killed while it stores a trial: afterwards every trial has exactly one outcome."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from builders import BASELINE, config, measured, study

from objectives.errors import UserError
from objectives.score import ScorePolicy, score
from storage import lease
from storage.store import open_store

RECORD = study(stopped=None, spent_s=0.0)
OUTCOME = measured(5.0, peak_memory_fraction=0.5)

CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from builders import BASELINE, measured, study
from objectives.score import ScorePolicy, score
from storage import attributes, queries, trials
from storage.store import open_store

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

point = sys.argv[2]
record = study(stopped=None, spent_s=0.0)
store = open_store(sys.argv[1], create=True)
if point == "half-made study":
    store._storage.set_study_user_attr = die
store.create_study(record, max_workers=8)
done = store.begin_trial(record, BASELINE, "baseline")
outcome = measured(5.0, peak_memory_fraction=0.5)
store.finish_trial(record, done, measured(4.0), score(measured(4.0), ScorePolicy()))
trial = store.begin_trial(record, BASELINE, "repeat")
if point == "alive":
    print("running", flush=True)
    sys.stdin.readline()
if point == "before the commit":
    queries.insert_trial_slice = die
if point == "after the commit":
    trials.close = die
if point == "before the tell":
    attributes.constraint = die
store.finish_trial(record, trial, outcome, score(outcome, ScorePolicy()))
die()
"""


def command(path: Path, point: str) -> list[str]:
    """Return the command of a child that kills itself at that point."""
    return [sys.executable, "-c", CHILD, str(path), point, str(Path(__file__).parents[1])]


def killed_at(path: Path, point: str) -> None:
    """Run a child to its death."""
    done = subprocess.run(command(path, point), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def states(path: Path) -> list[tuple[int, str]]:
    """Return number and state of Optuna's trials."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT number, state FROM trials ORDER BY number").fetchall()


@pytest.mark.parametrize(
    ("point", "committed"),
    [("before the commit", False), ("after the commit", True), ("before the tell", True), ("after the tell", True)],
)
def test_a_kill_at_any_point(tmp_path: Path, point: str, committed: bool) -> None:
    """A committed slice is told and not measured again; without one the trial fails and is handed back, once."""
    path = tmp_path / "tuner.db"
    killed_at(path, point)
    with open_store(str(path), create=True) as store:
        failed = store.recover(RECORD)
        assert store.recover(RECORD) == []
        first, second = store.data(RECORD).trials
        again = store.begin_trial(RECORD, config("w2 p2"), "retry")
        store.finish_trial(RECORD, again, OUTCOME, score(OUTCOME, ScorePolicy()))
    assert first.outcome == measured(4.0)
    assert again.number == 2
    if committed:
        assert failed == []
        assert (second.state, second.outcome, second.score) == ("complete", OUTCOME, score(OUTCOME, ScorePolicy()))
    else:
        assert failed == [second]
        assert (second.state, second.config, second.outcome) == ("failed", BASELINE, None)
    assert states(path) == [(0, "COMPLETE"), (1, "COMPLETE" if committed else "FAIL"), (2, "COMPLETE")]
    with closing(sqlite3.connect(path)) as connection:
        slices = connection.execute("SELECT count(*) FROM tuner_slice").fetchone()
        constraints = connection.execute(
            "SELECT count(*) FROM trial_system_attributes WHERE key = 'constraints'"
        ).fetchone()
    assert slices == constraints == (3 if committed else 2,)


def test_a_living_owner_is_not_disturbed(tmp_path: Path) -> None:
    """While another process measures, its study is refused with its pid; its trial goes on."""
    path = tmp_path / "tuner.db"
    with subprocess.Popen(command(path, "alive"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        with open_store(str(path), create=True) as store:
            with pytest.raises(UserError, match=f"pid {child.pid}") as raised:
                store.recover(RECORD)
            assert raised.value.exit_code == 4
            with pytest.raises(UserError, match="made by another tuner run"):
                store.create_study(replace(RECORD, uuid="study-2"), max_workers=8)
        assert states(path) == [(0, "COMPLETE"), (1, "RUNNING")]
        child.communicate("go on\n", timeout=60)
    with open_store(str(path), create=True) as store:
        assert store.recover(RECORD) == []
        assert [t.state for t in store.data(RECORD).trials] == ["complete", "complete"]


def test_a_study_half_made_by_a_killed_process_can_be_made(tmp_path: Path) -> None:
    """A kill while a study is made does not block its name, nor leave a second one."""
    path = tmp_path / "tuner.db"
    killed_at(path, "half-made study")
    again = replace(RECORD, uuid="study-2")
    with open_store(str(path), create=True) as store:
        assert store.study(RECORD.name) is None
        store.create_study(again, max_workers=8)
        assert store.studies() == [again]
        assert store.data(again).trials == ()


def test_a_store_that_is_closed_gives_its_study_up(tmp_path: Path) -> None:
    """The owner is written while a study is worked on and gone when the store is closed."""
    path = tmp_path / "tuner.db"
    query = "SELECT owner_json FROM tuner_study"
    with open_store(str(path), create=True) as store, closing(sqlite3.connect(path)) as connection:
        store.create_study(RECORD, max_workers=8)
        owner = lease.from_json(connection.execute(query).fetchone()[0])
        assert owner is not None
        assert lease.is_own(owner)
        store.close()
        assert connection.execute(query).fetchone() == (None,)

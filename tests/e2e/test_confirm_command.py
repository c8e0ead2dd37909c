"""`run` with its confirmation, `confirm`, `--aa` and `probe` as commands."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from storage.store import Store

kept, add = int(os.environ.get("DIE_AFTER", "-1")), Store.add_confirmation_slice

def dying(self, *args):
    global kept
    if kept == 0:
        os.kill(os.getpid(), int(os.environ["DIE_BY"]))
    kept -= 1
    add(self, *args)

Store.add_confirmation_slice = dying
from tuner.cli.main import main
sys.exit(main())
"""
"""The command, with a way to die when the next slice of a confirmation is to be stored."""


def tuner(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command and check its exit code."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def arms(folder: Path) -> list[tuple[int, str, str]]:
    """Return round, arm and configuration of all slices of confirmations, as plain sqlite3 sees them."""
    query = "SELECT round, arm, configuration FROM tuner_slice WHERE kind = 'confirmation' ORDER BY rowid"
    with sqlite3.connect(folder / "tuner.db") as connection:
        return connection.execute(query).fetchall()


def count(folder: Path, table: str, where: str = "1") -> int:
    """Return how many rows there are."""
    with sqlite3.connect(folder / "tuner.db") as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])


KNOBS = {"num-workers": "8", "prefetch-factor": "2", "persistent-workers": "true", "pin-memory": "true"}
RUN = ("run", "--objective", "synthetic", "--trials", "6", "--no-early-stop")


def test_a_run_confirms_its_choice(tmp_path: Path) -> None:
    """The report is on stdout, rounds and verdict on stderr; a second run finds nothing to do."""
    done = tuner(*RUN, "--json", cwd=tmp_path)
    best = json.loads(done.stdout)["best"]["config"]
    measured = arms(tmp_path)
    assert [(r, arm) for r, arm, _ in measured] == [
        (r, arm) for r in range(4) for arm in ("baseline", "finalist", "finalist", "baseline")
    ]
    assert {key.split()[0] for _, arm, key in measured if arm == "finalist"} == {f"w{best['num_workers']}"}
    lines = done.stderr.splitlines()
    assert sum(line.startswith("round ") for line in lines) == 4
    assert re.search(r"^look .*after 4 rounds: gain \+\d.*95 % interval.*: confirmed$", done.stderr, re.MULTILINE)
    assert next(line for line in lines if line.startswith("verdict")).split()[1] == "confirmed:"
    again = tuner(*RUN, cwd=tmp_path)
    assert "confirmed before" in again.stderr
    assert arms(tmp_path) == measured
    assert count(tmp_path, "tuner_slice", "kind = 'ceiling'") == 4, "two at the start, one before and one after"


def test_confirm_needs_no_options_of_the_run(tmp_path: Path) -> None:
    """The objective is built from the study alone: seed and menus are those of the run; the answer is on stdout."""
    tuner(*RUN, "--seed", "9", "--num-workers", "0,1,2,4", "--study", "mine", "--no-confirm", cwd=tmp_path)
    done = tuner("confirm", "--study", "mine", cwd=tmp_path)
    assert done.stdout.startswith("confirmed: w4 ")
    assert len(done.stdout.splitlines()) == 1
    other = tuner("confirm", "--finalist", "w0 pin", "--rounds", "3", "--json", cwd=tmp_path)
    found = json.loads(other.stdout)
    assert (found["study"], found["verdict"], found["rounds"]) == ("mine", "regressed", 3)
    assert found["finalist"]["key"] == "w0 pin"
    assert count(tmp_path, "tuner_confirmation", "judgement_json IS NOT NULL") == 2
    unknown = tuner("confirm", "--finalist", "w99 p2", cwd=tmp_path, code=2)
    assert "'w99 p2' was not measured" in unknown.stderr


def test_a_run_that_goes_on_keeps_the_options(tmp_path: Path) -> None:
    """`run --study` without the options goes on with those of the study; one that differs is refused."""
    tuner(*RUN, "--seed", "9", "--num-workers", "0,1,2", "--study", "mine", "--no-confirm", cwd=tmp_path)
    tuner("run", "--study", "mine", "--trials", "8", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    assert count(tmp_path, "tuner_slice", "kind = 'trial' AND num_workers <= 2") == 8
    refused = tuner("run", "--study", "mine", "--seed", "8", cwd=tmp_path, code=2)
    assert "seed=9" in refused.stderr


def test_nothing_is_confirmed_without_need(tmp_path: Path) -> None:
    """--no-confirm, and a choice that is the baseline measure nothing again."""
    tuner(*RUN, "--no-confirm", cwd=tmp_path)
    single = [f"--{knob}={value}" for knob, value in KNOBS.items()]
    one = tuner("run", "--objective", "synthetic", "--trials", "2", "--study", "b", *single, cwd=tmp_path)
    assert "skipped: the choice is the baseline" in one.stderr
    assert arms(tmp_path) == []
    refused = tuner("confirm", "--study", "b", cwd=tmp_path, code=1)
    assert "nothing to confirm" in refused.stderr


def test_an_aa_study_has_two_labels_and_one_setting(tmp_path: Path) -> None:
    """Trials and both arms are the baseline; the record says so; output names the self-test; it stays what it is."""
    done = tuner("run", "--objective", "synthetic", "--aa", "--trials", "3", cwd=tmp_path)
    measured = arms(tmp_path)
    assert len(measured) in (16, 32, 48)
    assert 2 * [arm for _, arm, _ in measured].count("finalist") == len(measured)
    assert len({key for _, _, key in measured}) == 1
    assert count(tmp_path, "tuner_slice", "kind = 'trial'") == 3
    assert count(tmp_path, "tuner_study", 'identity_json LIKE \'%"self_test": "A/A"%\'') == 1
    assert "verdict    A/A self-test: passed: " in done.stderr
    again = tuner("confirm", cwd=tmp_path)
    assert again.stdout.startswith("A/A self-test: passed")
    more = tuner("run", "--study", "synthetic-aa", "--trials", "4", cwd=tmp_path)
    assert "A/A self-test" in more.stderr
    assert "named" not in tuner("confirm", "--finalist", "w4 p2", cwd=tmp_path, code=2).stdout
    refused = tuner("run", "--objective", "synthetic", "--study", "synthetic-aa-2", "--trials", "2", "--no-confirm",
                    cwd=tmp_path)  # fmt: skip
    assert "self-test" not in refused.stderr
    mixed = tuner("run", "--aa", "--study", "synthetic-aa-2", cwd=tmp_path, code=2)
    assert "self_test" in mixed.stderr


@pytest.mark.parametrize("kept", ["0", "6"])
@pytest.mark.parametrize("command", ["run", "confirm"])
def test_a_killed_confirmation_goes_on(tmp_path: Path, kept: str, command: str) -> None:
    """SIGKILL in a confirmation loses no finished slice and repeats none, whichever command goes on with it."""
    tuner(*RUN, cwd=tmp_path, code=-signal.SIGKILL, DIE_AFTER=kept, DIE_BY=str(int(signal.SIGKILL)))
    before = arms(tmp_path)
    assert len(before) == int(kept)
    done = tuner(*(RUN if command == "run" else ("confirm",)), cwd=tmp_path)
    assert arms(tmp_path)[: len(before)] == before
    assert len(arms(tmp_path)) == 16
    assert count(tmp_path, "tuner_confirmation") == 1
    assert ("goes on after" in done.stderr) == (kept == "6")


def test_ctrl_c_in_a_confirmation_prints_the_study(tmp_path: Path) -> None:
    """The report of the trials is printed, the slices so far are kept, and the exit code is 130."""
    done = tuner(*RUN, cwd=tmp_path, code=130, DIE_AFTER="6", DIE_BY=str(int(signal.SIGINT)))
    assert "baseline" in done.stdout
    assert len(arms(tmp_path)) in (6, 7)
    stopped = tuner("confirm", cwd=tmp_path, code=130, DIE_AFTER="2", DIE_BY=str(int(signal.SIGINT)))
    assert (stopped.stdout, "goes on with it" in stopped.stderr) == ("", True)


def test_another_host_is_refused(tmp_path: Path) -> None:
    """A study that is bound to another host is not confirmed on this one, and nothing changes."""
    tuner(*RUN, "--no-confirm", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        connection.execute(
            'UPDATE tuner_host SET info_json = replace(info_json, \'"bound": {}\', \'"bound": {"cpus": 99}\')'
        )
        connection.execute("UPDATE tuner_study SET fingerprint = 'other'")
    refused = tuner("confirm", cwd=tmp_path, code=2)
    assert "host.cpus=99" in refused.stderr
    assert arms(tmp_path) == []


def test_a_study_without_options_says_how_to_add_them(tmp_path: Path) -> None:
    """One made by an older version cannot be confirmed until a run with the options adds them."""
    tuner(*RUN, "--no-confirm", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        connection.execute("UPDATE tuner_study SET options_json = NULL")
    refused = tuner("confirm", cwd=tmp_path, code=2)
    assert "hint: tuner run --study synthetic --no-confirm" in refused.stderr
    tuner(*RUN, "--no-confirm", "--study", "synthetic", cwd=tmp_path)
    assert tuner("confirm", cwd=tmp_path).stdout.startswith("confirmed")


def test_what_regressed_is_not_exported(tmp_path: Path) -> None:
    """Export says what the confirmation said; for a finalist found slower it gives the baseline, unless forced."""
    tuner(*RUN, cwd=tmp_path)
    done = tuner("export", cwd=tmp_path)
    assert "confirmed" in done.stderr
    assert "not confirmed" not in done.stderr
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        change = ('"verdict": "confirmed"', '"verdict": "regressed"')
        connection.execute("UPDATE tuner_confirmation SET judgement_json = replace(judgement_json, ?, ?)", change)
    safe = tuner("export", cwd=tmp_path)
    assert safe.stdout.startswith("--dataloader_num_workers 1 ")
    assert "regressed" in safe.stderr
    assert tuner("export", "--force", cwd=tmp_path).stdout == done.stdout


def test_a_run_goes_on_from_the_probe(tmp_path: Path) -> None:
    """Probe measures three trials with their series; the run after it adds the others."""
    done = tuner("probe", "--objective", "synthetic", cwd=tmp_path)
    assert "bound      data-bound" in done.stdout
    assert "do         search: " in done.stdout
    found = json.loads(tuner("probe", "--objective", "synthetic", "--json", cwd=tmp_path).stdout)
    assert (found["slices"], found["bound"], len(found["space"])) == (3, "data-bound", 98)
    assert found["sufficient"]["config"]["num_workers"] > found["baseline"]["config"]["num_workers"]
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        first = connection.execute("SELECT uuid FROM tuner_slice WHERE kind = 'trial' ORDER BY number").fetchall()
    tuner("run", "--objective", "synthetic", "--trials", "5", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        after = connection.execute("SELECT uuid FROM tuner_slice WHERE kind = 'trial' ORDER BY number").fetchall()
    assert (len(first), len(after), after[:3]) == (3, 5, first)

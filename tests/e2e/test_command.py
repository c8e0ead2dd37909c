"""The installed command: exit codes, stdout that is only the result, resuming, and errors that lose nothing."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from objectives.embedded import embedded_dataset, recording

TUNER = str(Path(sys.executable).parent / "tuner")


def tuner(*arguments: str, cwd: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command and check its exit code."""
    done = subprocess.run(
        [TUNER, *arguments], cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=240
    )
    assert done.returncode == code, f"{arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def rows(database: Path) -> list[tuple[int, str, float | None]]:
    """Return number, state and value of the trials as plain sqlite3 sees them."""
    query = "SELECT number, state, value FROM trials LEFT JOIN trial_values USING (trial_id) ORDER BY number"
    with sqlite3.connect(database) as connection:
        return connection.execute(query).fetchall()


def test_help_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    """`tuner --help` lists the commands and imports neither torch nor optuna."""
    code = (
        "import sys; from tuner.cli.main import main; main(['--help']);"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'optuna', 'transformers', 'sqlalchemy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    for command in ("doctor", "probe", "run", "show", "confirm", "export", "dashboard"):
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE), done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_synthetic_study_end_to_end(tmp_path: Path) -> None:
    """Run, show and export agree; stdout is the result alone; a finished study is only printed again."""
    ran = tuner(
        "run", "--objective", "synthetic", "--trials", "8", "--no-confirm", "--no-early-stop", "--json", cwd=tmp_path
    )
    report = json.loads(ran.stdout)
    assert report["counts"]["measured"] == 8
    assert [state for _, state, _ in rows(tmp_path / "tuner.db")] == ["COMPLETE"] * 8
    again = tuner(
        "run", "--objective", "synthetic", "--trials", "8", "--no-confirm", "--no-early-stop", "--json", cwd=tmp_path
    )
    assert json.loads(again.stdout)["best"] == report["best"]
    assert len(rows(tmp_path / "tuner.db")) == 8
    shown = tuner("show", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["best"] == report["best"]
    flags = tuner("export", cwd=tmp_path)
    assert len(flags.stdout.splitlines()) == 1
    assert shlex.split(flags.stdout)[0] == "--dataloader_num_workers"
    assert "not confirmed" in flags.stderr


def test_the_budget_is_the_studys_total(tmp_path: Path) -> None:
    """A second run with more trials adds the difference, with the same first trials."""
    tuner("run", "--objective", "synthetic", "--trials", "3", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    before = rows(tmp_path / "tuner.db")
    tuner("run", "--objective", "synthetic", "--trials", "5", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    after = rows(tmp_path / "tuner.db")
    assert (len(after), after[:3]) == (5, before)


@pytest.mark.parametrize("seed", ["0", "7"])
@pytest.mark.parametrize("turned", [False, True])
def test_the_guides_table_says_four_workers(tmp_path: Path, seed: str, turned: bool) -> None:
    """Over the recorded table the choice is 4 workers, for any seed and order of rows."""
    lines = recording("guide-4090d").read_text().splitlines()
    table = tmp_path / "guide.csv"
    table.write_text("\n".join([lines[0], *(lines[:0:-1] if turned else lines[1:])]) + "\n")
    done = tuner(
        "run", "--objective", "replay", "--recording", str(table), "--trials", "12", "--seed", seed, "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert json.loads(done.stdout)["best"]["config"]["num_workers"] == 4
    assert "6 configurations" in done.stderr
    assert "more than once" in done.stderr
    flags = tuner("export", cwd=tmp_path)
    assert flags.stdout.startswith("--dataloader_num_workers 4 --dataloader_prefetch_factor 2 ")
    assert "pin_memory" in flags.stderr, "a knob the table lacks is named"


def test_a_folder_of_the_users_own_names(tmp_path: Path) -> None:
    """Folders and files named like ours, or like torch, in the working directory shadow nothing."""
    for name in ("storage", "datasets", "objectives", "tuner"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "torch.py").write_text("raise SystemExit('shadowed')")
    done = tuner("run", "--trials", "1", "--slice-seconds", "0.5", "--json", cwd=tmp_path, PYTHONPATH="")
    assert json.loads(done.stdout)["objective"] == "lora"


def lora_in_phase(tmp_path: Path, phase: str) -> subprocess.Popen[str]:
    """Start a study on the embedded model and return it as soon as a trial is in this phase."""
    process = subprocess.Popen(
        [
            TUNER,
            "-v",
            "run",
            "--trials",
            "4",
            "--slice-seconds",
            "0.5",
            "--num-workers",
            "2",
            "--no-confirm",
            "--no-early-stop",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("trial 1") and phase in line:
            return process
    pytest.fail(f"no trial came to phase {phase}")


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that still run."""
    return [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("phase", ["drain", "step", "storing"])
def test_a_killed_study_goes_on(tmp_path: Path, phase: str) -> None:
    """SIGKILL in any phase loses no finished trial and doubles none; the interrupted one is closed; nothing is left."""
    process = lora_in_phase(tmp_path, phase)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    deadline_s = time.monotonic() + 10
    while alive(family) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert alive(family) == []
    before = [row for row in rows(tmp_path / "tuner.db") if row[1] == "COMPLETE"]
    tuner(
        "run",
        "--trials",
        "4",
        "--slice-seconds",
        "0.5",
        "--num-workers",
        "2",
        "--no-confirm",
        "--no-early-stop",
        cwd=tmp_path,
    )
    after = rows(tmp_path / "tuner.db")
    assert [row for row in after if row[1] == "COMPLETE"][: len(before)] == before
    states = [state for _, state, _ in after]
    assert (states.count("COMPLETE"), states.count("RUNNING"), states.count("WAITING")) == (4, 0, 0)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        (slices,) = connection.execute("SELECT count(*) FROM tuner_slice WHERE kind = 'trial'").fetchone()
    assert slices == 4


def test_ctrl_c_prints_what_there_is(tmp_path: Path) -> None:
    """SIGINT closes the trial, prints the report so far and exits 130; the study goes on later."""
    process = subprocess.Popen(
        [TUNER, "run", "--trials", "20", "--slice-seconds", "0.5", "--no-early-stop"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        time.sleep(0.2)
        if (tmp_path / "tuner.db").exists():
            try:
                if sum(state == "COMPLETE" for _, state, _ in rows(tmp_path / "tuner.db")) >= 2:
                    break
            except sqlite3.OperationalError:
                continue
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "baseline" in out
    assert "RUNNING" not in {state for _, state, _ in rows(tmp_path / "tuner.db")}


def test_json_and_text_name_the_same_choice(tmp_path: Path) -> None:
    """The text report names the configuration that the JSON has as best."""
    tuner("run", "--objective", "synthetic", "--trials", "6", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    best = json.loads(tuner("show", "--json", cwd=tmp_path).stdout)["best"]["config"]
    text = tuner("show", cwd=tmp_path).stdout
    key = f"w{best['num_workers']} p{best['prefetch_factor']}"
    assert re.search(rf"^{key} .*best$", text, re.MULTILINE), text


def test_the_dashboard_serves_the_trials(tmp_path: Path) -> None:
    """The dashboard answers on the loopback with the study's trials, and a taken port is an error."""
    tuner("run", "--objective", "synthetic", "--trials", "3", "--no-confirm", "--no-early-stop", cwd=tmp_path)
    process = subprocess.Popen([TUNER, "dashboard", "--port", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        match = next(m for line in process.stderr if (m := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        import urllib.request

        with urllib.request.urlopen(f"{match[0]}/api/studies") as answer:
            studies = json.load(answer)
        assert [s["study_name"] for s in studies["study_summaries"]] == ["synthetic"]
        taken = tuner("dashboard", "--port", match[1], cwd=tmp_path, code=3)
        assert "hint: tuner dashboard --port" in taken.stderr
    finally:
        process.kill()
        process.wait()


def test_the_embedded_rows_are_the_default_study(tmp_path: Path) -> None:
    """The study is named after the data set unless a name is given."""
    tuner("run", "--trials", "1", "--slice-seconds", "0.5", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        assert connection.execute("SELECT study_name FROM studies").fetchall() == [(embedded_dataset().stem,)]

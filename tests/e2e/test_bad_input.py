"""Bad input: three parts, the right exit code, no traceback, and nothing written or lost."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from test_command import tuner

ALPACA = '{"instruction": "q", "input": "", "output": "a"}'

CASES: dict[str, tuple[list[str], int, str]] = {
    "missing data set": (["--dataset", "none.jsonl"], 2, "none.jsonl"),
    "empty data set": (["--dataset", "empty.jsonl"], 2, "empty.jsonl"),
    "directory as data set": (["--dataset", "folder"], 2, "folder"),
    "not JSON": (["--dataset", "text.jsonl"], 2, "text.jsonl"),
    "array of numbers": (["--dataset", "numbers.json"], 2, "numbers.json"),
    "not an array": (["--dataset", "object.json"], 2, "object.json"),
    "unknown fields": (["--dataset", "unknown.jsonl"], 2, "2"),
    "fewer rows than a batch": (["--dataset", "two.jsonl", "--per_device_train_batch_size", "4"], 2, "2"),
    "unknown ending": (["--dataset", "rows.csv"], 2, "rows.csv"),
    "model without config": (["--model", "./folder"], 2, "config.json"),
    "model without tokenizer": (["--model", "./bare"], 2, "tokenizer"),
    "unknown preset": (["--model", "qwen9"], 2, "qwen9"),
    "no trials": (["--trials", "0"], 2, "0"),
    "negative workers": (["--num-workers=-1"], 2, "-1"),
    "half a worker": (["--num-workers", "1.5"], 2, "1.5"),
    "prefetch 0": (["--prefetch-factor", "0"], 2, "0"),
    "database in a missing directory": (["--storage", "no/such/tuner.db"], 4, "no/such"),
    "not a database": (["--storage", "text.jsonl"], 4, "text.jsonl"),
    "unknown objective": (["--objective", "nonsense"], 2, "nonsense"),
    "replay without recording": (["--objective", "replay"], 2, "recording"),
    "unknown option": (["--workers", "3"], 2, "--workers"),
    "GPU that is not there": (["--device", "cuda:7"], 3, "cuda:7"),
    "penalty upside down": (["--cpu-soft-fraction", "2"], 2, "cpu_"),
}


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one of each bad thing."""
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "text.jsonl").write_text("this is not JSON\n" * 3)
    (tmp_path / "numbers.json").write_text("[1, 2, 3]")
    (tmp_path / "object.json").write_text('{"a": 1}')
    (tmp_path / "unknown.jsonl").write_text(f'{ALPACA}\n{{"colour": "red"}}\n')
    (tmp_path / "two.jsonl").write_text(f"{ALPACA}\n{ALPACA}\n")
    (tmp_path / "rows.csv").write_text("instruction,output\nq,a\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text('{"model_type": "qwen2"}')
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_a_run_with_bad_input(folder: Path, name: str) -> None:
    """The error names the value, says why, gives a hint, and leaves the folder as it was."""
    arguments, code, named = CASES[name]
    before = files(folder)
    done = tuner("run", *arguments, cwd=folder, code=code)
    lines = done.stderr.strip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("error: "))
    assert named in "\n".join(lines[start:])
    assert lines[start + 1].startswith("  ")
    assert any(line.startswith("hint: ") for line in lines[start:])
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert files(folder) == before


@pytest.mark.parametrize("command", ["show", "confirm", "export", "dashboard"])
def test_reading_what_is_not_there(tmp_path: Path, command: str) -> None:
    """A missing database is an error of storage and is not made by asking for it."""
    done = tuner(command, cwd=tmp_path, code=4)
    assert done.stderr.startswith("error: ")
    assert files(tmp_path) == {}


def test_studies_that_cannot_be_shown_or_joined(tmp_path: Path) -> None:
    """An unknown study is named with the known ones; another workload under the name is refused; nothing changes."""
    tuner("run", "--objective", "synthetic", "--trials", "2", "--no-confirm", "--study", "mine", cwd=tmp_path)
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        before = list(connection.iterdump())
    for command in ("show", "confirm", "export"):
        done = tuner(command, "--study", "other", cwd=tmp_path, code=1)
        assert "'other'" in done.stderr
        assert "mine" in done.stderr
    refused = tuner("run", "--objective", "synthetic", "--seed", "7", "--study", "mine", cwd=tmp_path, code=2)
    assert "hint: tuner run --study mine-2" in refused.stderr
    with sqlite3.connect(tmp_path / "tuner.db") as connection:
        assert list(connection.iterdump()) == before

"""A database that cannot be opened: the user's error, and not a byte changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import optuna
import pytest
from builders import study

from objectives.errors import UserError
from storage.engine import open_database
from storage.store import open_store


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return every file of a folder with its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def refused(storage: str, *, create: bool = True) -> UserError:
    """Return the error of opening it."""
    with pytest.raises(UserError) as raised:
        open_database(storage, create=create, test_timeout_s=0.1).close()
    assert raised.value.exit_code == 4
    assert all((raised.value.what, raised.value.why, raised.value.hint))
    return raised.value


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user may enter, with a database and other things in it."""
    made = Path(tempfile.mkdtemp(prefix="tuner-test-"))
    made.chmod(0o755)
    with open_store(str(made / "good.db"), create=True) as store:
        store.create_study(study(), max_workers=8)
    (made / "text.db").write_text("these are no studies\n" * 300)
    (made / "journal.db").write_text('{"op_code": 0, "study_name": "a", "directions": [2]}\n')
    (made / "damaged.db").write_bytes((made / "good.db").read_bytes()[:100] + b"\xff" * 8000)
    (made / "empty.db").touch()
    optuna.create_study(storage=f"sqlite:///{made / 'optuna.db'}")
    shutil.copy(made / "good.db", made / "newer.db")
    with closing(sqlite3.connect(made / "newer.db")) as connection:
        connection.execute("UPDATE tuner_schema SET version = 99")
        connection.commit()
    shutil.copy(made / "good.db", made / "older.db")
    with closing(sqlite3.connect(made / "older.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v3.0.0.d'")
        connection.commit()
    yield made
    shutil.rmtree(made)


CASES = {
    "missing directory": ("no/such/tuner.db", True, "no directory"),
    "a directory": (".", True, "is a directory"),
    "text": ("text.db", True, "not a database"),
    "text, to read": ("text.db", False, "not a database"),
    "a journal of Optuna": ("journal.db", True, "not a database"),
    "damaged": ("damaged.db", True, "not a database"),
    "missing, to read": ("missing.db", False, "no database"),
    "empty, to read": ("empty.db", False, "no tuner studies"),
    "of Optuna alone, to read": ("optuna.db", False, "no tuner studies"),
    "newer tables": ("newer.db", True, "newer tuner"),
    "newer tables, to read": ("newer.db", False, "newer tuner"),
    "tables of another Optuna": ("older.db", True, "another version of Optuna"),
}


@pytest.mark.parametrize("name", CASES)
def test_files_that_cannot_be_opened(folder: Path, name: str) -> None:
    """Each is refused by name, and the folder is byte for byte as before."""
    file, create, what = CASES[name]
    before = contents(folder)
    error = refused(str(folder / file), create=create)
    assert what in error.what
    assert Path(file).name in error.what
    assert contents(folder) == before


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379", "journal:///tmp/journal.log", "sqlite://", "sqlite:///:memory:", "nonsense://host/db",
        "sqlite:///tuner.db?mode=ro", "://", " ", "postgresql+nodriver://me@host/db",
    ],
)  # fmt: skip
def test_addresses_that_name_no_sql_database(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other kinds of storage are refused without a look at the network or the disk."""
    monkeypatch.chdir(tmp_path)
    refused(url)
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_is_not_installed_is_named_and_the_password_is_not() -> None:
    """The error of a missing driver names it, says how to install one, and hides the password."""
    error = refused("mysql+pyodbc://me:secret@host/db")
    assert "pyodbc" in str(error)
    assert "secret" not in str(error)
    assert error.hint == "pip install pyodbc"


def test_a_locked_database(folder: Path) -> None:
    """A database that another program holds is refused after the timeout, to write and to read."""
    with closing(sqlite3.connect(folder / "optuna.db")) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        before = contents(folder)
        assert "locked" in refused(str(folder / "optuna.db")).what
        assert "locked" in refused(str(folder / "optuna.db"), create=False).what
        assert contents(folder) == before


def test_a_writer_blocks_writers_alone(folder: Path) -> None:
    """While another program writes, a study can be read; a run is refused before it measures anything."""
    with closing(sqlite3.connect(folder / "good.db")) as holder:
        holder.execute("BEGIN IMMEDIATE")
        before = contents(folder)
        assert "locked" in refused(str(folder / "good.db")).what
        with open_store(str(folder / "good.db"), create=False) as store:
            assert [s.name for s in store.studies()] == [study().name]
        assert contents(folder)["good.db"] == before["good.db"]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be a user that permissions bind, for the block inside."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("readonly", "file"), [("good.db", "good.db"), (".", "good.db"), (".", "new.db")])
def test_what_may_not_be_written(folder: Path, readonly: str, file: str) -> None:
    """A read-only file or directory is refused before anything is made beside it."""
    if os.geteuid() == 0:
        folder.chmod(0o777)
        (folder / "good.db").chmod(0o666)
    mode = (folder / readonly).stat().st_mode
    (folder / readonly).chmod(mode & ~0o222)
    before = contents(folder)
    try:
        with unprivileged():
            assert "read-only" in refused(str(folder / file)).what
    finally:
        (folder / readonly).chmod(mode)
    assert contents(folder) == before


def test_reading_changes_nothing(folder: Path) -> None:
    """Opening to read and reading leave the file as it was, whatever its journal."""
    before = contents(folder)
    with open_store(str(folder / "good.db"), create=False) as store:
        (record,) = store.studies()
        assert store.data(record).trials == ()
    assert contents(folder) == before


def test_odd_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path with blanks, braces, percent and question marks, or relative, is the file of that name."""
    monkeypatch.chdir(tmp_path)
    for name in ("a b{c}%20?.db", "relative.db", "自我.db"):
        with open_store(name, create=True) as store:
            store.create_study(study(), max_workers=8)
            assert store.url == name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a b{c}%20?.db", "relative.db", "自我.db"]

"""Opens the database that holds Optuna's tables and ours.

Runs in: parent. Everything that can be refused is refused before the first write, so a failure leaves no trace.
*Not covered*: what an address may look like (`storage.location`), the tables (`storage.tables`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from objectives.errors import EXIT_STORAGE, UserError
from storage.failures import translated
from storage.location import Location, check_file, locate
from storage.migration import migrate
from storage.tables import SCHEMA_VERSION, create_tables, schema_version

TIMEOUT_S = 60.0
"""How long a write waits for another writer; a dashboard's longest read took well under a second."""

TEST_TIMEOUT_S = 10.0
"""How long opening waits: nobody should look at a still terminal for a minute."""

ATTEMPTS = 5
"""Two processes that make the tables at once get in each other's way; the later one finds them made."""


@dataclass(frozen=True, slots=True)
class Database:
    """An open database: Optuna's storage and an engine for our tables, on the same file or server."""

    url: str
    storage: RDBStorage
    engine: Engine

    def close(self) -> None:
        """Close every connection; SQLite then folds its log back into the one file."""
        self.storage.remove_session()
        self.storage.engine.dispose()
        self.engine.dispose()


def open_database(
    url_or_path: str, *, create: bool, timeout_s: float = TIMEOUT_S, test_timeout_s: float = TEST_TIMEOUT_S
) -> Database:
    """Return the open database.

    Args:
        url_or_path: A file, or an SQLAlchemy URL that Optuna accepts.
        create: Whether to make the file and tables that are missing; else they must be there.
        timeout_s: How long later reads and writes wait for a lock.
        test_timeout_s: How long this call waits for one.

    Raises:
        UserError: If it cannot be opened; then nothing was made or changed.
    """
    location = locate(url_or_path)
    check_file(location, create=create)
    with translated(location.shown):
        known = _look(location, write=create, timeout_s=test_timeout_s)
        if not create and not known.ours:
            raise UserError(
                f"no tuner studies in '{location.shown}'", "nothing was measured here yet", "tuner run",
                exit_code=EXIT_STORAGE,
            )  # fmt: skip
        return _open(location, known, create=create, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class _Known:
    optunas: bool
    """Optuna's tables are all there: the version stamp is the last thing it writes."""
    ours: bool
    outdated: bool = False
    """Ours are of an older version: they are migrated before anything is written, and only read as they are."""


def _look(location: Location, *, write: bool, timeout_s: float) -> _Known:
    """Look into the database without changing a byte of it; a missing file is not made.

    Raises:
        UserError: If our tables are of a newer version than this program knows.
    """
    if location.path is not None and not location.path.exists():
        return _Known(False, False)
    engine = create_engine(location.url, poolclass=NullPool, **_sqlite_options(location, timeout_s, wal=False))
    with engine.connect() as connection:
        if location.path is not None and write:
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails on a lock now, not after the first slice
            connection.rollback()
        tables = set(inspect(connection).get_table_names())
        version = schema_version(connection, tables)
        optunas = "alembic_version" in tables and bool(connection.scalar(text("SELECT count(*) FROM alembic_version")))
    if version is not None and version > SCHEMA_VERSION:
        raise UserError(
            f"database '{location.shown}' was written by a newer tuner (tables of version {version})",
            f"this one knows version {SCHEMA_VERSION} and could damage what it does not know",
            "pip install --upgrade tuner",
            exit_code=EXIT_STORAGE,
        )
    return _Known(optunas, version is not None and optunas, version is not None and version < SCHEMA_VERSION)


def _open(location: Location, known: _Known, *, create: bool, timeout_s: float) -> Database:
    options = _sqlite_options(location, timeout_s, wal=create)
    # Optuna takes braces for a template of its own. On SQLite the creator decides which file is opened.
    optuna_url = location.url.render_as_string(hide_password=False).replace("{", "{{").replace("}", "}}")
    for attempt in range(ATTEMPTS):
        try:
            storage = RDBStorage(
                optuna_url,
                engine_kwargs=dict(options),
                skip_table_creation=known.optunas,
                skip_compatibility_check=True,  # it would raise without closing its connection
            )
            database = Database(location.shown, storage, create_engine(location.url, **options))
            try:
                _check_optunas_version(storage, location)
                if create and known.outdated:
                    migrate(database.engine)
                if create and not known.ours:
                    create_tables(database.engine)
            except BaseException:
                database.close()
                raise
            return database
        except (DBAPIError, StorageInternalError):
            if known.ours or attempt == ATTEMPTS - 1:
                raise
            time.sleep(0.1 * 2**attempt)
    raise AssertionError("unreachable")


def _check_optunas_version(storage: RDBStorage, location: Location) -> None:
    """Raise if Optuna's tables are older or newer than the Optuna that is installed."""
    found = storage.get_current_version()
    if found == storage.get_head_version():
        return
    older = found in storage.get_all_versions()
    raise UserError(
        f"database '{location.shown}' has tables of another version of Optuna ({found})",
        f"the installed Optuna needs {storage.get_head_version()}",
        f"optuna storage upgrade --storage {location.url.render_as_string()}" if older else "pip install -U optuna",
        exit_code=EXIT_STORAGE,
    )


def _sqlite_options(location: Location, timeout_s: float, *, wal: bool) -> dict[str, Any]:
    """Return the engine's options; none for a server."""
    if location.path is None:
        return {}
    return {"creator": _creator(location.path, timeout_s, wal=wal)}


def _creator(path: Path, timeout_s: float, *, wal: bool) -> Callable[[], sqlite3.Connection]:
    """Return what opens a connection, with the settings every one of them needs.

    A write-ahead log lets the dashboard read while a trial is stored; synchronous=NORMAL may lose the last commit on
    power loss, never the file. Only a `wal` connection may make the file or change how it keeps its log.
    """
    uri = f"file:{quote(str(path))}?mode={'rwc' if wal else 'rw'}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout={round(timeout_s * 1000)}")
            if wal and connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    return connect

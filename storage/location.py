"""Turns what the user typed after `--storage` into a database address, and refuses what cannot be one.

Runs in: parent. Looks at the file system, changes nothing.
*Not covered*: connecting (`storage.engine`), errors of the database itself (`storage.failures`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from objectives.errors import EXIT_STORAGE, UserError

OTHER_STORAGES = ("redis", "rediss", "journal", "file", "grpc", "http", "https")
"""Schemes of storages that are no SQL database: our tables could not stand beside Optuna's there."""

SQLITE_DRIVERS = ("sqlite", "sqlite+pysqlite")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a database is."""

    url: URL
    path: Path | None
    """The file of an SQLite database, absolute; None for a server."""
    shown: str
    """As the user wrote it, without a password; also what `--storage` accepts."""


def locate(url_or_path: str) -> Location:
    """Return the address; a text without `://` is a path, everything else an SQLAlchemy URL.

    Raises:
        UserError: If it is empty, malformed, or names a storage that is no SQL database.
    """
    if not url_or_path.strip():
        raise _unsupported("an empty text names no database")
    if "://" not in url_or_path:
        return _file(Path(url_or_path).expanduser(), url_or_path)
    try:
        url = make_url(url_or_path)
    except ArgumentError as error:
        raise _unsupported(f"'{url_or_path}' is not an SQLAlchemy URL") from error
    shown = url.render_as_string(hide_password=True)
    if url.drivername.split("+")[0] in OTHER_STORAGES:
        raise _unsupported(f"storage '{shown}' is not an SQL database")
    if not url.drivername.startswith("sqlite"):
        return Location(url, None, shown)
    if url.drivername not in SQLITE_DRIVERS or url.query or (url.database or "").startswith("file:"):
        raise _unsupported(f"SQLite is opened with Python's own driver and no options, not as '{shown}'")
    if not url.database or url.database == ":memory:":
        raise _unsupported(f"'{shown}' is a database in memory: it would be gone when this command ends")
    return _file(Path(url.database), shown)


def check_file(location: Location, *, create: bool) -> None:
    """Refuse a file that cannot be opened, before anything touches it.

    Args:
        location: The database; a server passes unchecked.
        create: Whether a missing file will be made.

    Raises:
        UserError: If the directory or the file is missing, of the wrong kind or not writable.
    """
    path = location.path
    if path is None:
        return
    directory = path.parent
    if not directory.is_dir():
        raise _error(
            f"no directory '{directory}' for the database '{location.shown}'",
            "the database file is made, its directory is not: a wrong path would go unnoticed",
            f"mkdir -p '{directory}'",
        )
    if path.is_dir():
        raise _error(
            f"'{location.shown}' is a directory, not a database file",
            "the studies are kept in one file",
            f"--storage '{path / 'tuner.db'}'",
        )
    if not path.exists() and not create:
        raise _error(f"no database '{location.shown}'", "nothing was measured here yet", "tuner run")
    # SQLite writes its log and index beside the file, even to read it.
    for needed in (directory, path) if path.exists() else (directory,):
        if not os.access(needed, os.R_OK | os.W_OK, effective_ids=True):
            kind = "directory" if needed is directory else "database file"
            raise _error(
                f"{kind} '{needed}' is read-only or not yours",
                "SQLite needs to write the file and beside it, even to read what is there",
                "tuner run --storage ~/tuner.db" if create else f"cp '{path}' ~/ && tuner show --storage ~/{path.name}",
            )


def _file(path: Path, shown: str) -> Location:
    # Absolute at once: the working directory may change while the database is open.
    absolute = path.absolute()
    return Location(URL.create("sqlite", database=str(absolute)), absolute, shown)


def _unsupported(what: str) -> UserError:
    return _error(
        what,
        "the studies are kept in Optuna's tables and ours, side by side in one SQL database",
        "tuner run --storage tuner.db",
    )


def _error(what: str, why: str, hint: str) -> UserError:
    return UserError(what, why, hint, exit_code=EXIT_STORAGE)

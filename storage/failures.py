"""Turns what a database driver raises into the error a user can act on.

Runs in: parent. *Not covered*: paths that cannot be databases (`storage.location`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from objectives.errors import EXIT_STORAGE, UserError

P = ParamSpec("P")
R = TypeVar("R")


class HasShown(Protocol):
    """Anything that knows the address of its database as the user wrote it."""

    @property
    def url(self) -> str:
        """Return the address, without a password."""
        ...


S = TypeVar("S", bound=HasShown)

PACKAGES = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""Drivers whose package has another name than their module."""

KNOWN: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (
        ("database is locked", "database table is locked", "lock wait timeout", "database schema is locked"),
        "database '{shown}' is locked",
        "another program has held it for longer than the timeout",
        "fuser -v '{shown}'",
    ),
    (
        ("readonly", "read-only"),
        "database '{shown}' is read-only",
        "SQLite needs to write the file and beside it, even to read what is there",
        "tuner run --storage ~/tuner.db",
    ),
    (
        ("not a database", "malformed", "unsupported file format"),
        "'{shown}' is not a database, or a damaged one",
        "nothing in it was changed; a file of another kind is never overwritten",
        "file '{shown}'",
    ),
    (
        ("disk is full", "no space left"),
        "no space left for the database '{shown}'",
        "what was stored before is kept; the last result was not stored",
        "df -h",
    ),
    (
        ("unable to open", "disk i/o error"),
        "cannot open the database '{shown}'",
        "the file system refused it",
        "ls -l '{shown}'",
    ),
)
"""Phrases of SQLite, PostgreSQL and MySQL, lower case, with what they mean to the user."""


def translate(error: BaseException, shown: str) -> UserError | None:
    """Return the user's error, or None if it is a fault of ours that must be seen as it is.

    Args:
        error: What was raised; Optuna hides the driver's error as its cause.
        shown: The database's address as the user wrote it.
    """
    if isinstance(error, StorageInternalError) and error.__cause__ is not None:
        return translate(error.__cause__, shown)
    if isinstance(error, NoSuchModuleError):
        return UserError(
            f"unknown kind of database in '{shown}'",
            "SQLAlchemy has no dialect of that name",
            "tuner run --storage tuner.db",
            exit_code=EXIT_STORAGE,
        )
    if isinstance(error, ImportError):
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        module = cause.name or "the driver's package"
        return UserError(
            f"no driver installed for '{shown}'",
            str(cause),
            f"pip install {PACKAGES.get(module, module)}",
            exit_code=EXIT_STORAGE,
        )
    if not isinstance(error, SQLAlchemyError) or isinstance(error, IntegrityError):
        return None
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    for phrases, what, why, hint in KNOWN:
        if any(phrase in text.lower() for phrase in phrases):
            return UserError(
                what.format(shown=shown), f"{why} ({text})", hint.format(shown=shown), exit_code=EXIT_STORAGE
            )
    if not isinstance(error, DBAPIError):
        return None
    return UserError(
        f"database '{shown}' cannot be used",
        text.splitlines()[0] if text else type(error).__name__,
        "tuner run --storage tuner.db",
        exit_code=EXIT_STORAGE,
    )


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Raise a `UserError` in place of the database's own, for the block inside."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError) as error:
        mended = translate(error, shown)
        if mended is None:
            raise
        raise mended from error


def guarded(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Return the method with its database errors translated."""

    @wraps(method)
    def inner(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with translated(self.url):
            return method(self, *args, **kwargs)

    return inner

"""Brings our tables of an older version to this one, in place: things are added, nothing is changed or removed.

Runs in: parent. *Not covered*: Optuna's tables (`optuna storage upgrade`), reading an older database without a
change (`storage.queries.present`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, select, text, update
from sqlalchemy.schema import CreateColumn

from storage.queries import present
from storage.tables import SCHEMA_VERSION, Base, TunerConfirmation, TunerLoad, TunerSchema, TunerSlice, TunerStudy

TABLES: dict[int, tuple[Any, ...]] = {2: (TunerConfirmation,)}
"""New tables by the version that brought them."""

COLUMNS: dict[int, dict[Any, tuple[str, ...]]] = {
    2: {
        TunerStudy: ("options_json",),
        TunerSlice: (
            "confirmation_uuid", "round", "arm",
            "own_cpu_fraction", "foreign_cpu_fraction", "gpu_clock_hz", "gpu_other_processes", "log_bytes",
        ),
        TunerLoad: ("gpu_clock_hz", "gpu_other_processes"),
    }
}  # fmt: skip
"""New columns by the version that brought them. All may be empty, so that the rows that are there stay valid."""


def migrate(engine: Engine) -> None:
    """Bring the tables to `SCHEMA_VERSION` in one transaction; a second call, or process, finds nothing to do.

    MySQL commits each change of a table by itself: what an interrupted migration added there is skipped by the next.
    """
    with engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # Python's driver begins none before a change of tables
        version = connection.scalar(select(TunerSchema.version).with_for_update())
        if version is None or version >= SCHEMA_VERSION:
            connection.rollback()
            return
        for step in range(version + 1, SCHEMA_VERSION + 1):
            _add(connection, step)
        connection.execute(update(TunerSchema).values(version=SCHEMA_VERSION))
        connection.commit()


def _add(connection: Connection, version: int) -> None:
    Base.metadata.create_all(connection, tables=[table.__table__ for table in TABLES[version]])
    for table, names in COLUMNS[version].items():
        there = {column.name for column in present(connection, table)}
        for name in names:
            if name not in there:
                column = CreateColumn(table.__table__.columns[name]).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.__tablename__} ADD COLUMN {column}"))

"""Every column that came after the first version is named in the migration, or older files break at the first write."""

from __future__ import annotations

import zlib

from storage.migration import COLUMNS, TABLES
from storage.tables import Base

FIRST = {
    "tuner_batch": "0c9a7404",
    "tuner_host": "1be12b43",
    "tuner_load": "a56fbe5b",
    "tuner_schema": "bf1cd3c3",
    "tuner_slice": "b203001c",
    "tuner_step": "6b662743",
    "tuner_study": "34bf1efe",
}
"""Checksum of the column names of each table in version 1, which is out in files and never changes."""


def test_what_is_new_is_migrated() -> None:
    """Without what the migration adds, each table has the columns of version 1 and nothing else."""
    added = {table.__tablename__: set(names) for step in COLUMNS.values() for table, names in step.items()}
    new = {table.__tablename__ for step in TABLES.values() for table in step}
    first = {}
    for name, table in Base.metadata.tables.items():
        if name not in new:
            names = sorted(c.name for c in table.columns if c.name not in added.get(name, ()))
            first[name] = format(zlib.crc32(",".join(names).encode()), "08x")
    assert first == FIRST

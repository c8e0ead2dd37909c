"""Reads and writes our tables; every write is one transaction.

Runs in: parent.
*Not covered*: who owns a study (`storage.ownership`), Optuna's tables (`storage.trials`), what a row means
(`storage.codec`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, insert, inspect, select, update
from sqlalchemy.exc import IntegrityError

from objectives.schema import LoaderConfig, Outcome, Score
from storage import lease
from storage.codec import (
    Row,
    SliceRows,
    decode_outcome,
    decode_score,
    decode_study,
    encode_config,
    encode_mapping,
    encode_outcome,
    encode_score,
    encode_study,
    to_utc,
)
from storage.lease import Lease
from storage.records import StudyRecord
from storage.tables import TunerBatch, TunerHost, TunerLoad, TunerSlice, TunerStep, TunerStudy

SERIES: dict[str, Any] = {"steps": TunerStep, "batches": TunerBatch, "load": TunerLoad}


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """One slice as it was committed."""

    uuid: str
    outcome: Outcome
    score: Score | None
    counted: bool
    """False: lost through the host or the user."""


def insert_study(engine: Engine, record: StudyRecord, max_workers: int, max_prefetch: int, owner: Lease) -> None:
    """Write a new study and, unless it is known, its host."""
    study, host = encode_study(record)
    more = {"max_workers": max_workers, "max_prefetch": max_prefetch, "owner_json": lease.to_json(owner)}
    try:
        with engine.begin() as connection:
            connection.execute(insert(TunerHost).values(host))
    except IntegrityError:
        pass  # another study was measured on this host
    with engine.begin() as connection:
        connection.execute(insert(TunerStudy).values({**study, **more}))


def delete_study(engine: Engine, uuid: str) -> None:
    """Take back a study that nothing was measured for."""
    with engine.begin() as connection:
        connection.execute(delete(TunerStudy).where(TunerStudy.uuid == uuid))


def read_studies(engine: Engine, uuids: Collection[str]) -> dict[str, StudyRecord]:
    """Return the studies of these UUIDs, as far as they are there."""
    with engine.connect() as connection:
        columns = *present(connection, TunerStudy), TunerHost.info_json
        joined = select(*columns).join(TunerHost, TunerHost.uuid == TunerStudy.host_uuid)
        rows = connection.execute(joined.where(TunerStudy.uuid.in_(uuids))).mappings().all()
    return {row["uuid"]: decode_study(dict(row), dict(row)) for row in rows}


def uuids_named(engine: Engine, name: str) -> list[str]:
    """Return the UUIDs of our studies of this name, whether Optuna still has them or not."""
    with engine.connect() as connection:
        return list(connection.scalars(select(TunerStudy.uuid).where(TunerStudy.name == name)))


def read_ranges(engine: Engine, uuid: str) -> tuple[int, int]:
    """Return the largest worker count and prefetch factor of a study."""
    columns = select(TunerStudy.max_workers, TunerStudy.max_prefetch).where(TunerStudy.uuid == uuid)
    with engine.connect() as connection:
        workers, prefetch = connection.execute(columns).one()
    return int(workers), int(prefetch)


def update_study(engine: Engine, uuid: str, **values: Any) -> None:
    """Set columns of a study."""
    with engine.begin() as connection:
        connection.execute(update(TunerStudy).where(TunerStudy.uuid == uuid).values(**values))


def set_remember(engine: Engine, record: StudyRecord) -> None:
    """Write what preparing fixed, its facts, and the options."""
    named = {f"{name}_json": encode_mapping(getattr(record, name)) for name in ("facts", "remember", "options")}
    update_study(engine, record.uuid, **named)


def add_spent(engine: Engine, uuid: str, spent_s: float) -> None:
    """Add wall time to a study's."""
    update_study(engine, uuid, spent_s=TunerStudy.spent_s + spent_s)


def set_stopped(engine: Engine, uuid: str, stopped: str | None, spent_s: float) -> None:
    """Write why a run ended, and add its time."""
    update_study(engine, uuid, stopped=stopped, spent_s=TunerStudy.spent_s + spent_s)


def insert_trial_slice(
    engine: Engine,
    study_uuid: str,
    slice_uuid: str,
    number: int,
    config: LoaderConfig,
    origin: str,
    outcome: Outcome,
    score: Score | None,
    *,
    counted: bool,
) -> None:
    """Commit a trial's slice, series and score in one transaction; one that was committed before stays as it is."""
    named = {"uuid": slice_uuid, "study_uuid": study_uuid, "kind": "trial", "number": number, "counted": counted}
    known = {**encode_config(config), **encode_score(score), "origin": origin, "finished_at": now()}
    try:
        with engine.begin() as connection:
            insert_slice(connection, encode_outcome(outcome), {**named, **known})
    except IntegrityError:
        if not read_slices(engine, [slice_uuid], raw=False):
            raise


def insert_ceiling(engine: Engine, study_uuid: str, slice_uuid: str, outcome: Outcome) -> None:
    """Commit a ceiling, numbered after those that are there."""
    ceilings = TunerSlice.study_uuid == study_uuid, TunerSlice.kind == "ceiling"
    named = {"uuid": slice_uuid, "study_uuid": study_uuid, "kind": "ceiling", "counted": True, "finished_at": now()}
    with engine.begin() as connection:
        number = connection.scalar(select(func.count()).select_from(TunerSlice).where(*ceilings))
        insert_slice(connection, encode_outcome(outcome), {**named, "number": number, **encode_score(None)})


def read_slices(engine: Engine, uuids: Collection[str], *, raw: bool) -> dict[str, StoredSlice]:
    """Return the committed slices among these UUIDs.

    Args:
        engine: The database.
        uuids: Slices to look for.
        raw: Whether to read the series too; else `Measurement.raw` is None and `load` empty.
    """
    return {s.uuid: s for s in _read(engine, [TunerSlice.uuid.in_(uuids)], raw=raw)}


def read_ceilings(engine: Engine, study_uuid: str, *, raw: bool) -> list[StoredSlice]:
    """Return a study's ceilings, oldest first."""
    return _read(engine, [TunerSlice.study_uuid == study_uuid, TunerSlice.kind == "ceiling"], raw=raw)


def now() -> datetime:
    """Return the time as the tables keep it."""
    return to_utc(datetime.now(UTC))


def present(connection: Connection, table: Any) -> list[Any]:
    """Return the columns of a table that the database has: one of an older version can be read, without the newest."""
    there = {column["name"] for column in inspect(connection).get_columns(table.__tablename__)}
    return [column for column in table.__table__.columns if column.name in there]


def insert_slice(connection: Connection, rows: SliceRows, columns: Row) -> None:
    """Write a slice and its series, inside the caller's transaction."""
    connection.execute(insert(TunerSlice).values({**rows.columns, **columns}))
    for name, table in SERIES.items():
        series = [{"slice_uuid": columns["uuid"], **row} for row in getattr(rows, name)]
        if series:
            connection.execute(insert(table), series)


def _read(engine: Engine, conditions: Iterable[Any], *, raw: bool) -> list[StoredSlice]:
    with engine.connect() as connection:
        query = select(*present(connection, TunerSlice)).where(*conditions).order_by(TunerSlice.number)
        slices = connection.execute(query).mappings().all()
        return decode_slices(connection, [dict(row) for row in slices], raw=raw)


def decode_slices(connection: Connection, rows: Sequence[Row], *, raw: bool) -> list[StoredSlice]:
    """Return the slices of these rows, with their series if `raw`."""
    series = _read_series(connection, [row["uuid"] for row in rows]) if raw else {}
    return [_decode(row, series, raw=raw) for row in rows]


def _read_series(connection: Connection, uuids: Collection[str]) -> dict[str, dict[str, list[Row]]]:
    """Return per kind of series and slice its rows in order."""
    found: dict[str, dict[str, list[Row]]] = {}
    for name, table in SERIES.items():
        by_slice: dict[str, list[Row]] = defaultdict(list)
        columns = present(connection, table)
        query = select(*columns).where(table.slice_uuid.in_(uuids)).order_by(table.slice_uuid, table.position)
        for row in connection.execute(query).mappings():
            values = dict(row)
            by_slice[values.pop("slice_uuid")].append(values)
        found[name] = by_slice
    return found


def _decode(row: Mapping[str, Any], series: Mapping[str, Mapping[str, list[Row]]], *, raw: bool) -> StoredSlice:
    columns = dict(row) if raw else {**row, "raw_json": None}
    rows = {name: series.get(name, {}).get(row["uuid"], []) for name in SERIES}
    outcome = decode_outcome(SliceRows(columns, **rows))
    return StoredSlice(row["uuid"], outcome, decode_score(columns), bool(columns["counted"]))

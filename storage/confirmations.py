"""Reads and writes confirmations: one row each, and their slices one by one.

Runs in: parent. *Not covered*: the slices' series (`storage.queries`), what is measured and judged (`tuner.confirm`).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, func, insert, inspect, select, update

from objectives.schema import LoaderConfig
from storage.codec import (
    decode_config,
    decode_confirmation,
    encode_config,
    encode_confirmation,
    encode_mapping,
    encode_outcome,
    encode_score,
)
from storage.queries import decode_slices, insert_slice, now
from storage.records import Confirmation, ConfirmationSlice
from storage.tables import TunerConfirmation, TunerSlice

KIND = "confirmation"


def begin(engine: Engine, study_uuid: str, baseline: LoaderConfig, finalist: LoaderConfig) -> Confirmation:
    """Write a new confirmation without slices and return it."""
    confirmation = Confirmation(str(uuid.uuid4()), baseline, finalist, datetime.now(UTC))
    counted = select(func.count()).select_from(TunerConfirmation).where(TunerConfirmation.study_uuid == study_uuid)
    with engine.begin() as connection:
        named = {"study_uuid": study_uuid, "number": connection.scalar(counted)}
        connection.execute(insert(TunerConfirmation).values({**encode_confirmation(confirmation), **named}))
    return confirmation


def add_slice(engine: Engine, study_uuid: str, confirmation_uuid: str, measured: ConfirmationSlice) -> None:
    """Commit one slice, numbered after those of the confirmation that are there."""
    mine = TunerSlice.study_uuid == study_uuid, TunerSlice.confirmation_uuid == confirmation_uuid
    named = {
        "uuid": str(uuid.uuid4()),
        "study_uuid": study_uuid,
        "kind": KIND,
        "counted": True,
        "finished_at": now(),
        "confirmation_uuid": confirmation_uuid,
        "round": measured.round,
        "arm": measured.arm,
        **encode_config(measured.config),
        **encode_score(None),
    }
    with engine.begin() as connection:
        number = connection.scalar(select(func.count()).select_from(TunerSlice).where(*mine))
        insert_slice(connection, encode_outcome(measured.outcome), {**named, "number": number})


def set_judgement(engine: Engine, confirmation_uuid: str, judgement: Mapping[str, Any]) -> None:
    """Write what was told at its end."""
    one = update(TunerConfirmation).where(TunerConfirmation.uuid == confirmation_uuid)
    with engine.begin() as connection:
        connection.execute(one.values(judgement_json=encode_mapping(judgement)))


def read(engine: Engine, study_uuid: str, *, raw: bool) -> list[Confirmation]:
    """Return a study's confirmations, oldest first; none from tables of version 1.

    Args:
        engine: The database.
        study_uuid: Ours.
        raw: Whether to read the slices' series too.
    """
    mine = select(TunerConfirmation.__table__).where(TunerConfirmation.study_uuid == study_uuid)
    theirs = select(TunerSlice.__table__).where(TunerSlice.study_uuid == study_uuid, TunerSlice.kind == KIND)
    with engine.connect() as connection:
        if not inspect(connection).has_table(TunerConfirmation.__tablename__):
            return []
        found = connection.execute(mine.order_by(TunerConfirmation.number)).mappings().all()
        rows = [dict(row) for row in connection.execute(theirs.order_by(TunerSlice.number)).mappings()]
        stored = decode_slices(connection, rows, raw=raw)
    slices: dict[str, list[ConfirmationSlice]] = defaultdict(list)
    for row, one in zip(rows, stored, strict=True):
        slices[row["confirmation_uuid"]].append(
            ConfirmationSlice(row["round"], row["arm"], decode_config(row), one.outcome)
        )
    return [decode_confirmation(dict(row), slices[row["uuid"]]) for row in found]

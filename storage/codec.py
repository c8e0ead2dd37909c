"""Turns outcomes, scores and studies into rows and back: `decode(encode(x)) == x`.

Runs in: parent. Pure: rows are plain dicts, one key per column.
*Not covered*: the columns (`storage.tables`), reading and writing them (`storage.queries`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from objectives.schema import (
    BatchSeries,
    Crash,
    LoaderConfig,
    LoadSample,
    Measurement,
    Outcome,
    Penalty,
    RawSlice,
    Score,
    StepSeries,
)
from storage.records import Confirmation, ConfirmationSlice, StudyRecord

Row = dict[str, Any]

T = TypeVar("T", StepSeries, BatchSeries)

MEASURED = tuple(f.name for f in fields(Measurement) if f.name not in ("raw", "load"))
"""Fields of a `Measurement` that are columns of their own."""

RAW = tuple(f.name for f in fields(RawSlice) if f.name not in ("steps", "batches"))
"""Fields of a `RawSlice` that share one column; nothing is searched by them."""

CRASHED = ("blame", "phase", "message", "remedy", "exit_code", "signal", "exception", "log_tail")
"""Fields of a `Crash` that are columns of the same name."""

STUDY_TEXT = ("name", "uuid", "objective", "fingerprint", "baseline_of", "configurations", "seed", "stopped", "spent_s")
STUDY_JSON = ("identity", "measured_knobs", "values", "reasons", "score_policy", "remember", "facts", "options")


@dataclass(frozen=True, slots=True)
class SliceRows:
    """One outcome as rows: the columns of its slice, and the rows of its series without the slice's UUID."""

    columns: Row
    steps: list[Row] = field(default_factory=list)
    batches: list[Row] = field(default_factory=list)
    load: list[Row] = field(default_factory=list)


def encode_config(config: LoaderConfig) -> Row:
    """Return the four knobs and the short form."""
    return {"configuration": config.key, **asdict(config)}


def decode_config(row: Mapping[str, Any]) -> LoaderConfig:
    """Return the configuration of a row that has the four knobs."""
    return LoaderConfig(**{f.name: row[f.name] for f in fields(LoaderConfig)})


def encode_score(score: Score | None) -> Row:
    """Return the score's columns, all None without one."""
    if score is None:
        return {"score": None, "throughput": None, "penalties_json": None}
    penalties = [asdict(p) for p in score.penalties]
    return {"score": score.value, "throughput": score.throughput, "penalties_json": _json(penalties)}


def decode_score(row: Mapping[str, Any]) -> Score | None:
    """Return the score of a slice; None if it has none."""
    if row["score"] is None:
        return None
    penalties = tuple(Penalty(**p) for p in json.loads(row["penalties_json"]))
    return Score(row["score"], row["throughput"], penalties)


def encode_outcome(outcome: Outcome) -> SliceRows:
    """Return the outcome as rows.

    Text loses what no database can hold: NUL and lone surrogates become replacement characters.

    Raises:
        ValueError: If two series of the slice differ in length.
    """
    if isinstance(outcome, Crash):
        crash = {"outcome": "crash", "crash_kind": outcome.kind, "peak_memory_fraction": outcome.peak_memory_fraction}
        named = {name: clean(getattr(outcome, name)) for name in CRASHED}
        return SliceRows({**_empty(), **crash, **named, "wall_json": _json(outcome.wall_s)})
    columns = {**_empty(), "outcome": "measurement", **{name: getattr(outcome, name) for name in MEASURED}}
    load = [{"position": i, **asdict(sample)} for i, sample in enumerate(outcome.load)]
    if outcome.raw is None:
        return SliceRows(columns, load=load)
    columns["raw_json"] = _json({name: getattr(outcome.raw, name) for name in RAW})
    return SliceRows(columns, _rows(outcome.raw.steps), _rows(outcome.raw.batches), load)


def decode_outcome(rows: SliceRows) -> Outcome:
    """Return the outcome of a slice's rows."""
    columns = {**_empty(), **rows.columns}  # a table of an older version lacks the newest until it is migrated
    if columns["outcome"] == "crash":
        named = {name: columns[name] for name in CRASHED}
        peak = columns["peak_memory_fraction"]
        wall_s = json.loads(columns["wall_json"])
        return Crash(kind=columns["crash_kind"], peak_memory_fraction=peak, wall_s=wall_s, **named)
    raw = None
    if columns["raw_json"] is not None:
        steps, batches = _series(StepSeries, rows.steps), _series(BatchSeries, rows.batches)
        raw = RawSlice(steps=steps, batches=batches, **json.loads(columns["raw_json"]))
    load = tuple(LoadSample(**{f.name: row[f.name] for f in fields(LoadSample) if f.name in row}) for row in rows.load)
    return Measurement(raw=raw, load=load, **{name: columns[name] for name in MEASURED})


def encode_study(record: StudyRecord) -> tuple[Row, Row]:
    """Return the study's row and its host's; equal hosts have equal rows and UUIDs."""
    info = _json(record.host, sort_keys=True)
    host = {"uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, info)), "info_json": info}
    study: Row = {name: clean(getattr(record, name)) for name in STUDY_TEXT}
    study |= {f"{name}_json": _json(getattr(record, name)) for name in STUDY_JSON}
    study["baseline_json"] = _json(asdict(record.baseline))
    study["created_at"] = to_utc(record.created_at)
    study["host_uuid"] = host["uuid"]
    return study, host


def decode_study(study: Mapping[str, Any], host: Mapping[str, Any]) -> StudyRecord:
    """Return the study of its row and its host's."""
    values: Row = {name: study[name] for name in STUDY_TEXT}
    # Tables of version 1, which are only read, have no options.
    values |= {name: json.loads(study.get(f"{name}_json") or "{}") for name in STUDY_JSON}
    values["measured_knobs"] = tuple(values["measured_knobs"])
    values["baseline"] = LoaderConfig(**json.loads(study["baseline_json"]))
    values["created_at"] = study["created_at"].replace(tzinfo=UTC)
    return StudyRecord(host=json.loads(host["info_json"]), **values)


def encode_confirmation(confirmation: Confirmation) -> Row:
    """Return the confirmation's row, without its slices and judgement."""
    return {
        "uuid": confirmation.uuid,
        "baseline_json": _json(asdict(confirmation.baseline)),
        "finalist_json": _json(asdict(confirmation.finalist)),
        "began_at": to_utc(confirmation.began_at),
    }


def decode_confirmation(row: Mapping[str, Any], slices: Sequence[ConfirmationSlice]) -> Confirmation:
    """Return the confirmation of its row and slices."""
    judgement = row["judgement_json"]
    return Confirmation(
        uuid=row["uuid"],
        baseline=LoaderConfig(**json.loads(row["baseline_json"])),
        finalist=LoaderConfig(**json.loads(row["finalist_json"])),
        began_at=row["began_at"].replace(tzinfo=UTC),
        slices=tuple(slices),
        judgement=None if judgement is None else json.loads(judgement),
    )


def encode_mapping(values: Mapping[str, Any]) -> str:
    """Return a mapping as the text of a `_json` column."""
    return _json(dict(values))


def to_utc(moment: datetime) -> datetime:
    """Return the moment as the tables keep it: UTC, without a zone."""
    return moment.astimezone(UTC).replace(tzinfo=None)


def clean(value: Any) -> Any:
    """Return text without what a database refuses; anything else as it is."""
    if not isinstance(value, str):
        return value
    return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _empty() -> Row:
    return dict.fromkeys((*MEASURED, "raw_json", "crash_kind", *CRASHED, "wall_json"))


def _json(value: Any, *, sort_keys: bool = False) -> str:
    return str(clean(json.dumps(value, ensure_ascii=False, sort_keys=sort_keys)))


def _rows(series: StepSeries | BatchSeries) -> list[Row]:
    """Return one row per entry; a series that was not measured, and is empty, is a column of None."""
    columns = {f.name: getattr(series, f.name) for f in fields(series)}
    length = max(map(len, columns.values()))
    for name, values in columns.items():
        if len(values) not in (0, length):
            raise ValueError(f"{name} must be empty or have {length} entries like the others but got {len(values)}.")
    return [
        {"position": i, **{name: values[i] if values else None for name, values in columns.items()}}
        for i in range(length)
    ]


def _series(kind: type[T], rows: Sequence[Row]) -> T:
    names = [f.name for f in fields(kind)]
    given = [name for name in names if rows and rows[0][name] is not None]
    return kind(**{name: tuple(row[name] for row in rows) for name in given})

"""Opens a recorded table, CSV or JSON lines, and names what is wrong with it.

Runs in: parent. *Not covered*: what a row of either format means (`objectives.recording_rows`), playing it back
(`objectives.replay`).
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives.errors import UserError
from objectives.recording_rows import CSV_COLUMNS, CSV_REQUIRED, BadCell, Row, ceiling, csv_row, jsonl_row
from objectives.schema import KNOBS, LoaderConfig, Measurement, Outcome


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded table, the same for any order of its rows."""

    name: str
    """The file's name, for sentences."""
    content_hash: str
    rows: int
    knobs: tuple[str, ...]
    """Knobs the table has a column for, in the usual order."""
    outcomes: Mapping[LoaderConfig, tuple[Outcome, ...]]
    """Repeats of each configuration: by their `repeat` number where they have one, else in an order drawn from their
    content, so that neither the order of rows nor the speed decides which is served first."""
    ceilings: tuple[Measurement, ...]


def read_recording(path: Path, workload: str | None = None) -> Recording:
    """Return a recording; the format is told by the content, not by the file's name.

    Args:
        path: The file.
        workload: Which workload to take from a file of JSON lines that holds several.

    Raises:
        UserError: If the file is missing, empty or not in either format; names the column, row or line.
    """
    text = _text(path)
    ceilings: tuple[Measurement, ...] = ()
    if text.lstrip().startswith("{"):
        rows, knobs, ceilings = _read_jsonl(path, text, workload)
    else:
        try:
            rows, knobs = _read_csv(path, text)
        except csv.Error as error:
            raise _not_usable(
                path, f"is not a CSV table: {error}", "a recording is a CSV table or JSON lines"
            ) from None
    if not rows:
        raise _not_usable(path, "holds no configuration", "there is nothing to choose from")
    grouped: dict[LoaderConfig, list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r.repeat, _digest(r.content))):
        grouped.setdefault(row.config, []).append(row)
    content = sorted(_digest(row.content) for row in rows)
    return Recording(
        name=path.name,
        content_hash=_digest("\n".join(content)),
        rows=len(rows),
        knobs=knobs,
        outcomes={config: tuple(row.outcome for row in grouped[config]) for config in sorted(grouped)},
        ceilings=ceilings,
    )


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise _not_usable(path, "does not exist", "the replay objective plays back what a file holds") from None
    except OSError as error:
        raise _not_usable(path, f"cannot be read: {error.strerror}", "the replay objective plays it back") from None
    except UnicodeDecodeError:
        raise _not_usable(
            path, "is not UTF-8 text", "a recording is a CSV table or JSON lines", f"file {path}"
        ) from None
    if not text.strip():
        raise _not_usable(path, "is empty", "there is nothing to choose from")
    return text


def _not_usable(path: Path, what: str, why: str, hint: str = "") -> UserError:
    return UserError(f"recording '{path}' {what}", why, hint or f"ls -l {path}")


def _bad_cell(path: Path, where: str, line: int, bad: BadCell) -> UserError:
    return UserError(f"{where} of recording '{path}': {bad.what}", bad.why, f"sed -n {line}p {path}")


def _read_csv(path: Path, text: str) -> tuple[list[Row], tuple[str, ...]]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    lines = (cells for cells in reader if any(cell.strip() for cell in cells))
    header = [name.strip() for name in next(lines)]
    _check_header(path, header)
    rows: list[Row] = []
    for cells in lines:
        try:
            if len(cells) != len(header):
                raise BadCell(
                    f"{len(cells)} cells", f"the header names {len(header)} columns; quote a text with commas"
                )
            rows.append(csv_row(dict(zip(header, cells, strict=True))))
        except BadCell as bad:
            raise _bad_cell(path, f"row {len(rows) + 1}", reader.line_num, bad) from None
    return rows, tuple(knob for knob in KNOBS if knob in header)


def _check_header(path: Path, header: list[str]) -> None:
    missing = [name for name in CSV_REQUIRED if name not in header]
    if missing:
        raise _not_usable(
            path,
            f"lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            f"it has {', '.join(header)}; known are {', '.join(CSV_COLUMNS)}",
            f"head -1 {path}",
        )
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise _not_usable(
            path, f"has the column {repeated[0]} twice", "which one counts cannot be told", f"head -1 {path}"
        )
    absent = [name for name in CSV_COLUMNS if name not in header]
    for name in header:
        # Other columns are notes and left alone, but a slip of the pen would drop a penalty without a word.
        close = difflib.get_close_matches(name, absent, n=1, cutoff=0.8)
        if name not in CSV_COLUMNS and close:
            raise _not_usable(
                path, f"has a column {name}", f"it would be ignored; {close[0]} is probably meant", f"head -1 {path}"
            )


def _read_jsonl(
    path: Path, text: str, workload: str | None
) -> tuple[list[Row], tuple[str, ...], tuple[Measurement, ...]]:
    lines: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise _bad_cell(path, f"line {number}", number, BadCell("not JSON", "each line is an object")) from None
        if not isinstance(value, dict):
            raise _bad_cell(path, f"line {number}", number, BadCell("not an object", "each line is an object"))
        if not isinstance(value.get("workload"), str | None):
            bad = BadCell(f"workload is {value['workload']!r}", "it must be a name")
            raise _bad_cell(path, f"line {number}", number, bad)
        lines.append((number, value))
    chosen = _one_workload(path, lines, workload)
    rows: list[Row] = []
    ceilings: list[Measurement] = []
    knobs: set[str] = set()
    for number, record in lines:
        if record.get("workload") != chosen:
            continue
        try:
            if record.get("kind") == "configuration":
                rows.append(jsonl_row(record))
                knobs |= record.keys() & set(KNOBS)
            elif record.get("kind") == "ceiling":
                ceilings.append(ceiling(record))
        except BadCell as bad:
            raise _bad_cell(path, f"line {number}", number, bad) from None
    return rows, tuple(knob for knob in KNOBS if knob in knobs), tuple(ceilings)


def _one_workload(path: Path, lines: list[tuple[int, dict[str, Any]]], wanted: str | None) -> str | None:
    """Return the workload to play back; throughputs of different ones cannot be compared inside one study."""
    found = list(dict.fromkeys(r.get("workload") for _, r in lines if r.get("kind") == "configuration"))
    if wanted is not None and wanted not in found:
        raise _not_usable(path, f"has no workload '{wanted}'", f"it has {', '.join(map(str, found))}")
    if wanted is None and len(found) > 1:
        raise _not_usable(
            path,
            f"holds {len(found)} workloads: {', '.join(map(str, found))}",
            "throughputs of different workloads cannot be compared inside one study",
            f"grep -F '\"{found[0]}\"' {path} > {found[0]}.jsonl",
        )
    return wanted if wanted is not None else (found[0] if found else None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

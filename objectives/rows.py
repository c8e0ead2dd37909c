"""Reads the rows of a data set by offset, and checks them before anything heavy is started.

Runs in: parent (`check_rows`) and child, its workers included (`Rows`). Standard library only.

A list of dicts shared with forked workers is copied page by page, because reading an object writes its reference
count: memory grows with every worker and epoch. So a process holds flat arrays of offsets and reads each row from the
file, whose pages the kernel keeps once for all.
*Not covered*: finding the offsets (`objectives.row_index`), mapping fields to messages (`objectives.messages`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from objectives.errors import UserError
from objectives.messages import RowError, known_fields, row_format, row_warnings, to_messages
from objectives.row_index import RowIndex, index_file, kind, not_utf8

WHOLE_HASH_BYTES = 64 * 2**20
"""Files up to this size are hashed whole; of larger ones the size and half as much from either end."""


class Rows:
    """The rows of one file; `rows[i]` reads and parses one. Cheap to fork and to pickle.

    Reads are positioned (`pread`): processes that inherited one open file do not move each other's place in it.
    """

    def __init__(self, path: Path, index: RowIndex) -> None:
        self.path = path
        self._index = index
        self._file: FileIO | None = None

    def __len__(self) -> int:
        return len(self._index.starts)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one row.

        Raises:
            IndexError: If there is no such row.
            UserError: If it is not a JSON object; names the row.
        """
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"index must be below {len(self)} but got {index}.")
        if self._file is None:
            self._file = FileIO(self.path)
        start = self._index.starts[index]
        raw = os.pread(self._file.fileno(), self._index.ends[index] - start, start)
        try:
            row = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise not_utf8(self.where(index), self.path, error, start) from None
        except json.JSONDecodeError as error:
            raise UserError(
                f"{self.where(index)} is not JSON: {error.msg} at column {error.colno}",
                "every line of a .jsonl file is one whole JSON object",
                f"sed -n '{self.number(index)}p' {self.path}",
            ) from None
        except RecursionError:
            raise UserError(f"{self.where(index)} is nested too deeply", "it cannot be read") from None
        if not isinstance(row, dict):
            raise UserError(
                f"{self.where(index)} is {kind(row)}, not an object",
                "every row must be an object with fields such as instruction, input and output",
                f"sed -n '{self.number(index)}p' {self.path}",
            )
        return row

    def number(self, index: int) -> int:
        """Return the row's number from 1: its line as an editor counts, or its place in the array."""
        if not self._index.by_line:
            return index + 1
        left, lines = self._index.starts[index], 1  # blank lines are not indexed: counted only when somebody asks
        with self.path.open("rb") as file:
            while left and (chunk := file.read(min(left, 2**20))):
                lines += chunk.count(b"\n")
                left -= len(chunk)
        return lines

    def where(self, index: int) -> str:
        """Return the row's name in a message, such as `line 12 of 'train.jsonl'`."""
        return f"{'line' if self._index.by_line else 'row'} {self.number(index)} of '{self.path}'"

    def close(self) -> None:
        """Close the file in this process; the next read opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


@dataclass(frozen=True, slots=True)
class RowSummary:
    """What the check of a data set saw."""

    rows: int
    checked: int
    """Rows parsed: all of them, or as many as the limit allows, evenly spaced."""
    bytes: int
    """Size of the file."""
    format_counts: dict[str, int]
    """Checked rows per format (`objectives.messages.RowFormat`), the most frequent first."""
    longest_row_chars: int
    """Characters of all messages of the longest row checked, before the chat template."""
    content_hash: str
    """Names the content in a study's fingerprint, wherever the file lies; not the whole of a file above 64 MiB."""
    warnings: tuple[str, ...]


def open_rows(path: str | os.PathLike[str]) -> Rows:
    """Return the rows of a `.json` array or a `.jsonl` file. A bad line of a `.jsonl` file shows when it is read.

    Raises:
        UserError: If the file is missing, of another kind, unreadable, empty, or a `.json` file that is not UTF-8, not
            JSON or not an array of objects.
    """
    return Rows(Path(path), index_file(Path(path)))


def check_rows(path: str | os.PathLike[str], *, batch_size: int, limit: int = 20_000) -> RowSummary:
    """Return what is in a data set, every row tried as far as `limit` goes.

    Raises:
        UserError: If it cannot be read, has fewer rows than one batch, or holds a row that gives no messages. ms-swift
            drops such rows with a line in its log; here a row must not vanish between the check and a worker.
    """
    rows = open_rows(path)
    if len(rows) == 0:
        raise UserError(f"data set '{path}' holds no rows", "there is nothing to train on", f"head -c 300 {path}")
    if len(rows) < batch_size:
        raise UserError(
            f"data set '{path}' has {len(rows)} rows, fewer than one batch of {batch_size}",
            "not one full batch could be loaded",
            f"tuner run --dataset {path} --per-device-train-batch-size {len(rows)}",
        )
    checked = min(len(rows), limit)
    formats: Counter[str] = Counter()
    troubles: Counter[str] = Counter()
    first: dict[str, int] = {}
    longest_chars = 0
    for step in range(checked):
        index = step * len(rows) // checked
        chars, row_kind, warnings = _check_row(rows, index)
        longest_chars = max(longest_chars, chars)
        formats[row_kind] += 1
        for warning in warnings:
            troubles[warning] += 1
            first.setdefault(warning, index)
    texts = [f"{rows.where(first[text])}: {text} ({count} of {checked} rows)" for text, count in troubles.items()]
    if {"messages", "sharegpt"} & set(formats) and {"alpaca", "query-response"} & set(formats):
        texts.append(f"rows are mixed ({', '.join(formats)}): ms-swift reads one of them and drops the other rows")
    rows.close()
    return RowSummary(
        rows=len(rows),
        checked=checked,
        bytes=rows.path.stat().st_size,
        format_counts=dict(formats.most_common()),
        longest_row_chars=longest_chars,
        content_hash=_content_hash(rows.path),
        warnings=tuple(texts),
    )


def _check_row(rows: Rows, index: int) -> tuple[int, str, tuple[str, ...]]:
    """Return the characters of a row's messages, its format and its warnings."""
    row = rows[index]
    row_kind = row_format(row)
    if row_kind is None:
        found = ", ".join(row) if row else "none at all"
        raise UserError(
            f"{rows.where(index)} has none of the known fields; it has {found}",
            f"known fields: {', '.join(known_fields())}",
            'one row that works: {"instruction": "...", "input": "", "output": "..."}',
        )
    try:
        messages = to_messages(row)
    except RowError as error:
        raise UserError(
            f"{rows.where(index)} cannot be used: {error}",
            "ms-swift would leave the row out, and only its log would tell",
            "mend the row or remove it",
        ) from None
    return sum(len(message["content"]) for message in messages), row_kind, row_warnings(row)


def _content_hash(path: Path) -> str:
    """Return the SHA-256 of a file, or of the size and both ends of one above `WHOLE_HASH_BYTES`, in hexadecimal."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= WHOLE_HASH_BYTES:
            digest.update(file.read())
        else:
            digest.update(str(size).encode())
            digest.update(file.read(WHOLE_HASH_BYTES // 2))
            file.seek(-(WHOLE_HASH_BYTES // 2), os.SEEK_END)
            digest.update(file.read())
    return digest.hexdigest()

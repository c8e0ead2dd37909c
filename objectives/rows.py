"""Reads the rows of a data set by offset, and checks them before anything heavy is started.

Runs in: parent (`check_rows`) and child, its workers included (`Rows`). Standard library only.

A list of dicts shared with forked workers is copied page by page, because reading an object writes its reference
count: memory grows with every worker and epoch. So a process holds two flat arrays of offsets and reads each row from
the file, whose pages the kernel keeps once for all.
*Not covered*: mapping fields to messages (`objectives.messages`), hub data sets, `.csv`, folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from array import array
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from objectives.errors import UserError
from objectives.messages import RowError, known_fields, row_format, row_warnings, to_messages

ACCEPTED = (".json", ".jsonl")
BOM = b"\xef\xbb\xbf"
SPACE = re.compile(r"[ \t\n\r]*")
WHOLE_HASH_BYTES = 64 * 2**20
"""Files up to this size are hashed whole; of larger ones the size and as much again from both ends."""
CSV_TO_JSONL = (
    "python -c \"import csv,json,sys; [print(json.dumps(r)) for r in csv.DictReader(open(sys.argv[1], "
    "encoding='utf-8'))]\" {path} > {stem}.jsonl"
)


class Rows:
    """The rows of one file; `rows[i]` reads and parses one. Cheap to fork and to pickle, safe to read from many workers.

    Reads are positioned (`pread`), so processes that inherited one open file do not move each other's place in it.
    """

    def __init__(self, path: Path, starts: array[int], ends: array[int], *, by_line: bool) -> None:
        self.path = path
        self._starts = starts
        self._ends = ends
        self._by_line = by_line
        self._file: BinaryIO | None = None

    def __len__(self) -> int:
        return len(self._starts)

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
            self._file = self.path.open("rb", buffering=0)
        start = self._starts[index]
        raw = os.pread(self._file.fileno(), self._ends[index] - start, start)
        try:
            row = json.loads(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise _not_utf8(f"{self.where(index)} of '{self.path}'", self.path, error, start) from None
        except json.JSONDecodeError as error:
            raise UserError(
                f"{self.where(index)} of '{self.path}' is not JSON: {error.msg} at column {error.colno}",
                "in a .jsonl file every line is one whole JSON object",
                f"sed -n '{self.number(index)}p' {self.path}" if self._by_line else "",
            ) from None
        except RecursionError:
            raise UserError(f"{self.where(index)} of '{self.path}' is nested too deeply", "it cannot be read") from None
        if not isinstance(row, dict):
            raise UserError(
                f"{self.where(index)} of '{self.path}' is {_kind(row)}, not an object",
                "every row must be an object with fields such as instruction, input and output",
            )
        return row

    def number(self, index: int) -> int:
        """Return the row's number as an editor shows it: its line, or its place in the array; from 1."""
        if not self._by_line:
            return index + 1
        with self.path.open("rb") as file:  # blank lines are not indexed, so the line is counted, when it is asked for
            left, lines = self._starts[index], 1
            while left and (chunk := file.read(min(left, 2**20))):
                lines += chunk.count(b"\n")
                left -= len(chunk)
        return lines

    def where(self, index: int) -> str:
        """Return the row's name in a message, such as `line 12` or `row 3`."""
        return f"{'line' if self._by_line else 'row'} {self.number(index)}"

    def close(self) -> None:
        """Close the file of this process; the next read opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}


def open_rows(path: str | os.PathLike[str]) -> Rows:
    """Return the rows of a `.json` array or a `.jsonl` file; the content decides which it is, as in ms-swift.

    A `.jsonl` file is indexed, not parsed: a bad line shows when it is read. A `.json` array is parsed once for the
    offsets, with the file's text in memory as long as that takes.

    Raises:
        UserError: If the file is missing, of another kind, unreadable, empty, not UTF-8 or not an array of objects.
    """
    path = Path(path)
    _check_file(path)
    try:
        with path.open("rb") as file:
            head = file.read(4096).removeprefix(BOM).lstrip()
            if not head and not path.read_bytes().removeprefix(BOM).strip():
                raise UserError(f"data set '{path}' is empty", "there is nothing to train on", f"ls -l {path}")
            if path.suffix.lower() == ".jsonl" and not head.startswith(b"["):
                return _index_lines(path, file)
            return _index_array(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def _check_file(path: Path) -> None:
    suffix = path.suffix.lower()
    hint = "tuner run --dataset FILE.jsonl"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        why = "the path is taken from the working directory"
        if "#" in path.name:
            why = "'#N' (a sample of N rows) is not read here: name the file alone"
        raise UserError(f"data set '{path}' does not exist", why, f"ls {path.parent}") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        raise UserError(f"data set '{path}' is a directory", "one file is read: .json or .jsonl", f"ls {path}")
    if suffix not in ACCEPTED:
        if suffix == ".csv":
            hint = CSV_TO_JSONL.format(path=path, stem=path.with_suffix(""))
        what = f"data set '{path}' has the unknown extension '{path.suffix}'"
        raise UserError(what, "accepted: .json (an array of objects) and .jsonl (one object a line), UTF-8", hint)
    if not stat.S_ISREG(mode):
        raise UserError(f"data set '{path}' is not a regular file", "rows are read again and again by offset", hint)


def _index_lines(path: Path, file: BinaryIO) -> Rows:
    starts, ends = array("Q"), array("Q")
    file.seek(0)
    at = 0
    for line in file:
        skipped = len(BOM) if at == 0 and line.startswith(BOM) else 0
        if line[skipped:].strip():
            starts.append(at + skipped)
            ends.append(at + len(line))
        at += len(line)
    return Rows(path, starts, ends, by_line=True)


def _index_array(path: Path) -> Rows:
    raw = path.read_bytes()
    at_byte = len(BOM) if raw.startswith(BOM) else 0
    try:
        text = raw[at_byte:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(f"data set '{path}'", path, error, at_byte) from None
    del raw
    starts, ends = array("Q"), array("Q")
    decode = json.JSONDecoder().raw_decode
    seen = 0  # characters before this place are counted in at_byte

    try:
        at = _space(text, 0)
        if text[at] != "[":
            value, end = decode(text, at)
            if isinstance(value, dict) and text[_space(text, end) :][:1] == "{":
                with path.open("rb") as file:  # objects one after the other: lines under the name .json
                    return _index_lines(path, file)
            if _space(text, end) < len(text):
                raise json.JSONDecodeError("Extra data", text, end)
            raise _not_array(path, f"holds {_kind(value)}")
        at = _space(text, at + 1)
        while text[at : at + 1] != "]" or starts:
            value, end = decode(text, at)
            if not isinstance(value, dict):
                raise _not_array(path, f"has {_kind(value)} as row {len(starts) + 1}")
            start_byte = at_byte + len(text[seen:at].encode())
            at_byte = start_byte + len(text[at:end].encode())
            seen = end
            starts.append(start_byte)
            ends.append(at_byte)
            at = _space(text, end)
            if text[at : at + 1] == "]":
                break
            if text[at : at + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _space(text, at + 1)
        if _space(text, at + 1) < len(text):
            raise json.JSONDecodeError("Extra data", text, _space(text, at + 1))
    except json.JSONDecodeError as error:
        raise UserError(
            f"data set '{path}' is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            "a .json data set is one array of objects",
            f"python -m json.tool {path} /dev/null",
        ) from None
    except RecursionError:
        raise UserError(f"row {len(starts) + 1} of '{path}' is nested too deeply", "it cannot be read") from None
    return Rows(path, starts, ends, by_line=False)


def _space(text: str, at: int) -> int:
    """Return the place of the next character that is not white space."""
    match = SPACE.match(text, at)
    return match.end() if match else at


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

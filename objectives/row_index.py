"""Finds where each row of a data set lies in its file.

Runs in: parent and child. Standard library only. A `.jsonl` file is not parsed for that; a `.json` array is parsed
once, with the file's text in memory for as long as that takes.
*Not covered*: reading rows (`objectives.rows`), hub data sets, `.csv`, folders.
"""

from __future__ import annotations

import json
import re
import stat
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from objectives.errors import UserError

ACCEPTED = (".json", ".jsonl")
BOM = b"\xef\xbb\xbf"
SPACE = re.compile(r"[ \t\n\r]*")
CSV_TO_JSONL = (
    'python -c "import csv,json,sys; [print(json.dumps(r)) for r in csv.DictReader(open(sys.argv[1], '
    "encoding='utf-8'))]\" {path} > {stem}.jsonl"
)


@dataclass(slots=True)
class RowIndex:
    """Byte offsets of every row, in flat arrays (16 bytes a row, nothing that a forked worker would copy)."""

    by_line: bool
    """Whether rows are lines, so that their name in a message is a line number."""
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, start: int, end: int) -> None:
        """Append one row."""
        self.starts.append(start)
        self.ends.append(end)


def index_file(path: Path) -> RowIndex:
    """Return where the rows of a `.json` or `.jsonl` file lie; the content decides which it is, as in ms-swift.

    Raises:
        UserError: If the file is missing, of another kind, unreadable, empty, or a `.json` file that is not UTF-8, not
            JSON or not an array of objects.
    """
    _check_file(path)
    try:
        with path.open("rb") as file:
            head = file.read(4096).removeprefix(BOM).lstrip()
        if head and path.suffix.lower() == ".jsonl" and not head.startswith(b"["):
            return _index_lines(path)
        raw = path.read_bytes()
        if not raw.removeprefix(BOM).strip():
            raise UserError(f"data set '{path}' is empty", "there is nothing to train on", f"ls -l {path}")
        return _index_array(path, raw) or _index_lines(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def kind(value: object) -> str:
    """Return what a JSON value is, with its article, for a message."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def not_utf8(what: str, path: Path, error: UnicodeDecodeError, start: int) -> UserError:
    """Return the error for text that is not UTF-8; `start` is the offset of the decoded piece in the file, in bytes."""
    return UserError(
        f"{what} is not UTF-8: byte 0x{error.object[error.start]:02x} at offset {start + error.start}",
        "data sets are read as UTF-8; a file saved by another program may be GBK or UTF-16",
        f"iconv -f GBK -t UTF-8 {path} > {path.with_suffix('')}.utf8{path.suffix}",
    )


def _check_file(path: Path) -> None:
    hint = "tuner run --dataset FILE.jsonl"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        why = "'#N' (a sample of N rows) is not understood here" if "#" in path.name else "no file lies at that path"
        raise UserError(f"data set '{path}' does not exist", why, f"ls {path.parent}") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        raise UserError(f"data set '{path}' is a directory", "one file is read: .json or .jsonl", f"ls {path}")
    if path.suffix.lower() not in ACCEPTED:
        if path.suffix.lower() == ".csv":
            hint = CSV_TO_JSONL.format(path=path, stem=path.with_suffix(""))
        ending = f"the unknown extension '{path.suffix}'" if path.suffix else "no extension"
        what = f"data set '{path}' has {ending}"
        raise UserError(what, "accepted: .json (an array of objects) and .jsonl (one object a line), UTF-8", hint)
    if not stat.S_ISREG(mode):
        raise UserError(f"data set '{path}' is not a regular file", "rows are read again and again by offset", hint)


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"data set '{path}' cannot be read", error.strerror or str(error), f"ls -l {path}")


def _index_lines(path: Path) -> RowIndex:
    index = RowIndex(by_line=True)
    start = 0
    with path.open("rb") as file:
        for line in file:
            skipped = len(BOM) if start == 0 and line.startswith(BOM) else 0
            if line[skipped:].strip():
                index.add(start + skipped, start + len(line))
            start += len(line)
    return index


def _index_array(path: Path, raw: bytes) -> RowIndex | None:
    """Return the index of an array, or None if the file holds objects one after the other: lines named `.json`."""
    skipped = len(BOM) if raw.startswith(BOM) else 0
    try:
        text = str(memoryview(raw)[skipped:], "utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(f"data set '{path}'", path, error, skipped) from None
    index = RowIndex(by_line=False)
    try:
        at = _next(text, 0)
        if text[at] == "[":
            _scan(path, text, at, skipped, index)
            return index
        value, end = json.JSONDecoder().raw_decode(text, at)
        end = _next(text, end)
        if isinstance(value, dict) and text[end : end + 1] == "{":
            return None
        if end < len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        raise _not_objects(path, f"holds {kind(value)}")
    except json.JSONDecodeError as error:
        raise UserError(
            f"data set '{path}' is not JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            "a .json data set is one array of objects",
            f"python -m json.tool {path} /dev/null",
        ) from None
    except RecursionError:
        raise UserError(f"row {len(index.starts) + 1} of '{path}' is nested too deeply", "it cannot be read") from None


def _scan(path: Path, text: str, at: int, skipped: int, index: RowIndex) -> None:
    """Add the elements of the array that opens at character `at`; `skipped` bytes lie before the text."""
    decode = json.JSONDecoder().raw_decode
    counted_chars, counted_bytes = 0, skipped
    at = _next(text, at + 1)
    if text[at : at + 1] != "]":
        while True:
            value, end = decode(text, at)
            if not isinstance(value, dict):
                raise _not_objects(path, f"has {kind(value)} as row {len(index.starts) + 1}")
            start_byte = counted_bytes + len(text[counted_chars:at].encode())
            counted_chars, counted_bytes = end, start_byte + len(text[at:end].encode())
            index.add(start_byte, counted_bytes)
            at = _next(text, end)
            if text[at : at + 1] == "]":
                break
            if text[at : at + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _next(text, at + 1)
    at = _next(text, at + 1)
    if at < len(text):
        raise json.JSONDecodeError("Extra data", text, at)


def _next(text: str, at: int) -> int:
    """Return the place of the next character that is not JSON's white space, the text's length if there is none."""
    match = SPACE.match(text, at)
    return match.end() if match else at


def _not_objects(path: Path, what: str) -> UserError:
    return UserError(
        f"data set '{path}' is not an array of objects: it {what}",
        "every row must be an object with fields such as instruction, input and output",
        f"head -c 300 {path}",
    )

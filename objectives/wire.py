"""The lines that cross the pipes between the parent and its child: one JSON object each.

Runs in: parent and child. *Not covered*: when they are sent (`objectives.supervisor`, `objectives.slice.serve`).

Requests: `open` (workload) · `ceiling` (plan) · `measure` (config, plan) · `close`.
Events: `phase` (name, step) · `opened` (facts) · `slice` (raw) · `failed` (exception, workers' exit codes) · `closed`.
Unknown events are skipped, so that an older parent survives a newer child.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import types
import typing
from typing import Any, TypeVar, cast

T = TypeVar("T")


def pack(value: Any) -> Any:
    """Return dataclasses as plain JSON values; tuples become lists, everything else is left as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: pack(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list | tuple):
        return [pack(v) for v in value] if value and not isinstance(value[0], int | float | str) else list(value)
    if isinstance(value, dict):
        return {k: pack(v) for k, v in value.items()}
    return value


def unpack(cls: type[T], value: Any) -> T:
    """Return `value`, as `pack` made it, as an instance of the dataclass `cls`; unknown keys are skipped.

    Raises:
        TypeError: If a field without a default is missing.
    """
    return cast(T, _unpack(cls, value))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _unpack(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        known = {f.name for f in dataclasses.fields(hint)}
        return hint(**{k: _unpack(_hints(hint)[k], v) for k, v in value.items() if k in known})
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _unpack(next(a for a in args if a is not types.NoneType), value)
    if origin is tuple:
        inner = args[0]
        return tuple(_unpack(inner, v) for v in value) if dataclasses.is_dataclass(inner) else tuple(value)
    return value


class LineReader:
    """Reads whole JSON lines from a file descriptor, however they were chopped on the way."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._buffer = bytearray()

    def read(self) -> list[dict[str, Any]]:
        """Return the lines that are complete after one read, which waits for something to come.

        None complete yet gives an empty list; when every writer has closed, `ended` is set.
        """
        data = os.read(self.fd, 1 << 20)
        self.ended = not data
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [json.loads(line) for line in lines if line.strip()]


def write_line(fd: int, message: dict[str, Any]) -> None:
    """Write one message whole, however often the pipe takes only part of it."""
    data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    while data:
        data = data[os.write(fd, data) :]

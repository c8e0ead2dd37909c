"""Says who works on a study or trial, so that a later process can tell a living owner from a killed one.

Runs in: parent. *Not covered*: what becomes of a trial whose owner is dead (`storage.recovery`).
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

PREFIX = "lease_"

FOREIGN_LEASE_S = 1800.0
"""How long a lease of another machine is believed: its process cannot be looked at, and a slice takes minutes."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One process, named so that no other can be taken for it."""

    pid: int
    started_ticks: int
    """Kernel ticks from boot to the start of the process: a reused pid has another, and no clock change moves it."""
    boot: str
    """The kernel's boot id; containers of one machine share it."""
    host: str
    written_at_s: float
    """Unix time at which it was written."""


def own() -> Lease:
    """Return this process's lease, as of now."""
    started = _started_ticks(os.getpid())
    return Lease(os.getpid(), -1 if started is None else started, _boot_id(), socket.gethostname(), time.time())


def alive(lease: Lease) -> bool:
    """Return whether the process of a lease still runs; a zombie does not.

    A process of an earlier boot is dead. One on another machine is believed alive for half an hour after it last
    wrote; one in another container of this machine cannot be seen and counts as dead, for a killed container leaves
    just that behind.
    """
    if lease.boot == _boot_id():
        return _started_ticks(lease.pid) == lease.started_ticks
    return lease.host != socket.gethostname() and time.time() - lease.written_at_s < FOREIGN_LEASE_S


def is_own(lease: Lease) -> bool:
    """Return whether a lease is this process's, whenever it was written."""
    mine = own()
    return (lease.pid, lease.started_ticks, lease.boot) == (mine.pid, mine.started_ticks, mine.boot)


def held_by_another(lease: Lease | None) -> bool:
    """Return whether another process holds it and still runs."""
    return lease is not None and not is_own(lease) and alive(lease)


def to_attributes(lease: Lease) -> dict[str, str | int | float]:
    """Return the lease as one scalar attribute per field."""
    return {PREFIX + name: value for name, value in asdict(lease).items()}


def from_attributes(attributes: Mapping[str, Any]) -> Lease | None:
    """Return the lease kept in a trial's attributes; None if there is none."""
    try:
        return Lease(**{name: attributes[PREFIX + name] for name in Lease.__slots__})
    except KeyError:
        return None


def to_json(lease: Lease) -> str:
    """Return the lease as one text, for a column."""
    return json.dumps(asdict(lease))


def from_json(text: str | None) -> Lease | None:
    """Return the lease of a column; None for an empty one."""
    return None if text is None else Lease(**json.loads(text))


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _started_ticks(pid: int) -> int | None:
    """Return field 22 of `/proc/<pid>/stat`; None if the process is gone or a zombie."""
    try:
        # The second field is the command in parentheses and may hold blanks and parentheses itself.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else int(started)

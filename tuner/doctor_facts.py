"""What the doctor looks at beside the host itself: how things stand at this moment.

Runs in: parent. *Not covered*: what is made of it (`tuner.doctor`).
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from objectives.counters import difference, read_counters
from objectives.gpu import GpuProcess, gpu_processes
from storage.location import locate

BUSY_SAMPLE_S = 0.5
"""Fifty ticks of the kernel's clock: the busy fraction is right to a few percent."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the checks look at beside the host: how things stand at this moment. None: this host cannot tell."""

    cpu_busy_fraction: float | None
    load_average: float | None
    """Over the last minute."""
    tmpdir: str
    start_method: str
    """How this Python starts worker processes when nothing else is said."""
    device: str
    """`cpu` or the UUID of the GPU to train on."""
    gpu_processes: tuple[GpuProcess, ...]
    database_directory: str | None
    """None: the database is on a server."""
    disk_free_bytes: int | None


def read_facts(device: str, storage: str) -> Facts:
    """Return how things stand at this moment.

    Args:
        device: `cpu` or a GPU's UUID.
        storage: Path or URL of the database.
    """
    directory = database_directory(storage)
    before = read_counters()
    time.sleep(BUSY_SAMPLE_S)
    return Facts(
        cpu_busy_fraction=difference(before, read_counters()).busy_fraction,
        load_average=os.getloadavg()[0],
        tmpdir=tempfile.gettempdir(),
        start_method=multiprocessing.get_all_start_methods()[0],
        device=device,
        gpu_processes=() if device == "cpu" else gpu_processes(device),
        database_directory=None if directory is None else str(directory),
        disk_free_bytes=None if directory is None else shutil.disk_usage(directory).free,
    )


def database_directory(storage: str) -> Path | None:
    """Return the nearest existing directory of a database file, or None for a database server.

    Raises:
        UserError: If `storage` names no database.
    """
    path = locate(storage).path
    return None if path is None else next(parent for parent in path.parents if parent.is_dir())

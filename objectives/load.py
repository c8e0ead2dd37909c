"""Looks at the host a few times a second while a slice runs.

Runs in: parent. One thread that reads a handful of small files and asks NVML; it must never disturb or fail the slice
it watches, so what cannot be read is None.
*Not covered*: the exact CPU use of the timed steps, which the child brackets (`objectives.counters`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from objectives.cgroup import MemoryLimit, group_directories, memory_levels, memory_limits
from objectives.counters import CpuUse, cpu_source, difference, read_counters
from objectives.gpu import GpuProbe
from objectives.host import shm_space
from objectives.schema import LoadSample

INTERVAL_S = 0.25
"""Four looks a second: several per step of a 7B model, and enough to see memory climb before the kernel acts."""

OTHERS_INTERVAL_S = 1.0
"""The list of a GPU's processes is asked for less often: it costs the driver more than a utilisation."""

JOIN_S = 5.0
"""How long `stop` waits for a look in progress; a lost GPU can hold an NVML call for ever."""

T = TypeVar("T")


class LoadMonitor:
    """Collects load samples between `start` and `stop`; used once.

    Args:
        pid: The child; its CPU affinity and control groups say which CPUs and which memory count.
        gpu_uuid: The GPU to watch, or None.
        interval_s: Time between two looks.
        root: Where `/proc`, `/sys` and `/dev/shm` are found.
    """

    def __init__(self, pid: int, gpu_uuid: str | None, interval_s: float = INTERVAL_S, root: Path = Path("/")) -> None:
        if interval_s <= 0:
            raise ValueError(f"interval_s must be above 0 but got {interval_s}.")
        self._pid = pid
        self._gpu_uuid = gpu_uuid
        self._interval_s = interval_s
        self._root = root
        self._origin_s = time.monotonic()
        self._samples: list[LoadSample] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look; time 0 is now until `mark` says otherwise."""
        if self._thread is not None:
            raise ValueError("a LoadMonitor must be started once only but was started again.")
        self.mark()
        self._thread = threading.Thread(target=self._run, name="load-monitor", daemon=True)
        self._thread.start()

    def mark(self, origin_s: float | None = None) -> None:
        """Set time 0 of all samples, those before it included; they become negative.

        Args:
            origin_s: `time.monotonic` of this host, which all its processes share; None is now.
        """
        self._origin_s = time.monotonic() if origin_s is None else origin_s

    def stop(self) -> tuple[LoadSample, ...]:
        """End the thread and return what it saw, oldest first. May be called twice."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        return tuple(replace(sample, t_s=sample.t_s - self._origin_s) for sample in self._samples)

    def _run(self) -> None:
        # Never raise into the slice: a thread's traceback on the terminal would be all anyone saw of it.
        with contextlib.suppress(Exception):
            self._watch()

    def _watch(self) -> None:
        source = cpu_source(self._pid, self._root)
        limits = memory_limits(group_directories(self._root, self._pid))
        probe = GpuProbe(self._gpu_uuid)
        before = read_counters(source)
        stopping = False
        asked_s = -OTHERS_INTERVAL_S
        while not stopping:
            stopping = self._stopping.wait(self._interval_s)
            after = read_counters(source)
            # The last look comes early; over a few ticks of the kernel's clock its CPU share would be noise.
            whole = after.t_s - before.t_s >= self._interval_s / 2
            use = difference(before, after) if whole else CpuUse(None, None, None)
            gpu_util, gpu_memory = probe.read()
            others = None
            if after.t_s - asked_s >= OTHERS_INTERVAL_S:
                others, asked_s = probe.others(), after.t_s
            self._samples.append(
                LoadSample(
                    t_s=after.t_s,
                    cpu_busy_fraction=use.busy_fraction,
                    cpu_pressure_fraction=use.pressure_fraction,
                    memory_fraction=_quiet(lambda: _memory_fraction(self._root, limits)),
                    shm_used_bytes=_quiet(lambda: _shm_used_bytes(self._root)),
                    gpu_util_fraction=gpu_util,
                    gpu_memory_bytes=gpu_memory,
                    gpu_clock_hz=probe.clock_hz(),
                    gpu_other_processes=others,
                )
            )
            before = after
        probe.close()


def _memory_fraction(root: Path, limits: tuple[MemoryLimit, ...]) -> float | None:
    """Return how full memory is, of the host or of the tightest control group, whichever is fuller."""
    return max((1 - available / total for total, available in memory_levels(root, limits)), default=None)


def _shm_used_bytes(root: Path) -> int | None:
    size_bytes, free_bytes = shm_space(root)
    return size_bytes - free_bytes if size_bytes else None


def _quiet(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except Exception:  # whatever it is, one figure less must not cost the others
        return None

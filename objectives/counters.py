"""Cumulative counters of the kernel: read before and after, their difference is what was used in between.

Runs in: parent and child. The child brackets its timed steps with them and reads its trainer threads after every
step; the parent samples them through a slice.
*Not covered*: memory and GPU (`objectives.load`), judging the figures (`objectives.score`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from objectives.cgroup import Quota, cpu_quota, cpu_used_s, group_directories, pressure_file, read_text

TICK_S = 1 / os.sysconf("SC_CLK_TCK")

AUTOGRAD_THREADS = b"pt_autograd"
"""How PyTorch names the threads that run backward passes on a GPU; launches come from there, not from the main one."""


@dataclass(frozen=True, slots=True)
class CpuSource:
    """Where the counters of one process's CPUs are found."""

    stat: Path
    cpus: frozenset[int]
    quota: Quota | None
    directories: tuple[Path, ...]
    pressure: Path | None


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading; times in seconds, `t_s` on the monotonic clock. None: this kernel does not tell."""

    t_s: float
    cpus: dict[int, tuple[float, float]]
    """Per CPU of the affinity: busy and total time."""
    quota_cpus: float | None = None
    group_used_s: float | None = None
    pressure_s: float | None = None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """What happened between two readings, as fractions from 0 to 1. None: this kernel does not tell."""

    busy_fraction: float | None
    busiest_cpu_fraction: float | None
    pressure_fraction: float | None


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """CPU time of the trainer's threads so far, and the time they were runnable but not running."""

    run_delay_s: float | None
    cpu_s: float


def cpu_source(pid: int | None = None, root: Path = Path("/")) -> CpuSource:
    """Return where to read the CPUs that a process may use; None is this process."""
    directories = group_directories(root, pid)
    try:
        cpus = os.sched_getaffinity(pid or 0)
    except OSError:
        cpus = os.sched_getaffinity(0)
    return CpuSource(
        stat=root / "proc/stat",
        cpus=frozenset(cpus),
        quota=cpu_quota(directories),
        directories=directories,
        pressure=pressure_file(directories, root),
    )


def read_counters(source: CpuSource | None = None) -> Counters:
    """Return the counters now. None looks up this process's source first, which takes about a millisecond."""
    source = source or cpu_source()
    return Counters(
        t_s=time.monotonic(),
        cpus=_cpu_times(read_text(source.stat) or "", source.cpus),
        quota_cpus=source.quota.cpus if source.quota else None,
        group_used_s=cpu_used_s(source.quota, source.directories) if source.quota else None,
        pressure_s=_pressure_s(read_text(source.pressure)) if source.pressure else None,
    )


def difference(before: Counters, after: Counters) -> CpuUse:
    """Return the use between two readings.

    With a quota the busy fraction is the larger of two: of the CPUs of the affinity, by whomever, and of the quota,
    by this group. Counters tick every 10 ms: keep the readings a tenth of a second apart or more.
    """
    wall_s = after.t_s - before.t_s
    if wall_s <= 0:
        return CpuUse(None, None, None)
    busy_s, total_s, busiest = 0.0, 0.0, None
    for cpu in before.cpus.keys() & after.cpus.keys():
        busy = after.cpus[cpu][0] - before.cpus[cpu][0]
        total = after.cpus[cpu][1] - before.cpus[cpu][1]
        if total > 0:
            busy_s, total_s = busy_s + busy, total_s + total
            busiest = max(busiest or 0.0, _fraction(busy / total))
    fractions = [_fraction(busy_s / total_s)] if total_s > 0 else []
    if after.quota_cpus and before.group_used_s is not None and after.group_used_s is not None:
        fractions.append(_fraction((after.group_used_s - before.group_used_s) / (after.quota_cpus * wall_s)))
    pressure = None
    if before.pressure_s is not None and after.pressure_s is not None:
        pressure = _fraction((after.pressure_s - before.pressure_s) / wall_s)
    return CpuUse(max(fractions, default=None), busiest, pressure)


def read_thread_times(task: str = "/proc/self/task", main: int | None = None) -> ThreadTimes:
    """Return the times of this process's main thread and of autograd's threads together.

    Called after every step, so it costs tens of microseconds: plain system calls, and only the threads that matter
    are read in full. A thread that ends meanwhile is left out.

    Args:
        task: The directory of the process's threads.
        main: Number of the main thread; None is this process's id, which it shares.
    """
    cpu_s, run_delay_s, delay_known = 0.0, 0.0, True
    main_name = str(main or os.getpid())
    for name in os.listdir(task):
        try:
            if name != main_name and not _read(f"{task}/{name}/comm").startswith(AUTOGRAD_THREADS):
                continue
            scheduled = _schedule_times(f"{task}/{name}/schedstat")
            if scheduled is None:
                delay_known = False
                cpu_s += _stat_cpu_s(_read(f"{task}/{name}/stat"))
            else:
                cpu_s += scheduled[0]
                run_delay_s += scheduled[1]
        except OSError:
            continue
    return ThreadTimes(run_delay_s if delay_known else None, cpu_s)


def _schedule_times(path: str) -> tuple[float, float] | None:
    """Return CPU time and run-queue delay, or None on a kernel that has no such file or fills it with zeros."""
    try:
        fields = _read(path).split()
    except FileNotFoundError:
        return None
    if len(fields) < 2 or fields[0] == b"0":
        return None
    return int(fields[0]) / 1e9, int(fields[1]) / 1e9


def _stat_cpu_s(text: bytes) -> float:
    # The name in brackets may hold anything, brackets too: count fields from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)


def _cpu_times(text: str, cpus: frozenset[int]) -> dict[int, tuple[float, float]]:
    """Return busy and total seconds per CPU; all CPUs if a container numbers them anew and none matches.

    Time stolen by a hypervisor is busy: it cannot be had. Guest time is already in user time.
    """
    times = {}
    for line in text.splitlines():
        if not line.startswith("cpu"):
            break
        name, *fields = line.split()
        if name != "cpu":
            ticks = [int(field) for field in fields[:8]]
            total = sum(ticks)
            times[int(name[3:])] = ((total - ticks[3] - ticks[4]) * TICK_S, total * TICK_S)
    return {cpu: value for cpu, value in times.items() if cpu in cpus} or times


def _pressure_s(text: str | None) -> float | None:
    for line in (text or "").splitlines():
        if line.startswith("some ") and "total=" in line:
            return int(line.rpartition("total=")[2]) / 1e6
    return None


def _fraction(value: float) -> float:
    return min(1.0, max(0.0, value))

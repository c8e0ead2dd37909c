"""CPU quota and memory limits of a process, its control groups (version 1 and 2) considered.

Runs in: parent and child. Containers and batch systems limit a job by control groups, which `os.cpu_count()`, the CPU
affinity and `/proc/meminfo` know nothing of; every ancestor of a group may set a limit of its own.
*Not covered*: the rest of the host (`objectives.host`), what was used over time (`objectives.counters`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct", "memory")

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as a number near 2^63; nothing real reaches 2^60."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The tightest CPU quota: how many CPUs' worth of time, and the group that sets it."""

    cpus: float
    directory: Path


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A memory limit and the group that sets it."""

    limit_bytes: int
    directory: Path


def read_text(path: Path) -> str | None:
    """Return a small file's text, or None where this kernel or this user has it not."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def group_directories(root: Path = Path("/"), pid: int | None = None) -> tuple[Path, ...]:
    """Return the process's groups that can limit CPU or memory, each before its ancestors, mount point last.

    Inside a container the path in `/proc/PID/cgroup` may be the host's; what lies outside the mount is cut off.

    Args:
        root: Where `/proc` and `/sys` are found.
        pid: None is this process.
    """
    groups = _groups(read_text(root / "proc" / str(pid or "self") / "cgroup") or "")
    found: dict[Path, None] = {}
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, options = left.split(), right.split()
        if len(fields) < 5 or len(options) < 3 or options[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = [""] if options[0] == "cgroup2" else options[2].split(",")
        path = next((groups[name] for name in controllers if name in groups), None)
        if path is not None:
            mount = root / fields[4].lstrip("/")
            found.update(dict.fromkeys(_chain(mount, fields[3], path)))
    return tuple(found)


def _groups(text: str) -> dict[str, str]:
    """Return the group's path per controller; the empty name is version 2."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            if name == "" or name in CONTROLLERS:
                groups[name] = path
    return groups


def _chain(mount: Path, mount_root: str, path: str) -> Iterator[Path]:
    inside = path == mount_root or path.startswith(mount_root.rstrip("/") + "/")
    relative = os.path.relpath(path, mount_root) if inside and ".." not in path else "."
    directory = mount / relative
    while directory != mount:
        yield directory
        directory = directory.parent
    yield mount


def cpu_quota(directories: Iterable[Path]) -> Quota | None:
    """Return the tightest CPU quota, or None if there is none."""
    quotas = []
    for directory in directories:
        fields = (read_text(directory / "cpu.max") or "").split()
        if not fields:
            quota = (read_text(directory / "cpu.cfs_quota_us") or "").split()
            fields = quota + (read_text(directory / "cpu.cfs_period_us") or "").split()
        if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[0]) and int(fields[1]):
            quotas.append(Quota(int(fields[0]) / int(fields[1]), directory))
    return min(quotas, key=lambda quota: quota.cpus, default=None)


def cpu_used_s(quota: Quota, directories: Iterable[Path]) -> float | None:
    """Return the CPU time used so far by the group that sets the quota.

    Version 1 may account in another hierarchy; then it is the process's own group, a part of the limited one.
    """
    usage = _field(read_text(quota.directory / "cpu.stat"), "usage_usec")
    if usage is not None:
        return usage / 1e6
    for directory in (quota.directory, *directories):
        text = read_text(directory / "cpuacct.usage")
        if text is not None and text.strip().isdigit():
            return int(text) / 1e9
    return None


def memory_limits(directories: Iterable[Path]) -> tuple[MemoryLimit, ...]:
    """Return every memory limit that is set, a group's own before its ancestors'."""
    limits = []
    for directory in directories:
        text = read_text(directory / "memory.max") or read_text(directory / "memory.limit_in_bytes") or ""
        if text.strip().isdigit() and int(text) < NO_LIMIT_BYTES:
            limits.append(MemoryLimit(int(text), directory))
    return tuple(limits)


def memory_used_bytes(limit: MemoryLimit) -> int | None:
    """Return what counts against a limit and cannot be dropped at once: usage less the inactive file cache."""
    directory = limit.directory
    text = read_text(directory / "memory.current") or read_text(directory / "memory.usage_in_bytes") or ""
    if not text.strip().isdigit():
        return None
    stat = read_text(directory / "memory.stat")
    cache = _field(stat, "total_inactive_file")
    if cache is None:
        cache = _field(stat, "inactive_file")
    return max(0, int(text) - (cache or 0))


def meminfo_bytes(root: Path, name: str) -> int:
    """Return one figure of `/proc/meminfo`, such as `MemTotal`; 0 if it is not there."""
    found = re.search(rf"^{name}:\s+(\d+) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def memory_levels(root: Path, limits: Iterable[MemoryLimit]) -> list[tuple[int, int]]:
    """Return total and available bytes of the host and of every limited control group."""
    levels = []
    total = meminfo_bytes(root, "MemTotal")
    if total:
        levels.append((total, meminfo_bytes(root, "MemAvailable")))
    for limit in limits:
        used = memory_used_bytes(limit)
        if used is not None:
            levels.append((limit.limit_bytes, max(0, limit.limit_bytes - used)))
    return levels


def pressure_file(directories: Iterable[Path], root: Path = Path("/")) -> Path | None:
    """Return where the kernel tells CPU pressure: of the process's own group, else of the whole host.

    The group's is what this job suffered, throttling by its quota included; the host's counts strangers too.
    """
    candidates = [*(directory / "cpu.pressure" for directory in directories), root / "proc/pressure/cpu"]
    return next((path for path in candidates if (read_text(path) or "").startswith("some ")), None)


def _field(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None

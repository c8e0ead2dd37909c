"""The CPU time of a process and of everything it started, so that others' load is not held against it.

Runs in: child. Read before and after the timed steps, never between them: finding the descendants walks all of
`/proc`, a few milliseconds.
*Not covered*: how busy the CPUs are by whomever (`objectives.counters`).
"""

from __future__ import annotations

import contextlib
import os

import psutil

from objectives.counters import Counters


def tree_cpu_s(pid: int | None = None) -> float:
    """Return the CPU time that a process, its living descendants and those already reaped have used so far, in seconds.

    A worker's time moves when it ends: from the worker to the reaped children of the process that waited for it. Both
    places are summed at every level, so it is counted once, before and after, and a zombie still tells its own. A
    descendant that ends within the reading is left out; one whose parent dies first leaves the tree with its time.

    Args:
        pid: None is this process.
    """
    root = psutil.Process(pid or os.getpid())
    total_s = _with_reaped_s(root)
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total_s += _with_reaped_s(process)
    return total_s


def own_fraction(before: Counters, after: Counters, used_s: float) -> float | None:
    """Return `used_s` of CPU time as a share of the usable CPUs between two readings; None without time between them.

    Usable is the affinity or the quota, whichever is less, as in `cpu_busy_fraction`'s quota part.
    """
    wall_s = after.t_s - before.t_s
    cpus = float(len(after.cpus))
    if after.quota_cpus:
        cpus = min(cpus or after.quota_cpus, after.quota_cpus)
    if wall_s <= 0 or cpus <= 0:
        return None
    return min(1.0, max(0.0, used_s / (cpus * wall_s)))


def _with_reaped_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)

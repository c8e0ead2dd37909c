"""Is this host fit to measure? The checks, pure.

Runs in: parent. *Not covered*: what they look at (`objectives.host`, `tuner.doctor_facts`), whether the data set and
the model are usable (`objectives.workload`), printing.
"""

from __future__ import annotations

import os
import re

from objectives.host import HostInfo, find_gpu, read_host
from tuner.checks import Check, Status
from tuner.doctor_facts import Facts, read_facts
from tuner.wording import percent, size_text

GIB = 2**30

SMALL_SHM_BYTES = GIB
"""Docker gives a container 64 MiB; 16 workers with 8 batches of 8 MiB each fill a GiB."""

OPEN_FILES = 1024
"""Each tensor on its way from a worker holds a file descriptor: 3 per batch, times workers and prefetch."""

BUSY_FRACTION = 0.25
"""Of the usable CPUs before anything is started; what others use is missing in every trial, and not equally."""

LITTLE_MEMORY_FRACTION = 0.25
NO_MEMORY_BYTES = GIB // 2
"""A process that has imported PyTorch, Transformers and PEFT holds 0.35 to 0.6 GB."""

SWAP_BYTES = GIB // 4
"""Desktops park some idle pages in swap without harm."""

TMPDIR_CHARACTERS = 70
"""A socket's path may have 107 and multiprocessing adds 32; with a longer one workers hang without a word."""

LITTLE_DISK_BYTES = GIB
NO_DISK_BYTES = 64 * 2**20
"""A study of 30 trials takes a few MB; the database needs room for its log too."""

TESTED: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "torch": ((2, 4), (2, 13)),
    "transformers": ((4, 57), (5, 19)),
    "peft": ((0, 18), (0, 20)),
    "scipy": ((1, 11), (1, 17)),
}
"""Oldest version that is supported (as the package requires) and newest that was tested (as `constraints.txt` pins)."""


def diagnose(device: str, storage: str) -> tuple[Check, ...]:
    """Return the checks of this host now; takes half a second to see how busy it is.

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        storage: Path or URL of the database.

    Raises:
        UserError: If a GPU is asked for that is not there, or `storage` names no database.
    """
    host = read_host()
    return examine(host, read_facts(find_gpu(device, host), storage))


def busy(host: HostInfo, device: str, storage: str) -> tuple[Check, ...]:
    """Return what else takes CPUs or the GPU now, as checks that did not pass; takes half a second.

    Args:
        host: This host.
        device: `cpu` or a GPU's UUID.
        storage: Path or URL of the database.
    """
    facts = read_facts(device, storage)
    checks = (_cpu_idle(host, facts), *([_gpu_free(host, facts)] if device != "cpu" else []))
    return tuple(check for check in checks if check.status != "ok")


def examine(host: HostInfo, facts: Facts) -> tuple[Check, ...]:
    """Return every check, passed ones too, in the order of a report."""
    return (
        _gpu(host),
        *([_gpu_free(host, facts)] if facts.device != "cpu" else []),
        _quota(host),
        _cpu_idle(host, facts),
        _memory(host),
        _swap(host),
        _shm(host),
        _open_files(host),
        _tmpdir(facts),
        _start_method(facts),
        _disk(facts),
        *(_package(name, host) for name in TESTED),
    )


def _gpu(host: HostInfo) -> Check:
    names = ", ".join(f"{gpu.name} {size_text(gpu.memory_bytes)}" for gpu in host.gpus)
    if not host.gpus:
        return Check(
            "gpu", "warn", None, None, "", "no GPU is visible",
            "train on the machine that has it; on a CPU only the embedded example makes sense: "
            "in Docker use --gpus all, else see nvidia-smi and CUDA_VISIBLE_DEVICES",
        )  # fmt: skip
    if host.versions.get("torch", "").endswith("+cpu"):
        return Check(
            "gpu", "warn", names, None, "", f"{names}, but this PyTorch is built for CPUs only",
            "pip install torch --force-reinstall, from the index for your CUDA version",
        )  # fmt: skip
    return Check("gpu", "ok", names, None, "", f"{names}, driver {host.gpus[0].driver}")


def _gpu_free(host: HostInfo, facts: Facts) -> Check:
    if not facts.gpu_processes:
        return Check("gpu_free", "ok", 0, 0, "", "nothing else computes on the GPU")
    users = ", ".join(
        f"pid {process.pid}" + (f" ({size_text(process.memory_bytes)})" if process.memory_bytes is not None else "")
        for process in facts.gpu_processes
    )
    return Check(
        "gpu_free", "warn", len(facts.gpu_processes), 0, "", f"the GPU is in use: {users}",
        "end it or wait for it: it takes the speed and the memory that are measured",
    )  # fmt: skip


def _quota(host: HostInfo) -> Check:
    quota = host.quota_cpus
    if quota is None or quota >= host.affinity_cpus:
        message = f"{host.usable_cpus} usable CPUs ({host.physical_cores} physical cores), no quota below them"
        return Check("cpu_quota", "ok", host.usable_cpus, host.affinity_cpus, "cpus", message)
    return Check(
        "cpu_quota", "warn", quota, host.affinity_cpus, "cpus",
        f"a cgroup quota allows {quota:g} of {host.affinity_cpus} CPUs; programs that count CPUs see all of them",
        f"set OMP_NUM_THREADS={host.usable_cpus} for your training too, or raise the quota (docker --cpus)",
    )  # fmt: skip


def _cpu_idle(host: HostInfo, facts: Facts) -> Check:
    busy, source = facts.cpu_busy_fraction, "the usable CPUs are"
    if busy is None and facts.load_average is not None:
        busy, source = facts.load_average / host.usable_cpus, "by the load average the usable CPUs are"
    if busy is None:
        return Check("cpu_idle", "ok", None, BUSY_FRACTION, "fraction", "this host does not tell how busy it is")
    message = f"{source} {percent(busy)} busy before anything is started"
    if busy <= BUSY_FRACTION:
        return Check("cpu_idle", "ok", busy, BUSY_FRACTION, "fraction", message)
    return Check("cpu_idle", "warn", busy, BUSY_FRACTION, "fraction", message, "see `top`; measure when it is quiet")


def _memory(host: HostInfo) -> Check:
    available = host.memory_available_bytes
    enough = LITTLE_MEMORY_FRACTION * host.memory_bytes
    message = f"{size_text(available)} of {size_text(host.memory_bytes)} of memory available"
    status: Status = "fail" if available < NO_MEMORY_BYTES else "warn" if available < enough else "ok"
    threshold = NO_MEMORY_BYTES if status == "fail" else enough
    advice = "" if status == "ok" else "end other programs, or raise the container's limit (docker --memory)"
    return Check("memory", status, available, threshold, "bytes", message, advice)


def _swap(host: HostInfo) -> Check:
    used = host.swap_used_bytes
    status: Status = "warn" if used > SWAP_BYTES else "ok"
    advice = (
        "free memory before measuring: a step stalls while its pages come back from disk" if used > SWAP_BYTES else ""
    )
    return Check("swap", status, used, SWAP_BYTES, "bytes", f"{size_text(used)} of swap in use", advice)


def _shm(host: HostInfo) -> Check:
    free = host.shm_free_bytes
    message = f"{size_text(free)} of {size_text(host.shm_bytes)} free in /dev/shm"
    if free >= SMALL_SHM_BYTES:
        return Check("shm", "ok", free, SMALL_SHM_BYTES, "bytes", message)
    return Check(
        "shm", "warn" if host.shm_bytes else "fail", free, SMALL_SHM_BYTES, "bytes",
        message if host.shm_bytes else "there is no /dev/shm: workers cannot hand over batches",
        "in Docker use --shm-size=8g or --ipc=host, else `sudo mount -o remount,size=8g /dev/shm`",
    )  # fmt: skip


def _open_files(host: HostInfo) -> Check:
    limit = host.open_files_limit
    message = f"{limit} open files allowed" if limit < 2**31 else "open files are not limited"
    if limit >= OPEN_FILES:
        return Check("open_files", "ok", limit, OPEN_FILES, "files", message)
    return Check("open_files", "warn", limit, OPEN_FILES, "files", message, "ulimit -n 4096")


def _tmpdir(facts: Facts) -> Check:
    length = len(os.fsencode(facts.tmpdir))
    message = f"the directory for temporary files, {facts.tmpdir}, has {length} characters"
    if length <= TMPDIR_CHARACTERS:
        return Check("tmpdir", "ok", length, TMPDIR_CHARACTERS, "characters", message)
    return Check(
        "tmpdir", "warn", length, TMPDIR_CHARACTERS, "characters",
        f"{message}; slices use /tmp, but workers of your own training will hang", "export TMPDIR=/tmp",
    )  # fmt: skip


def _start_method(facts: Facts) -> Check:
    method = facts.start_method
    message = f"Python starts workers by {method}"
    if method == "fork":
        return Check("start_method", "ok", method, "fork", "", message)
    return Check(
        "start_method", "warn", method, "fork", "",
        f"{message}: each imports PyTorch anew, which takes seconds per worker and epoch",
        "prefer persistent workers, or train with Python 3.13 or older",
    )  # fmt: skip


def _disk(facts: Facts) -> Check:
    free = facts.disk_free_bytes
    if free is None:
        return Check("disk", "ok", None, LITTLE_DISK_BYTES, "bytes", "the database is on a server")
    message = f"{size_text(free)} of disk free for the database in {facts.database_directory}"
    status: Status = "fail" if free < NO_DISK_BYTES else "warn" if free < LITTLE_DISK_BYTES else "ok"
    threshold = NO_DISK_BYTES if status == "fail" else LITTLE_DISK_BYTES
    advice = "" if status == "ok" else "free some space, or name another place: --storage PATH"
    return Check("disk", status, free, threshold, "bytes", message, advice)


def _package(name: str, host: HostInfo) -> Check:
    oldest, newest = TESTED[name]
    tested = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    version = host.versions.get(name)
    install = f"pip install '{name}>={oldest[0]}.{oldest[1]}'"
    if version is None:
        return Check(name, "fail", None, tested, "version", f"{name} is not installed", install)
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if release < oldest:
        return Check(name, "fail", version, tested, "version", f"{name} {version} is older than {tested}", install)
    if release > newest:
        advice = f"if slices fail: pip install '{name}=={newest[0]}.{newest[1]}.*'"
        return Check(name, "warn", version, tested, "version", f"{name} {version} is newer than tested", advice)
    return Check(name, "ok", version, tested, "version", f"{name} {version}")

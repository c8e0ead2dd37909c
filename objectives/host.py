"""What this host offers a training job: CPUs, memory, GPUs and versions, as limited for this process.

Runs in: parent and child. Read once before measuring and stored with the study; only what `identity` names must stay
equal for measurements to compare.
*Not covered*: how busy the host is (`objectives.load`, `objectives.counters`), what follows from it (`tuner.bounds`).
"""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from objectives.cgroup import (
    cpu_quota,
    group_directories,
    meminfo_bytes,
    memory_levels,
    memory_limits,
    read_text,
)
from objectives.errors import EXIT_HOST, UserError
from objectives.gpu import GpuInfo, read_gpus

PACKAGES = ("torch", "transformers", "peft", "accelerate", "ms-swift", "optuna", "scipy")


@dataclass(frozen=True, slots=True)
class HostInfo:
    """The host as this process may use it. `quota_cpus` is None without a CPU quota."""

    hostname: str
    cpu_model: str
    logical_cpus: int
    affinity_cpus: int
    quota_cpus: float | None
    usable_cpus: int
    """Whole CPUs within both affinity and quota, at least 1."""
    physical_cores: int
    """Cores the CPUs of the affinity lie on."""
    memory_bytes: int
    memory_available_bytes: int
    shm_bytes: int
    """Size of `/dev/shm`, through which workers hand over batches; 0 if there is none."""
    shm_free_bytes: int
    swap_used_bytes: int
    open_files_limit: int
    gpus: tuple[GpuInfo, ...]
    versions: dict[str, str]
    """Of the packages installed for this interpreter; one that is missing is left out."""
    kernel: str
    python: str


def read_host(root: Path = Path("/"), affinity: Iterable[int] | None = None) -> HostInfo:
    """Return what is there now. Never raises: what cannot be read is counted as absent.

    Args:
        root: Where `/proc`, `/sys` and `/dev/shm` are found.
        affinity: CPU numbers; None asks the kernel for this process's.
    """
    cpus = sorted(os.sched_getaffinity(0) if affinity is None else affinity)
    directories = group_directories(root)
    quota = cpu_quota(directories)
    quota_cpus = quota.cpus if quota else None
    levels = memory_levels(root, memory_limits(directories))
    shm_bytes, shm_free_bytes = shm_space(root)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HostInfo(
        hostname=platform.node(),
        cpu_model=_cpu_model(root),
        logical_cpus=os.cpu_count() or len(cpus),
        affinity_cpus=len(cpus),
        quota_cpus=quota_cpus,
        usable_cpus=usable(len(cpus), quota_cpus),
        physical_cores=_physical_cores(root, cpus),
        memory_bytes=min((total for total, _ in levels), default=0),
        memory_available_bytes=min((available for _, available in levels), default=0),
        shm_bytes=shm_bytes,
        shm_free_bytes=shm_free_bytes,
        swap_used_bytes=max(0, meminfo_bytes(root, "SwapTotal") - meminfo_bytes(root, "SwapFree")),
        open_files_limit=sys.maxsize if soft == resource.RLIM_INFINITY else soft,
        gpus=read_gpus(),
        versions=installed_versions(),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def usable(affinity_cpus: int, quota_cpus: float | None) -> int:
    """Return the whole CPUs a job can keep busy: the smaller of affinity and quota, at least 1."""
    return max(1, math.floor(min(affinity_cpus, quota_cpus or affinity_cpus)))


def identity(host: HostInfo, device: str | None = None) -> dict[str, str | int | None]:
    """Return the parts of a host that must be equal for two measurements to compare.

    Memory is in whole GiB, because kernels of one machine differ by some MB.

    Args:
        host: As `read_host` gives it.
        device: `cpu` or the UUID of the GPU in use, so that other cards do not matter; None counts all visible ones.
    """
    gpus = [gpu for gpu in host.gpus if device is None or gpu.uuid == device]
    return {
        "cpu_model": host.cpu_model,
        "usable_cpus": host.usable_cpus,
        "memory_gib": round(host.memory_bytes / 2**30),
        "gpu": ", ".join(f"{gpu.name} {round(gpu.memory_bytes / 2**30)} GiB" for gpu in gpus) or None,
        **{name: host.versions.get(name) for name in ("torch", "transformers", "peft")},
    }


def find_gpu(device: str, host: HostInfo) -> str:
    """Return `cpu`, or the UUID of the GPU a user means.

    `auto` is the first visible GPU, and the CPU without one or with a PyTorch built for CPUs only.

    Args:
        device: `auto`, `cpu`, `cuda`, `cuda:N` (N counts the visible GPUs) or a UUID.
        host: Its `versions` must be those of the interpreter that trains.

    Raises:
        UserError: If the GPU is not there, or the device is none of these.
    """
    if device == "cpu":
        return "cpu"
    if device == "auto":
        cpu_build = host.versions.get("torch", "").endswith("+cpu")
        return "cpu" if cpu_build or not host.gpus else host.gpus[0].uuid
    by_name = {f"cuda:{gpu.index}": gpu.uuid for gpu in host.gpus} | {gpu.uuid: gpu.uuid for gpu in host.gpus}
    wanted = "cuda:0" if device == "cuda" else device
    if wanted in by_name:
        return by_name[wanted]
    if not re.fullmatch(r"cuda:\d+|(GPU|MIG)-.+", wanted):
        raise UserError(
            f"--device {device} is not a device",
            "Known are auto, cpu, cuda, cuda:N and the UUID of an NVIDIA GPU.",
            "--device auto",
        )
    there = ", ".join(f"cuda:{gpu.index} ({gpu.name})" for gpu in host.gpus)
    hidden = "CUDA_VISIBLE_DEVICES" in os.environ
    raise UserError(
        f"--device {device}: no such GPU",
        (f"Visible here: {there}." if there else "No GPU is visible here through NVIDIA's driver.")
        + (f" CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']!r}." if hidden else ""),
        "--device cuda:0" if there else "--device cpu",
        exit_code=EXIT_HOST,
    )


def shm_space(root: Path = Path("/")) -> tuple[int, int]:
    """Return size and free bytes of `/dev/shm`; zeros if there is none."""
    try:
        space = os.statvfs(root / "dev/shm")
    except OSError:
        return 0, 0
    return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize


def installed_versions(names: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of those packages that are installed, without importing them."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_model(root: Path) -> str:
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", read_text(root / "proc/cpuinfo") or "", re.M)
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def _physical_cores(root: Path, cpus: list[int]) -> int:
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        # Each CPU names all CPUs of its core, itself included; the file has had two names.
        siblings = read_text(topology / "core_cpus_list") or read_text(topology / "thread_siblings_list")
        if siblings is None:
            return min(psutil.cpu_count(logical=False) or len(cpus), len(cpus))
        cores.add(siblings.strip())
    return len(cores)

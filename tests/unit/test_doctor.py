from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosts import GIB, a_host

from objectives.gpu import GpuProcess
from tuner.checks import Check
from tuner.doctor import TESTED, examine
from tuner.doctor_facts import Facts, database_directory

QUIET = Facts(
    cpu_busy_fraction=0.02,
    load_average=0.1,
    tmpdir="/tmp",
    start_method="fork",
    device="GPU-aaaa",
    gpu_processes=(),
    database_directory="/home/me",
    disk_free_bytes=100 * GIB,
)
PROJECT = Path(__file__).parents[2]


def found(code: str, host: dict[str, Any] | None = None, **facts: Any) -> Check:
    """Return one check of a quiet desktop that differs in these things."""
    checks = examine(a_host(**(host or {})), replace(QUIET, **facts))
    return next(check for check in checks if check.code == code)


def test_a_quiet_desktop_passes_every_check() -> None:
    """Nothing to say means no warning and no advice, and every code is there once."""
    checks = examine(a_host(), QUIET)
    assert [(check.code, check.status, check.advice) for check in checks] == [
        (code, "ok", "")
        for code in (
            "gpu", "gpu_free", "cpu_quota", "cpu_idle", "memory", "swap", "shm", "open_files", "tmpdir",
            "start_method", "disk", "torch", "transformers", "peft", "scipy",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "host", "facts", "status", "advice"),
    [
        ("gpu", {"gpus": ()}, {"device": "cpu"}, "warn", "--gpus all"),
        ("gpu", {"versions": {"torch": "2.13.0+cpu"}}, {}, "warn", "pip install"),
        ("gpu_free", {}, {"gpu_processes": (GpuProcess(7, 3 * GIB),)}, "warn", "wait"),
        ("cpu_quota", {"quota_cpus": 4.0}, {}, "warn", "OMP_NUM_THREADS=4"),
        ("cpu_idle", {}, {"cpu_busy_fraction": 0.6}, "warn", "top"),
        ("cpu_idle", {}, {"cpu_busy_fraction": None, "load_average": 12.0}, "warn", "top"),
        ("memory", {"memory_available_bytes": 2 * GIB}, {}, "warn", "docker --memory"),
        ("memory", {"memory_available_bytes": GIB // 4}, {}, "fail", "docker --memory"),
        ("swap", {"swap_used_bytes": GIB}, {}, "warn", "memory"),
        ("shm", {"shm_bytes": 64 * 2**20, "shm_free_bytes": 64 * 2**20}, {}, "warn", "--shm-size"),
        ("shm", {"shm_bytes": 0, "shm_free_bytes": 0}, {}, "fail", "--shm-size"),
        ("open_files", {"open_files_limit": 256}, {}, "warn", "ulimit -n"),
        ("tmpdir", {}, {"tmpdir": "/" + "x" * 70}, "warn", "TMPDIR"),
        ("start_method", {}, {"start_method": "forkserver"}, "warn", "persistent"),
        ("disk", {}, {"disk_free_bytes": GIB // 2}, "warn", "--storage"),
        ("disk", {}, {"disk_free_bytes": 1}, "fail", "--storage"),
        ("scipy", {"versions": {}}, {}, "fail", "pip install 'scipy>=1.11'"),
        ("torch", {"versions": {"torch": "2.3.1"}}, {}, "fail", "pip install 'torch>=2.4'"),
        ("peft", {"versions": {"peft": "1.0.0"}}, {}, "warn", "peft==0.20"),
    ],
)
def test_what_is_wrong_is_named_with_advice(
    code: str, host: dict[str, Any], facts: dict[str, Any], status: str, advice: str
) -> None:
    """Each trouble has its code, its weight and a way out."""
    check = found(code, host, **facts)
    assert check.status == status
    assert advice in check.advice


def test_a_gpu_user_is_named_with_its_memory() -> None:
    """The one who disturbs is named, so that it can be ended; hidden memory is left out."""
    check = found("gpu_free", gpu_processes=(GpuProcess(7, 3 * GIB), GpuProcess(8, None)))
    assert check.message == "the GPU is in use: pid 7 (3 GiB), pid 8"


def test_limits_are_inclusive() -> None:
    """Seventy characters and 1024 files are enough; a path counts in bytes, as the kernel does."""
    assert found("tmpdir", tmpdir="/" + "x" * 69).status == "ok"
    assert found("tmpdir", tmpdir="/" + "é" * 35).status == "warn"
    assert found("open_files", {"open_files_limit": 1024}).status == "ok"


def test_what_cannot_be_told_is_no_trouble() -> None:
    """A database on a server and a kernel without counters pass."""
    assert found("disk", database_directory=None, disk_free_bytes=None).status == "ok"
    assert found("cpu_idle", cpu_busy_fraction=None, load_average=None).status == "ok"


@pytest.mark.parametrize("name", TESTED)
def test_tested_versions_are_those_of_the_project(name: str) -> None:
    """The oldest is what the package requires and the newest what is pinned."""
    oldest, newest = TESTED[name]
    required = re.search(rf'"{name}>=(\d+)\.(\d+)', (PROJECT / "pyproject.toml").read_text())
    pinned = re.search(rf"^{name}==(\d+)\.(\d+)", (PROJECT / "constraints.txt").read_text(), re.MULTILINE)
    assert required is not None
    assert pinned is not None
    assert (oldest, newest) == ((int(required[1]), int(required[2])), (int(pinned[1]), int(pinned[2])))


def test_the_disk_is_where_the_database_goes(tmp_path: Path) -> None:
    """The nearest directory that exists counts; a server has none."""
    assert database_directory(str(tmp_path / "not" / "yet.db")) == tmp_path
    assert database_directory(f"sqlite:///{tmp_path}/tuner.db") == tmp_path
    assert database_directory("postgresql://me@host/studies") is None

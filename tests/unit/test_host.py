from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hosts import GIB, RTX, a_host

from objectives.cgroup import cpu_quota, cpu_used_s, group_directories, memory_limits, pressure_file
from objectives.counters import Counters, CpuUse, ThreadTimes, cpu_source, difference, read_counters, read_thread_times
from objectives.errors import UserError
from objectives.gpu import GpuInfo, GpuProbe, gpu_processes, read_gpus, visible_uuids
from objectives.host import find_gpu, identity, read_host

PSI = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
V2_MOUNT = "30 20 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = "".join(
    f"{number} 20 0:{number} {{root}} /sys/fs/cgroup/{name} rw shared:9 - cgroup cgroup rw,{name}\n"
    for number, name in ((40, "cpu,cpuacct"), (41, "memory"))
)


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root and return it."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def machine(root: Path, cpus: int = 4) -> Path:
    """Write a machine of 8 GiB whose CPUs share cores in pairs: 0 with 1, 2 with 3."""
    topology = {
        f"sys/devices/system/cpu/cpu{n}/topology/core_cpus_list": f"{n // 2 * 2}-{n // 2 * 2 + 1}\n"
        for n in range(cpus)
    }
    memory = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n"
    files = {"proc/meminfo": memory, "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some  CPU @ 3 GHz\n"}
    return write(root, {**topology, **files})


def v2(root: Path, path: str, files: dict[str, str], mount_root: str = "/") -> Path:
    """Write a process in a version 2 group with these files below the mount point."""
    groups = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    mounts = V2_MOUNT.format(root=mount_root)
    return write(root, {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": mounts, **groups})


def test_the_tightest_ancestor_limits_in_version_2(tmp_path: Path) -> None:
    """A quota and a memory limit count wherever in the chain they are set; inactive file cache is free memory."""
    machine(tmp_path)
    files = {
        "job/step/cpu.max": "max 100000\n",
        "job/cpu.max": "250000 100000\n",
        "cpu.max": "300000 100000\n",
        "job/memory.max": f"{4 * GIB}\n",
        "job/memory.current": f"{3 * GIB}\n",
        "job/memory.stat": f"anon 5\ninactive_file {GIB}\n",
        "job/step/memory.max": "max\n",
    }
    host = read_host(v2(tmp_path, "/job/step", files), affinity=range(4))
    assert (host.quota_cpus, host.usable_cpus, host.affinity_cpus) == (2.5, 2, 4)
    assert (host.memory_bytes, host.memory_available_bytes) == (4 * GIB, 2 * GIB)


def test_the_tightest_ancestor_limits_in_version_1(tmp_path: Path) -> None:
    """Version 1 limits by other files; -1 and a number near 2^63 are no limit."""
    machine(tmp_path)
    groups = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "150000\n",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/job/cpuacct.usage": "2500000000\n",
        "memory/job/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.limit_in_bytes": f"{2 * GIB}\n",
        "memory/memory.usage_in_bytes": f"{GIB}\n",
        "memory/memory.stat": f"inactive_file 7\ntotal_inactive_file {GIB // 2}\n",
    }
    files = {f"sys/fs/cgroup/{name}": text for name, text in groups.items()}
    files |= {"proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/job\n"}
    files |= {"proc/self/mountinfo": V1_MOUNTS.format(root="/")}
    host = read_host(write(tmp_path, files), affinity=range(4))
    assert (host.quota_cpus, host.usable_cpus) == (1.5, 1)
    assert (host.memory_bytes, host.memory_available_bytes) == (2 * GIB, int(1.5 * GIB))
    directories = group_directories(tmp_path)
    quota = cpu_quota(directories)
    assert quota is not None
    assert cpu_used_s(quota, directories) == 2.5


@pytest.mark.parametrize(
    ("path", "mount_root"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/", "/"), ("/../other", "/")]
)
def test_a_container_finds_its_limit_at_the_mount_point(tmp_path: Path, path: str, mount_root: str) -> None:
    """Whatever path the container is told, its own group is what is mounted."""
    v2(tmp_path, path, {"cpu.max": "100000 100000\n"}, mount_root)
    quota = cpu_quota(group_directories(tmp_path))
    assert quota is not None
    assert quota.cpus == 1.0


def test_cores_are_counted_within_the_affinity(tmp_path: Path) -> None:
    """Two CPUs of one core are one core; without a topology at least the host is described."""
    assert read_host(machine(tmp_path), affinity=[0, 1, 2]).physical_cores == 2
    assert read_host(tmp_path, affinity=[2, 3]).physical_cores == 1
    assert 1 <= read_host(tmp_path / "nothing", affinity=[0]).physical_cores <= 1


def test_a_host_that_tells_nothing_is_still_read(tmp_path: Path) -> None:
    """No /proc, /sys or /dev/shm: zeros and None, no error."""
    host = read_host(tmp_path, affinity=[0, 1])
    assert (host.usable_cpus, host.quota_cpus, host.memory_bytes, host.shm_bytes) == (2, None, 0, 0)
    assert memory_limits(group_directories(tmp_path)) == ()
    assert pressure_file((), tmp_path) is None


def test_host_figures_come_in_bytes(tmp_path: Path) -> None:
    """Kilobytes of /proc/meminfo become bytes and the name of the CPU loses its padding."""
    host = read_host(machine(tmp_path), affinity=[0])
    assert (host.memory_bytes, host.memory_available_bytes, host.swap_used_bytes) == (8 * GIB, 6 * GIB, 1024 * 1024)
    assert host.cpu_model == "Some CPU @ 3 GHz"


def test_identity_ignores_what_does_not_change_a_measurement() -> None:
    """Host name, free memory, kernel and a few MB more are no other host; another card or PyTorch is."""
    host = a_host()
    same = a_host(hostname="other", memory_available_bytes=1, kernel="7", memory_bytes=64 * GIB + 10**7)
    assert identity(same) == identity(host)
    assert identity(a_host(versions={**host.versions, "torch": "2.12.0"})) != identity(host)
    assert identity(a_host(gpus=())) != identity(host)
    assert identity(host)["gpu"] == "NVIDIA GeForce RTX 4090 D 24 GiB"
    assert identity(host, "cpu")["gpu"] is None


TWO = a_host(gpus=(RTX, GpuInfo(1, "GPU-bbbb", "H200", 141 * GIB, "570.00")))


@pytest.mark.parametrize(
    ("device", "found"),
    [("auto", "GPU-aaaa"), ("cpu", "cpu"), ("cuda", "GPU-aaaa"), ("cuda:1", "GPU-bbbb"), ("GPU-bbbb", "GPU-bbbb")],
)
def test_a_device_becomes_a_uuid(device: str, found: str) -> None:
    """Every way to name a device leads to `cpu` or one UUID."""
    assert find_gpu(device, TWO) == found


def test_auto_falls_back_to_the_cpu() -> None:
    """Without a GPU, or with a PyTorch that could not use it, `auto` is the CPU."""
    assert find_gpu("auto", a_host(gpus=())) == "cpu"
    assert find_gpu("auto", a_host(versions={"torch": "2.13.0+cpu"})) == "cpu"


@pytest.mark.parametrize(
    ("device", "gpus", "exit_code", "hint"),
    [("cuda", (), 3, "--device cpu"), ("cuda:2", TWO.gpus, 3, "--device cuda:0"), ("gpu", (), 2, "--device auto")],
)
def test_a_gpu_that_is_not_there_is_refused(device: str, gpus: Any, exit_code: int, hint: str) -> None:
    """The error names the device asked for and what there is, and offers a way on."""
    with pytest.raises(UserError, match=device) as caught:
        find_gpu(device, a_host(gpus=gpus))
    assert (caught.value.exit_code, caught.value.hint) == (exit_code, hint)
    assert all(gpu.name in caught.value.why for gpu in gpus)


UUIDS = ("GPU-a1", "GPU-a2", "GPU-b3")


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, UUIDS),
        ("", ()),
        ("-1", ()),
        ("2,0", ("GPU-b3", "GPU-a1")),
        ("1,7,0", ("GPU-a2",)),
        ("0,0", ("GPU-a1",)),
        ("GPU-b,GPU-a1", ("GPU-b3", "GPU-a1")),
        ("GPU-a", ()),
        ("MIG-x", ("MIG-x",)),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, found: tuple[str, ...]) -> None:
    """Order is kept, a prefix must be unique, and the first bad entry ends the list."""
    assert visible_uuids(visible, UUIDS) == found


class FakeNvml:
    """Two cards; old versions of the module answer in bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.users = 0
        monkeypatch.setitem(sys.modules, "pynvml", self)

    def nvmlInit(self) -> None:  # noqa: D102
        self.users += 1

    def nvmlShutdown(self) -> None:  # noqa: D102
        self.users -= 1

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: UUIDS.index(uuid),
            "nvmlDeviceGetUUID": lambda handle: UUIDS[handle].encode(),
            "nvmlDeviceGetName": lambda handle: b"card",
            "nvmlSystemGetDriverVersion": lambda: "570",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=24 * GIB, used=GIB),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=75),
            "NVML_CLOCK_SM": 1,
            "nvmlDeviceGetClockInfo": lambda handle, kind: 1980,
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [SimpleNamespace(pid=7, usedGpuMemory=None)],
        }
        return answers[name]


def test_gpus_are_read_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The visible card is number 0 whatever its place; NVML is released each time; an unknown GPU answers None."""
    nvml = FakeNvml(monkeypatch)
    assert read_gpus("1") == (GpuInfo(0, "GPU-a2", "card", 24 * GIB, "570"),)
    assert [process.pid for process in gpu_processes("GPU-a1")] == [7]
    probe = GpuProbe("GPU-a1")
    assert probe.read() == (0.75, GIB)
    probe.close()
    unknown = GpuProbe("GPU-zz")
    assert unknown.read() == (None, None)
    unknown.close()
    assert nvml.users == 0


@pytest.mark.parametrize(("listed", "others"), [((7,), 0), ((7, 8, 9), 2), ((), None)])
def test_the_trainer_is_one_of_those_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, listed: tuple[int, ...], others: int | None
) -> None:
    """Ids may be the host's, so one of those listed is the trainer; none listed means that the driver hides them."""
    nvml = FakeNvml(monkeypatch)
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: [SimpleNamespace(pid=pid) for pid in listed]  # type: ignore[attr-defined]
    with contextlib.closing(GpuProbe("GPU-a1")) as probe:
        assert probe.others() == others
        assert probe.clock_hz() == 1.98e9
    with contextlib.closing(GpuProbe(None)) as probe:
        assert (probe.others(), probe.clock_hz()) == (None, None)


def test_no_nvml_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is missing means no GPU and no error."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (read_gpus(), gpu_processes("GPU-a1"), GpuProbe("GPU-a1").read()) == ((), (), (None, None))


def test_package_versions_are_those_installed(tmp_path: Path) -> None:
    """Versions are read without importing; what is missing is left out."""
    versions = read_host(tmp_path, affinity=[0]).versions
    assert versions["torch"] == importlib.metadata.version("torch")
    assert all(versions.values())


def test_busy_is_the_larger_of_affinity_and_quota() -> None:
    """Half the CPUs busy but the quota used up is fully busy; the busiest CPU and pressure are apart."""
    before = Counters(10.0, {0: (5.0, 100.0), 1: (5.0, 100.0)}, 2.0, 3.0, 1.0)
    after = Counters(12.0, {0: (7.0, 102.0), 1: (5.0, 102.0)}, 2.0, 7.0, 1.5)
    assert difference(before, after) == CpuUse(1.0, 1.0, 0.25)
    assert difference(before, Counters(12.0, after.cpus)) == CpuUse(0.5, 1.0, None)
    assert difference(before, before) == CpuUse(None, None, None)


def test_only_cpus_of_the_affinity_count(tmp_path: Path) -> None:
    """Idle and waiting for the disk are not busy; CPUs out of reach are left out; pressure comes from the group."""
    stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 100 600 200 0 0 0 50 0\ncpu999 1000 0 0 0 0 0 0 0 0 0\nintr 1\n"
    v2(tmp_path, "/job", {"job/cpu.pressure": PSI.format(2_500_000), "cpu.pressure": PSI.format(9)})
    source = cpu_source(root=write(tmp_path, {"proc/stat": stat, "proc/pressure/cpu": PSI.format(7)}))
    counters = read_counters(source)
    if 0 in source.cpus:
        assert counters.cpus == {0: pytest.approx((2.0, 10.0))}
    assert counters.pressure_s == 2.5


def thread(root: Path, tid: int, name: str, schedstat: str | None, ticks: int = 0) -> None:
    """Write one thread of a process."""
    files = {f"{tid}/comm": name, f"{tid}/stat": f"{tid} (a ) b) S " + "0 " * 10 + f"{ticks} {ticks} 0 0\n"}
    write(root, files if schedstat is None else {**files, f"{tid}/schedstat": schedstat})


def test_thread_times_are_those_of_the_trainer(tmp_path: Path) -> None:
    """Main and autograd threads add up, others do not, and a thread that vanished is left out."""
    thread(tmp_path, 50, "python", "2000000000 500000000 9\n")
    thread(tmp_path, 7, "pt_autograd_0\n", "1000000000 250000000 9\n")
    thread(tmp_path, 52, "pin_memory", "9000000000 9000000000 9\n")
    (tmp_path / "53").mkdir()
    assert read_thread_times(str(tmp_path), main=50) == ThreadTimes(0.75, 3.0)


@pytest.mark.parametrize("schedstat", [None, "0 0 0\n"])
def test_cpu_time_without_schedstat(tmp_path: Path, schedstat: str | None) -> None:
    """A kernel without schedstat, or with an empty one, still tells CPU time; the delay is not known."""
    thread(tmp_path, 50, "python", schedstat, ticks=100)
    assert read_thread_times(str(tmp_path), main=50) == ThreadTimes(None, pytest.approx(2.0))

"""What NVML tells of the GPUs this process may use.

Runs in: parent and child. Everything here answers with less instead of raising: no NVML, no driver and no GPU are
ordinary. NVML is loaded on first use.
*Not covered*: CUDA itself; the trainer's process alone touches it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """One visible GPU. `index` is the N of `cuda:N`: its place among the visible ones."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU. In a container the id is the host's; memory is None if the driver hides it."""

    pid: int
    memory_bytes: int | None


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    """Give the initialised module; NVML counts its users, so this may be nested."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def read_gpus(visible: str | None = None) -> tuple[GpuInfo, ...]:
    """Return the GPUs CUDA programs would see, in that order; none without a driver.

    Args:
        visible: As `CUDA_VISIBLE_DEVICES`, which is taken when None. Numbers count in PCI bus order, as nvidia-smi
            does; CUDA's own default order differs only where the cards do.
    """
    if visible is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # A broken driver fails in many ways (a missing library, a version mismatch, a lost card): all mean "no GPU".
    with contextlib.suppress(Exception), _nvml() as nvml:
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            handles[_text(nvml.nvmlDeviceGetUUID(handle))] = handle
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        gpus = []
        for index, uuid in enumerate(visible_uuids(visible, tuple(handles))):
            handle = handles[uuid] if uuid in handles else nvml.nvmlDeviceGetHandleByUUID(uuid)
            memory_bytes = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
            gpus.append(GpuInfo(index, uuid, _text(nvml.nvmlDeviceGetName(handle)), memory_bytes, driver))
        return tuple(gpus)
    return ()


def visible_uuids(visible: str | None, uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Return which GPUs are visible, as CUDA reads the variable: the first bad or repeated entry ends the list.

    Args:
        visible: Numbers, or UUIDs cut short where they stay unique, or UUIDs of MIG parts; None hides nothing.
        uuids: Of all GPUs, in PCI bus order.
    """
    if visible is None:
        return uuids
    chosen: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal():
            matches = list(uuids[int(entry) : int(entry) + 1])
        elif entry.startswith("MIG-"):
            matches = [entry]
        else:
            matches = [uuid for uuid in uuids if entry.startswith("GPU-") and uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen.append(matches[0])
    return tuple(chosen)


def gpu_processes(uuid: str) -> tuple[GpuProcess, ...]:
    """Return who computes on this GPU now; nobody where NVML cannot tell. A desktop's drawing does not count."""
    with contextlib.suppress(Exception), _nvml() as nvml:
        found = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(uuid))
        return tuple(GpuProcess(int(process.pid), process.usedGpuMemory) for process in found)
    return ()


class GpuProbe:
    """Utilisation and memory of one GPU, read again and again with NVML kept open.

    Args:
        uuid: None, or a GPU NVML does not know, gives a probe that answers None.
    """

    def __init__(self, uuid: str | None) -> None:
        self._open = contextlib.ExitStack()
        self._nvml: Any = None
        if uuid is not None:
            with contextlib.suppress(Exception):
                nvml = self._open.enter_context(_nvml())
                self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                self._nvml = nvml

    def read(self) -> tuple[float | None, int | None]:
        """Return the utilisation fraction and the bytes in use by everyone.

        Utilisation is the share of the driver's last sampling period (1/6 to 1 s) in which any kernel ran: one small
        kernel after another reads as 100 %.
        """
        used_fraction: float | None = None
        used_bytes: int | None = None
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                used_bytes = int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)
            with contextlib.suppress(Exception):
                used_fraction = self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu / 100
        return used_fraction, used_bytes

    def clock_hz(self) -> float | None:
        """Return the clock of the multiprocessors now; a card that is hot or short of power lowers it."""
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM)) * 1e6
        return None

    def others(self) -> int | None:
        """Return how many processes besides the trainer compute on the GPU; None where NVML does not tell.

        In a container the ids are the host's and match nothing here, so the trainer is taken for one of those listed:
        call this only while it uses the GPU. An empty list then means that the driver hides them.
        """
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                listed = len(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
                return listed - 1 if listed else None
        return None

    def close(self) -> None:
        """Release NVML. May be called twice."""
        self._nvml = None
        with contextlib.suppress(Exception):
            self._open.close()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

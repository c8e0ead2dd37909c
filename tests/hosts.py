"""Hosts that are not there, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from objectives.gpu import GpuInfo
from objectives.host import HostInfo, usable

GIB = 2**30

RTX = GpuInfo(0, "GPU-aaaa", "NVIDIA GeForce RTX 4090 D", 24 * GIB, "570.00")


def a_host(**fields: Any) -> HostInfo:
    """Return a quiet desktop of 16 CPUs on 8 cores with a GPU; `usable_cpus` follows from affinity and quota."""
    desktop = HostInfo(
        hostname="desk",
        cpu_model="Ryzen",
        logical_cpus=16,
        affinity_cpus=16,
        quota_cpus=None,
        usable_cpus=16,
        physical_cores=8,
        memory_bytes=64 * GIB,
        memory_available_bytes=60 * GIB,
        shm_bytes=32 * GIB,
        shm_free_bytes=31 * GIB,
        swap_used_bytes=0,
        open_files_limit=4096,
        gpus=(RTX,),
        versions={"torch": "2.13.0", "transformers": "5.19.0", "peft": "0.20.0", "scipy": "1.17.1"},
        kernel="6.1",
        python="3.11.7",
    )
    host = replace(desktop, **fields)
    return replace(host, usable_cpus=usable(host.affinity_cpus, host.quota_cpus))

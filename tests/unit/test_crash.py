"""Crashes are named by evidence: exit codes before fill levels before text."""

from __future__ import annotations

import signal

import pytest

from objectives.crash import Evidence, classify

CASES = {
    "SIGKILL, memory full": (Evidence("train", worker_exits=(-9,), peak_memory_fraction=0.97), "host_oom", "config"),
    "SIGKILL, room left": (Evidence("train", worker_exits=(-9,), peak_memory_fraction=0.4), "worker_killed", "config"),
    "SIGBUS": (Evidence("train", worker_exits=(-7,)), "shm_full", "config"),
    "shm text": (
        Evidence("drain", exception="RuntimeError", message="unable to allocate shared memory(shm) for file </t>"),
        "shm_full", "config",
    ),
    "segmentation fault behind a broken pipe": (
        Evidence("train", exception="ConnectionResetError", message="[Errno 104]", worker_exits=(-11,)),
        "worker_crashed", "config",
    ),
    "exit code": (Evidence("train", exception="EOFError", worker_exits=(3,)), "worker_exited", "config"),
    "row": (
        Evidence("drain", exception="KeyError", message="Caught KeyError in DataLoader worker process 0.\nKeyError"),
        "data_error", "data",
    ),
    "GPU memory": (
        Evidence("train", exception="OutOfMemoryError", message="CUDA out of memory. Tried to allocate 2 GiB"),
        "gpu_oom", "user",
    ),
    "child gone": (Evidence("train", child_signal=int(signal.SIGKILL)), "child_killed", "host"),
    "hang": (Evidence("drain", stalled_s=300.0), "stall", "config"),
    "open files": (Evidence("drain", exception="OSError", message="Too many open files"), "fd_limit", "config"),
    "anything else": (Evidence("train", exception="ValueError", message="odd"), "exception", "config"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_evidence_has_its_name(name: str) -> None:
    """Kind and blame follow from the evidence, and every crash says what to do and in which phase it was."""
    evidence, kind, blame = CASES[name]
    crash = classify(evidence)
    assert (crash.kind, crash.blame, crash.phase) == (kind, blame, evidence.phase)
    assert crash.remedy
    assert "\n" not in crash.message

"""Names what went wrong in a slice, by evidence: exit status, workers' exit codes, fill levels, then text.

Runs in: parent. A dying worker surfaces as any of six exceptions, so the message alone decides nothing; the exit
codes of the workers and the child are looked at first, the specific texts of PyTorch after them.
*Not covered*: what becomes of a crash (`tuner.study`).
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from objectives.schema import Blame, Crash, CrashKind

FULL_FRACTION = 0.95
"""Fill of memory or /dev/shm above which a killed process is put down to it."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a failed slice. Fractions are peaks over the slice; None: not known."""

    phase: str
    step: int = 0
    exception: str | None = None
    message: str = ""
    traceback: str = ""
    worker_exits: tuple[int, ...] = ()
    child_exit_code: int | None = None
    child_signal: int | None = None
    stalled_s: float | None = None
    log_tail: str = ""
    peak_memory_fraction: float | None = None
    peak_shm_fraction: float | None = None
    oom_kills: int = 0


@dataclass(frozen=True, slots=True)
class _Text:
    pattern: re.Pattern[str]
    kind: CrashKind
    blame: Blame
    remedy: str


def _text(pattern: str, kind: CrashKind, blame: Blame, remedy: str) -> _Text:
    return _Text(re.compile(pattern, re.IGNORECASE), kind, blame, remedy)


_TEXTS = (
    _text(
        r"unable to allocate shared memory|unable to (write to|resize) file </torch_|out of shared memory|bus error",
        "shm_full", "config",
        "/dev/shm is full: give the container more (docker run --shm-size=8g) or use fewer workers or less prefetch.",
    ),
    _text(
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError", "gpu_oom", "user",
        "The model does not fit on the GPU: lower the batch size or --max-length; no loader setting helps.",
    ),
    _text(
        r"too many open files|received \d+ items of ancdata", "fd_limit", "config",
        "Too many open files: raise the limit (ulimit -n 65535) or use fewer workers.",
    ),
    _text(
        r"can't start new thread|BlockingIOError|Resource temporarily unavailable", "environment", "config",
        "The limit of processes is reached: raise it (ulimit -u) or use fewer workers.",
    ),
    _text(
        r"CUDA error|GPU is lost|NVML.*lost|fallen off the bus|no CUDA-capable device", "gpu_lost", "host",
        "The GPU stopped answering: look at nvidia-smi and the kernel log before you go on.",
    ),
    _text(
        r"Caught \w+ in DataLoader worker process|^(RowError|UserError): ", "data_error", "data",
        "A row of the data set cannot be loaded: the last line of the message says why.",
    ),
    _text(
        r"DefaultCPUAllocator: can't allocate memory|Cannot allocate memory|MemoryError", "host_oom", "config",
        "The host is out of memory: use fewer workers or a lower prefetch.",
    ),
)  # fmt: skip


def classify(evidence: Evidence) -> Crash:
    """Return the crash the evidence speaks for; anything unknown is an `exception` of the configuration."""
    kind, blame, message, remedy = _judge(evidence)
    number = evidence.child_signal or next((-code for code in evidence.worker_exits if code < 0), None)
    return Crash(
        kind=kind,
        blame=blame,
        phase=evidence.phase,
        message=message,
        remedy=remedy,
        exit_code=evidence.child_exit_code,
        signal=signal.Signals(number).name if number else None,
        exception=evidence.exception,
        log_tail=(evidence.traceback or evidence.log_tail)[-8_000:],
        peak_memory_fraction=evidence.peak_memory_fraction,
    )


def _judge(e: Evidence) -> tuple[CrashKind, Blame, str, str]:
    where = f"{e.phase}, step {e.step}" if e.step else e.phase
    memory_full = e.oom_kills > 0 or (e.peak_memory_fraction or 0.0) >= FULL_FRACTION
    if e.stalled_s is not None:
        return (
            "stall", "config", f"nothing moved for {e.stalled_s:.0f} s ({where})",
            "The workers are stuck: a lock, a network read or a thread pool after fork; --num-workers 0 shows where.",
        )  # fmt: skip
    text = f"{e.exception or ''}: {e.message}\n{e.traceback}\n{e.log_tail}"
    if -signal.SIGBUS in e.worker_exits or (e.peak_shm_fraction or 0.0) >= FULL_FRACTION:
        rule = _TEXTS[0]
        return "shm_full", "config", f"/dev/shm full ({where})", rule.remedy
    for rule in _TEXTS:
        if rule.pattern.search(text):
            return rule.kind, rule.blame, f"{_first_line(e)} ({where})", rule.remedy
    if e.worker_exits or e.child_signal is not None:
        return _killed(e, where, memory_full)
    if e.exception is None:
        return (
            "child_killed", "host", f"the training process ended with exit code {e.child_exit_code} ({where})",
            "The log below is all it said.",
        )  # fmt: skip
    return "exception", "config", f"{_first_line(e)} ({where})", "The log below has the traceback."


def _killed(e: Evidence, where: str, memory_full: bool) -> tuple[CrashKind, Blame, str, str]:
    who = "a loader worker" if e.worker_exits else "the training process"
    code = e.worker_exits[0] if e.worker_exits else -(e.child_signal or 0)
    if code == -signal.SIGKILL and memory_full:
        return (
            "host_oom", "config", f"{who} was killed for want of memory ({where})",
            "Use fewer workers or a lower prefetch, or store the rows packed.",
        )  # fmt: skip
    if code == -signal.SIGKILL:
        kind: CrashKind = "worker_killed" if e.worker_exits else "child_killed"
        return (
            kind, "config" if e.worker_exits else "host", f"{who} was killed by SIGKILL ({where})",
            "Something outside killed it (memory limit, scheduler, administrator): see the kernel log.",
        )  # fmt: skip
    if code < 0:
        name = signal.Signals(-code).name
        return (
            "worker_crashed", "config", f"{who} crashed with {name} ({where})",
            "A native library crashed; --num-workers 0 shows where.",
        )  # fmt: skip
    return (
        "worker_exited", "config", f"{who} exited with code {code} ({where})",
        "The data set's code ended the worker; --num-workers 0 shows where.",
    )  # fmt: skip


def _first_line(e: Evidence) -> str:
    lines = [line for line in e.message.strip().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    return f"{e.exception}: {last}"[:300] if e.exception else last[:300]

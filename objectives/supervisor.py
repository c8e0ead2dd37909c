"""Starts the child, talks to it, watches it, and ends it with everything it started.

Runs in: parent. The child leads its own session, so that one signal reaches its workers too; its death is known by
its exit status and never by the end of the pipe, which workers hold open. A wall-clock limit per phase ends a hang.
*Not covered*: naming what went wrong (`objectives.crash`).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from objectives.wire import LineReader, write_line

PHASE_LIMITS_S: Mapping[str, float] = {
    "start": 120.0,
    "import": 300.0,
    "load": 1800.0,
    "touch": 120.0,
    "build": 120.0,
    "drain": 300.0,
    "train": 300.0,
    "shutdown": 90.0,
}
"""Seconds a phase may go on without telling anything. Workers that are stuck take PyTorch 5 s each to give up on."""

LOG_TAIL_BYTES = 8_000

OnPhase = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended without an answer. `stalled_s` is set when the watchdog ended it."""

    phase: str
    step: int
    exit_code: int | None
    signal: int | None
    stalled_s: float | None


class SliceChild:
    """One child process; `ask` is the only way to use it.

    Args:
        python: Interpreter of the trainer's stack.
        environment: Added to this process's environment.
    """

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        # A short path: PyTorch's sockets live in TMPDIR and a long one hangs the workers for ever.
        self.directory = Path(tempfile.mkdtemp(prefix="tuner-", dir="/tmp"))
        (self.directory / "path").mkdir()
        (self.directory / "tmp").mkdir()
        (self.directory / "owner").write_text(str(os.getpid()))
        # Only `objectives` is lent to the interpreter: the rest of our environment must not shadow its own.
        (self.directory / "path" / "objectives").symlink_to(Path(__file__).resolve().parent)
        self.log_path = self.directory / "slice.log"
        self.phase, self.step = "start", 0
        self._asked = False
        inherited = os.environ.get("PYTHONPATH")
        search = [str(self.directory / "path"), *([inherited] if inherited else [])]
        child_environment = {
            **os.environ,
            **environment,
            "PYTHONPATH": os.pathsep.join(search),
            "TMPDIR": str(self.directory / "tmp"),
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        requests_read, self._requests = os.pipe()
        self._events, events_write = os.pipe()
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-P", "-m", "objectives.slice", str(requests_read), str(events_write), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=child_environment,
                pass_fds=(requests_read, events_write),
                start_new_session=True,
            )
        os.close(requests_read)
        os.close(events_write)
        self._reader = LineReader(self._events)

    @property
    def pid(self) -> int:
        """Return the child's process id, which is its session and process group too."""
        return self.process.pid

    def ask(self, request: Mapping[str, Any], on_phase: OnPhase) -> dict[str, Any] | Death:
        """Send one request and return its answer, or how the child died instead.

        Args:
            request: As `objectives.wire` lists them.
            on_phase: Called with phase and step whenever the child tells them.
        """
        self._asked = True
        try:
            write_line(self._requests, dict(request))
        except BrokenPipeError:
            return self._death(None)
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            heard_s = time.monotonic()
            while True:
                ready = selector.select(timeout=0.2)
                for event in self._reader.read() if ready else []:
                    heard_s = time.monotonic()
                    if event["event"] == "phase":
                        self.phase, self.step = event["name"], event["step"]
                        on_phase(self.phase, self.step)
                    elif event["event"] in ("opened", "slice", "failed", "closed"):
                        self._asked = False
                        return event
                if self._reader.ended:
                    return self._death(None)
                if not ready and self.process.poll() is not None:
                    return self._death(None)
                silent_s = time.monotonic() - heard_s
                if silent_s > PHASE_LIMITS_S.get(self.phase, 300.0):
                    self._kill_group(signal.SIGKILL)
                    return self._death(silent_s)

    def _death(self, stalled_s: float | None) -> Death:
        status = self.process.wait()
        return Death(
            phase=self.phase,
            step=self.step,
            exit_code=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            stalled_s=stalled_s,
        )

    def log_bytes(self) -> int:
        """Return how much the child and its workers have printed so far."""
        with contextlib.suppress(OSError):
            return self.log_path.stat().st_size
        return 0

    def log_tail(self) -> str:
        """Return the end of what the child and its workers printed; the cause stands in its last lines."""
        with contextlib.suppress(OSError), self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            return log.read().replace(b"\0", b"").decode(errors="replace")
        return ""

    def close(self, grace_s: float = 3.0) -> None:
        """End the child and whatever it started, and remove its files. May be called twice.

        Args:
            grace_s: How long an idle child may take to leave by itself; one in the middle of a slice is killed.
        """
        if self.process.poll() is None and grace_s > 0 and not self._asked:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                write_line(self._requests, {"op": "close"})
                self.process.wait(timeout=grace_s)
        family = _family(self.pid)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None and not _alive(family):
                break
            self._kill_group(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1.0)
        for process in _alive(family):
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=2.0)
        _unlink_segments({self.pid, *(p.pid for p in family)})
        for fd in (self._requests, self._events):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._requests = self._events = -1
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kill_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _family(session: int) -> list[psutil.Process]:
    """Return the processes of the child's session, orphans included, the child itself left out."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != session and os.getsid(process.pid) == session:
                found.append(process)
    return found


def _alive(family: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in family:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _unlink_segments(pids: set[int]) -> None:
    """Remove shared-memory files that PyTorch named after one of these processes (`torch_<pid>_...`)."""
    for segment in Path("/dev/shm").glob("torch_*"):
        owner = segment.name.split("_")[1]
        if owner.isdigit() and int(owner) in pids:
            with contextlib.suppress(OSError):
                segment.unlink()


def sweep_stale_directories() -> None:
    """Remove what a killed run left in /tmp: directories of children that are no more."""
    for directory in Path("/tmp").glob("tuner-*"):
        owner = directory / "owner"
        with contextlib.suppress(OSError, ValueError):
            if not psutil.pid_exists(int(owner.read_text())):
                shutil.rmtree(directory, ignore_errors=True)

"""The child's loop: one request, one answer, until told to close.

Runs in: child. *Not covered*: the wire's form (`objectives.wire`), the parent's side (`objectives.supervisor`).
"""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
import traceback
from typing import Any

from objectives.schema import LoaderConfig, RawSlice, SlicePlan, Workload
from objectives.wire import LineReader, pack, unpack, write_line

TELL_EVERY_S = 0.2
"""Steps are told at most this often: a line per step would be work beside the measurement."""


def serve(requests_fd: int, events_fd: int) -> int:
    """Answer requests until `close` or the pipe ends; return the exit status."""
    reader = LineReader(requests_fd)
    server = _Server(events_fd)
    while True:
        lines = reader.read()
        if reader.ended:
            return 0
        for request in lines:
            if request["op"] == "close":
                write_line(events_fd, {"event": "closed"})
                return 0
            try:
                answer = server.answer(request)
            except BaseException as error:
                answer = server.failure(error)
            write_line(events_fd, answer)
            if answer["event"] == "failed":
                return 1


class _Server:
    def __init__(self, events_fd: int) -> None:
        self.events_fd = events_fd
        self.session: Any = None
        self.phase = "start"
        self.step = 0
        self._told_s = 0.0

    def tell(self, phase: str, step: int) -> None:
        now_s = time.monotonic()
        changed = phase != self.phase
        self.phase, self.step = phase, step
        if changed or now_s - self._told_s >= TELL_EVERY_S:
            self._told_s = now_s
            write_line(self.events_fd, {"event": "phase", "name": phase, "step": step})

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            return self._open(request)
        from objectives.slice.measure import measure_ceiling, measure_trial

        plan = unpack(SlicePlan, request["plan"])
        raw: RawSlice
        if request["op"] == "ceiling":
            raw = measure_ceiling(self.session, plan, self.tell)
        else:
            raw = measure_trial(self.session, unpack(LoaderConfig, request["config"]), plan, self.tell)
        return {"event": "slice", "raw": pack(raw)}

    def _open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.tell("import", 0)
        from objectives.slice.session import Session

        self.tell("load", 0)
        self.session = Session(
            unpack(Workload, request["workload"]),
            dataset_path=request["dataset_path"],
            model_path=request["model_path"],
            tokenizer_path=request["tokenizer_path"],
        )
        self.tell("touch", 0)
        touched = self.session.touch()
        gc.collect()
        gc.freeze()  # what lives for ever is neither scanned again nor copied into the workers
        return {"event": "opened", "facts": {**self.session.facts(), **touched}}

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Return the failure as an event, with the exit codes of dead workers, which no message can be trusted for.

        PyTorch's SIGCHLD handler may raise again at any line, so it is put out of action first.
        """
        _silence_sigchld()
        text = "".join(traceback.format_exception(error))
        with contextlib.suppress(Exception):
            sys.stderr.write(text)
            sys.stderr.flush()
        return {
            "event": "failed",
            "phase": self.phase,
            "step": self.step,
            "exception": type(error).__name__,
            "message": str(error),
            "traceback": text[-20_000:],
            "worker_exits": _worker_exits(),
        }


def _silence_sigchld() -> None:
    for _ in range(8):
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            time.sleep(0)
            return
        except RuntimeError:
            continue


def _worker_exits(wait_s: float = 0.5) -> list[int]:
    """Return the exit codes of workers that died on their own; negative is the signal.

    The iterators that own them are found through the garbage collector: the exception may have come from anywhere.
    """
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    iterators = [o for o in gc.get_objects() if isinstance(o, _MultiProcessingDataLoaderIter)]
    deadline_s = time.monotonic() + wait_s
    while True:
        workers = [w for iterator in iterators for w in getattr(iterator, "_workers", [])]
        exits = [w.exitcode for w in workers if w.exitcode is not None and w.exitcode != 0]
        if exits or time.monotonic() > deadline_s:
            return exits
        time.sleep(0.01)

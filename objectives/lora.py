"""The objective that trains for real: LoRA under a `transformers.Trainer` in a child process.

Runs in: parent. One resident child loads the model once; it is replaced after a crash, or after every slice with
`isolation="process"`.
*Not covered*: the slice itself (`objectives.slice.measure`), supervision (`objectives.supervisor`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from objectives.cannot_train import cannot_train
from objectives.crash import Evidence, classify
from objectives.errors import UserError
from objectives.estimate import summarise
from objectives.load import LoadMonitor
from objectives.protocol import Choices, JsonScalar, Prepared, Progress
from objectives.resizing import resized
from objectives.schema import (
    Crash,
    LoaderConfig,
    LoadSample,
    Measurement,
    Outcome,
    RawSlice,
    SlicePlan,
)
from objectives.supervisor import Death, SliceChild, sweep_stale_directories
from objectives.warmth import choose_plan, is_warm, short_plan
from objectives.wire import pack, unpack
from objectives.workload import ResolvedWorkload


@dataclass(frozen=True, slots=True)
class LoraOptions:
    """How slices are run; not part of what is trained."""

    slice_seconds: float
    python: str
    isolation: Literal["resident", "process"] = "resident"


class LoraObjective:
    """Measures slices of the resolved workload; a context manager through `contextlib.closing`."""

    name = "lora"

    def __init__(self, resolved: ResolvedWorkload, choices: Choices, options: LoraOptions) -> None:
        self.resolved = resolved
        self.options = options
        self._choices = choices
        self._child: SliceChild | None = None
        self._plan: SlicePlan | None = None
        self._facts: dict[str, Any] = {}

    def identity(self) -> Mapping[str, JsonScalar]:
        """Return the workload, the data set's content and how long a slice is meant to take."""
        work = asdict(self.resolved.workload)
        work["target_modules"] = ",".join(self.resolved.workload.target_modules)
        if not self.resolved.workload.row_delay_ms:
            del work["row_delay_ms"]  # studies made before there was a delay go on
        return {
            **{f"workload.{k}": v for k, v in work.items() if k not in ("device", "dataset")},
            "dataset.content": self.resolved.rows.content_hash,
            "dataset.rows": self.resolved.rows.rows,
            "slice.seconds": self.options.slice_seconds,
            "slice.isolation": self.options.isolation,
        }

    def choices(self) -> Choices:
        """Return the knobs' values as bounded by host and user."""
        return self._choices

    def prepare(self, remembered: Mapping[str, JsonScalar], progress: Progress) -> Prepared:
        """Start the child, fix the length of a slice and measure ceilings until two agree."""
        sweep_stale_directories()
        if {"timed_steps", "epochs", "epoch_batches"} <= remembered.keys():
            self._plan = unpack(SlicePlan, dict(remembered))
        answer = self._open(progress)
        if not isinstance(answer, dict) or answer["event"] != "opened":
            raise self._cannot_train(answer)
        first = self._ask_ceiling(short_plan(*self._epoch_size()), progress)
        if isinstance(first, Death) or first["event"] != "slice":
            raise self._cannot_train(first)
        if self._plan is None:
            self._plan = choose_plan(
                self._ceiling_of(first, short_plan(*self._epoch_size())),
                self.options.slice_seconds,
                *self._epoch_size(),
            )
        ceilings = self._warm_up(progress)
        if not isinstance(ceilings, list):
            raise self._cannot_train(ceilings)
        if self.options.isolation == "process":
            self._discard()  # the first trial starts as cold as the others
        return Prepared(tuple(ceilings), {**remembered, **asdict(self._plan)}, self._facts)

    def resize(self, timed_steps: int) -> Mapping[str, JsonScalar]:
        """Time about this many steps from the next slice on; return the plan to remember."""
        assert self._plan is not None, "prepare() comes first"
        self._plan = resized(self._plan, timed_steps, self.resolved.workload.gradient_accumulation_steps)
        return asdict(self._plan)

    def measure(self, config: LoaderConfig, progress: Progress) -> Outcome:
        """Return the outcome of one slice; a bad row is looked at again without workers before it is believed."""
        outcome = self._slice(config, progress)
        if isinstance(outcome, Crash) and outcome.blame == "data" and config.num_workers > 0:
            again = self._slice(LoaderConfig(0, None, False, config.pin_memory), progress)
            if isinstance(again, Measurement):
                return replace(outcome, blame="config")
            return replace(outcome, message=again.message, log_tail=again.log_tail)
        return outcome

    def ceiling(self, progress: Progress) -> Measurement | None:
        """Return one more ceiling; None if the host lost the child, which the next slice will tell.

        With `isolation="process"` it is the last of a fresh child that was warmed as for a trial.
        """
        assert self._plan is not None, "prepare() comes first"
        if self._child is None:
            warmed = self._replace_child(progress)
            if isinstance(warmed, Crash):
                return None
            found: Measurement | None = warmed[-1]
        else:
            answer = self._ask_ceiling(self._plan, progress)
            failed = isinstance(answer, Death) or answer["event"] != "slice"
            found = None if isinstance(answer, Death) or failed else self._ceiling_of(answer, self._plan)
            if failed:
                self._discard(grace_s=0.0)
        if self.options.isolation == "process":
            self._discard()
        return found

    def close(self) -> None:
        """End the child."""
        self._discard()

    def _slice(self, config: LoaderConfig, progress: Progress) -> Outcome:
        assert self._plan is not None, "prepare() comes first"
        replaced_s: dict[str, float] = {}
        if self._child is None:
            began_s = time.monotonic()
            warmed = self._replace_child(progress)
            if isinstance(warmed, Crash):
                return warmed
            # What a new child costs is kept beside the phases of the slice that had to pay for it.
            replaced_s = {"replace": time.monotonic() - began_s}
        assert self._child is not None
        child, monitor, printed_bytes = self._child, self._monitor(), 0

        def on_phase(phase: str, step: int) -> None:
            nonlocal printed_bytes
            if phase == "train" and step == 0:
                monitor.mark()
                printed_bytes = child.log_bytes()
            progress(f"step {step}/{self._plan.timed_steps}" if phase == "train" and self._plan else phase)

        monitor.start()
        try:
            answer = child.ask({"op": "measure", "config": pack(config), "plan": pack(self._plan)}, on_phase)
        finally:
            load = monitor.stop()
        if isinstance(answer, Death) or answer["event"] != "slice":
            return self._crash(answer, load)
        printed_bytes = child.log_bytes() - printed_bytes
        if self.options.isolation == "process":
            self._discard()
        raw = unpack(RawSlice, answer["raw"])
        return summarise(
            replace(raw, wall_s={**replaced_s, **raw.wall_s}),
            plan=self._plan,
            workload_batch_size=self.resolved.workload.per_device_train_batch_size,
            load=load,
            depth=config.depth,
            log_bytes=printed_bytes,
        )

    def _replace_child(self, progress: Progress) -> list[Measurement] | Crash:
        """Start a child in place of one that is gone, warm the device, and return its ceilings or the crash.

        The same workload was trained before, so the host is to blame and not the configuration that comes next.
        """
        answer = self._open(progress)
        if isinstance(answer, dict) and answer["event"] == "opened":
            warmed = self._warm_up(progress)
            if isinstance(warmed, list):
                return warmed
            answer = warmed
        return replace(self._crash(answer, ()), blame="host")

    def _warm_up(self, progress: Progress) -> list[Measurement] | dict[str, Any] | Death:
        """Return ceilings, measured until two in a row agree, or the answer of the one that failed."""
        assert self._plan is not None
        found: list[Measurement] = []
        while not is_warm(found):
            answer = self._ask_ceiling(self._plan, progress)
            if isinstance(answer, Death) or answer["event"] != "slice":
                return answer
            found.append(self._ceiling_of(answer, self._plan))
        return found

    def _ask_ceiling(self, plan: SlicePlan, progress: Progress) -> dict[str, Any] | Death:
        assert self._child is not None
        request = {"op": "ceiling", "plan": pack(plan)}
        return self._child.ask(request, lambda phase, step: progress(f"ceiling: {phase} {step}"))

    def _ceiling_of(self, answer: dict[str, Any], plan: SlicePlan) -> Measurement:
        raw = unpack(RawSlice, answer["raw"])
        return summarise(raw, plan=plan, workload_batch_size=self.resolved.workload.per_device_train_batch_size)

    def _open(self, progress: Progress) -> dict[str, Any] | Death:
        work = self.resolved.workload
        environment = {
            "CUDA_VISIBLE_DEVICES": "" if work.device == "cpu" else work.device,
            "TOKENIZERS_PARALLELISM": "false",  # a tokenizer that used threads before the fork hangs its workers
            "TRANSFORMERS_VERBOSITY": "error",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        if work.device == "cpu":
            environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = str(work.cpu_threads)
        if self.resolved.offline:
            environment["HF_HUB_OFFLINE"] = "1"
        self._child = SliceChild(self.options.python, environment)
        request = {
            "op": "open",
            "workload": pack(work),
            "dataset_path": self.resolved.dataset_path,
            "model_path": self.resolved.model_path,
            "tokenizer_path": self.resolved.tokenizer_path,
        }
        answer = self._child.ask(request, lambda phase, _step: progress(phase))
        if isinstance(answer, dict) and answer["event"] == "opened":
            self._facts = {**answer["facts"], "dataset_bytes": self.resolved.rows.bytes}
        return answer

    def _monitor(self) -> LoadMonitor:
        assert self._child is not None
        device = self.resolved.workload.device
        return LoadMonitor(self._child.pid, None if device == "cpu" else device)

    def _epoch_size(self) -> tuple[int, int]:
        """Return the batches of an epoch and of an optimizer step."""
        work = self.resolved.workload
        return -(-self.resolved.rows.rows // work.per_device_train_batch_size), work.gradient_accumulation_steps

    def _crash(self, answer: dict[str, Any] | Death, load: tuple[LoadSample, ...]) -> Crash:
        crash = classify(self._evidence(answer, load))
        self._discard(grace_s=0.0)
        return crash

    def _evidence(self, answer: dict[str, Any] | Death, load: tuple[LoadSample, ...]) -> Evidence:
        assert self._child is not None
        memory = max((s.memory_fraction for s in load if s.memory_fraction is not None), default=None)
        used = max((s.shm_used_bytes for s in load if s.shm_used_bytes is not None), default=None)
        with suppress(OSError):
            shm = os.statvfs("/dev/shm")
            size = shm.f_blocks * shm.f_frsize
        shm_fraction = used / size if used is not None and size else None
        if isinstance(answer, Death):
            return Evidence(
                phase=answer.phase,
                step=answer.step,
                child_exit_code=answer.exit_code,
                child_signal=answer.signal,
                stalled_s=answer.stalled_s,
                log_tail=self._child.log_tail(),
                peak_memory_fraction=memory,
                peak_shm_fraction=shm_fraction,
            )
        return Evidence(
            phase=answer["phase"],
            step=answer["step"],
            exception=answer["exception"],
            message=answer["message"],
            traceback=answer["traceback"],
            worker_exits=tuple(answer["worker_exits"]),
            log_tail=self._child.log_tail(),
            peak_memory_fraction=memory,
            peak_shm_fraction=shm_fraction,
        )

    def _cannot_train(self, answer: dict[str, Any] | Death) -> UserError:
        """Return the error for a workload that does not even train from memory, and end the child."""
        return cannot_train(self._crash(answer, ()), self.resolved.workload, self.options.python)

    def _discard(self, grace_s: float = 3.0) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close(grace_s)

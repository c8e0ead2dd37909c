"""The real slice: real Trainer, DataLoader, child process and signals, on the embedded model."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import Crash, LoaderConfig, Measurement, Workload
from objectives.workload import resolve

SHORT_S = 0.6
CONFIGS = (
    LoaderConfig(0, None, False, False),
    LoaderConfig(1, 2, True, False),
    LoaderConfig(2, 1, False, False),
    LoaderConfig(2, 8, True, False),
)


def quiet(_text: str) -> None:
    """Ignore progress."""


def build(**kwargs: object) -> LoraObjective:
    """Return the embedded workload as an objective with short slices."""
    resolved = resolve(Workload(torch_dtype="float32", **kwargs))  # type: ignore[arg-type]
    return LoraObjective(resolved, Choices({}, {}), LoraOptions(SHORT_S, sys.executable))


@pytest.fixture(scope="module")
def objective() -> Iterator[LoraObjective]:
    """Return one prepared objective for the module: its child loads the model once."""
    with contextlib.closing(build()) as objective:
        objective.prepare({}, quiet)
        yield objective


@pytest.fixture(scope="module")
def measured(objective: LoraObjective) -> dict[LoaderConfig, Measurement]:
    """Return a slice of each configuration."""
    outcomes = {config: objective.measure(config, quiet) for config in CONFIGS}
    assert all(isinstance(o, Measurement) for o in outcomes.values()), outcomes
    return outcomes  # type: ignore[return-value]


def test_every_configuration_does_the_same_work(measured: dict[LoaderConfig, Measurement]) -> None:
    """Samples and tokens of each step are equal whatever the loader's settings: the timed epoch starts at one row."""
    series = {(m.raw.steps.samples, m.raw.steps.tokens) for m in measured.values() if m.raw}
    assert len(series) == 1
    assert sum(next(iter(series))[0]) % 50 == 0


def test_the_parts_of_a_step_are_its_whole(measured: dict[LoaderConfig, Measurement]) -> None:
    """Restart, data wait, copy and compute are none negative and sum to the step."""
    for config, m in measured.items():
        assert m.raw is not None
        steps = m.raw.steps
        parts = zip(steps.restart_s, steps.data_wait_s, steps.h2d_s, steps.compute_s, steps.step_s, strict=True)
        for restart_s, wait_s, h2d_s, compute_s, step_s in parts:
            assert min(restart_s, wait_s, h2d_s, compute_s) >= 0, config
            assert restart_s + wait_s + h2d_s + compute_s == pytest.approx(step_s)


def test_restarts_fall_on_epoch_starts_alone(measured: dict[LoaderConfig, Measurement]) -> None:
    """50 rows at accumulation 16 are groups of 16, 16, 16 and 2; only the first of each epoch pays a restart."""
    for config, m in measured.items():
        assert m.raw is not None
        steps = m.raw.steps
        assert steps.samples == (16, 16, 16, 2) * (len(steps) // 4), config
        for index, restart_s in enumerate(steps.restart_s):
            assert (restart_s > 0) == (index % 4 == 0), config


def test_stamps_come_from_the_workers(measured: dict[LoaderConfig, Measurement]) -> None:
    """Batches are stamped in as many processes as there are workers, service before delivery, the drain apart."""
    for config, m in measured.items():
        assert m.raw is not None
        batches = m.raw.batches
        first_epoch = [pid for pid, step in zip(batches.worker, batches.step, strict=True) if step == -1]
        assert len(set(first_epoch)) == max(1, config.num_workers)
        assert batches.step.count(-1) == config.depth + max(4 * config.num_workers, 16)
        rows = zip(batches.service_start_s, batches.service_end_s, batches.requested_s, batches.got_s, strict=True)
        for start_s, end_s, requested_s, got_s in rows:
            assert start_s <= end_s <= got_s
            assert requested_s <= got_s


def test_persistent_workers_survive_the_epoch(measured: dict[LoaderConfig, Measurement]) -> None:
    """A persistent loader serves all epochs from the same processes, another one from fresh ones each time."""
    for config, m in measured.items():
        if config.num_workers == 0 or m.raw is None:
            continue
        served = set(m.raw.batches.worker)
        assert (len(served) == config.num_workers) == config.persistent_workers


def test_the_slices_own_load_is_told_from_others(measured: dict[LoaderConfig, Measurement]) -> None:
    """Own load is there, at least what the trainer's own threads used, and at most all of the usable CPUs."""
    cpus = len(os.sched_getaffinity(0))
    for config, m in measured.items():
        assert m.raw is not None
        assert m.own_cpu_fraction is not None
        assert m.raw.wall_s["train"] > 0
        assert sum(m.raw.steps.trainer_cpu_s) / m.raw.wall_s["train"] / cpus <= m.own_cpu_fraction <= 1, config
        assert m.foreign_cpu_fraction is not None


def test_slow_rows_are_slow_in_the_loader_alone() -> None:
    """Each row's delay is in its batch's service; ceilings have none; it names another workload, 0 the same as ever."""
    assert "workload.row_delay_ms" not in build().identity()
    delayed = build(row_delay_ms=20.0)
    assert delayed.identity()["workload.row_delay_ms"] == 20.0
    with contextlib.closing(delayed):
        prepared = delayed.prepare({}, quiet)
        slow = delayed.measure(LoaderConfig(1, 2, True, False), quiet)
    assert isinstance(slow, Measurement)
    assert slow.raw is not None
    stamps = zip(slow.raw.batches.service_start_s, slow.raw.batches.service_end_s, strict=True)
    assert min(end_s - start_s for start_s, end_s in stamps) >= 0.02
    assert max(c.wait_fraction or 0.0 for c in prepared.ceilings) < 0.01


def during_training(objective: LoraObjective, act: Callable[[psutil.Process], None]) -> Callable[[str], None]:
    """Return a progress callback that acts on the child once it trains."""
    acted: list[bool] = []

    def progress(text: str) -> None:
        if text.startswith("step ") and not text.startswith("step 0") and not acted:
            acted.append(True)
            assert objective._child is not None
            act(psutil.Process(objective._child.pid))

    return progress


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGKILL, "worker_killed"), (signal.SIGSEGV, "worker_crashed")], ids=["KILL", "SEGV"]
)
def test_a_killed_worker_is_a_crash_of_the_configuration(
    objective: LoraObjective, number: signal.Signals, kind: str
) -> None:
    """A worker's signal is named whichever exception PyTorch makes of it, and the next slice runs as before."""
    kill = during_training(objective, lambda child: os.kill(child.children()[0].pid, number))
    outcome = objective.measure(LoaderConfig(2, 2, True, False), kill)
    assert isinstance(outcome, Crash)
    assert (kind, "config", number.name, "train") == (outcome.kind, outcome.blame, outcome.signal, outcome.phase)
    assert psutil.Process().children(recursive=True) == []
    assert isinstance(objective.measure(LoaderConfig(1, 2, False, False), quiet), Measurement)


def test_a_killed_child_is_the_hosts_fault(objective: LoraObjective) -> None:
    """A child that goes without a word is not held against the configuration, and its workers go with it."""
    outcome = objective.measure(LoaderConfig(2, 2, True, False), during_training(objective, lambda child: child.kill()))
    assert isinstance(outcome, Crash)
    assert (outcome.kind, outcome.blame) == ("child_killed", "host")
    assert psutil.Process().children(recursive=True) == []


def test_a_bad_row_is_the_datas_fault(tmp_path: Path) -> None:
    """A row that cannot be turned into text stops with blame `data`, looked at once more without workers."""
    rows = ['{"instruction": "what is asked", "input": "", "output": "what is said"}'] * 20
    bad = '{"messages": [{"role": "user", "content": "q"}, 7]}'
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(rows))
    with contextlib.closing(build(dataset=str(path))) as objective:
        objective.prepare({}, quiet)
        path.write_text("\n".join([*rows[:10], bad.ljust(len(rows[0])), *rows[11:]]))
        outcome = objective.measure(LoaderConfig(1, 2, False, False), quiet)
    assert isinstance(outcome, Crash)
    assert (outcome.kind, outcome.blame) == ("data_error", "data")


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    """When the parent is killed in mid-slice, the child and its workers are gone within 10 s."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_slice import build, quiet\n"
        "from objectives.schema import LoaderConfig\n"
        "o = build(); o.prepare({}, quiet)\n"
        "o.measure(LoaderConfig(2, 2, True, False), lambda text: print(text, flush=True))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    for line in parent.stdout:
        if line.startswith("step 1/"):
            break
    family = psutil.Process(parent.pid).children(recursive=True)
    assert len(family) >= 3, "child and two workers"
    parent.kill()
    parent.wait()
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s and any(p.is_running() for p in family):
        time.sleep(0.05)
    assert [p for p in family if p.is_running()] == []

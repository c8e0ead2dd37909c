from __future__ import annotations

import multiprocessing
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from objectives.load import LoadMonitor
from objectives.schema import LoadSample


def _spin(until: float) -> None:
    while time.monotonic() < until:
        pass


def _mean_busy(samples: tuple[LoadSample, ...]) -> float:
    seen = [sample.cpu_busy_fraction for sample in samples if sample.cpu_busy_fraction is not None]
    return sum(seen) / len(seen)


def test_a_busy_process_is_seen() -> None:
    """One process per usable CPU that only computes fills them, whatever else runs here."""
    until = time.monotonic() + 1.5
    context = multiprocessing.get_context("fork")
    busy = [context.Process(target=_spin, args=(until,)) for _ in os.sched_getaffinity(0)]
    for process in busy:
        process.start()
    monitor = LoadMonitor(os.getpid(), None, interval_s=0.2)
    monitor.start()
    time.sleep(1.0)
    samples = monitor.stop()
    for process in busy:
        process.join()
    assert _mean_busy(samples) > 0.8


def test_stop_leaves_no_thread_and_samples_in_order() -> None:
    """After `stop` nothing looks any more; every sample tells memory and shared memory; stopping twice is harmless."""
    before = threading.active_count()
    monitor = LoadMonitor(os.getpid(), None, interval_s=0.05)
    monitor.start()
    time.sleep(0.3)
    samples = monitor.stop()
    assert threading.active_count() == before
    assert monitor.stop() == samples
    assert [sample.t_s for sample in samples] == sorted(sample.t_s for sample in samples)
    assert all(0.0 < (sample.memory_fraction or 0.0) < 1.0 for sample in samples)
    assert all(sample.gpu_util_fraction is None for sample in samples)


def test_a_mark_moves_time_zero() -> None:
    """Samples before the mark are negative; the mark may be another process's clock."""
    monitor = LoadMonitor(os.getpid(), None, interval_s=0.05)
    monitor.start()
    time.sleep(0.2)
    monitor.mark()
    time.sleep(0.2)
    samples = monitor.stop()
    assert samples[0].t_s < 0.0 < samples[-1].t_s
    monitor.mark(0.0)
    assert monitor.stop()[0].t_s == pytest.approx(time.monotonic(), abs=60.0)


def test_a_slice_shorter_than_the_interval_is_seen_once() -> None:
    """`stop` does not wait for the interval, and the last look is taken all the same."""
    monitor = LoadMonitor(os.getpid(), None, interval_s=30.0)
    monitor.start()
    assert len(monitor.stop()) == 1


def test_nothing_to_read_is_no_error(tmp_path: Path) -> None:
    """A host without /proc, a child that is gone and an unknown GPU give samples that say nothing."""
    beyond_any_pid = 2**22 + 1
    monitor = LoadMonitor(beyond_any_pid, "GPU-none", interval_s=0.02, root=tmp_path)
    monitor.start()
    time.sleep(0.1)
    assert {replace(sample, t_s=0.0) for sample in monitor.stop()} == {LoadSample(0.0)}

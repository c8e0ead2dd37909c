"""CPU time of a process tree: every worker once, whether it lives, has ended, or was waited for."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Event

import pytest

from objectives.counters import Counters
from objectives.tree_cpu import own_fraction, tree_cpu_s

BURNT_S = 0.2


def _burn(done: Event, leave: Event | None) -> None:
    until_s = time.process_time() + BURNT_S
    while time.process_time() < until_s:
        pass
    done.set()
    if leave is not None:
        leave.wait()


@pytest.mark.parametrize("fate", ["lives", "zombie", "reaped"])
def test_a_worker_counts_once_whatever_became_of_it(fate: str) -> None:
    """What a worker burnt is in the tree's time while it lives, when it has ended and after it was waited for."""
    context = multiprocessing.get_context("fork")
    done, leave = context.Event(), context.Event()
    began_s = tree_cpu_s()
    own_began_s = time.process_time()
    worker = context.Process(target=_burn, args=(done, leave if fate == "lives" else None))
    worker.start()
    done.wait()
    if fate == "reaped":
        worker.join()
    used_s = tree_cpu_s() - began_s - (time.process_time() - own_began_s)
    leave.set()
    worker.join()
    assert used_s == pytest.approx(BURNT_S, abs=0.06)


def test_time_of_workers_that_ended_before_is_not_in_the_difference() -> None:
    """A worker that burnt and was waited for before the first reading adds nothing to what follows."""
    context = multiprocessing.get_context("fork")
    worker = context.Process(target=_burn, args=(context.Event(), None))
    worker.start()
    worker.join()
    began_s = tree_cpu_s()
    assert tree_cpu_s() - began_s < BURNT_S / 2


@pytest.mark.parametrize(("quota", "fraction"), [(None, 0.25), (2.0, 0.5), (16.0, 0.25)])
def test_the_share_is_of_the_cpus_usable_here(quota: float | None, fraction: float) -> None:
    """Ten seconds of CPU time in ten seconds are one CPU: of 4, or of a quota below them."""
    cpus = dict.fromkeys(range(4), (0.0, 0.0))
    before, after = Counters(100.0, cpus, quota), Counters(110.0, cpus, quota)
    assert own_fraction(before, after, 10.0) == pytest.approx(fraction)
    assert own_fraction(after, after, 10.0) is None

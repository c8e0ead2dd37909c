"""The simulator the estimators are judged by: it must be right on its own."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import calibration
from benchmarks.bars import at_least, at_most
from benchmarks.sim.job import Job, sample_times
from benchmarks.sim.loader import Costs, run
from benchmarks.sim.machine import Machine
from benchmarks.sim.noise import NAMES, factors
from benchmarks.sim.surfaces import held_out, space_of
from objectives.schema import LoaderConfig, canonical

FREE = {"handover_s": 0.0, "transport_s": 0.0}


def by_events(workers: int, prefetch: int, groups: Sequence[int], services: list[float], compute: float) -> list[float]:
    """Return when each batch is got, by processes that know nothing of a recursion: queues, a clock and events."""
    total = sum(groups)
    queues: list[list[int]] = [[] for _ in range(workers)]
    busy = [False] * workers
    finished, got = set(), []
    events: list[tuple[float, int, str, int]] = []
    sent = 0

    def send(now: float) -> None:
        nonlocal sent
        if sent < total:
            queues[sent % workers].append(sent)
            sent += 1
            begin(now, (sent - 1) % workers)

    def begin(now: float, worker: int) -> None:
        if not busy[worker] and queues[worker]:
            busy[worker] = True
            batch = queues[worker].pop(0)
            heapq.heappush(events, (now + services[batch], 0, "done", batch))

    for _ in range(workers * prefetch):
        send(0.0)
    left, asking = list(groups), True
    taken_of_group = 0
    while len(got) < total:
        now, _, kind, batch = heapq.heappop(events)
        if kind == "done":
            finished.add(batch)
            busy[batch % workers] = False
            begin(now, batch % workers)
        else:
            asking = True
        while asking and len(got) in finished and len(got) < total:
            got.append(now)
            send(now)
            taken_of_group += 1
            if taken_of_group == left[0]:
                left.pop(0)
                taken_of_group, asking = 0, False
                heapq.heappush(events, (now + compute, 1, "computed", -1))
    return got


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 2), (2, 1), (3, 2), (5, 1)])
def test_recursion_is_what_processes_with_queues_do(workers: int, prefetch: int, accumulation: int) -> None:
    """The recursion gives the times of a simulation that only knows queues and events."""
    rng = np.random.default_rng(workers * 10 + prefetch)
    groups = [accumulation] * 12 + [1]
    services = rng.exponential(0.7, sum(groups)).tolist()
    drawn = iter(services)
    trace = run(
        canonical(workers, prefetch, True, True), [groups], lambda _: 0.4, lambda _: 0.0,
        Costs(lambda: next(drawn), 0.0, 0.0, **FREE),
    )  # fmt: skip
    assert [b[5] for b in trace.batches] == pytest.approx(by_events(workers, prefetch, groups, services, 0.4))


def test_one_series_and_many_agree() -> None:
    """Arrays over replicates give what one replicate gives as floats."""
    services = np.random.default_rng(1).exponential(0.5, (200, 3))
    for config in (canonical(0, None, False, True), canonical(2, 2, False, True)):
        many = iter(services)
        one = iter(services[:, 1].tolist())
        groups = [[2, 2, 1]] * 2
        times = (lambda _: 0.3, lambda n: 0.01 * n)
        wide = run(config, groups, *times, Costs(lambda it=many: next(it), 0.2, 0.01), larger=np.maximum)
        narrow = run(config, groups, *times, Costs(lambda it=one: next(it), 0.2, 0.01))
        assert wide.end_s[1] == pytest.approx(narrow.end_s)


def test_more_workers_are_never_slower_without_noise_and_load() -> None:
    """With equal services and no growth the time falls, or stays, with every further worker."""
    job = Job("even", 0.4, 0.9, growth=0.0, cores=32, epoch_batches=60)
    ends = []
    for workers in range(1, 9):
        costs = Costs(lambda: job.service_s, 0.0, 0.0, **FREE)
        trace = run(canonical(workers, 2, True, True), [job.epoch_groups], lambda _: 0.4, lambda _: 0.0, costs)
        ends.append(trace.end_s)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(ends))
    assert ends[0] > 2 * ends[-1]


@pytest.mark.parametrize("config", [canonical(0, None, False, True), canonical(2, 1, False, True)])
def test_steps_are_the_sum_of_their_parts_and_follow_the_batches(config: LoaderConfig) -> None:
    """A slice adds up: parts to steps, steps to the time the trainer had its batches."""
    job = Job("epochs", 1.6, 0.1, 4, epoch_batches=10, timed_steps=7)
    raw = Machine(job, "hard", np.random.default_rng(3)).measure(config).raw
    assert raw is not None
    steps, batches = raw.steps, raw.batches
    assert len(steps) == 6
    assert min(steps.compute_s) > 0
    assert sum(steps.samples) == 20 == sum(step >= 0 for step in batches.step)
    ends = np.cumsum(steps.step_s)
    for n in range(len(steps)):
        mine = [i for i, step in enumerate(batches.step) if step == n]
        before = ends[n - 1] if n else 0.0
        assert batches.requested_s[mine[0]] == pytest.approx(before)
        assert batches.got_s[mine[-1]] == pytest.approx(before + steps.restart_s[n] + steps.data_wait_s[n])
    assert [n for n, r in enumerate(steps.restart_s) if r > 0] == [0, 3]


def test_free_data_cost_next_to_nothing() -> None:
    """Where services take no time the wait is the hand-over alone."""
    job = Job("free", 0.4, 0.0, epoch_batches=400)
    measured = Machine(job, "mid", np.random.default_rng(0)).measure(canonical(4, 2, True, True))
    assert measured.wait_fraction is not None
    assert measured.wait_fraction < 0.003


@pytest.mark.parametrize("name", NAMES)
def test_noise_has_mean_one(name: str) -> None:
    """Noise makes no job slower on average, so truths of all profiles compare."""
    assert factors(name, np.random.default_rng(0), 600, 600, 0.42).mean() == pytest.approx(1.0, abs=0.01)


def test_hard_noise_is_as_hard_as_recorded() -> None:
    """Between-slice scatter of `hard` and `bootstrap` lies where the launch-bound recordings lie."""
    scatter = {line["series"]: line["sd log mean"] for line in calibration.slices_table()}
    recorded = [scatter[f"recorded {w}"] for w in calibration.LAUNCH_BOUND if f"recorded {w}" in scatter]
    for name in ("hard", "bootstrap"):
        assert min(recorded) <= scatter[f"simulated {name}"] <= max(recorded)
    assert scatter["simulated mild"] < 0.04 < scatter["simulated mid"] < scatter["simulated hard"]


def test_truth_is_the_sum_where_it_is_known() -> None:
    """Without workers the truth is compute plus copies plus service; load adds its share to compute."""
    job = Job("sum", 0.5, 0.1, contention=0.1, cores=4, growth=0.0)
    none, loaded = canonical(0, None, False, True), canonical(4, 4, True, True)
    times = sample_times(job, "hard", [none, loaded])
    assert times[none] == pytest.approx(0.5 + 0.001 + 0.1, rel=2e-3)
    assert times[loaded] == pytest.approx(0.55 + 0.001, rel=2e-3)


def test_delay_is_seen_under_load_only_where_the_kernel_tells() -> None:
    """Run-queue delay marks loaded slices, unless the host cannot show it."""
    job = Job("delay", 0.4, 0.01, contention=0.1, cores=4)
    quiet, loaded = canonical(2, 2, True, True), canonical(4, 2, True, True)

    def delay(job: Job, config: LoaderConfig) -> float:
        machine = Machine(job, "mild", np.random.default_rng(5))
        return float(np.mean([machine.measure(config).run_delay_fraction for _ in range(20)]))

    assert delay(job, quiet) < 0.001
    assert 0.02 < delay(job, loaded) < 0.05
    assert delay(Job("delay", 0.4, 0.01, contention=0.1, cores=4, visible=False), loaded) < 0.001


def test_held_out_jobs_stay_the_same() -> None:
    """The held-out set is fixed, all different, and each job's space holds more than its baseline."""
    first, again = held_out(), held_out()
    assert first == again
    assert len({job.compute_s for job in first}) == len(first)
    assert all(len(space_of(job).configurations) > 20 for job in first)


def test_a_bar_that_is_not_a_number_is_missed() -> None:
    """Nothing passes by being undefined."""
    assert at_most("a", 0.1, 0.2, 1).passed
    assert not at_most("a", math.nan, 0.2, 1).passed
    assert not at_least("a", math.nan, 0.2, 1).passed

from __future__ import annotations

import itertools

import pytest

from objectives.schema import Crash, LoaderConfig, Measurement, canonical
from objectives.synthetic import SyntheticObjective
from objectives.synthetic_job import SyntheticJob

QUIET = SyntheticJob(slice_noise_sd=0.0, step_noise_sd=0.0, service_noise_sd=0.0, contention=0.0)
"""The default job without chance."""


def silent(_text: str) -> None:
    """Take progress and say nothing."""


def measure(job: SyntheticJob, config: LoaderConfig, seed: int = 0) -> Measurement:
    """Return the first measurement of a configuration."""
    outcome = SyntheticObjective(job, seed=seed).measure(config, silent)
    assert isinstance(outcome, Measurement)
    return outcome


def test_without_workers_the_step_is_service_and_compute() -> None:
    """With 0 workers every batch is made while the trainer waits: 8 x 0.15 s beside 0.4 s of compute."""
    found = measure(QUIET, LoaderConfig(0, None, False, True))
    assert found.wait_fraction == pytest.approx(1.2 / 1.604, rel=0.01)
    assert found.samples_per_s == pytest.approx(8 / 1.604, rel=0.01)


def test_the_default_job_is_data_bound_up_to_one_worker_and_flat_from_four() -> None:
    """One worker leaves most of the ceiling; from 4 on nothing is left to gain, and beyond the cores it gets worse."""
    ceiling = SyntheticObjective().prepare({}, silent).ceilings[0].samples_per_s
    speeds = {w: measure(SyntheticJob(), canonical(w, 2, True, True)).samples_per_s for w in (0, 1, 4, 6, 16)}
    assert max(speeds[0], speeds[1]) < 0.5 * ceiling
    assert min(speeds[4], speeds[6]) > 0.9 * ceiling
    assert speeds[16] < 0.95 * ceiling


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_more_workers_never_wait_longer_without_contention(prefetch: int) -> None:
    """While every worker has a core, one more never raises the data wait, step by step summed."""
    waits = [
        sum(measure(QUIET, canonical(w, prefetch, True, True)).raw.steps.data_wait_s) for w in range(QUIET.cores + 1)
    ]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(waits))
    assert waits[0] > 2 * waits[-1]


def test_a_queue_shorter_than_the_group_leaves_a_wait() -> None:
    """The trainer takes 8 batches at once: 6 ready ones leave a wait although 3 workers keep up on average."""
    job = SyntheticJob(slice_noise_sd=0.0, step_noise_sd=0.0, service_noise_sd=0.0, service_s=0.1)
    assert measure(job, canonical(3, 2, True, True)).wait_fraction > 0.02
    assert measure(job, canonical(4, 2, True, True)).wait_fraction < 0.001


def test_persistent_workers_save_the_start_at_each_epoch() -> None:
    """On 50 rows a fresh start is paid every epoch: workers x start-up, once per epoch, and nothing else differs."""
    job = SyntheticJob(slice_noise_sd=0.0, step_noise_sd=0.0, service_noise_sd=0.0, accumulation=16, epoch_batches=50)
    kept, fresh = (measure(job, canonical(4, 4, persistent, True)) for persistent in (True, False))
    assert job.plan.epochs == 3
    difference_s = sum(fresh.raw.steps.step_s) - sum(kept.raw.steps.step_s)
    assert difference_s == pytest.approx(3 * (4 * job.startup_per_worker_s - job.restart_kept_s))
    assert fresh.raw.steps.samples[:4] == (16, 16, 16, 2)


def test_pinned_memory_copies_faster() -> None:
    """Pageable memory takes `unpinned_factor` times as long to copy."""
    pinned, pageable = (measure(QUIET, canonical(4, 2, True, pin)) for pin in (True, False))
    assert pageable.raw.steps.h2d_s[0] == pytest.approx(3.0 * pinned.raw.steps.h2d_s[0])


def test_the_same_seed_is_the_same_study() -> None:
    """Numbers depend on seed, configuration and repeat, not on what was measured in between."""
    one, other = canonical(4, 2, True, True), canonical(2, 2, True, True)
    first = SyntheticObjective(seed=7)
    here = [first.measure(c, silent) for c in (one, other, one)]
    second = SyntheticObjective(seed=7)
    there = [second.measure(c, silent) for c in (one, one, other)]
    assert here == [there[0], there[2], there[1]]
    assert here[0] != here[2]
    assert SyntheticObjective(seed=8).measure(one, silent) != here[0]
    assert SyntheticObjective(seed=7, measured_before={one: 1}).measure(one, silent) == here[2]


def test_two_ceilings_are_above_every_quiet_configuration() -> None:
    """With the data ready, a step is copy and compute; no loader beats it."""
    ceilings = SyntheticObjective(QUIET).prepare({}, silent).ceilings
    assert [c.samples_per_s for c in ceilings] == pytest.approx([8 / 0.404] * 2)
    assert measure(QUIET, canonical(8, 8, True, True)).samples_per_s <= ceilings[0].samples_per_s


def test_a_scripted_crash_comes_at_its_turn() -> None:
    """The ordinal counts measurements of the study, earlier runs included; after it the configuration works."""
    job, config = SyntheticJob(crashes={1: "gpu_lost"}), canonical(4, 2, True, True)
    objective = SyntheticObjective(job)
    outcomes = [objective.measure(config, silent) for _ in range(3)]
    assert [isinstance(o, Crash) for o in outcomes] == [False, True, False]
    assert (outcomes[1].kind, outcomes[1].blame) == ("gpu_lost", "host")
    assert SyntheticObjective(job, measured_before={config: 1}).measure(config, silent) == outcomes[1]


@pytest.mark.parametrize(
    ("rule", "crashing"),
    [("depth > 8", {(4, 4), (8, 2)}), ("num_workers >= 8", {(8, 2)}), ("prefetch_factor == 4", {(4, 4)})],
)
def test_a_rule_crashes_what_it_names(rule: str, crashing: set[tuple[int, int]]) -> None:
    """A rule holds for every configuration it names, and for no other."""
    objective = SyntheticObjective(SyntheticJob(crashes={rule: "shm_full"}))
    pairs = {(0, 2), (2, 2), (4, 2), (4, 4), (8, 2)}
    found = {p for p in pairs if isinstance(objective.measure(canonical(*p, False, True), silent), Crash)}
    assert found == crashing


def test_what_does_not_fit_in_memory_crashes() -> None:
    """Workers need memory: one too many is out of memory, and below it the fraction is told."""
    job = SyntheticJob(memory_bytes=12 << 30)
    assert measure(job, canonical(4, 2, True, True)).peak_memory_fraction == pytest.approx(10 / 12, rel=0.01)
    crash = SyntheticObjective(job).measure(canonical(12, 2, True, True), silent)
    assert isinstance(crash, Crash)
    assert (crash.kind, crash.blame) == ("host_oom", "config")


@pytest.mark.parametrize(
    "values",
    [
        {"cores": 0},
        {"accumulation": 1.5},
        {"compute_s": 0.0},
        {"step_noise_sd": -0.1},
        {"crashes": {"depth over 9": "shm_full"}},
        {"crashes": {-1: "shm_full"}},
        {"crashes": {0: "boom"}},
    ],
)
def test_an_impossible_job_is_refused(values: dict[str, object]) -> None:
    """Developer errors name the parameter and the value."""
    with pytest.raises(ValueError, match=f"{next(iter(values))}.* must be .* but got"):
        SyntheticJob(**values)

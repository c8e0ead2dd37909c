"""Verdicts of interleaved re-measurements whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import crash
from simulated import BASELINE, rounds_of

from objectives.schema import canonical
from objectives.synthetic_job import SyntheticJob
from tuner.confirmation import LOOKS, ORDER, Judgement, judge

JOB = SyntheticJob(accumulation=1, timed_steps=20, service_s=0.004, h2d_s=0.0, slice_noise_sd=0.10, step_noise_sd=0.15)
"""Slices scatter by 10 %, nothing waits for data with a worker."""
INLINE, WORKERS = canonical(0, None, False, True), canonical(4, 2, True, True)


def judged(job: SyntheticJob, baseline=BASELINE, finalist=WORKERS, rounds: int = 6, seed: int = 0) -> Judgement:
    """Return the judgement after these rounds."""
    slices = rounds_of(job, {"baseline": baseline, "finalist": finalist}, rounds, seed)
    return judge(
        slices, baseline=baseline, finalist=finalist, usable_cpus=job.cores, max_rounds=rounds,
        epochs=job.plan.epochs, epoch_batches=job.epoch_batches,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_equal_settings_are_never_confirmed(seed):
    """The same settings under two labels show no difference, at 10 % scatter between slices."""
    verdict = judged(JOB, BASELINE, BASELINE, seed=seed)
    assert verdict.verdict in ("no difference", "not resolved")
    assert verdict.lower_fraction < 0.0 < verdict.upper_fraction


@pytest.mark.parametrize("seed", range(5))
def test_a_wait_of_five_percent_is_confirmed(seed):
    """Loading in the trainer costs 5 % of the step: confirmed, though compute scatters by 10 %."""
    verdict = judged(replace(JOB, service_s=0.021), INLINE, WORKERS, seed=seed)
    assert verdict.verdict == "confirmed"
    assert verdict.gain_fraction == pytest.approx(0.0525, abs=0.01)
    assert verdict.loader_saved_fraction == pytest.approx(0.05, abs=0.005)
    assert judged(replace(JOB, service_s=0.021), WORKERS, INLINE, seed=seed).verdict == "regressed"


def test_a_gain_nobody_would_notice_is_not_confirmed():
    """A wait of 0.4 %, seen without any scatter, is below what is called a gain."""
    still = replace(JOB, service_s=0.0016, slice_noise_sd=0.001, step_noise_sd=0.005)
    verdict = judged(still, INLINE, WORKERS)
    assert verdict.verdict == "no difference"
    assert verdict.gain_fraction == pytest.approx(0.004, abs=0.002)


def test_under_load_compute_may_really_differ():
    """With as many workers as CPUs a saved wait of 3 % is not enough: compute may have paid for it."""
    job = replace(JOB, service_s=0.0126)
    alone, loaded = judged(job, INLINE, WORKERS), judged(job, INLINE, canonical(8, 2, True, True))
    assert (alone.loaded, loaded.loaded) == (False, True)
    assert alone.verdict == "confirmed"
    assert loaded.verdict == "not resolved"
    assert loaded.upper_fraction - loaded.lower_fraction > 2 * (alone.upper_fraction - alone.lower_fraction)


def test_whole_epochs_count_their_restarts():
    """On 50 rows keeping the workers is worth their starting, wait or no wait."""
    job = SyntheticJob(
        epoch_batches=50, accumulation=16, service_s=0.004, startup_per_worker_s=0.03, slice_noise_sd=0.02
    )
    verdict = judged(job, canonical(4, 4, False, True), canonical(4, 4, True, True), rounds=4)
    assert verdict.verdict == "confirmed"
    assert verdict.gain_fraction == pytest.approx(0.12 / 1.3, rel=0.3)


def test_a_broken_round_is_left_out():
    """A round in which a slice was lost does not count; without two whole ones there is no judgement."""
    slices = rounds_of(JOB, {"baseline": BASELINE, "finalist": WORKERS}, 3)
    slices[5] = replace(slices[5], outcome=crash())
    two = judge(slices, baseline=BASELINE, finalist=WORKERS, usable_cpus=8)
    assert two.rounds == 2
    with pytest.raises(ValueError, match="at least 2 complete rounds but got 1"):
        judge(slices[: 2 * len(ORDER)], baseline=BASELINE, finalist=WORKERS, usable_cpus=8)


def test_more_rounds_are_asked_for_only_if_they_would_tell():
    """An unresolved last look is final; it names more rounds than there were, or none where the prior is too wide."""
    quiet = replace(JOB, slice_noise_sd=0.01, step_noise_sd=0.03, service_s=0.004)
    some = judged(quiet, INLINE, WORKERS, rounds=LOOKS[0])
    assert (some.verdict, some.final) == ("not resolved", True)
    assert some.rounds_needed is not None
    assert some.rounds_needed > LOOKS[0]
    never = judged(replace(JOB, service_s=0.0032), INLINE, WORKERS, rounds=LOOKS[0])
    assert (never.verdict, never.final, never.rounds_needed) == ("not resolved", True, None)

"""The queue model: its recursion against another one, its predictions against a known truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import BASELINE, empty_study, rounds_of, study_of, truths

from objectives.schema import LoaderConfig, Measurement, canonical
from objectives.synthetic_job import SyntheticJob
from objectives.synthetic_pipeline import Times, run
from tuner.queue_model.arms import arms_of
from tuner.queue_model.contention import PRIOR_MEAN, fit_contention, slice_levels
from tuner.queue_model.evidence import windows_of
from tuner.queue_model.fit import fit_model
from tuner.queue_model.predict import predict
from tuner.queue_model.recursion import Lanes, run_lanes
from tuner.queue_model.services import fit_services
from tuner.queue_model.terms import SliceTerms

JOB = SyntheticJob(slice_noise_sd=0.0, step_noise_sd=0.05)
"""12 steps inside an epoch of 100, accumulation 8: data-bound with 1 worker, enough with 4."""
EPOCHS = replace(JOB, epoch_batches=50, accumulation=16, service_s=0.02)
"""Whole epochs of 50 batches: groups of 16, 16, 16 and 2."""


@pytest.mark.parametrize("config", [canonical(w, p, True, True) for w in (0, 1, 2, 3, 5) for p in (1, 2, 4)])
def test_recursion_agrees_with_the_event_simulation(config):
    """Lane by lane the waits are those of the scalar simulation, which was written on its own."""
    rng = np.random.default_rng(config.num_workers * 10 + config.depth)
    groups, steps = (3, 3, 3, 1), 4
    compute, service = rng.uniform(0.05, 0.3, steps), rng.uniform(0.01, 0.2, 200)
    times = Times(
        compute_s=list(compute), h2d_s=0.0, samples=groups, tokens=groups, fresh_s=0.0, kept_s=0.02,
        trainer_cpu_fraction=0.0, delayed_fraction=0.0,
    )  # fmt: skip
    drained = 1 + config.depth + max(4 * config.num_workers, 16) - 1
    found = run(config, [groups], times, iter(service))
    lanes = Lanes(
        workers=np.array([config.num_workers]), depth=np.array([config.depth]), busy_s=compute[None],
        service_s=service[None, drained : drained + sum(groups)], overhead_s=np.zeros((1, sum(groups))),
        ready_s=np.array([0.02]), stagger_s=np.zeros(1),
    )  # fmt: skip
    waits = run_lanes(lanes, np.array(groups))
    assert waits.wait_s[0, 0] == pytest.approx(sum(found.steps.data_wait_s))
    assert waits.restart_s[0] == pytest.approx(sum(found.steps.restart_s))


@pytest.mark.parametrize("job", [JOB, EPOCHS])
def test_three_slices_predict_the_space(job):
    """From baseline, no workers and 4 x 4 every configuration is predicted within 5 %, half of them within 1 %."""
    data, space = study_of(job, [BASELINE, canonical(0, None, False, True), canonical(4, 4, True, True)])
    model = fit_model(data)
    assert model is not None
    truth = truths(replace(job, step_noise_sd=0.0, service_noise_sd=0.0), space)
    known = [c for c in space.configurations if c.num_workers < job.cores and c.pin_memory]
    predicted = predict(model, known)
    errors = np.abs(1.0 / predicted.total_s / np.array([truth[c] for c in known]) - 1.0)
    assert np.max(errors) < 0.05
    assert np.median(errors) < 0.01


def test_own_waits_are_met():
    """Run again as they were, measured slices show the waits that were observed: the fit factor stays at 1."""
    data, _ = study_of(JOB, [BASELINE, canonical(2, 2, False, True), canonical(4, 4, True, False)])
    model = fit_model(data)
    assert model is not None
    assert model.factor == pytest.approx(1.0, abs=0.01)
    assert all(model.fits(t.config) for t in data.trials)


def test_stamps_that_tell_too_little_are_made_up_for():
    """Services stamped 13 % too short change no prediction: a service counts from when the worker could start."""
    data, _ = study_of(replace(JOB, service_s=0.3), [BASELINE, canonical(2, 2, True, True)])
    short = replace(data, trials=tuple(replace(t, outcome=_shortened(t.outcome, 0.87)) for t in data.trials))
    configs = [BASELINE, canonical(3, 2, True, True), canonical(4, 4, True, True)]
    true, made_up = (predict(fit_model(study), configs).total_s for study in (data, short))
    assert made_up == pytest.approx(true, rel=0.03)


def _shortened(measured: Measurement, share: float) -> Measurement:
    """Return the slice with services that are stamped to have begun later than they did."""
    assert measured.raw is not None
    b = measured.raw.batches
    starts = tuple(e - share * (e - s) for s, e in zip(b.service_start_s, b.service_end_s, strict=True))
    return replace(measured, raw=replace(measured.raw, batches=replace(b, service_start_s=starts)))


def test_lucky_compute_makes_no_configuration_faster():
    """A slice whose compute was 30 % quicker by chance is predicted like the others."""
    job = replace(JOB, service_s=0.002, step_noise_sd=0.0)
    data, _ = study_of(job, [BASELINE, canonical(4, 2, True, True), canonical(6, 2, True, True)])
    lucky = data.trials[2]
    assert isinstance(lucky.outcome, Measurement)
    steps = lucky.outcome.raw.steps
    faster = tuple(s - 0.3 * c for s, c in zip(steps.step_s, steps.compute_s, strict=True))
    raw = replace(lucky.outcome.raw, steps=replace(steps, step_s=faster))
    data = replace(data, trials=(*data.trials[:2], replace(lucky, outcome=replace(lucky.outcome, raw=raw))))
    model = fit_model(data)
    assert model is not None
    predicted = predict(model, [t.config for t in data.trials])
    assert predicted.total_s[2] == pytest.approx(predicted.total_s[1], rel=0.002)


def test_contention_is_seen_and_shrunk():
    """Four slices 30 % slower under load are believed, one that is 8 % quicker is not: load makes nothing faster."""
    rng = np.random.default_rng(1)
    levels = np.concatenate([rng.normal(0.0, 0.02, 6), rng.normal(0.26, 0.02, 4)])
    seen = fit_contention(levels, np.array([0.0] * 6 + [1.0] * 4))
    assert seen.mean == pytest.approx(0.26, abs=0.03)
    quick = fit_contention(np.array([0.0, 0.01, -0.01, 0.02, -0.08]), np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
    assert 0.0 <= quick.mean < 0.02
    assert fit_contention(np.zeros(4), np.zeros(4)).mean == pytest.approx(PRIOR_MEAN, abs=0.015)


def test_slice_levels_compare_equal_work():
    """A shorter slice is held against the same first steps of the others, whatever the later steps take."""
    work = np.array([1.0, 3.0, 5.0, 7.0])
    levels = slice_levels([work, work * 1.1, (work * 1.2)[:2]])
    assert levels - levels[0] == pytest.approx(np.log([1.0, 1.1, 1.2]), abs=0.005)


def test_restarts_are_paid_once_an_epoch():
    """On 50 rows workers that are started anew cost what the stagger says; on a long epoch next to nothing."""
    for job, least, most in ((EPOCHS, 0.05, 0.2), (JOB, 0.0, 0.005)):
        data, _ = study_of(job, [BASELINE, canonical(4, 4, True, True), canonical(4, 4, False, True)])
        model = fit_model(data)
        assert model is not None
        kept, fresh = predict(model, [canonical(4, 4, True, True), canonical(4, 4, False, True)]).total_s
        assert least < fresh / kept - 1.0 < most


def test_no_model_without_series():
    """A recorded table has no series, a study without trials nothing to fit: no model, no error."""
    _, _, data = empty_study(JOB)
    assert fit_model(data) is None
    data, _ = study_of(JOB, [BASELINE])
    bare = tuple(replace(t, outcome=replace(t.outcome, raw=None)) for t in data.trials)
    assert fit_model(replace(data, trials=bare)) is None


def test_arms_go_by_their_labels():
    """Two arms of equal settings keep their own windows: nothing looks at the settings to tell them apart."""
    arms: dict = {"baseline": BASELINE, "finalist": LoaderConfig(1, 2, True, True)}
    found = arms_of(rounds_of(JOB, arms, 2), arms, SliceTerms(0, 800, 1, 8))
    assert found.of("baseline").tolist() == [True, False, False, True] * 2
    assert found.of("finalist").tolist() == [False, True, True, False] * 2


def test_the_same_study_gives_the_same_model():
    """Predictions are a function of study and seed alone, draws included."""
    data, space = study_of(JOB, [BASELINE, canonical(4, 4, True, True)])
    first, again = (predict(fit_model(data), space.configurations, seed=3) for _ in range(2))
    assert np.array_equal(first.draws_s, again.draws_s)


def test_a_lucky_slice_is_drawn_to_its_neighbours() -> None:
    """5 workers cannot take 30 % less for a batch than 4 and 6 do; a worker count that was measured long may differ."""
    windows = []
    for workers, mean_s, batches in ((4, 1.0, 400), (5, 0.7, 4), (6, 1.0, 400), (16, 1.6, 400)):
        data, _ = study_of(replace(JOB, service_s=0.1), [canonical(workers, 2, True, True)])
        window = windows_of(data.trials[0].outcome, data.trials[0].config, index=0, terms=SliceTerms(0, 800, 8, 16))[0]
        scatter = np.random.default_rng(workers).lognormal(0.0, 0.5, batches)
        windows.append(replace(window, service_s=mean_s * scatter / scatter.mean()))
    curve = fit_services(windows, [4, 5, 6, 8, 16], usable_cpus=16)
    assert curve.mean_s(5) == pytest.approx(1.0, abs=0.06)
    assert curve.mean_s(16) == pytest.approx(1.6, rel=0.05)
    assert curve.mean_s(6) < curve.mean_s(8) < curve.mean_s(16)


def test_a_queue_longer_than_the_slice_hides_no_slow_loader() -> None:
    """64 batches of queue, 20 of slice, a loader that makes 0.8 of what is asked: the wait is the steady one."""
    job = SyntheticJob(
        accumulation=1, timed_steps=20, compute_s=0.1, service_s=1.0, step_noise_sd=0.0, slice_noise_sd=0.0
    )
    deep = canonical(8, 8, True, True)
    data, _ = study_of(job, [BASELINE, deep])
    model = fit_model(data)
    assert model is not None
    assert predict(model, [deep]).total_s[0] == pytest.approx(1.0 / 8.0, rel=0.05)

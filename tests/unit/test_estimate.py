"""The figures of one slice: what is counted, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from objectives.estimate import summarise
from objectives.schema import BatchSeries, RawSlice, SlicePlan, StepSeries


def slice_of(waits_s: list[float], *, restart_s: float = 0.0, compute_s: float = 1.0, group: int = 1) -> RawSlice:
    """Return a slice of steps with these data waits, one sample a batch."""
    n = len(waits_s)
    restarts_s = [restart_s, *[0.0] * (n - 1)]
    steps = StepSeries(
        step_s=tuple(compute_s + w + r for w, r in zip(waits_s, restarts_s, strict=True)),
        restart_s=tuple(restarts_s),
        data_wait_s=tuple(waits_s),
        h2d_s=(0.0,) * n,
        samples=(group,) * n,
        tokens=(10 * group,) * n,
    )
    return RawSlice("trial", steps, BatchSeries(step=tuple(s for s in range(n) for _ in range(group))))


def test_a_slice_of_whole_epochs_counts_everything_as_it_was() -> None:
    """Samples over time: 4 samples in 4 s of compute, 0.4 s of wait and one restart of 0.6 s."""
    plan = SlicePlan(timed_steps=4, epochs=1, epoch_batches=4)
    m = summarise(slice_of([0.1] * 4, restart_s=0.6), plan=plan, workload_batch_size=1)
    assert m.samples_per_s == pytest.approx(4 / 5.0)
    assert m.wait_fraction == pytest.approx(0.4 / 5.0)
    assert m.restart_fraction == pytest.approx(0.6 / 5.0)


def test_a_restart_inside_a_long_epoch_is_spread_over_it() -> None:
    """4 of 400 batches carry a hundredth of the restart, whatever the slice's length."""
    plan = SlicePlan(timed_steps=4, epochs=0, epoch_batches=400)
    m = summarise(slice_of([0.0] * 4, restart_s=2.0), plan=plan, workload_batch_size=1)
    assert m.samples_per_s == pytest.approx(4 / (4 + 2.0 / 100))


def test_the_empty_queue_at_the_start_is_no_steady_wait() -> None:
    """Waits while the first `depth` batches are made are left out of a slice inside an epoch, and of that alone."""
    waits_s = [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    inside = summarise(
        slice_of(waits_s), plan=SlicePlan(timed_steps=6, epochs=0, epoch_batches=600), workload_batch_size=1, depth=2
    )
    whole = summarise(
        slice_of(waits_s), plan=SlicePlan(timed_steps=6, epochs=1, epoch_batches=6), workload_batch_size=1, depth=2
    )
    assert inside.wait_fraction == 0.0
    assert whole.wait_fraction == pytest.approx(1.0 / 7.0)


def test_a_queue_deeper_than_the_slice_leaves_half_of_it() -> None:
    """However deep the queue, the wait of the second half is believed: a starved loader is never called free."""
    plan = SlicePlan(timed_steps=4, epochs=0, epoch_batches=400)
    m = summarise(slice_of([0.5] * 4), plan=plan, workload_batch_size=1, depth=1000)
    assert m.wait_fraction == pytest.approx(0.5 / 1.5)


@pytest.mark.parametrize(
    ("busy", "own", "foreign"), [(0.9, 0.4, 0.5), (0.4, 0.41, 0.0), (None, 0.4, None), (0.9, None, None)]
)
def test_foreign_load_is_what_is_left_of_the_busy_time(
    busy: float | None, own: float | None, foreign: float | None
) -> None:
    """Busy less own, never below nothing, and unknown where either is."""
    raw = replace(slice_of([0.0] * 4), cpu_busy_fraction=busy, own_cpu_fraction=own)
    m = summarise(raw, plan=SlicePlan(timed_steps=4, epochs=1, epoch_batches=4), workload_batch_size=1)
    assert (m.own_cpu_fraction, m.foreign_cpu_fraction) == (own, foreign if foreign is None else pytest.approx(foreign))


def test_no_steps_are_no_measurement() -> None:
    """A slice without a step is refused."""
    with pytest.raises(ValueError, match="at least one step"):
        summarise(
            RawSlice("trial", StepSeries()), plan=SlicePlan(timed_steps=1, epochs=0, epoch_batches=9),
            workload_batch_size=1,
        )  # fmt: skip

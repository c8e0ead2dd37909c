from __future__ import annotations

import pytest
from builders import config, crash, measured, study_data

from tuner.pooling import agreed_ceiling, noise_floor, pool, settled
from tuner.selection import select

SCATTER = [("w1 p2 persist pin", rate) for rate in (98.0, 100.0, 102.0, 100.0)]
"""Four slices of the baseline around 100: 3 degrees of freedom, standard deviation 1.63 %."""


def chosen(data) -> str | None:
    """Return the key of the choice."""
    best = select(data).best
    return best.config.key if best else None


def test_pool_weighs_each_slice_the_same():
    """Replicates are one configuration; a mean is over slices and a crash counts in the score alone."""
    data = study_data(
        [("w2 p2", measured(10.0, wait_fraction=0.2)), ("w4 p2", 30.0), ("w2 p2", 14.0), ("w2 p2", crash())]
    )
    first, second = pool(data.trials)
    assert first.trials == (0, 2, 3)
    assert first.slices == 2
    assert first.samples_per_s == 12.0
    assert first.sd_per_s == pytest.approx(8**0.5)
    assert first.wait_fraction == 0.2
    assert first.value == 8.0
    assert first.crashed
    assert second.sd_per_s is None


def test_noise_floor_is_students_interval_of_pooled_scatter():
    """With 3 degrees of freedom the factor is 3.18, not 1.96; the ceilings are one more group."""
    sd = (8 / 3) ** 0.5 / 100
    assert noise_floor(study_data(SCATTER)) == pytest.approx(3.182 * sd, rel=0.01)
    assert noise_floor(study_data(SCATTER[:3])) is None
    with_ceilings = noise_floor(study_data(SCATTER, ceilings=[200.0, 200.0]))
    assert with_ceilings == pytest.approx(2.776 * (8e-4 / 4) ** 0.5, rel=0.01)


def test_played_back_repeats_are_no_measure_of_noise():
    """A recorded row that is played back many times scatters by nothing and must not look exact."""
    assert noise_floor(study_data([("w4 p2", 1000 / 940)] * 7)) is None


def test_cold_ceilings_are_no_noise():
    """The first slices of every run of a study read up to 2.2 times slow and must not widen the noise floor."""
    data = study_data([], ceilings=[45.0, 60.0, 100.0, 101.0, 46.0, 99.0, 100.0])
    assert [c.samples_per_s for c in settled(data.ceilings)] == [100.0, 101.0, 99.0, 100.0]
    assert [c.samples_per_s for c in agreed_ceiling(data.ceilings)] == [99.0, 100.0]


def test_cheapest_wins_a_tie():
    """Among scores within 0.25 %: fewest workers, then prefetch, then fewest changed settings."""
    rows = [*SCATTER, ("w8 p8 persist pin", 150.1), ("w4 p4 persist pin", 150.0), ("w4 p2", 150.0)]
    data = study_data([*rows, ("w4 p2 persist pin", 150.0)])
    assert chosen(data) == "w4 p2 persist pin"


def test_a_difference_beyond_noise_is_worth_its_cost():
    """A cheaper configuration that is slower by more than repeats scatter is not taken."""
    assert chosen(study_data([*SCATTER, ("w4 p2", 130.0), ("w8 p2", 151.0)])) == "w8 p2"


def test_baseline_is_kept_when_tied():
    """Nothing is expected to gain 0.25 %: keep the defaults, even where something cheaper is tied too."""
    selection = select(study_data([*SCATTER, ("w0", 100.0), ("w4 p2", 100.0)]))
    assert selection.best is selection.baseline
    assert "keep the defaults" in selection.reason


def test_never_one_that_crashed():
    """One crash bars a configuration, however fast its other slices were."""
    assert chosen(study_data([*SCATTER, ("w8 p2", 300.0), ("w8 p2", crash()), ("w4 p2", 150.0)])) == "w4 p2"


def test_memory_headroom():
    """A configuration above 92 % of the memory is on the edge of a crash and is not chosen."""
    rows = [*SCATTER, ("w8 p2", measured(300.0, peak_memory_fraction=0.93))]
    assert chosen(study_data([*rows, ("w4 p2", measured(150.0, peak_memory_fraction=0.92))])) == "w4 p2"


def test_highest_score_without_noise_estimate():
    """A recorded table has one row a configuration: the highest score wins if it gains anything worth the name."""
    data = study_data([("w1 p2 persist pin", 100.0), ("w4 p2", 103.0), ("w8 p2", 101.0)])
    assert chosen(data) == "w4 p2"


def test_score_decides_not_throughput():
    """A faster configuration that overloads the CPUs loses to one that does not."""
    data = study_data([("w1 p2", 100.0), ("w16 p2", measured(120.0, cpu_busy_fraction=1.0)), ("w4 p2", 110.0)])
    assert chosen(data) == "w4 p2"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([("w1 p2", crash())], "every configuration tried crashed"),
        ([("w1 p2", crash()), ("w1 p2", 10.0)], "every configuration that was measured also crashed"),
        ([("w1 p2", measured(10.0, peak_memory_fraction=0.99))], "more than 92 % of the memory"),
    ],
)
def test_no_choice_says_why(rows, reason):
    """Where nothing is fit to choose there is no best, and the reason is told."""
    selection = select(study_data(rows, baseline=config("w1 p2")))
    assert selection.best is None
    assert reason in selection.reason

from __future__ import annotations

import math

import pytest

from objectives.schema import Crash, Measurement
from objectives.score import ScorePolicy, score

POLICY = ScorePolicy()


@pytest.mark.parametrize(
    ("busy", "value"), [(None, 8.0), (0.0, 8.0), (0.85, 8.0), (0.925, 7.0), (1.0, 6.0), (1.02, 6.0)]
)
def test_cpu_overload_cuts_in_proportion(busy: float | None, value: float) -> None:
    """Nothing up to 85 % busy, a quarter from 100 % on, in between in proportion; unknown cuts nothing."""
    assert score(Measurement(8.0, cpu_busy_fraction=busy), POLICY).value == pytest.approx(value)


def test_anothers_load_is_not_held_against_a_configuration() -> None:
    """Where the slice's own load is known it alone is cut, and the sentence says whose it was."""
    crowded = Measurement(8.0, cpu_busy_fraction=1.0, own_cpu_fraction=0.5)
    assert score(crowded, POLICY).penalties == ()
    full = score(Measurement(8.0, cpu_busy_fraction=1.0, own_cpu_fraction=0.925), POLICY)
    assert full.value == pytest.approx(7.0)
    assert "itself" in full.penalties[0].reason


@pytest.mark.parametrize(("frequency", "value"), [("none", 8.0), ("occasional", 7.2), ("frequent", 4.0)])
def test_recorded_crashes_cut_by_their_frequency(frequency: str, value: float) -> None:
    """A recorded run that survived crashes loses a tenth or a half."""
    assert score(Measurement(8.0, crash_frequency=frequency), POLICY).value == pytest.approx(value)


def test_every_cut_is_itemised_with_its_numbers() -> None:
    """Two harms are two items, each with a sentence that holds what was observed."""
    found = score(Measurement(8.0, cpu_busy_fraction=0.95, crash_frequency="frequent"), POLICY)
    assert [p.name for p in found.penalties] == ["cpu_overload", "frequent_crashes"]
    assert "95%" in found.penalties[0].reason
    assert found.throughput == 8.0
    assert all(p.reason.endswith(".") for p in found.penalties)


def test_a_harmless_measurement_has_no_items() -> None:
    """A cut of nothing is not an item, even if the policy names it."""
    lenient = ScorePolicy(frequent_crash_penalty=0.0)
    assert score(Measurement(8.0, cpu_busy_fraction=0.5, crash_frequency="frequent"), lenient).penalties == ()


@pytest.mark.parametrize("blame", ["config", "data", "host", "user"])
def test_a_crash_scores_zero_and_says_why(blame: str) -> None:
    """Whoever is to blame, nothing was trained."""
    found = score(Crash("shm_full", blame, "drain", "/dev/shm full", "Use fewer workers."), POLICY)
    assert (found.value, found.throughput) == (0.0, 0.0)
    assert "/dev/shm full" in found.penalties[0].reason


@pytest.mark.parametrize("name", list(ScorePolicy.__dataclass_fields__))
@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_a_policy_is_of_fractions(name: str, value: float) -> None:
    """Every value of a policy lies between 0 and 1."""
    with pytest.raises(ValueError, match=f"{name} must be between 0 and 1 but got"):
        ScorePolicy(**{name: value})


def test_the_soft_limit_is_below_the_hard_one() -> None:
    """Equal limits would divide by zero."""
    with pytest.raises(ValueError, match="cpu_soft_fraction must be below cpu_hard_fraction"):
        ScorePolicy(cpu_soft_fraction=0.9, cpu_hard_fraction=0.9)

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from objectives.schema import Measurement
from objectives.score import ScorePolicy, score

FRACTION = st.floats(0.0, 1.0)
BUSY = st.floats(0.0, 1.2)
THROUGHPUT = st.floats(1e-3, 1e6)
FREQUENCY = st.sampled_from(["none", "occasional", "frequent"])


@st.composite
def policies(draw: st.DrawFn) -> ScorePolicy:
    """Draw a policy whose limits are in order."""
    soft = draw(st.floats(0.0, 0.99))
    hard = draw(st.floats(soft, 1.0, exclude_min=True))
    return ScorePolicy(soft, hard, draw(FRACTION), draw(FRACTION), draw(FRACTION))


@given(policies(), THROUGHPUT, st.none() | BUSY, FREQUENCY)
def test_the_items_make_up_the_value(
    policy: ScorePolicy, throughput: float, busy: float | None, frequency: str
) -> None:
    """Value is throughput times what each item leaves, never above the throughput and never below zero."""
    found = score(Measurement(throughput, cpu_busy_fraction=busy, crash_frequency=frequency), policy)
    left = math.prod(1.0 - p.fraction for p in found.penalties)
    assert math.isclose(found.value, throughput * left, rel_tol=1e-12, abs_tol=1e-300)
    assert 0.0 <= found.value <= throughput
    assert all(0.0 < p.fraction <= 1.0 and p.reason for p in found.penalties)


@given(policies(), THROUGHPUT, BUSY, BUSY, FREQUENCY)
def test_a_busier_cpu_never_scores_higher(
    policy: ScorePolicy, throughput: float, one: float, other: float, frequency: str
) -> None:
    """Among equals, more CPU load is worth the same or less."""
    calm, busy = sorted((one, other))
    values = [
        score(Measurement(throughput, cpu_busy_fraction=b, crash_frequency=frequency), policy).value
        for b in (calm, busy)
    ]
    assert values[1] <= values[0]

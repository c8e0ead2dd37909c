"""Ceilings over a study: a change that is more than their scatter, and the chart of it."""

from __future__ import annotations

import random

import pytest

from tuner.drift import chart, drift


def test_a_steady_fall_is_told_from_scatter() -> None:
    """A machine that loses 10 % is found in scatter of 1 %; the interval holds the loss about 19 times of 20."""
    draw = random.Random(1)
    studies = [drift([2.0 * (1 - 0.1 * i / 7) * draw.gauss(1.0, 0.01) for i in range(8)]) for _ in range(400)]
    found = [d for d in studies if d is not None]
    assert all(d.beyond_scatter for d in found)
    held = sum(abs(d.change_fraction + 0.1 / 0.95) < d.half_width_fraction for d in found)
    assert 0.92 * 400 <= held <= 0.98 * 400


def test_scatter_alone_is_rarely_called_drift() -> None:
    """Of 1,000 quiet studies about one in twenty is called drift, for any scatter and number of ceilings."""
    draw = random.Random(2)
    called = [drift([draw.gauss(1.0, 0.1) for _ in range(4 + k % 6)]) for k in range(1000)]
    assert 25 <= sum(d is not None and d.beyond_scatter for d in called) <= 75


def test_three_ceilings_tell_nothing() -> None:
    """A line through three leaves one degree of freedom: no answer; equal ones change by nothing."""
    assert drift([1.0, 0.9, 0.8]) is None
    flat = drift([1.0] * 4)
    assert flat is not None
    assert (flat.change_fraction, flat.range_fraction, flat.beyond_scatter) == (0.0, 0.0, False)
    with pytest.raises(ValueError, match="must all be above 0"):
        drift([1.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.71, 2.75, 2.40], "2.71 2.75 2.40 ▇█▅"),
        ([100.0, 220.0], "100.0 220.0  █"),
        ([5.0, 5.0], "5.00 5.00 ██"),
        ([], ""),
    ],
)
def test_the_chart_is_one_bar_a_ceiling(values: list[float], text: str) -> None:
    """Bars begin at half of the highest, so that a cold start is empty and noise stays small."""
    assert chart(values) == text

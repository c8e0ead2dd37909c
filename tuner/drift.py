"""Whether the machine changed speed while a study ran, from its ceilings in order of time.

Runs in: parent. Pure. Nothing is corrected by the ceilings. A ceiling is as noisy as any slice, and dividing by a noisy
thing adds its noise: interpolating five ceilings raised the standard deviation of slices on all three recorded jobs
tried, from 0.099 to 0.110, from 0.092 to 0.096 and from 0.091 to 0.093.
*Not covered*: the sentence made of it (`tuner.study_checks`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from objectives.estimate import t_quantile
from tuner.wording import decimals_for, rate

BARS = " ▁▂▃▄▅▆▇█"
BOTTOM_FRACTION = 0.5
"""Of the highest: where bars begin. From zero nothing would show, from the lowest any noise would look like a fall."""
MIN_CEILINGS = 4
"""Below it two degrees of freedom are not left beside a line, and any change may be chance."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How throughput from memory changed from the first ceiling to the last; fractions of its mean."""

    ceilings: int
    change_fraction: float
    """Rise of the straight line through them; negative is slower."""
    half_width_fraction: float
    """Half of the 95 % interval of that rise, from the scatter around the line."""
    range_fraction: float
    """Highest less lowest."""

    @property
    def beyond_scatter(self) -> bool:
        """Return whether the rise is more than the scatter explains."""
        return abs(self.change_fraction) > self.half_width_fraction


def drift(ceilings_per_s: Sequence[float]) -> Drift | None:
    """Return the change over these ceilings, oldest first; None below 4.

    An ordinary least-squares line over their order: it finds a slow change and a step alike. Leave cold starts out
    (`tuner.pooling.settled`), they are no drift.

    Raises:
        ValueError: If a ceiling is not above 0.
    """
    if any(not value > 0 for value in ceilings_per_s):
        raise ValueError(f"ceilings_per_s must all be above 0 but got {min(ceilings_per_s)!r}.")
    n = len(ceilings_per_s)
    if n < MIN_CEILINGS:
        return None
    mean = statistics.fmean(ceilings_per_s)
    values = [value / mean for value in ceilings_per_s]
    slope, level = statistics.linear_regression(range(n), values)
    squares = math.fsum((value - level - slope * i) ** 2 for i, value in enumerate(values))
    spread = (n**3 - n) / 12  # sum of squares of 0, 1, ..., n - 1 around their mean
    error = math.sqrt(squares / (n - 2) / spread)
    return Drift(
        ceilings=n,
        change_fraction=slope * (n - 1),
        half_width_fraction=t_quantile(0.975, n - 2) * error * (n - 1),
        range_fraction=max(values) - min(values),
    )


def chart(ceilings_per_s: Sequence[float]) -> str:
    """Return the ceilings and a bar for each, such as `2.71 2.75 2.40 ▇█▅`; empty without any.

    A full bar is the highest; a bar is empty at half of it or less, as cold starts are.
    """
    if not ceilings_per_s:
        return ""
    decimals = decimals_for(ceilings_per_s)
    figures = " ".join(rate(value, decimals) for value in ceilings_per_s)
    return f"{figures} {bars(ceilings_per_s)}"


def bars(values: Sequence[float]) -> str:
    """Return one block character per value, in proportion above half of the highest."""
    top = max(values, default=0.0)
    if not top > 0:
        return ""
    steps = len(BARS) - 1
    heights = ((value / top - BOTTOM_FRACTION) / (1 - BOTTOM_FRACTION) * steps for value in values)
    return "".join(BARS[max(0, min(steps, math.floor(height + 1e-9)))] for height in heights)

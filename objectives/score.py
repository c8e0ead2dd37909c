"""Turns an outcome into the one number a study maximises, with every cut itemised.

Runs in: parent. *Not covered*: whether a difference between two scores is real (`tuner.selection`).

Why a loaded CPU costs anything although the throughput already holds what it did to this slice: the slice had the
machine to itself, the user's run will not. The thread that launches GPU kernels needs a core the moment a kernel ends;
with every core busy it waits for one, and any other program on the machine then comes out of the GPU's time. SPDL's
optimisation guide ("Noisy Neighbour", facebookresearch/spdl) measured training slow down as CPU load was added and
recommends at most 40 % CPU utilisation. That is advice on what to prefer between equals, not a limit: between 40 and
85 % there is still an idle core for the launching thread on the 8 to 32 thread CPUs this is meant for, so nothing is
cut. 85 % is the first level where on 8 threads little more than one core is left; at 100 % launches are delayed for
certain. It counts what the slice itself uses: another program's load is no fault of the configuration (a check tells
of it). Where that is not known, as in recordings, all load counts. The size of the cut (a quarter at most) and of
those for crashes are policy, not measurement: options change them, and the throughput is kept beside the value.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from objectives.schema import Crash, Measurement, Outcome, Penalty, Score

MEMORY_LIMIT_FRACTION = 0.92
"""Peak share of host memory up to which a configuration is feasible; what is above may survive once, on the edge."""

CRASH_VIOLATION = 0.15
"""How far a crash violates that constraint: about as much as a memory share of 107 % would."""


@dataclass(frozen=True, slots=True)
class ScorePolicy:
    """How much of the throughput each harm costs; all are fractions of 1.

    CPU overload cuts nothing up to `cpu_soft_fraction` of the usable CPUs busy, `cpu_max_penalty` from
    `cpu_hard_fraction` on, and in between in proportion. The crash penalties are for recorded runs that survived
    crashes of their workers; a measured slice that lost a worker is a `Crash` and scores 0.0.

    Raises:
        ValueError: If a value is not a fraction, or the soft limit is not below the hard one.
    """

    cpu_soft_fraction: float = 0.85
    cpu_hard_fraction: float = 1.0
    cpu_max_penalty: float = 0.25
    occasional_crash_penalty: float = 0.10
    frequent_crash_penalty: float = 0.50

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0.0 <= value <= 1.0:  # also refuses NaN
                raise ValueError(f"{field.name} must be between 0 and 1 but got {value!r}.")
        if self.cpu_soft_fraction >= self.cpu_hard_fraction:
            raise ValueError(
                f"cpu_soft_fraction must be below cpu_hard_fraction ({self.cpu_hard_fraction!r}) "
                f"but got {self.cpu_soft_fraction!r}."
            )


def score(outcome: Outcome, policy: ScorePolicy) -> Score:
    """Return the value the sampler maximises, in samples/s, with each cut and its reason.

    A crash scores 0.0 whoever is to blame: it trained nothing. Whether it counts at all is decided by its `blame`,
    not here. What was not measured is not held against a configuration: an unknown CPU load cuts nothing.
    """
    if isinstance(outcome, Crash):
        return Score(0.0, 0.0, (Penalty("crash", 1.0, f"The slice crashed and trained nothing: {outcome.message}."),))
    penalties = tuple(
        p
        for p in (_cpu_overload(outcome, policy), _worker_crashes(outcome, policy))
        if p is not None and p.fraction > 0
    )
    value = outcome.samples_per_s
    for penalty in penalties:
        value *= 1.0 - penalty.fraction
    return Score(value, outcome.samples_per_s, penalties)


def _cpu_overload(measured: Measurement, policy: ScorePolicy) -> Penalty | None:
    own = measured.own_cpu_fraction
    busy = measured.cpu_busy_fraction if own is None else own
    if busy is None or not busy > policy.cpu_soft_fraction:
        return None
    span = policy.cpu_hard_fraction - policy.cpu_soft_fraction
    fraction = policy.cpu_max_penalty * min(1.0, (busy - policy.cpu_soft_fraction) / span)
    who = "The usable CPUs were" if own is None else "The slice itself kept the usable CPUs"
    return Penalty(
        "cpu_overload",
        fraction,
        f"{who} {busy:.0%} busy, above {policy.cpu_soft_fraction:.0%}: the thread that launches GPU kernels has to "
        f"wait for a core ({policy.cpu_max_penalty:.0%} is cut at {policy.cpu_hard_fraction:.0%}).",
    )


def _worker_crashes(measured: Measurement, policy: ScorePolicy) -> Penalty | None:
    if measured.crash_frequency == "occasional":
        reason = "Workers crashed occasionally: a long run will be interrupted sooner or later."
        return Penalty("occasional_crashes", policy.occasional_crash_penalty, reason)
    if measured.crash_frequency == "frequent":
        reason = "Workers crashed frequently: a run of any length is unlikely to get through."
        return Penalty("frequent_crashes", policy.frequent_crash_penalty, reason)
    return None

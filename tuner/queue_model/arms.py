"""Gives both arms of a confirmation the compute of all its slices, so that they differ in their loaders alone.

Runs in: parent. Pure numpy. Arms are told apart by their labels. A part of an epoch is run through again and again, to
see its steady state; what the first time has more, on an empty queue, is paid once per epoch. Lanes borrow from the
other arm's slice in the same round, so that a round can be left out as a whole.
*Not covered*: intervals and verdicts (`tuner.confirmation`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.schema import LoaderConfig, Measurement
from storage.records import Arm, ConfirmationSlice
from tuner.queue_model.donors import lanes_for, starts_for
from tuner.queue_model.evidence import Window, windows_of
from tuner.queue_model.recursion import Array, Ints, joined, parts_for, run_lanes
from tuner.queue_model.terms import SliceTerms

ARMS: tuple[Arm, Arm] = ("baseline", "finalist")


@dataclass(frozen=True, slots=True, eq=False)
class Arms:
    """Windows of both arms, in order of measurement. Times in seconds per window."""

    windows: tuple[Window, ...]
    arm: tuple[Arm, ...]
    round: Ints
    """(w,)"""
    configs: Mapping[Arm, LoaderConfig]
    groups: Ints
    whole_epochs: bool
    epoch_windows: float

    def of(self, arm: Arm) -> Array:
        """Return (w,) which windows are of this arm."""
        return np.array([a == arm for a in self.arm])


@dataclass(frozen=True, slots=True, eq=False)
class ArmTimes:
    """Modelled times of both arms over the same compute; (w,) each, in seconds per window."""

    compute_s: Array
    loader_s: Mapping[Arm, Array]
    """Waits and restarts with the loader of an arm and the compute of each window."""
    own_s: Mapping[Arm, Array]
    """Observed minus modelled loader time of the arm's own windows, and their copies; (windows of the arm,)."""

    def total_s(self, arm: Arm, compute_factor: Array | float, kept: Array, own_kept: Array) -> float:
        """Return the mean time of a window of this arm, over the windows kept."""
        loader_s = float(self.loader_s[arm][kept].mean()) + float(self.own_s[arm][own_kept].mean())
        return float((self.compute_s * compute_factor)[kept].mean()) + max(loader_s, 0.0)


def arms_of(
    slices: Sequence[ConfirmationSlice],
    configs: Mapping[Arm, LoaderConfig],
    terms: SliceTerms,
) -> Arms:
    """Return the windows of the slices that have their series.

    Args:
        slices: Of complete rounds.
        configs: Settings behind each label.
        terms: What slices are made of.
    """
    windows: list[Window] = []
    arm: list[Arm] = []
    rounds: list[int] = []
    for index, part in enumerate(slices):
        if not isinstance(part.outcome, Measurement):
            continue
        found = windows_of(part.outcome, configs[part.arm], index=index, terms=terms)
        windows.extend(found)
        arm.extend([part.arm] * len(found))
        rounds.extend([part.round] * len(found))
    longest = max((w.groups for w in windows), key=len, default=np.empty(0, dtype=np.int64))
    kept = [i for i, w in enumerate(windows) if np.array_equal(w.groups, longest)]
    return Arms(
        windows=tuple(windows[i] for i in kept),
        arm=tuple(arm[i] for i in kept),
        round=np.array([rounds[i] for i in kept], dtype=np.int64),
        configs=configs,
        groups=longest,
        whole_epochs=terms.epochs > 0,
        epoch_windows=terms.epoch_windows(int(longest.sum())),
    )


def arm_times(arms: Arms, compute_effect: float) -> ArmTimes:
    """Return the times of both arms over the compute of all windows.

    Args:
        arms: The windows.
        compute_effect: Log factor on the compute of the finalist; taken off its windows and put on its lanes.
    """
    finalist = arms.of("finalist")
    compute = np.array([w.compute_s for w in arms.windows])
    base = compute * np.exp(-compute_effect * finalist)[:, None]
    depth = max(config.depth for config in arms.configs.values())
    parts, warm = (1, 0) if arms.whole_epochs else parts_for(depth, arms.groups)
    lanes, own = [], {}
    for label in ARMS:
        config, mine = arms.configs[label], arms.of(label)
        lenders = [arms.windows[_lender(arms, mine, place)] for place in range(len(arms.windows))]
        starts = starts_for(config, [w for w, is_mine in zip(arms.windows, mine, strict=True) if is_mine])
        h2d, service, overhead = (
            np.array([getattr(w, name) for w in lenders]) for name in ("h2d_s", "service_s", "overhead_s")
        )
        waits = run_lanes(lanes_for(config, compute + h2d, service, overhead, starts), arms.groups)
        modelled = (waits.wait_s[0] + waits.restart_s)[mine]
        seen = np.array([w.wait_s.sum() + w.restart_s for w, m in zip(arms.windows, mine, strict=True) if m])
        own[label] = seen - modelled + h2d[mine].sum(axis=1)
        slower = np.exp(compute_effect) if label == "finalist" else 1.0
        busy, service, overhead = (np.tile(s, (1, parts)) for s in (base * slower + h2d, service, overhead))
        lanes.append(lanes_for(config, busy, service, overhead, starts))
    found = run_lanes(joined(lanes), arms.groups, parts=parts)
    steady = found.wait_s[warm:].mean(axis=0)
    loader = steady + (found.wait_s[0] - steady + found.restart_s) / arms.epoch_windows
    shaped = np.maximum(loader, 0.0).reshape(len(ARMS), len(arms.windows))
    return ArmTimes(base.sum(axis=1), dict(zip(ARMS, shaped, strict=True)), own)


def _lender(arms: Arms, mine: Array, place: int) -> int:
    """Return the arm's window that lends to the one at this place: itself, else one of its round, the closest."""
    if mine[place]:
        return place
    candidates = np.flatnonzero(mine)
    same_round = candidates[arms.round[candidates] == arms.round[place]]
    pool = same_round if len(same_round) else candidates
    return int(pool[np.argmin(np.abs(pool - place))])

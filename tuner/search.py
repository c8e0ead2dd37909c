"""Chooses the next configuration: first points, then what should gain most, then the leaders again; and when to stop.

Runs in: parent. A pure function of what was measured, so that a resumed study goes on as if it had never stopped,
and so that another strategy can take its place. The queue model leads where slices have their series, the knowledge
gradient (`tuner.value_search`) where a trial is one number.
*Not covered*: what is chosen in the end (`tuner.selection`), running it (`tuner.study`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace

from objectives.schema import Crash, LoaderConfig, Measurement, canonical
from storage.records import Origin, StudyData, TrialRecord
from tuner.appraisal import Appraisal, appraise
from tuner.selection import LOSS_FRACTION, select
from tuner.space import SearchSpace, cost_of, nearest
from tuner.value_search import next_by_value

REPEAT_SHARE = 5
"""One trial in this many, at the end, measures leaders and baseline again instead of something new."""

MAX_SLICES = 2
"""Slices the search may spend on one configuration: on noise it would ask for the leader again and again."""

FIRST_POINTS = 5
"""Trials that are planned; they may be fewer, as some coincide."""

PROBE_TRIALS = 3
"""Slices after which the queue model may say that there is nothing to gain."""

HEADROOM_FRACTION = 0.01
"""A job whose headroom is below this, at the upper end of its interval, is left alone."""

GAIN_FRACTION = 0.005
"""Expected gain that is worth a trial."""

LEADERS = 3
"""Ties that are measured again."""

RATE_MARGIN = 1.1
"""How much faster than the trainer's demand the loader should be: its rate is measured with nothing else running."""


def next_configuration(data: StudyData, space: SearchSpace, total: int) -> tuple[LoaderConfig, Origin]:
    """Return what to measure next and why.

    Args:
        data: Everything measured so far in the study.
        space: What may be measured.
        total: Trials the study is to have in all.
    """
    done = [t for t in data.trials if t.state == "complete"]
    for config, origin in _first_points(data, space) if len(done) < FIRST_POINTS else ():
        if not any(t.config == config for t in done) and not _dominates_a_crash(config, done):
            return config, origin
    appraisal = appraise(data, space.configurations)
    if appraisal is None:
        found = next_by_value(done, space)
        return found if found is not None else (_something_else(done, space, space.baseline), "search")
    repeats = total // REPEAT_SHARE
    if len(done) >= total - repeats or len({t.config for t in done}) >= len(space.configurations):
        return _repeat(data, done, space), "repeat"
    return _by_model(data, space, appraisal)


def stop_reason(data: StudyData, space: SearchSpace) -> str | None:
    """Return why nothing more is to be gained by searching, or None; the first points are always measured.

    Either data for free would gain next to nothing over the baseline, or no configuration is expected to beat the
    choice by `GAIN_FRACTION`, now and one trial ago.
    """
    done = [t for t in data.trials if t.state == "complete"]
    if len(done) < PROBE_TRIALS:
        return None
    appraisal = appraise(data, space.configurations)
    if appraisal is None:
        return None
    base = data.study.baseline
    if any(t.config == base and isinstance(t.outcome, Measurement) for t in done) and appraisal.model.fits(base):
        most = appraisal.headroom(base)[2]
        if most < HEADROOM_FRACTION:
            return f"at most {100 * most:.1f} % to gain: the loader is not the limit"
    if len(done) < FIRST_POINTS and any(
        not any(t.config == config for t in done) and not _dominates_a_crash(config, done)
        for config, _ in _first_points(data, space)
    ):
        return None
    if _best_gain(data, space, appraisal) >= GAIN_FRACTION:
        return None
    before = replace(data, trials=data.trials[:-1])
    earlier = appraise(before, space.configurations)
    if earlier is None or _best_gain(before, space, earlier) >= GAIN_FRACTION:
        return None
    return f"no other configuration is expected to gain {100 * GAIN_FRACTION:g} %"


def _best_gain(data: StudyData, space: SearchSpace, appraisal: Appraisal) -> float:
    """Return the largest expected gain over the choice of what may still be measured."""
    chosen = select(data, appraisal).best
    if chosen is None:
        return math.inf
    done = [t for t in data.trials if t.state == "complete"]
    gains = appraisal.expected_gains(chosen.config)
    return max((gains[c] for c in _open_to(done, space)), default=0.0)


def _by_model(data: StudyData, space: SearchSpace, appraisal: Appraisal) -> tuple[LoaderConfig, Origin]:
    """Return what is expected to beat the choice by most; a leader again once that is nothing worth the name."""
    done = [t for t in data.trials if t.state == "complete"]
    chosen, candidates = select(data, appraisal).best, _open_to(done, space)
    if chosen is None or not candidates:
        return _something_else(done, space, done[-1].config), "search"
    gains = appraisal.expected_gains(chosen.config)
    counts = Counter(t.config for t in done)
    best = max(candidates, key=lambda c: gains[c])
    if gains[best] < GAIN_FRACTION and counts[chosen.config] < MAX_SLICES and chosen.config != done[-1].config:
        return chosen.config, "repeat"
    return best, "search"


def _open_to(done: list[TrialRecord], space: SearchSpace) -> list[LoaderConfig]:
    """Return what the search may measure next: not the last again, not too often, nothing that must crash."""
    counts = Counter(t.config for t in done)
    return [
        c
        for c in space.configurations
        if counts[c] < MAX_SLICES and (not done or c != done[-1].config) and not _dominates_a_crash(c, done)
    ]


def _first_points(data: StudyData, space: SearchSpace) -> list[tuple[LoaderConfig, Origin]]:
    """Return the first points in order: baseline, no workers, the predicted one, the advice 4/2, and 2 workers.

    Seeded searches came within 2 % after 5 trials instead of 14 in simulated studies (docs/measuring.md).
    """
    base = space.baseline
    points = [replace(base), canonical(0, None, False, base.pin_memory)]
    predicted = predict(data, space)
    if predicted is not None:
        points.append(predicted)
    points += [canonical(4, 2, True, base.pin_memory), canonical(2, 2, True, base.pin_memory)]
    seeds: list[Origin] = ["seed"] * (len(points) - 1)
    origins: list[Origin] = ["baseline", *seeds]
    found: dict[LoaderConfig, Origin] = {}
    for point, origin in zip(points, origins, strict=True):
        found.setdefault(nearest(space, point), origin)
    return list(found.items())


def predict(data: StudyData, space: SearchSpace) -> LoaderConfig | None:
    """Return the cheapest configuration that should keep up, from the first two trials and the ceilings alone.

    By the queue model where the slices have their series. Else the fewest workers whose supply beats the ceiling, with
    a queue as deep as one accumulation group: the trainer pulls all batches of a step at once. None if neither can be
    told.
    """
    first = replace(data, trials=tuple(t for t in data.trials if t.state == "complete")[: PROBE_TRIALS - 1])
    appraisal = appraise(first, space.configurations)
    if appraisal is None:
        return _by_rates(first, space)
    losses = appraisal.expected_losses(space.configurations)
    enough = [c for c in space.configurations if losses[c] <= min(losses.values()) + LOSS_FRACTION]
    return min(enough, key=lambda c: cost_of(c, space.baseline))


def _by_rates(data: StudyData, space: SearchSpace) -> LoaderConfig | None:
    """Return the prediction from rates: one worker supplies what the loader delivers without workers."""
    single = [
        t.outcome.loader_batches_per_s
        for t in data.trials
        if t.config.num_workers == 0 and isinstance(t.outcome, Measurement) and t.outcome.loader_batches_per_s
    ]
    if not single or not data.ceilings:
        return None
    batch = int(data.study.identity.get("workload.per_device_train_batch_size", 1))
    group = int(data.study.identity.get("workload.gradient_accumulation_steps", 1))
    demand_per_s = max(c.samples_per_s for c in data.ceilings) / batch
    workers = max(1, math.ceil(RATE_MARGIN * demand_per_s / statistics.mean(single)))
    workers = min(workers, max(c.num_workers for c in space.configurations))
    menu = sorted({c.prefetch_factor for c in space.configurations if c.prefetch_factor is not None})
    if not menu:
        return None
    prefetch = next((p for p in menu if workers * p >= group), menu[-1])
    return nearest(space, canonical(workers, prefetch, True, space.baseline.pin_memory))


def _dominates_a_crash(config: LoaderConfig, done: list[TrialRecord]) -> bool:
    """Return whether something no larger has crashed already: more workers and batches will not cure it."""
    return any(
        isinstance(t.outcome, Crash)
        and 0 < t.config.num_workers <= config.num_workers
        and (t.config.prefetch_factor or 0) <= (config.prefetch_factor or 0)
        for t in done
    )


def _repeat(data: StudyData, done: list[TrialRecord], space: SearchSpace) -> LoaderConfig:
    """Return the choice, what ties with it or the baseline, whichever has the fewest slices; never the last again."""
    selection = select(data)
    leaders = [p.config for p in (selection.best, *selection.tied[:LEADERS]) if p is not None]
    counts = Counter(t.config for t in done)
    candidates = [c for c in dict.fromkeys([*leaders, space.baseline]) if c != done[-1].config]
    candidates = [c for c in candidates if not any(t.config == c and isinstance(t.outcome, Crash) for t in done)]
    if not candidates:
        return _something_else(done, space, done[-1].config)
    return min(candidates, key=lambda c: counts[c])


def _something_else(done: list[TrialRecord], space: SearchSpace, wanted: LoaderConfig) -> LoaderConfig:
    """Return the least measured other configuration, the closest to the one wanted first, never the last again."""
    counts = Counter(t.config for t in done)
    barred = {wanted, done[-1].config} if done else {wanted}
    others = [c for c in space.configurations if c not in barred and not _dominates_a_crash(c, done)]
    return min(
        others or [wanted],
        key=lambda c: (counts[c], abs(c.num_workers - wanted.num_workers), abs(c.depth - wanted.depth)),
    )

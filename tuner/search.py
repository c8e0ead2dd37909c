"""Chooses the next configuration: first points, then the sampler, then the leaders again.

Runs in: parent. A pure function of what was measured, so that a resumed study goes on as if it had never stopped,
and so that another strategy can take its place.
*Not covered*: what is chosen in the end (`tuner.selection`), running it (`tuner.study`).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace

from objectives.schema import Crash, LoaderConfig, Measurement, canonical
from objectives.score import MEMORY_LIMIT_FRACTION
from storage.records import Origin, StudyData, TrialRecord
from tuner.gp import suggest
from tuner.space import SearchSpace, nearest

REPEAT_SHARE = 5
"""One trial in this many, at the end, measures leaders and baseline again instead of something new."""

MAX_SLICES = 2
"""Slices the sampler may spend on one configuration: on noise it would ask for the leader again and again."""

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
    for config, origin in _first_points(data, space):
        if not any(t.config == config for t in done) and not _dominates_a_crash(config, done):
            return config, origin
    repeats = total // REPEAT_SHARE
    if len(done) >= total - repeats or len({t.config for t in done}) >= len(space.configurations):
        return _repeat(done, space), "repeat"
    suggested = suggest(done, space, seed=data.study.seed + len(data.trials))
    slices = sum(t.config == suggested for t in done)
    if slices >= MAX_SLICES or (done and suggested == done[-1].config):
        suggested = _something_else(done, space, suggested)
    return suggested, "search"


def _first_points(data: StudyData, space: SearchSpace) -> list[tuple[LoaderConfig, Origin]]:
    """Return the first points in order: baseline, no workers, the predicted one, 2 workers, and the advice 4/2.

    Seeded searches came within 2 % after 5 trials instead of 14 in simulated studies (docs/measuring.md).
    """
    base = space.baseline
    points = [replace(base), canonical(0, None, False, base.pin_memory)]
    predicted = predict(data, space)
    if predicted is not None:
        points.append(predicted)
    points += [canonical(2, 2, True, base.pin_memory), canonical(4, 2, True, base.pin_memory)]
    seeds: list[Origin] = ["seed"] * (len(points) - 1)
    origins: list[Origin] = ["baseline", *seeds]
    found: dict[LoaderConfig, Origin] = {}
    for point, origin in zip(points, origins, strict=True):
        found.setdefault(nearest(space, point), origin)
    return list(found.items())


def predict(data: StudyData, space: SearchSpace) -> LoaderConfig | None:
    """Return the fewest workers that should keep up, with a queue as deep as one accumulation group.

    The demand is the ceiling's batches/s; the supply of one worker is what the loader delivered without workers. The
    trainer pulls all batches of a step at once, so a queue shorter than that leaves a wait whatever the rate.
    None until a ceiling and the 0-worker trial are there.
    """
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


def _repeat(done: list[TrialRecord], space: SearchSpace) -> LoaderConfig:
    """Return the leader, a runner-up or the baseline, whichever has the fewest slices; never the last one again."""
    values: dict[LoaderConfig, list[float]] = {}
    barred = set()
    for trial in done:
        if trial.score is not None:
            values.setdefault(trial.config, []).append(trial.score.value)
        if isinstance(trial.outcome, Crash) or (
            trial.outcome is not None and (trial.outcome.peak_memory_fraction or 0.0) > MEMORY_LIMIT_FRACTION
        ):
            barred.add(trial.config)
    means = {c: statistics.mean(v) for c, v in values.items() if c not in barred}
    leaders = sorted(means, key=lambda c: -means[c])[:3]
    counts = Counter(t.config for t in done)
    candidates = [c for c in dict.fromkeys([*leaders, space.baseline]) if c != done[-1].config and c not in barred]
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

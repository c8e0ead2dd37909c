"""Chooses the next configuration: first points, then whatever most improves the final choice.

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
from storage.records import Origin, StudyData, TrialRecord
from tuner.space import SearchSpace, nearest
from tuner.value_search import next_by_value

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
    found = next_by_value(done, space, total - len(done))
    return found if found is not None else (_something_else(done, space, space.configurations[0]), "search")


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


def _something_else(done: list[TrialRecord], space: SearchSpace, wanted: LoaderConfig) -> LoaderConfig:
    """Return the least measured other configuration, the closest to the one wanted first, never the last again."""
    counts = Counter(t.config for t in done)
    barred = {wanted, done[-1].config} if done else {wanted}
    others = [c for c in space.configurations if c not in barred and not _dominates_a_crash(c, done)]
    return min(
        others or [wanted],
        key=lambda c: (counts[c], abs(c.num_workers - wanted.num_workers), abs(c.depth - wanted.depth)),
    )

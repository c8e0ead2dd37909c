"""Part `studies`: whole searches on simulated jobs: regret of the choice, and claimed minus true gain.

The product's `next_configuration` searches and its `select` chooses; the estimators that lost choose from the same
trials. Regret is `true time of the choice / true time of the best of the whole space - 1`. Gains are logarithms of
`time of baseline / time of choice`.
*Not covered*: confirmation (`benchmarks.confirmations`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.bars import Bar, at_most
from benchmarks.losers import LOSERS, best_trial
from benchmarks.sim.job import Job, sample_times
from benchmarks.sim.machine import Machine
from benchmarks.sim.noise import NAMES
from benchmarks.sim.surfaces import BASELINE, NAMED, held_out, space_of, with_contention
from objectives.schema import KNOBS, LoaderConfig
from objectives.score import ScorePolicy, score
from storage.records import StudyData, StudyRecord, TrialRecord
from tuner.appraisal import appraise
from tuner.search import next_configuration, stop_reason
from tuner.selection import select
from tuner.space import SearchSpace

TRIALS = 15
CEILINGS = 2
CHUNK = 10
PRODUCT, STOPPED, RAW = "product", "product, early stop", "best_trial"
HELD_OUT, SAME_ROWS = "held out", "held out, same rows"
CONTENTIONS = ((0.0, True), (0.05, True), (0.05, False), (0.10, True), (0.10, False))
"""Harm of too many workers, and whether the kernel shows a part of it."""
SHARE_PER_HELD_OUT = 20
"""One study on a held-out job for this many on a named one; there are 60 of them."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Studies that belong together."""

    group: str
    surface: int
    profile: str
    contention: float
    visible: bool

    @property
    def job(self) -> Job:
        """Return the job on its host."""
        jobs = NAMED if self.group == "named" else _held_out()
        job = replace(jobs[self.surface], same_rows=self.group == SAME_ROWS)
        return with_contention(job, self.contention, self.visible)

    @property
    def harm(self) -> str:
        """Return the contention in words."""
        if not self.contention:
            return "none"
        return f"+{100 * self.contention:.0f} %" + ("" if self.visible else ", not seen")


_held_out = lru_cache(maxsize=1)(held_out)


def cells() -> list[Cell]:
    """Return all cells: named jobs on every profile, with contention on `hard`; held-out jobs on `hard`."""
    found = [Cell("named", n, "hard", *harm) for n in range(len(NAMED)) for harm in CONTENTIONS]
    found += [Cell("named", n, p, 0.0, True) for n in range(len(NAMED)) for p in NAMES if p != "hard"]
    found += [Cell(HELD_OUT, n, "hard", *harm) for n in range(len(_held_out())) for harm in CONTENTIONS]
    return found + [
        Cell(SAME_ROWS, n, "hard", *harm) for n in range(len(_held_out())) for harm in CONTENTIONS if harm[1]
    ]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some studies of one job: what one process does at a time, so that a truth is worked out once."""

    cells: tuple[Cell, ...]
    first: int
    count: int
    seed: int


def chunks(runs: int, seed: int) -> list[Chunk]:
    """Return the work, cut into pieces."""
    by_job: dict[tuple[str, int, str], list[Cell]] = {}
    for cell in cells():
        by_job.setdefault((cell.group, cell.surface, cell.profile), []).append(cell)
    found = []
    for (group, _, _), together in by_job.items():
        wanted = runs if group == "named" else max(1, runs // SHARE_PER_HELD_OUT)
        found += [Chunk(tuple(together), n, min(CHUNK, wanted - n), seed) for n in range(0, wanted, CHUNK)]
    return found


def run_study(job: Job, profile: str, space: SearchSpace, seed: Sequence[int], trials: int = TRIALS) -> StudyData:
    """Return a finished study, as storage would."""
    machine = Machine(job, profile, np.random.default_rng(seed))
    data = StudyData(_study(job, space, seed[-1]), (), tuple(machine.ceiling() for _ in range(CEILINGS)))
    for number in range(trials):
        config, origin = next_configuration(data, space, trials)
        outcome = machine.measure(config)
        trial = TrialRecord(
            number, "complete", config, origin, f"slice-{number}", outcome=outcome, score=score(outcome, ScorePolicy())
        )
        data = StudyData(data.study, (*data.trials, trial), data.ceilings)
    return data


def _study(job: Job, space: SearchSpace, seed: int) -> StudyRecord:
    return StudyRecord(
        name="simulated",
        uuid="simulated",
        objective="lora",
        identity={
            "objective": "lora",
            "workload.per_device_train_batch_size": 1,
            "workload.gradient_accumulation_steps": job.accumulation,
        },
        host={"usable_cpus": job.cores, "physical_cores": job.cores},
        fingerprint="simulated",
        baseline=space.baseline,
        baseline_of="ms-swift 4.6.0",
        measured_knobs=KNOBS,
        values={knob: list(menu) for knob, menu in space.values.items()},
        reasons=dict(space.reasons),
        configurations=len(space.configurations),
        seed=seed,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        remember=asdict(job.plan),
    )


def work(chunk: Chunk) -> list[dict[str, Any]]:
    """Return one row per study and method."""
    return [row for cell in chunk.cells for row in _work(cell, chunk)]


def _work(cell: Cell, chunk: Chunk) -> list[dict[str, Any]]:
    rows = []
    space = space_of(cell.job)
    times = sample_times(cell.job, cell.profile, space.configurations)
    least_s = min(times.values())
    for n in range(chunk.first, chunk.first + chunk.count):
        seed = (chunk.seed, cells().index(cell), n)
        data = run_study(cell.job, cell.profile, space, seed)
        measured_s = min(times[t.config] for t in data.trials)
        for method, (choice, claimed) in choices(data, space).items():
            rows.append(
                {
                    **asdict(cell),
                    "harm": cell.harm,
                    "job": cell.job.name,
                    "tail": cell.job.tail,
                    "n": n,
                    "method": method,
                    "choice": choice.key,
                    "workers": choice.num_workers,
                    "regret": times[choice] / least_s - 1.0,
                    "missed": measured_s / least_s - 1.0,
                    "claimed": claimed,
                    "true": math.log(times[BASELINE] / times[choice]),
                }
            )
    return rows


def choices(data: StudyData, space: SearchSpace) -> dict[str, tuple[LoaderConfig, float]]:
    """Return what each method chooses from the trials, and the gain it claims for it."""
    found = {PRODUCT: _product(data), STOPPED: _product(stopped(data, space)), RAW: best_trial(data)}
    for name, estimator in LOSERS.items():
        times = estimator(data)
        choice = min(times, key=lambda config: times[config])
        found[name] = choice, math.log(times[data.study.baseline] / times[choice])
    return found


def stopped(data: StudyData, space: SearchSpace) -> StudyData:
    """Return the study as it would have been had it been allowed to end early."""
    for count in range(1, len(data.trials)):
        part = StudyData(data.study, data.trials[:count], data.ceilings)
        if stop_reason(part, space) is not None:
            return part
    return data


def _product(data: StudyData) -> tuple[LoaderConfig, float]:
    chosen = select(data).best
    assert chosen is not None, "no simulated slice crashes"
    appraisal = appraise(data, ())
    assert appraisal is not None, "every simulated slice has its series"
    base, best = (appraisal.samples_per_s(config) for config in (data.study.baseline, chosen.config))
    return chosen.config, math.log(best / base)


def summarise_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a line per job (held-out jobs pooled), profile, harm and method; and the worst held-out jobs."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    by_job: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        name = row["job"] if row["group"] == "named" else row["group"]
        if row["tail"] != "harsh":  # beyond anything recorded: shown, and not held against the bars
            groups.setdefault((name, row["profile"], row["harm"], row["method"]), []).append(row)
        if row["group"] != "named":
            tail = f"{name}, {row['tail']} tails"
            groups.setdefault((tail, row["profile"], row["harm"], row["method"]), []).append(row)
        if row["group"] == HELD_OUT and row["method"] == PRODUCT:
            by_job.setdefault((row["job"], row["profile"], row["harm"], PRODUCT), []).append(row)
        if row["group"] == "named" and row["profile"] == "hard":
            groups.setdefault(("all named", row["profile"], row["harm"], row["method"]), []).append(row)
    lines = [_line(key, found) for key, found in sorted(groups.items(), key=lambda item: _order(item[0]))]
    worst = sorted((_line(key, found) for key, found in by_job.items()), key=lambda line: -line["regret mean %"])
    return lines, worst[:15]


def _order(key: tuple[str, ...]) -> tuple[Any, ...]:
    names = [job.name for job in NAMED] + ["all named"]
    tails = ("", ", light tails", ", heavy tails", ", harsh tails")
    names += [group + part for group in (HELD_OUT, SAME_ROWS) for part in tails]
    methods = [PRODUCT, STOPPED, RAW, *LOSERS]
    return names.index(key[0]), NAMES.index(key[1]), key[2] != "none", key[2], methods.index(key[3])


def _line(key: tuple[str, ...], found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    regret = 100 * np.array([r["regret"] for r in found])
    excess = 100 * np.array([r["claimed"] - r["true"] for r in found])
    return {
        "job": key[0],
        "profile": key[1],
        "contention": key[2],
        "method": key[3],
        "studies": len(found),
        "regret median %": float(np.median(regret)),
        "p95 %": float(np.quantile(regret, 0.95)),
        "regret mean %": float(regret.mean()),
        "not measured %": 100 * float(np.mean([r["missed"] for r in found])),
        "claimed - true %": float(excess.mean()),
        "sd %": float(excess.std()),
        "true gain %": 100 * float(np.mean([r["true"] for r in found])),
        "workers": float(np.mean([r["workers"] for r in found])),
    }


def bars(lines: Sequence[dict[str, Any]]) -> list[Bar]:
    """Return the bars of this part: regret on held-out jobs, claims on all."""
    found: list[Bar] = []
    for line in lines:
        if line["method"] != PRODUCT or line["job"].endswith("tails"):
            continue
        label, runs = f"{line['job']}, {line['profile']}, contention {line['contention']}", line["studies"]
        found.append(at_most(f"claimed - true gain: {label}", abs(line["claimed - true %"]) / 100, 0.025, runs))
        if line["job"] in (HELD_OUT, SAME_ROWS):
            harmed = line["contention"] != "none"
            found.append(at_most(f"regret median: {label}", line["regret median %"] / 100, 0.005, runs))
            found.append(
                at_most(f"regret 95th percentile: {label}", line["p95 %"] / 100, 0.04 if harmed else 0.01, runs)
            )
            found.append(at_most(f"regret mean: {label}", line["regret mean %"] / 100, 0.01 if harmed else 0.005, runs))
    return found

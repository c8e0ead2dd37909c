"""Which search finds the best configuration? Regret of every method on simulated machines whose best is known.

    python -m benchmarks.search --trials 30 --seeds 10 --jobs 2 [--quick] [--methods ours,random]

Regret is the share of the best expected utility (value x probability not to crash) that a choice loses. Per method:
its own choice, the raw best trial, and the product's choice from the same trials. The named machines and random
machines 0 to 79 were used to tune the product's priors with low seeds; the others are held out. Prints tables,
writes `benchmarks/results/search.json`, exits 1 when a bar is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one process per job; before numpy is loaded
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_methods import METHODS, Setting, best_trial, crashed, space_of
from benchmarks.surfaces.objective import BASELINE, PipelineObjective
from benchmarks.surfaces.pipeline import NAMED, Machine, random_machine, regret
from storage.records import StudyRecord, TrialRecord
from tuner.value_appraisal import appraise_values, choose

RESULTS = Path(__file__).parent / "results" / "search.json"
HELD_OUT_SEED = 100
UNBOUNDED = ("exhaustive",)
SLOW = ("GP", "GP, first points")
"""Half a minute a study: they get a tenth of the seeds."""
POOLED = {"8 named and 80 random": ("named", "random"), "held out": ("named, held-out seeds", "random, held out")}


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure and the most it may be."""

    name: str
    value: float
    at_most: float

    @property
    def passed(self) -> bool:
        """Return whether the bar was reached."""
        return self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Job:
    """One study: a method on a machine with a seed."""

    group: str
    machine: Machine
    method: str
    seed: int
    trials: int


@dataclass(frozen=True, slots=True)
class Result:
    """Regret as fractions, by the number of trials after which the choice was made."""

    group: str
    machine: str
    method: str
    own: dict[int, float]
    raw: dict[int, float]
    product: dict[int, float]
    trials: int
    crashes: int
    ask_s: float
    longest_ask_s: float


def groups(seeds: int, machines: int) -> dict[str, list[tuple[Machine, int]]]:
    """Return machines and seeds per group: every machine gets as many seeds."""
    late = [HELD_OUT_SEED + s for s in range(seeds)]
    return {
        "named": [(m, s) for m in NAMED for s in range(seeds)],
        "random": [(random_machine(k), s) for k in range(machines) for s in range(seeds)],
        "named, held-out seeds": [(m, s) for m in NAMED for s in late],
        "random, held out": [(random_machine(80 + k), s) for k in range(machines) for s in late],
    }


def run_study(job: Job) -> Result:
    """Return the regret of one study."""
    objective = PipelineObjective(job.machine, job.seed)
    space = space_of(objective)
    setting = Setting(objective, space, _study(job.seed), job.trials, job.seed)
    method = METHODS[job.method](setting)
    trials: list[TrialRecord] = []
    own: dict[int, float] = {}
    raw: dict[int, float] = {}
    product: dict[int, float] = {}
    asks_s: list[float] = []
    looks = (min(15, job.trials), job.trials)
    while len(trials) < job.trials or job.method in UNBOUNDED:
        began_s = time.perf_counter()
        config = method.ask(trials)
        asks_s.append(time.perf_counter() - began_s)
        if config is None:
            break
        outcome = objective.measure(config, lambda _text: None)
        score = objective.score(config, outcome)
        number = len(trials)
        trials.append(
            TrialRecord(number, "complete", config, "search", f"slice-{number}", outcome=outcome, score=score)
        )
        if len(trials) in looks:
            _judge(job, method, trials, len(trials), own, raw, product, space)
    for look in looks:
        if look not in own or job.method in UNBOUNDED:  # it had enough earlier, or went on
            _judge(job, method, trials, look, own, raw, product, space)
    return Result(
        job.group, job.machine.name, job.method, own, raw, product, len(trials), sum(map(crashed, trials)),
        float(np.mean(asks_s)), max(asks_s),
    )  # fmt: skip


def _judge(
    job: Job,
    method: Any,
    trials: list[TrialRecord],
    look: int,
    own: dict[int, float],
    raw: dict[int, float],
    product: dict[int, float],
    space: Any,
) -> None:
    own[look] = regret(job.machine, method.choose(trials))
    raw[look] = regret(job.machine, best_trial(trials))
    if job.method == "ours" or len(trials) > job.trials:
        product[look] = own[look]
    else:
        chosen = choose(appraise_values(trials, ()), BASELINE) or best_trial(trials)
        product[look] = regret(job.machine, chosen)


def _study(seed: int) -> StudyRecord:
    return StudyRecord(
        name="bench", uuid="bench", objective="pipeline", identity={}, host={}, fingerprint="", baseline=BASELINE,
        baseline_of="ms-swift", measured_knobs=(), values={}, reasons={}, configurations=258, seed=seed,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )  # fmt: skip


def summary(values: Iterable[float]) -> dict[str, float]:
    """Return median, 95th percentile and mean in percent."""
    percent = 100.0 * np.array(list(values))
    return {
        "median": round(float(np.median(percent)), 3),
        "p95": round(float(np.percentile(percent, 95)), 3),
        "mean": round(float(percent.mean()), 3),
    }


def tabulate(results: Sequence[Result], trials: int) -> list[dict[str, Any]]:
    """Return one row per group and method, the pooled groups first: those have the bars."""
    rows = []
    members = {**POOLED, **{group: (group,) for group in dict.fromkeys(r.group for r in results)}}
    for group, parts in members.items():
        for method in dict.fromkeys(r.method for r in results):
            found = [r for r in results if r.group in parts and r.method == method]
            if not found:
                continue
            row: dict[str, Any] = {"group": group, "method": method, "studies": len(found)}
            for look in sorted({min(15, trials), trials}):
                for kind in ("own", "raw", "product"):
                    row[f"{kind}@{look}"] = summary(getattr(r, kind)[look] for r in found)
            row["trials"] = round(float(np.mean([r.trials for r in found])), 1)
            row["crashes"] = round(float(np.mean([r.crashes for r in found])), 2)
            row["ask_ms"] = round(1e3 * float(np.mean([r.ask_s for r in found])), 1)
            row["longest_ask_ms"] = round(1e3 * float(np.median([r.longest_ask_s for r in found])), 1)
            rows.append(row)
    return rows


def bars(rows: Sequence[dict[str, Any]], trials: int) -> list[Bar]:
    """Return the bars of ours, on the sets it was tuned on and on those held out."""
    found: list[Bar] = []
    for group in POOLED:
        of = {r["method"]: r for r in rows if r["group"] == group}
        ours = of["ours"][f"own@{trials}"]
        for figure, limit in (("median", 0.15), ("p95", 1.5), ("mean", 0.4)):
            found.append(Bar(f"{group}: {figure} of the regret after {trials} trials, %", ours[figure], limit))
        rivals = {"best trial of the same trials": of["ours"][f"raw@{trials}"]}
        if "doubling sweep" in of:
            rivals["doubling sweep"] = of["doubling sweep"][f"own@{trials}"]
        for name, rival in rivals.items():
            for figure in ("median", "p95", "mean"):
                found.append(Bar(f"{group}: {figure} below that of the {name}, %", ours[figure], rival[figure]))
    return found


def show(rows: Sequence[dict[str, Any]], trials: int) -> None:
    """Print the tables: median / 95th percentile / mean of the regret in percent."""
    looks = sorted({min(15, trials), trials})
    for group in dict.fromkeys(r["group"] for r in rows):
        print(f"\n{group}: regret in %, median / 95th / mean")
        heads = [f"own choice @{n}" for n in looks] + [f"best trial @{trials}", f"our choice @{trials}"]
        print(f"{'method':20}" + "".join(f"{h:>22}" for h in heads) + f"{'trials':>8}{'crashes':>9}{'ms/ask':>8}")
        for row in (r for r in rows if r["group"] == group):
            cells = [row[f"own@{n}"] for n in looks] + [row[f"raw@{trials}"], row[f"product@{trials}"]]
            text = "".join(f"{c['median']:.2f} / {c['p95']:.1f} / {c['mean']:.2f}".rjust(22) for c in cells)
            print(f"{row['method']:20}{text}{row['trials']:8}{row['crashes']:9}{row['ask_ms']:8}")


def main() -> int:
    """Run the comparison; return 1 when a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=10, help="per machine")
    parser.add_argument("--machines", type=int, default=80, help="random machines per group")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--methods", default=",".join(METHODS), help="comma between names")
    parser.add_argument("--quick", action="store_true", help="a smoke run: 1 seed, 8 random machines, fast methods")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    methods = [m for m in options.methods.split(",") if not (options.quick and m.startswith("GP"))]
    methods = [*dict.fromkeys(["ours", *_joined(methods)])]
    seeds, machines = (1, 8) if options.quick else (options.seeds, options.machines)
    jobs = [
        Job(group, machine, method, seed, options.trials)
        for method in methods
        for group, members in groups(max(1, seeds // 10) if method in SLOW else seeds, machines).items()
        for machine, seed in members
    ]
    began_s = time.perf_counter()
    results: list[Result] = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, result in enumerate(pool.imap(run_study, jobs, chunksize=4), start=1):
            results.append(result)
            if number % 200 == 0 or number == len(jobs):
                print(f"{number}/{len(jobs)} studies, {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
    rows = tabulate(results, options.trials)
    found = bars(rows, options.trials)
    show(rows, options.trials)
    print()
    for bar in found:
        print(f"{'ok    ' if bar.passed else 'MISSED'}  {bar.name}: {bar.value} (at most {bar.at_most})")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "trials": options.trials, "seeds": seeds, "machines": machines, "rows": rows,
        "bars": [{**asdict(bar), "passed": bar.passed} for bar in found],
    }  # fmt: skip
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if all(bar.passed for bar in found) else 1


def _joined(parts: Sequence[str]) -> list[str]:
    """Return method names; some hold a comma themselves."""
    text = ",".join(parts)
    return [name for name in METHODS if name in parts or f",{name}," in f",{text},"]


if __name__ == "__main__":
    sys.exit(main())

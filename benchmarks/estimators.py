"""Runs the benchmark of the estimators: prints tables, writes JSON, exits 1 when a bar is missed.

    python -m benchmarks.estimators --part confirm --runs 1000 --jobs 16

Parts: `calibration` (the simulator beside the recordings), `confirm` (false `confirmed`, coverage, power), `studies`
(regret and claimed gain of whole studies). The same seed gives the same figures whatever the number of processes.
*Not covered*: anything that runs on a real machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars, calibration

RESULTS = Path(__file__).parent / "results"
QUICK_RUNS = 50
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read by numpy when a process imports it: one process a core, one thread each."""
PARTS = ("calibration", "confirm", "studies")
FULL_RUNS = {"confirm": 1000, "studies": 200}


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 1 when a bar is missed."""
    options = _options(argv)
    bad = 0
    for part in options.part or PARTS:
        began_s = time.monotonic()
        tables, found, about = _calibration() if part == "calibration" else _run(part, options)
        wall_s = time.monotonic() - began_s
        for title, rows in tables.items():
            print(bars.table(title, rows))
        if found:
            print(bars.bars_table(found))
        bad += sum(not b.passed for b in found)
        out = options.out or (None if options.quick else RESULTS)
        if out is not None:
            bars.write(out / f"{part}.json", found, tables, {**about, "seed": options.seed, "wall_s": round(wall_s)})
        print(f"{part}: {wall_s:.0f} s", file=sys.stderr)
    return 1 if bad else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimators", description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given more than once; default: all")
    parser.add_argument("--runs", type=int, help="confirmations per scenario and profile, studies per surface")
    parser.add_argument("--only", default="", help="scenarios or surfaces whose name holds this text")
    parser.add_argument("--profile", action="append", help="noise profiles; default: all")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs each, nothing written without --out")
    parser.add_argument("--out", type=Path, help="directory of the JSON files; default: benchmarks/results")
    return parser.parse_args(argv)


def _calibration() -> tuple[dict[str, list[dict[str, Any]]], list[bars.Bar], dict[str, Any]]:
    tables = {
        "noise of slices": calibration.slices_table(),
        f"noise inside one slice of {calibration.SERIES_STEPS} steps": calibration.series_table(),
    }
    return tables, [], {}


def _run(part: str, options: argparse.Namespace) -> tuple[dict[str, list[dict[str, Any]]], list[bars.Bar], Any]:
    runs = options.runs or (QUICK_RUNS if options.quick else FULL_RUNS[part])
    if part == "confirm":
        from benchmarks import confirmations

        work: list[Any] = [
            c
            for c in confirmations.chunks(runs, options.seed)
            if options.only in confirmations.SCENARIOS[c.scenario].name
            and (not options.profile or c.profile in options.profile)
        ]
        lines = confirmations.summarise_rows(_spread(confirmations.work, work, options.jobs, part))
        return {"confirmations": lines}, confirmations.bars(lines), {"runs": runs}
    from benchmarks import studies

    pieces = [
        c
        for c in studies.chunks(runs, options.seed)
        if options.only in f"{c.cells[0].group}, {c.cells[0].job.name}"
        and (not options.profile or c.cells[0].profile in options.profile)
    ]
    found, worst = studies.summarise_rows(_spread(studies.work, pieces, options.jobs, part))
    return (
        {f"studies of {studies.TRIALS} trials": found, "worst held-out jobs": worst},
        studies.bars(found),
        {"runs": runs},
    )


def _spread(work: Callable[[Any], list[Any]], pieces: Sequence[Any], jobs: int, part: str) -> list[Any]:
    """Return the rows of all pieces, with progress on stderr."""
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    rows: list[Any] = []
    began_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done, found in enumerate(pool.imap(work, pieces), start=1):
            rows += found
            if time.monotonic() - told_s > 10 or done == len(pieces):
                told_s = time.monotonic()
                left_s = (told_s - began_s) / done * (len(pieces) - done)
                print(f"{part}: {done}/{len(pieces)} pieces, about {left_s:.0f} s left", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())

"""Runs every benchmark, one after the other; prints what each printed and exits 1 when a bar is missed.

    python -m benchmarks                    everything: hours
    python -m benchmarks confirm search     these
    python -m benchmarks --quick            the simulated ones, small

`confirm`, `studies` and `search` are simulated and use every CPU. The others are real runs on the embedded model and
need a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SIMULATED = {
    "calibration": ("benchmarks.estimators", "--part", "calibration"),
    "confirm": ("benchmarks.estimators", "--part", "confirm"),
    "studies": ("benchmarks.estimators", "--part", "studies"),
    "search": ("benchmarks.search",),
}
REAL = {
    "model_error": ("benchmarks.model_error", "--row-delay-ms", "40", "--out", str(RESULTS / "model_error.json")),
    "verdicts": ("benchmarks.verdicts",),
    "wall_time": ("benchmarks.wall_time",),
    "side_by_side": ("benchmarks.side_by_side",),
}


def main() -> int:
    """Return 0, or 1 when a benchmark missed a bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *SIMULATED, *REAL], help="default: all")
    parser.add_argument("--quick", action="store_true", help="the simulated ones, with few runs")
    options = parser.parse_args()
    known = SIMULATED if options.quick else {**SIMULATED, **REAL}
    missed = [name for name in options.names or known if _run(name, options.quick)]
    print(f"missed a bar: {', '.join(missed)}" if missed else "every bar held")
    return 1 if missed else 0


def _run(name: str, quick: bool) -> bool:
    """Return whether the benchmark failed."""
    module, *arguments = {**SIMULATED, **REAL}[name]
    jobs = ["--jobs", str(len(os.sched_getaffinity(0)))] if name in SIMULATED else []
    small = ["--quick"] if quick and name in SIMULATED else []
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", module, *arguments, *jobs, *small]).returncode != 0


if __name__ == "__main__":
    sys.exit(main())

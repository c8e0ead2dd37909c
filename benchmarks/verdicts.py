"""Real verdicts: jobs that are data-bound by construction, jobs that are not, and A/A studies, by the command itself.

    python -m benchmarks.verdicts --jobs 10

Data-bound: reading a row takes 1.6 to 2.5 times as long as training on it, so that one worker cannot keep up and three
can. Not data-bound: rows of about 2000 tokens, so that handing a batch over is less than 0.5 % of a step; no workers at
all are left out, because a host of two CPUs really gains 3 % from them. A/A: every trial, and both arms of the
confirmation, have the baseline's settings.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, at_least, at_most, bars_table, table

RESULTS = Path(__file__).parent / "results" / "verdicts.json"
WORDS = "the quick brown fox jumps over the lazy dog while nobody looks at the clock and the river runs on "
LONG_ROWS = 12
LONG_WAIT_FRACTION = 0.005
GAIN_FRACTION = 0.30


@dataclass(frozen=True)
class Row:
    """One job and what was said of it."""

    kind: str
    seed: int
    verdict: str
    gain_fraction: float | None
    lower_fraction: float | None
    upper_fraction: float | None
    rounds: int | None
    wait_fraction: float | None
    """Of the baseline, as the search measured it."""
    choice: str
    wall_s: float


def main() -> int:
    """Print and write the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10, help="of each kind")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for kind in options.kind or KINDS:
            for seed in range(1, options.jobs + 1):
                rows.append(KINDS[kind](seed, options.device, Path(directory) / f"{kind}-{seed}"))
                print(rows[-1], file=sys.stderr, flush=True)
                write(options.out, options.device, rows)
    bars = judged(rows)
    print(table("real verdicts", [asdict(row) for row in rows]))
    print(bars_table(bars))
    return 0 if all(b.passed for b in bars) else 1


def write(out: Path, device: str, rows: list[Row]) -> None:
    """Write what there is: a run that is cut off must not lose its jobs."""
    out.parent.mkdir(parents=True, exist_ok=True)
    bars = [asdict(b) for b in judged(rows)]
    content = {"device": device, "bars": bars, "rows": [asdict(row) for row in rows]}
    out.write_text(json.dumps(content, indent=1) + "\n")


def data_bound(seed: int, device: str, directory: Path) -> Row:
    """Search and confirm a job whose rows are slow to read."""
    began_s = time.monotonic()
    per_sample_s = (
        1.0
        / tuner(directory, "run", "--trials", "1", "--no-confirm", "--study", "free", device=device)["ceiling_per_s"]
    )
    delay_ms = 1000 * per_sample_s * (1.5 + 0.1 * seed)
    arguments = ["run", "--trials", "12", "--seed", str(seed), "--row-delay-ms", f"{delay_ms:.2f}", "--study", "slow"]
    return told("data-bound", seed, tuner(directory, *arguments, "--slice-seconds", "1", device=device), began_s)


@lru_cache(maxsize=1)
def per_sample_s(device: str) -> float:
    """Return what training on one row takes with data for free, in seconds."""
    with tempfile.TemporaryDirectory() as directory:
        report = tuner(Path(directory), "run", "--trials", "1", "--no-confirm", "--slice-seconds", "1", device=device)
    return 1.0 / float(report["ceiling_per_s"] or report["baseline"]["samples_per_s"])


def not_bound(seed: int, device: str, directory: Path) -> Row:
    """Confirm more workers on a job that waits for nothing."""
    began_s = time.monotonic()
    directory.mkdir(parents=True)
    text = WORDS * 100
    rows = [{"query": f"{seed} {n} {text[: 8000 + 10 * n]}", "response": "yes"} for n in range(LONG_ROWS)]
    (directory / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workload = ["--dataset", "long.jsonl", "--gradient-accumulation-steps", "1", "--per-device-train-batch-size", "2"]
    workload += ["--seed", str(seed), "--num-workers", "1,2,4"]
    searched = tuner(
        directory, "run", "--trials", "4", "--no-confirm", "--no-early-stop", *workload, "--slice-seconds", "1",
        device=device,
    )  # fmt: skip
    others = [c for c in searched["configurations"] if "baseline" not in c["roles"] and c["slices"]]
    key = key_of(max(others, key=lambda c: c["samples_per_s"])["config"])
    told_now = tuner(directory, "confirm", "--study", "long", "--finalist", key)
    return told("not data-bound", seed, {**searched, "confirmation": told_now, "verdict": told_now["verdict"]}, began_s)


def self_test(seed: int, device: str, directory: Path) -> Row:
    """Run an A/A study on the embedded default."""
    began_s = time.monotonic()
    arguments = ["run", "--aa", "--trials", "2", "--seed", str(seed), "--slice-seconds", "1"]
    return told("A/A", seed, tuner(directory, *arguments, device=device), began_s)


KINDS = {"data-bound": data_bound, "not data-bound": not_bound, "A/A": self_test}


def tuner(directory: Path, *arguments: str, device: str | None = None) -> dict[str, Any]:
    """Return the JSON document a command prints. An A/A study that is confirmed exits 1, which is a result."""
    directory.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-P", "-m", "tuner", *arguments, "--json", *(["--device", device] if device else [])]
    root = str(Path(__file__).resolve().parent.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True)
    if not done.stdout.strip():
        raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def told(kind: str, seed: int, report: dict[str, Any], began_s: float) -> Row:
    """Return what a report says."""
    noted, baseline = report["confirmation"] or {}, report["baseline"] or {}
    return Row(
        kind=kind,
        seed=seed,
        verdict=report["verdict"],
        gain_fraction=noted.get("gain_fraction"),
        lower_fraction=noted.get("lower_fraction"),
        upper_fraction=noted.get("upper_fraction"),
        rounds=noted.get("rounds"),
        wait_fraction=baseline.get("wait_fraction"),
        choice=key_of(report["best"]["config"]) if report["best"] else "-",
        wall_s=round(time.monotonic() - began_s, 1),
    )


def key_of(config: dict[str, Any]) -> str:
    """Return a configuration's key as tables have it."""
    from objectives.schema import LoaderConfig

    return LoaderConfig(**config).key


def judged(rows: list[Row]) -> list[Bar]:
    """Return the bars of the kinds that were run."""
    found = []
    if bound := [r for r in rows if r.kind == "data-bound"]:
        share = sum(r.verdict == "confirmed" for r in bound) / len(bound)
        found.append(at_least("data-bound jobs confirmed", share, 1.0, len(bound)))
        found.append(
            at_least("least gain of them", min(r.gain_fraction or 0.0 for r in bound), GAIN_FRACTION, len(bound))
        )
    if free := [r for r in rows if r.kind == "not data-bound"]:
        found.append(
            at_most("jobs that do not wait, confirmed", sum(r.verdict == "confirmed" for r in free), 0, len(free))
        )
        share = sum(r.verdict in ("no difference", "not resolved") for r in free) / len(free)
        found.append(at_least("jobs that do not wait: no difference or not resolved", share, 0.9, len(free)))
        most = max(r.wait_fraction or 0.0 for r in free)
        found.append(at_most("their largest wait", most, LONG_WAIT_FRACTION, len(free)))
    if equal := [r for r in rows if r.kind == "A/A"]:
        found.append(at_most("A/A studies confirmed", sum(r.verdict == "confirmed" for r in equal), 1, len(equal)))
    return found


if __name__ == "__main__":
    sys.exit(main())

"""What a study costs beside training: wall time over the time spent in timed and warm-up steps, part by part.

    python -m benchmarks.wall_time --trials 30

Runs `tuner run` on the embedded job in a process of its own and reads the parts from its database. Steps of trials,
ceilings and confirmation count as timed; what is left is start-up, building, drain, shut-down, storage and choosing.
Prints a table, writes JSON, exits 1 if the ratio is above the bar.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from objectives.schema import Measurement, Outcome
from storage.records import StudyData
from storage.store import open_store

RESULTS = Path(__file__).parent / "results" / "wall_time.json"
BAR = 1.3
STUDY = "wall_time"


def main() -> int:
    """Run one study and show its parts; return 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("arguments", nargs="*", help="further options of tuner run, after --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        database = str(Path(scratch) / "wall_time.db")
        command = [
            sys.executable, "-m", "tuner", "run", "--trials", str(options.trials), "--study", STUDY,
            "--no-early-stop", "--storage", database, *options.arguments,
        ]  # fmt: skip
        began = datetime.now(UTC)
        began_s = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall_s = time.monotonic() - began_s
        with open_store(database, create=False) as store:
            study = store.study(STUDY)
            assert study is not None
            data = store.data(study, raw=True)
    parts = shares(data, began, wall_s)
    ratio = wall_s / parts["timed steps"]
    print(f"{len(data.trials)} trials, {wall_s:.1f} s")
    for name, seconds in parts.items():
        print(f"  {name:44}{seconds:9.2f} s{100 * seconds / wall_s:8.1f} %")
    print(f"{'ok' if ratio <= BAR else 'MISSED'}  wall time over timed steps: {ratio:.3f} (at most {BAR})")
    document = {"trials": len(data.trials), "wall_s": wall_s, "parts_s": parts, "ratio": ratio, "bar": BAR,
                "passed": ratio <= BAR}  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if ratio <= BAR else 1


def shares(data: StudyData, began: datetime, wall_s: float) -> dict[str, float]:
    """Return where the wall time went, in seconds; the parts sum to it."""
    trials = [t for t in data.trials if t.started_at and t.ended_at]
    measured = [t.outcome for t in trials]
    confirming: list[Outcome] = [s.outcome for c in data.confirmations for s in c.slices]
    steps = {
        "steps of trials": _steps_s(measured),
        "steps of ceilings": _steps_s(data.ceilings),
        "steps of confirmation": _steps_s(confirming),
    }
    phases: Counter[str] = Counter()
    for outcome in [*measured, *confirming]:
        if isinstance(outcome, Measurement) and outcome.raw is not None:
            phases.update(outcome.raw.wall_s)
    parts = {"timed steps": sum(steps.values())}
    parts |= {name: float(phases[name]) for name in ("build", "drain", "shutdown")}
    parts["trainer around its steps"] = (
        float(phases["train"]) - steps["steps of trials"] - steps["steps of confirmation"]
    )
    if trials and trials[0].started_at is not None:
        before_s = (trials[0].started_at - began).total_seconds()
        between_s = sum(
            (b.started_at - a.ended_at).total_seconds()
            for a, b in itertools.pairwise(trials)
            if b.started_at and a.ended_at
        )
        # ceilings are measured before the first trial and between later ones; which, is not stored
        parts["start-up, warm-up, choosing, around ceilings"] = before_s + between_s - steps["steps of ceilings"]
        inside_s = sum((t.ended_at - t.started_at).total_seconds() for t in trials if t.ended_at and t.started_at)
        slices_s = sum(sum(o.raw.wall_s.values()) for o in measured if isinstance(o, Measurement) and o.raw)
        parts["handing over and storing trials"] = inside_s - slices_s
    parts["around confirmation, report, exit"] = wall_s - sum(parts.values())
    return parts


def _steps_s(outcomes: Iterable[Outcome | None]) -> float:
    return sum(sum(o.raw.steps.step_s) for o in outcomes if isinstance(o, Measurement) and o.raw is not None)


if __name__ == "__main__":
    sys.exit(main())

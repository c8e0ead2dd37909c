"""The same job, three ways: `tuner run`, `tuner run --isolation process`, and loadtune 0.3.0.

    python -m benchmarks.side_by_side --row-delay-ms 15 --trials 30 --rounds 6

Each finds settings for the embedded model and rows on its own; then every configuration that one of them chose, each
one's own baseline, and a few in between are measured in rounds, forth and back, so that drift hits all alike. That
reference gives the regret of each choice and the true gain beside the claimed one. loadtune is installed from PyPI into
a temporary folder, without its dependencies, unless `--loadtune DIR` names one that has it. Prints a table, writes
JSON.
Slices of this length cannot tell configurations apart that differ by less than the spread shown.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.loadtune_rules import BASELINE as NO_WORKERS
from benchmarks.loadtune_rules import NOISE_TOLERANCE
from objectives.host import HostInfo, find_gpu, read_host
from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import LoaderConfig, Measurement, Workload, canonical
from objectives.wire import pack
from objectives.workload import resolve

RESULTS = Path(__file__).parent / "results" / "side_by_side.json"
WORKLOAD_FILE = Path(__file__).parent / "loadtune_workload.py"
LOADTUNE = "loadtune==0.3.0"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one tool said. A claimed gain is relative to its own baseline; None: it claims nothing."""

    tool: str
    seconds: float
    measurements: int
    choice: LoaderConfig
    baseline: LoaderConfig
    claimed_gain: float | None
    verdict: str


def main() -> int:
    """Run all three and the reference; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--row-delay-ms", type=float, default=15.0, help="makes the job data-bound; 0: as it is")
    parser.add_argument("--slice-seconds", type=float, help="of tuner's slices; default: its own choice")
    parser.add_argument("--rounds", type=int, default=6, help="of the reference")
    parser.add_argument("--reference-seconds", type=float, default=8.0, help="of one slice of the reference")
    parser.add_argument(
        "--loadtune", type=Path, help="folder that has loadtune; default: pip install into a temporary one"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    host = read_host()
    workload = job(options.row_delay_ms, host)
    with tempfile.TemporaryDirectory() as scratch:
        answers = [
            run_tuner("tuner run", [], options, Path(scratch)),
            run_tuner("tuner run --isolation process", ["--isolation", "process"], options, Path(scratch)),
            run_loadtune(workload, options.loadtune or install(Path(scratch) / "loadtune"), Path(scratch)),
        ]
    reference = measure_reference(workload, answers, host, options.rounds, options.reference_seconds)
    rows = [row(answer, reference) for answer in answers]
    show(rows, reference)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    spread = {config.key: values for config, values in reference.items()}
    document = {"device": workload.device, "usable_cpus": host.usable_cpus, "row_delay_ms": options.row_delay_ms,
                "trials": options.trials, "rows": rows, "reference_samples_per_s": spread}  # fmt: skip
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def job(row_delay_ms: float, host: HostInfo) -> Workload:
    """Return the embedded job as `tuner run` would set it up here."""
    device = find_gpu("auto", host)
    on_cpu = device == "cpu"
    return Workload(
        device=device,
        torch_dtype="float32" if on_cpu else "bfloat16",
        cpu_threads=max(1, host.usable_cpus // 2),
        row_delay_ms=row_delay_ms,
    )


def run_tuner(tool: str, extra: list[str], options: argparse.Namespace, scratch: Path) -> Answer:
    """Return what `tuner run` answers, confirmation included."""
    command = [
        sys.executable, "-m", "tuner", "run", "--json", "--trials", str(options.trials), "--study", "side_by_side",
        "--storage", str(scratch / f"{len(extra)}.db"), "--row-delay-ms", str(options.row_delay_ms), *extra,
    ]  # fmt: skip
    if options.slice_seconds is not None:
        command += ["--slice-seconds", str(options.slice_seconds)]
    print("$", *command[1:], file=sys.stderr)
    began_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - began_s
    if done.returncode not in (0, 1):
        raise SystemExit(f"{tool} ended with status {done.returncode}")
    report = json.loads(done.stdout)
    confirmation = report["confirmation"] or {}
    return Answer(
        tool=tool,
        seconds=seconds,
        measurements=int(report["counts"]["trials"]) + int(confirmation.get("slices", 0)),
        choice=from_json(report["recommended"] or report["baseline"]["config"]),
        baseline=from_json(report["baseline"]["config"]),
        claimed_gain=confirmation.get("gain_fraction") if report["verdict"] == "confirmed" else None,
        verdict=report["verdict"],
    )


def install(folder: Path) -> Path:
    """Return the folder loadtune was installed into; the torch of this environment is used."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), LOADTUNE]
    subprocess.run(command, check=True)
    return folder


def run_loadtune(workload: Workload, folder: Path, scratch: Path) -> Answer:
    """Return what `loadtune tune` answers with its defaults."""
    raw = scratch / "loadtune.json"
    command = [
        sys.executable, "-m", "loadtune.cli", "tune", str(WORKLOAD_FILE), "--no-plots", "--save-raw", str(raw),
        "--out", str(scratch / "loadtune.md"),
    ]  # fmt: skip
    root = str(Path(__file__).parent.parent)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, str(folder), os.environ.get("PYTHONPATH", "")]),
        "TUNER_WORKLOAD": json.dumps(pack(workload)),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "" if workload.device == "cpu" else workload.device,
    }
    if workload.device == "cpu":
        environment["OMP_NUM_THREADS"] = environment["MKL_NUM_THREADS"] = str(workload.cpu_threads)
    print("$", *command[1:], file=sys.stderr)
    began_s = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
    seconds = time.monotonic() - began_s
    found = json.loads(raw.read_text(encoding="utf-8"))
    trials = [t for t in found["trials"] if t["result"] and not t["result"].get("error")]
    base_per_s = found["baseline"]["throughput"]
    choice, gain = NO_WORKERS, None
    if trials:
        top = max(t["result"]["throughput"] for t in trials)
        close = [t for t in trials if t["result"]["throughput"] >= top * (1 - NOISE_TOLERANCE)]
        best = min(close, key=lambda t: (t["knobs"]["num_workers"], -t["result"]["throughput"]))
        if best["result"]["throughput"] > base_per_s:
            choice, gain = from_json(best["knobs"]), best["result"]["throughput"] / base_per_s - 1
    verdict = "none" if gain is None else "faster"
    return Answer(LOADTUNE, seconds, 1 + len(found["trials"]), choice, NO_WORKERS, gain, verdict)


def from_json(knobs: dict[str, Any]) -> LoaderConfig:
    """Return the configuration of four values by name."""
    return canonical(
        int(knobs["num_workers"]),
        knobs["prefetch_factor"],
        bool(knobs["persistent_workers"]),
        bool(knobs["pin_memory"]),
    )


def measure_reference(
    workload: Workload, answers: list[Answer], host: HostInfo, rounds: int, seconds: float
) -> dict[LoaderConfig, list[float]]:
    """Return samples/s per configuration and round, measured forth and back by a child that stays."""
    pin = workload.device != "cpu"
    between = [canonical(w, 4, True, pin) for w in (1, 2, 4, 8) if w <= max(4, host.usable_cpus)]
    configs = list(dict.fromkeys([*(c for a in answers for c in (a.choice, a.baseline)), *between]))
    found: dict[LoaderConfig, list[float]] = {config: [] for config in configs}
    objective = LoraObjective(resolve(workload), Choices({}, {}), LoraOptions(seconds, sys.executable))
    with contextlib.closing(objective):
        objective.prepare({}, lambda _text: None)
        for number in range(rounds):
            for config in configs if number % 2 == 0 else configs[::-1]:
                outcome = objective.measure(config, lambda _text: None)
                if isinstance(outcome, Measurement):
                    found[config].append(outcome.samples_per_s)
            print(f"reference: round {number + 1} of {rounds}", file=sys.stderr)
    return {config: values for config, values in found.items() if values}


def row(answer: Answer, reference: dict[LoaderConfig, list[float]]) -> dict[str, Any]:
    """Return one line of the table; gains and regret are fractions."""
    medians = {config: statistics.median(values) for config, values in reference.items()}
    own, base = medians.get(answer.choice), medians.get(answer.baseline)
    return {
        **{k: v for k, v in asdict(answer).items() if k not in ("choice", "baseline")},
        "choice": answer.choice.key,
        "baseline": answer.baseline.key,
        "true_gain": own / base - 1 if own and base else None,
        "regret": 1 - own / max(medians.values()) if own else 1.0,
    }


def show(rows: list[dict[str, Any]], reference: dict[LoaderConfig, list[float]]) -> None:
    """Print both tables."""
    print(
        f"{'':32}{'answer in':>10}{'slices':>8}  {'choice':22}{'claims':>9}{'true':>9}{'regret':>9}  over its baseline"
    )
    for found in rows:
        gains = [found["claimed_gain"], found["true_gain"], found["regret"]]
        text = "".join(f"{'-' if g is None else f'{100 * g:.1f} %':>9}" for g in gains)
        print(f"{found['tool']:32}{found['seconds']:>8.0f} s{found['measurements']:>8}  {found['choice']:22}{text}  "
              f"{found['baseline']} ({found['verdict']})")  # fmt: skip
    print("\nreference, samples/s: median (lowest to highest slice)")
    for config, values in sorted(reference.items(), key=lambda item: -statistics.median(item[1])):
        print(f"  {config.key:24}{statistics.median(values):9.3f} ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    sys.exit(main())

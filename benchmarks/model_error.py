"""How far is the queue model off after three slices? Predicted step times of the whole space, beside measured ones.

Three slices (baseline, no workers, the predicted configuration) are measured as `tuner probe` does; the model predicts
the space from them. Then configurations spread over the space are measured in rounds, each round in another order, so
that drift hits all alike. Two errors are given: as predicted, and with the level of compute taken out (what the choice
depends on).

    python -m benchmarks.model_error --row-delay-ms 15 --out benchmarks/results/model_error_cpu.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from objectives.host import find_gpu, read_host
from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import LoaderConfig, Measurement, Workload, canonical
from objectives.score import ScorePolicy, score
from objectives.workload import resolve
from storage.records import StudyData, StudyRecord, TrialRecord
from tuner.appraisal import Appraisal, appraise
from tuner.export import defaults
from tuner.search import next_configuration
from tuner.space import SearchSpace, build_space

MEDIAN_BAR, P95_BAR = 0.03, 0.10
PROBE_SLICES = 3


@dataclass(frozen=True)
class Row:
    """One configuration: seconds per sample."""

    configuration: str
    predicted_s: float
    measured_s: float
    slices: int
    error: float
    relative_error: float
    """With the median error of all taken out."""


def main() -> int:
    """Print and write the table; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--row-delay-ms", type=float, default=0.0)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=16)
    parser.add_argument("--slice-seconds", type=float, default=4.0)
    parser.add_argument("--configurations", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    host = read_host()
    device = find_gpu(options.device, host)
    on_cpu = device == "cpu"
    workload = Workload(
        model=options.model,
        device=device,
        torch_dtype="float32" if on_cpu else "bfloat16",
        row_delay_ms=options.row_delay_ms,
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulation,
    )
    workers = tuple(w for w in (0, 1, 2, 3, 4, 6, 8, 12, 16) if w <= max(4, host.usable_cpus))
    pins = (False,) if on_cpu else (False, True)
    values = {"num_workers": workers, "prefetch_factor": (1, 2, 4, 8), "persistent_workers": (False, True)}
    choices = Choices({**values, "pin_memory": pins}, {})
    base, _ = defaults("swift")
    space = build_space(choices, canonical(base.num_workers, base.prefetch_factor, base.persistent_workers, not on_cpu))
    objective = LoraObjective(resolve(workload), choices, LoraOptions(options.slice_seconds, sys.executable))
    with contextlib.closing(objective):
        data = probe(objective, space, float(host.usable_cpus))
        about = {"host": f"{'cpu' if on_cpu else 'gpu'}, {host.usable_cpus} CPUs", **vars(options)}
        missed = 1
        for rows in compare(objective, data, space, options.configurations, options.rounds):
            missed = report(rows, options.out, {**about, "rounds": rows[0].slices})  # a run cut off keeps its rounds
    return missed


def probe(objective: LoraObjective, space: SearchSpace, cpus: float) -> StudyData:
    """Return a study of the three slices a probe takes."""
    prepared = objective.prepare({}, quiet)
    record = StudyRecord(
        "benchmark", "0", "lora", dict(objective.identity()), {"usable_cpus": cpus}, "", space.baseline, "",
        space.measured_knobs, {}, {}, len(space.configurations), 0, datetime.now(UTC),
        remember=dict(prepared.remember), facts=dict(prepared.facts),
    )  # fmt: skip
    data = StudyData(record, (), prepared.ceilings)
    for number in range(PROBE_SLICES):
        config, origin = next_configuration(data, space, 30)
        outcome = objective.measure(config, quiet)
        assert isinstance(outcome, Measurement), outcome
        graded = score(outcome, ScorePolicy())
        trial = TrialRecord(number, "complete", config, origin, str(number), outcome=outcome, score=graded)
        data = StudyData(record, (*data.trials, trial), prepared.ceilings)
        print(f"probe {config.key}: {outcome.samples_per_s:.2f} samples/s", file=sys.stderr)
    return data


def compare(
    objective: LoraObjective, data: StudyData, space: SearchSpace, count: int, rounds: int
) -> Iterator[list[Row]]:
    """Yield predicted and measured times of configurations spread evenly over the space, after every round."""
    appraisal = appraise(data, space.configurations)
    assert appraisal is not None
    stride = len(space.configurations) / count
    chosen = [space.configurations[int(i * stride)] for i in range(count)]
    seen: dict[LoaderConfig, list[float]] = {c: [] for c in chosen}
    order = random.Random(0)
    for number in range(rounds):
        for config in order.sample(chosen, len(chosen)):
            outcome = objective.measure(config, quiet)
            if isinstance(outcome, Measurement):
                seen[config].append(1.0 / outcome.samples_per_s)
        print(f"round {number + 1}/{rounds}", file=sys.stderr)
        yield _rows(seen, appraisal)


def _rows(seen: dict[LoaderConfig, list[float]], appraisal: Appraisal) -> list[Row]:
    chosen = list(seen)
    predicted = {c: 1.0 / appraisal.samples_per_s(c) for c in chosen}
    measured = {c: statistics.mean(times) for c, times in seen.items() if times}
    errors = {c: predicted[c] / measured[c] - 1.0 for c in measured}
    level = statistics.median(errors.values())
    return [
        Row(c.key, predicted[c], measured[c], len(seen[c]), errors[c], (1.0 + errors[c]) / (1.0 + level) - 1.0)
        for c in measured
    ]


def report(rows: Sequence[Row], out: Path, about: dict[str, object]) -> int:
    """Print the table and the figures, write them, and return the exit status."""
    for row in rows:
        times = f"predicted {1e3 * row.predicted_s:8.2f} ms/sample, measured {1e3 * row.measured_s:8.2f}"
        print(f"{row.configuration:<20} {times}  {100 * row.error:+6.1f} %  {100 * row.relative_error:+6.1f} %")
    figures = {}
    for name in ("error", "relative_error"):
        sizes = sorted(abs(getattr(row, name)) for row in rows)
        p95 = sizes[min(len(sizes) - 1, round(0.95 * (len(sizes) - 1)))]
        figures[name] = {"median": statistics.median(sizes), "p95": p95}
        print(f"{name}: median {100 * statistics.median(sizes):.1f} %, 95th {100 * p95:.1f} %")
    passed = figures["error"]["median"] <= MEDIAN_BAR and figures["error"]["p95"] <= P95_BAR
    out.parent.mkdir(parents=True, exist_ok=True)
    content = {"about": {k: str(v) for k, v in about.items() if k != "out"}, "figures": figures, "passed": passed}
    out.write_text(json.dumps({**content, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 0 if passed else 1


def quiet(_text: str) -> None:
    """Ignore what a slice is doing."""


if __name__ == "__main__":
    sys.exit(main())

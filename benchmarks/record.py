"""Record slices of a few configurations, measured again and again, interleaved: what equal settings scatter by.

Writes one JSON line per slice: `kind` ceiling or configuration, the knobs, start-up, restart, loader rate, and the
raw series (`steps`, `batches` with the workers' stamps). `tuner run --objective replay --recording FILE` plays it back.

    python benchmarks/record.py --model qwen2.5-7b --repeats 3 --out recording.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from objectives.host import find_gpu, read_host
from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import Crash, LoaderConfig, Measurement, Workload
from objectives.workload import resolve


def main() -> int:
    """Record and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--dataset", default="embedded")
    parser.add_argument("--tokenizer")
    parser.add_argument("--slice-seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--configurations", default="1-2-1-1,0-0-0-1,4-4-1-1,4-4-0-1", help="workers-prefetch-persist-pin"
    )
    parser.add_argument("--name", default="recording")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    host = read_host()
    device = find_gpu("auto", host)
    workload = Workload(
        model=options.model,
        dataset=options.dataset,
        tokenizer=options.tokenizer,
        device=device,
        torch_dtype="float32" if device == "cpu" else "bfloat16",
    )
    configs = [parse(text) for text in options.configurations.split(",")]
    objective = LoraObjective(resolve(workload), Choices({}, {}), LoraOptions(options.slice_seconds, sys.executable))
    common = {
        "workload": options.name,
        "batch_size": workload.per_device_train_batch_size,
        "accumulation": workload.gradient_accumulation_steps,
        "cpus": host.usable_cpus,
    }
    with contextlib.closing(objective), options.out.open("w", encoding="utf-8") as out:
        prepared = objective.prepare({}, lambda _text: None)
        for ceiling in prepared.ceilings:
            write(out, {"kind": "ceiling", **common, **series(ceiling)})
        for repeat in range(options.repeats):
            for config in configs if repeat % 2 == 0 else configs[::-1]:  # forth and back, so that drift cancels
                outcome = objective.measure(config, lambda _text: None)
                if isinstance(outcome, Crash):
                    print(f"{config.key}: {outcome.message}", file=sys.stderr)
                    continue
                write(out, {"kind": "configuration", **common, "repeat": repeat, **knobs(config), **figures(outcome)})
                wait = f"{100 * (outcome.wait_fraction or 0):.2f} %"
                print(f"{repeat} {config.key:20} {outcome.samples_per_s:8.3f} samples/s, wait {wait}", file=sys.stderr)
    return 0


def parse(text: str) -> LoaderConfig:
    """Return the configuration of `workers-prefetch-persist-pin`."""
    workers, prefetch, persistent, pin = (int(part) for part in text.split("-"))
    return LoaderConfig(workers, prefetch if workers else None, bool(persistent and workers), bool(pin))


def knobs(config: LoaderConfig) -> dict[str, Any]:
    """Return the knobs by name."""
    return {
        "num_workers": config.num_workers,
        "prefetch_factor": config.prefetch_factor,
        "persistent_workers": config.persistent_workers,
        "pin_memory": config.pin_memory,
    }


def figures(outcome: Measurement) -> dict[str, Any]:
    """Return the scalars of a slice and its raw series."""
    busy = outcome.cpu_busy_fraction
    return {
        "startup_s": outcome.startup_s,
        "restart_s": outcome.restart_s,
        "loader_batches_per_s": outcome.loader_batches_per_s,
        "cpu_busy_percent": None if busy is None else round(100 * busy, 1),
        "samples_per_s": outcome.samples_per_s,
        **series(outcome),
    }


def series(outcome: Measurement) -> dict[str, Any]:
    """Return the steps and batches of a slice, in seconds rounded to 10 microseconds."""
    assert outcome.raw is not None
    steps, batches = outcome.raw.steps, outcome.raw.batches
    return {
        "batches": [
            {"step": batches.step[i], "start_s": round(batches.service_start_s[i], 5),
             "end_s": round(batches.service_end_s[i], 5), "worker": batches.worker[i]}
            for i in range(len(batches))
        ],
        "steps": [
            {"step_s": round(steps.step_s[i], 5), "restart_s": round(steps.restart_s[i], 5),
             "data_wait_s": round(steps.data_wait_s[i], 5), "h2d_s": round(steps.h2d_s[i], 5),
             "samples": steps.samples[i], "tokens": steps.tokens[i],
             "run_delay_s": round(steps.run_delay_s[i], 5) if steps.run_delay_s else None,
             "trainer_cpu_s": round(steps.trainer_cpu_s[i], 5) if steps.trainer_cpu_s else None}
            for i in range(len(steps))
        ],
    }  # fmt: skip


def write(out: Any, line: dict[str, Any]) -> None:
    """Write one line and flush: a recording cut short is still one."""
    out.write(json.dumps(line, separators=(",", ":")) + "\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Does the slice predict a real run? Epoch time predicted from slices, beside uninstrumented 3-epoch training.

The real runs use a stock `Trainer.train()` over a plain loader: no stamps, no hooks, no drain, no synchronisation.
Slices and real runs of the configurations are interleaved, so that drift hits both alike.

    python benchmarks/epoch_check.py --model qwen2.5-7b --out epoch_check.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from objectives.host import find_gpu, read_host
from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import LoaderConfig, Measurement, Workload
from objectives.wire import pack, unpack
from objectives.workload import ResolvedWorkload, resolve

EPOCHS = 3
CONFIGS = (LoaderConfig(2, 4, True, True), LoaderConfig(2, 4, False, True))


def main() -> int:
    """Print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--slice-seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--real", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.real:
        return real_runs(json.loads(options.real))
    host = read_host()
    device = find_gpu("auto", host)
    name = next((gpu.name for gpu in host.gpus if gpu.uuid == device), device)
    on_cpu = device == "cpu"
    workload = Workload(model=options.model, device=device, torch_dtype="float32" if on_cpu else "bfloat16")
    resolved = resolve(workload)
    configs = [LoaderConfig(c.num_workers, c.prefetch_factor, c.persistent_workers, not on_cpu) for c in CONFIGS]
    slices: dict[str, list[Measurement]] = {c.key: [] for c in configs}
    real: dict[str, list[float]] = {c.key: [] for c in configs}
    for _ in range(options.rounds):
        objective = LoraObjective(resolved, Choices({}, {}), LoraOptions(options.slice_seconds, sys.executable))
        with contextlib.closing(objective):
            objective.prepare({}, lambda _text: None)
            for config in [*configs, *configs[::-1]]:
                outcome = objective.measure(config, lambda _text: None)
                assert isinstance(outcome, Measurement), outcome
                slices[config.key].append(outcome)
        for key, epoch_s in measure_real(resolved, configs):
            real[key].append(epoch_s)
    table = []
    for config in configs:
        predicted_s = [resolved.rows.rows / m.samples_per_s for m in slices[config.key]]
        run_s = real[config.key]
        row = {
            "configuration": config.key,
            "predicted_epoch_s": [round(v, 3) for v in predicted_s],
            "real_epoch_s": [round(v, 3) for v in run_s],
            "restart_s": round(statistics.mean(m.restart_s or 0.0 for m in slices[config.key]), 4),
            "error": round(statistics.mean(predicted_s) / statistics.mean(run_s) - 1, 4),
        }
        table.append(row)
        print(json.dumps(row))
    options.out.write_text(json.dumps({"model": options.model, "device": name, "rows": table}, indent=1) + "\n")
    return 0


def measure_real(resolved: ResolvedWorkload, configs: list[LoaderConfig]) -> Iterator[tuple[str, float]]:
    """Yield configuration and mean epoch time, in seconds, of real runs in a process of their own."""
    request = {
        "workload": pack(resolved.workload),
        "paths": [resolved.dataset_path, resolved.model_path, resolved.tokenizer_path],
        "configs": [pack(c) for c in [*configs, *configs[::-1]]],
    }
    command = [sys.executable, __file__, "--out", "-", "--real", json.dumps(request)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for line in lines:
        if line.startswith('{"key"'):  # the Trainer prints a line of its own
            found = json.loads(line)
            yield found["key"], found["epoch_s"]


def real_runs(request: dict[str, Any]) -> int:
    """Train for real, three epochs per configuration after a warm-up epoch, and print the epoch times."""
    from torch.utils.data import DataLoader
    from transformers import Trainer, TrainingArguments

    from objectives.slice.order import epoch_batches
    from objectives.slice.session import Session

    work = unpack(Workload, request["workload"])
    dataset_path, model_path, tokenizer_path = request["paths"]
    session = Session(work, dataset_path=dataset_path, model_path=model_path, tokenizer_path=tokenizer_path)
    on_cpu = work.device == "cpu"

    class Epochs:
        """Batches in ms-swift's order."""

        def __init__(self) -> None:
            self.epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return len(epoch_batches(len(session.dataset), work.per_device_train_batch_size, work.seed, 0))

        def __iter__(self) -> Iterator[list[int]]:
            size = work.per_device_train_batch_size
            return iter(epoch_batches(len(session.dataset), size, work.seed, self.epoch))

    class PlainLoader(DataLoader):
        """ms-swift's loader and nothing else."""

        def set_epoch(self, epoch: int) -> None:
            self.batch_sampler.set_epoch(epoch)

        def __iter__(self) -> Iterator[Any]:
            for batch in super().__iter__():
                yield batch if on_cpu else {k: v.to(session.device) for k, v in batch.items()}

    class PlainTrainer(Trainer):
        """A stock trainer over the plain loader."""

        def get_train_dataloader(self) -> Any:
            return loader

    configs = [unpack(LoaderConfig, c) for c in request["configs"]]
    for number, config in enumerate([configs[0], *configs]):
        loader = PlainLoader(
            session.dataset,
            batch_sampler=Epochs(),
            collate_fn=session.collate,
            num_workers=config.num_workers,
            prefetch_factor=config.prefetch_factor,
            persistent_workers=config.persistent_workers,
            pin_memory=config.pin_memory,
        )
        with tempfile.TemporaryDirectory() as out, session.untouched_model() as model:
            arguments = TrainingArguments(
                output_dir=out, num_train_epochs=EPOCHS if number else 1, learning_rate=1e-4, use_cpu=on_cpu,
                per_device_train_batch_size=work.per_device_train_batch_size,
                gradient_accumulation_steps=work.gradient_accumulation_steps, bf16=not on_cpu, save_strategy="no",
                logging_strategy="no", report_to="none", disable_tqdm=True, remove_unused_columns=False,
            )  # fmt: skip
            trainer = PlainTrainer(model=model, args=arguments, train_dataset=session.dataset)
            began_s = time.monotonic()
            trainer.train()
            session.synchronize()
            epoch_s = (time.monotonic() - began_s) / EPOCHS
        if loader._iterator is not None:
            loader._iterator._shutdown_workers()
        if number:
            print(json.dumps({"key": config.key, "epoch_s": epoch_s}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

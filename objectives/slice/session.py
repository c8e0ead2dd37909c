"""What the child keeps from trial to trial: rows, tokenizer and the model, loaded once.

Runs in: child. *Not covered*: how a model is built (`objectives.slice.model`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers

from objectives.rows import open_rows
from objectives.schema import SlicePlan, Workload
from objectives.slice.dataset import PadCollate, RowDataset
from objectives.slice.encode import Encoder
from objectives.slice.model import build_model, build_tokenizer

TOUCHED_ROWS = 20_000
"""Rows tokenised once at most before the first slice, so that the page cache is warm for the baseline too."""


class Session:
    """Builds the workload; holds it for every slice of this process."""

    def __init__(self, workload: Workload, *, dataset_path: str, model_path: str, tokenizer_path: str) -> None:
        if workload.device == "cpu":
            torch.set_num_threads(workload.cpu_threads)
        self.workload = workload
        self.device = torch.device("cpu" if workload.device == "cpu" else "cuda:0")
        self.tokenizer = build_tokenizer(tokenizer_path)
        encoder = Encoder(self.tokenizer, workload.max_length)
        self.dataset = RowDataset(open_rows(dataset_path), encoder, workload.row_delay_ms / 1000)
        pad = self.tokenizer.pad_token_id
        self.collate = PadCollate(pad if pad is not None else self.tokenizer.eos_token_id or 0)
        self.model = build_model(workload, model_path, self.device, len(self.tokenizer))
        self.held: tuple[SlicePlan, list[list[Any]]] | None = None

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @contextmanager
    def untouched_model(self) -> Iterator[torch.nn.Module]:
        """Lend the model and take off what accelerate wraps around its `forward`.

        Each new trainer prepares the model anew; left in place, every trial would add a layer of autocast to the
        next and make it slower.
        """
        before = {name: self.model.__dict__[name] for name in ("forward",) if name in self.model.__dict__}
        try:
            yield self.model
        finally:
            for name in ("forward", "_original_forward"):
                self.model.__dict__.pop(name, None)
            self.model.__dict__.update(before)
            self.model.zero_grad(set_to_none=True)

    def touch(self) -> dict[str, float]:
        """Read and tokenise the rows once.

        Returns how long a row takes in the trainer's process, in seconds, how many were read, and how many of those are
        longer than `max_length`: they are cut here, and ms-swift leaves them out unless told to cut.
        """
        began_s = time.monotonic()
        count = min(len(self.dataset), TOUCHED_ROWS)
        spent_s = 0.0
        done = long_rows = 0
        for done in range(1, count + 1):
            long_rows += self.dataset.is_long(done - 1)
            spent_s = time.monotonic() - began_s
            if spent_s > 20.0:
                break
        row_s = spent_s / max(done, 1) + self.dataset.delay_s
        return {"row_s": row_s, "touched_rows": float(done), "long_rows": float(long_rows)}

    def facts(self) -> dict[str, Any]:
        """Return what the parent records of the child."""
        parameters = list(self.model.parameters())
        return {
            "rows": len(self.dataset),
            "parameters": sum(p.numel() for p in parameters),
            "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "cpu_threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name(0) if self.device.type == "cuda" else "cpu",
        }

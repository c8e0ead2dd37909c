"""The embedded job as a workload file for loadtune: our model, rows, collator and accumulation, its own loop.

Runs in: loadtune's trial processes. The job comes as JSON in `TUNER_WORKLOAD`. loadtune calls a batch a step; the
optimizer steps once per accumulation group, as in the trainer.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from loadtune import Workload

from objectives.schema import Workload as Job
from objectives.slice.session import Session
from objectives.wire import unpack
from objectives.workload import resolve


def get_workload() -> Any:
    """Return the workload."""
    resolved = resolve(unpack(Job, json.loads(os.environ["TUNER_WORKLOAD"])))
    session = Session(
        resolved.workload,
        dataset_path=resolved.dataset_path,
        model_path=resolved.model_path,
        tokenizer_path=resolved.tokenizer_path,
    )
    session.touch()  # our slices find the rows in the page cache too
    group = resolved.workload.gradient_accumulation_steps
    batches = 0

    def train_step(model: Any, optimizer: Any, batch: Any, device: Any) -> Any:
        nonlocal batches
        batches += 1
        loss = model(**{key: value.to(device) for key, value in batch.items()}).loss / group
        loss.backward()
        if batches % group == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.detach() * group

    return Workload(
        name="embedded",
        make_dataset=lambda: session.dataset,
        make_model=lambda: session.model,
        make_optimizer=lambda model: torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4),
        train_step=train_step,
        default_batch_size=resolved.workload.per_device_train_batch_size,
        collate_fn=session.collate,
    )

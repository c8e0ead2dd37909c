"""The trainer of a slice: a stock `transformers.Trainer` that trains from the loader it is given.

Runs in: child. Checkpoints, logging, evaluation and reports are off; everything that happens inside a training step
is the Trainer's own.
*Not covered*: the model (`objectives.slice.model`), the loader (`objectives.slice.loader`).
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from objectives.schema import LoaderConfig, SlicePlan, Workload
from objectives.slice.clock import SliceClock


class SliceTrainer(Trainer):
    """`Trainer` with its training loader handed in, so that a drained loader can be trained from."""

    def __init__(self, *, loader: Any, **kwargs: Any) -> None:
        self.slice_loader = loader
        super().__init__(**kwargs)
        self.remove_callback(PrinterCallback)

    def get_train_dataloader(self) -> Any:
        """Return the loader of the slice, not prepared by accelerate: ms-swift does not either."""
        return self.slice_loader


class StepEnds(TrainerCallback):
    """Tells the clock where each optimizer step ends."""

    def __init__(self, clock: SliceClock) -> None:
        self.clock = clock

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Called after the optimizer step of each accumulation group."""
        self.clock.step_ends()


def build_trainer(
    model: torch.nn.Module,
    loader: Any,
    clock: SliceClock,
    *,
    workload: Workload,
    plan: SlicePlan,
    config: LoaderConfig | None,
    output_dir: str,
) -> SliceTrainer:
    """Return a trainer for the timed epochs; `config` None is a ceiling, whose loader has no knobs."""
    on_cpu = workload.device == "cpu"
    knobs: dict[str, Any] = {}
    if config is not None:
        knobs = {
            "dataloader_num_workers": config.num_workers,
            "dataloader_prefetch_factor": config.prefetch_factor,
            "dataloader_persistent_workers": config.persistent_workers,
            "dataloader_pin_memory": config.pin_memory and not on_cpu,
        }
    arguments = TrainingArguments(
        output_dir=output_dir,
        per_device_train_batch_size=workload.per_device_train_batch_size,
        gradient_accumulation_steps=workload.gradient_accumulation_steps,
        num_train_epochs=max(plan.epochs, 1),
        max_steps=-1 if plan.epochs else plan.timed_steps,
        bf16=workload.torch_dtype == "bfloat16" and not on_cpu,
        fp16=workload.torch_dtype == "float16" and not on_cpu,
        use_cpu=on_cpu,
        learning_rate=1e-4,  # ms-swift's for LoRA; the speed does not depend on it
        seed=workload.seed,
        save_strategy="no",
        logging_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        **knobs,
    )
    return SliceTrainer(
        model=model,
        args=arguments,
        loader=loader,
        train_dataset=loader.dataset,
        callbacks=[StepEnds(clock)],
    )

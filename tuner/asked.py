"""What the user asked for, as plain values by the names of the command line: turned into options, kept with a study.

Runs in: parent. A study keeps the values it was made with, so that `tuner confirm`, and a run that goes on, need not be
told them again. *Not covered*: parsing the command line (`tuner.cli.workload_options`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from objectives.errors import UserError
from objectives.schema import KNOBS, Workload
from objectives.score import ScorePolicy
from storage.records import StudyRecord
from tuner.bounds import parse_menu
from tuner.setup import RunOptions

FILES = ("dataset", "recording", "python")
"""Values that may be paths; they are kept absolute, for a later command may be given from elsewhere."""

AS_IT_IS = (
    "model", "dataset", "tokenizer", "weights", "per_device_train_batch_size", "gradient_accumulation_steps",
    "max_length", "lora_rank", "lora_alpha", "seed", "row_delay_ms",
)  # fmt: skip
"""Values that are fields of the workload."""


def with_stored(values: Mapping[str, Any], given: Collection[str], study: StudyRecord | None) -> dict[str, Any]:
    """Return the values, those that were not given as the study has them."""
    stored = {} if study is None else study.options
    return {name: stored[name] if name in stored and name not in given else v for name, v in values.items()}


def to_store(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as JSON can hold them."""
    return {name: _absolute(value) if name in FILES else value for name, value in values.items()}


def stored_values(study: StudyRecord) -> dict[str, Any]:
    """Return the values a study was made with.

    Raises:
        UserError: If an older version made it, which did not keep them.
    """
    if study.options:
        return dict(study.options)
    raise UserError(
        f"study '{study.name}' does not know the options it was made with",
        "an older tuner made it; `tuner run` with those options adds them, and measures nothing that is there",
        f"tuner run --study {study.name} --no-confirm ...",
    )


def run_options(values: Mapping[str, Any]) -> RunOptions:
    """Return the options of these values.

    Raises:
        UserError: If a menu of values is not understood.
    """
    recording = values["recording"]
    return RunOptions(
        objective=values["objective"],
        recording=None if recording is None else Path(recording),
        workload=Workload(
            **{name: values[name] for name in AS_IT_IS},
            target_modules=tuple(t.strip() for t in values["target_modules"].split(",") if t.strip()),
            gradient_checkpointing=values["gradient_checkpointing"] == "true",
        ),
        device=values["device"],
        torch_dtype=values["torch_dtype"],
        cpu_threads=values["cpu_threads"],
        slice_seconds=values["slice_seconds"],
        python=values["python"],
        isolation=values["isolation"],
        chosen={knob: parse_menu(values[knob], knob) for knob in KNOBS if values[knob] is not None},
    )


def score_policy(values: Mapping[str, Any]) -> ScorePolicy:
    """Return the score policy of these values.

    Raises:
        UserError: If the penalty would fall with the load.
    """
    try:
        return ScorePolicy(values["cpu_soft_fraction"], values["cpu_hard_fraction"], values["cpu_max_penalty"])
    except ValueError as error:
        raise UserError(str(error), "the penalty grows from the soft to the hard load", "tuner run --help") from error


def _absolute(value: Any) -> str | None:
    if value is None:
        return None
    text = os.fspath(value)
    return str(Path(text).absolute()) if Path(text).exists() else text

"""Finds what the user named: model, tokenizer and data set, before anything heavy is started.

Runs in: parent. *Not covered*: building them (`objectives.slice`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from objectives.embedded import (
    embedded_config,
    embedded_dataset,
    embedded_tokenizer,
    preset_config,
    preset_names,
)
from objectives.errors import UserError
from objectives.rows import RowSummary, check_rows
from objectives.schema import Workload

EMBEDDED = "embedded"
LONGEST_DELAY_MS = 10_000.0
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class ResolvedWorkload:
    """A workload with the places its parts are read from; all checked as far as can be without the trainer's stack."""

    workload: Workload
    model_path: str
    tokenizer_path: str
    dataset_path: str
    rows: RowSummary
    warnings: tuple[str, ...]

    @property
    def offline(self) -> bool:
        """Return whether every part lies on this machine."""
        return Path(self.model_path).exists() and Path(self.tokenizer_path).exists()


def resolve(workload: Workload) -> ResolvedWorkload:
    """Return where the parts of a workload lie.

    Raises:
        UserError: If a part is missing or cannot be what it is meant to be.
    """
    if not 0.0 <= workload.row_delay_ms <= LONGEST_DELAY_MS:  # also refuses NaN
        raise UserError(
            f"--row-delay-ms {workload.row_delay_ms:g}",
            f"a row may be delayed by 0 to {LONGEST_DELAY_MS:g} ms: a slice that tells nothing for long is ended",
            "tuner run --row-delay-ms 50",
        )
    warnings: list[str] = []
    model_path, brings_tokenizer = _model(workload.model)
    if workload.tokenizer is not None:
        tokenizer_path = _tokenizer(workload.tokenizer)
    elif brings_tokenizer:
        tokenizer_path = model_path
    else:
        tokenizer_path = str(embedded_tokenizer())
        if workload.model != EMBEDDED:
            warnings.append(
                f"preset {workload.model} has no tokenizer of its own: the small embedded one is used, and tokenising "
                "is part of what is measured; --tokenizer DIR names the real one"
            )
    dataset_path = str(embedded_dataset() if workload.dataset == EMBEDDED else workload.dataset)
    rows = check_rows(Path(dataset_path), batch_size=workload.per_device_train_batch_size)
    warnings += rows.warnings
    if workload.dataset != EMBEDDED:
        workload = replace(workload, dataset=str(Path(workload.dataset).resolve()))
    return ResolvedWorkload(workload, model_path, tokenizer_path, dataset_path, rows, tuple(warnings))


def _model(name: str) -> tuple[str, bool]:
    """Return the place of a model's config and whether a tokenizer lies with it."""
    if name == EMBEDDED:
        return str(embedded_config()), False
    if name in preset_names():
        return str(preset_config(name)), False
    directory = Path(name).expanduser()
    if directory.is_dir():
        if not (directory / "config.json").is_file():
            raise UserError(
                f"model directory '{name}' has no config.json",
                "the architecture is read from it",
                f"ls {name}; or a built-in architecture: --model {preset_names()[0]}",
            )
        if not _has_tokenizer(directory):
            raise UserError(
                f"model directory '{name}' has no tokenizer",
                "rows are tokenised in the workers, which is part of what is measured",
                f"tuner run --model {name} --tokenizer DIR",
            )
        return str(directory.resolve()), True
    if HUB_ID.fullmatch(name) and not name.startswith((".", "/")):
        return name, True
    raise UserError(
        f"model '{name}' is neither a directory, a hub id (owner/name) nor a preset",
        f"presets: {', '.join(preset_names())}",
        f"tuner run --model {preset_names()[0]}",
    )


def _tokenizer(name: str) -> str:
    directory = Path(name).expanduser()
    if directory.is_dir():
        if not _has_tokenizer(directory):
            raise UserError(
                f"tokenizer directory '{name}' has no tokenizer.json or tokenizer_config.json",
                "rows cannot be tokenised without it",
                f"ls {name}",
            )
        return str(directory.resolve())
    if HUB_ID.fullmatch(name) and not name.startswith((".", "/")):
        return name
    raise UserError(
        f"tokenizer '{name}' is neither a directory nor a hub id (owner/name)",
        "rows cannot be tokenised without it",
        "--tokenizer DIR",
    )


def _has_tokenizer(directory: Path) -> bool:
    return any((directory / f).is_file() for f in ("tokenizer.json", "tokenizer_config.json", "vocab.json"))

"""From options to an objective and its space.

Runs in: parent. *Not covered*: parsing the command line (`tuner.cli.run`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from objectives.embedded import embedded_dataset
from objectives.errors import UserError
from objectives.host import HostInfo, find_gpu
from objectives.protocol import Choices, Objective
from objectives.schema import LoaderConfig, Workload
from objectives.workload import EMBEDDED
from tuner.bounds import bounds, estimate_batch_bytes, fits
from tuner.space import SearchSpace, build_space

EMBEDDED_SLICE_SECONDS = 4.0
"""Long enough for three epochs of the embedded 50 rows, short enough for 30 trials in three minutes."""
SLICE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `tuner run` was asked, before the host and the files have been looked at."""

    objective: str = "lora"
    recording: Path | None = None
    workload: Workload = field(default_factory=Workload)
    """`device` and `torch_dtype` as asked; `auto` is resolved here."""
    device: str = "auto"
    torch_dtype: str = "auto"
    cpu_threads: int | None = None
    slice_seconds: float | None = None
    python: str | None = None
    isolation: Literal["resident", "process"] = "resident"
    chosen: Mapping[str, tuple[int | bool, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setup:
    """An objective ready to be opened, with its space."""

    objective: Objective
    space: SearchSpace
    on_host: bool
    """Whether the measurements depend on this host (a recorded table's do not)."""
    can_confirm: bool = True
    """Whether a slice can be measured anew (a recorded one cannot)."""
    warnings: tuple[str, ...] = ()


def default_name(options: RunOptions) -> str:
    """Return the name of a study that was given none: the data set's file name, or the recording's."""
    if options.objective == "lora" and options.workload.dataset == EMBEDDED:
        return embedded_dataset().stem
    if options.objective == "lora":
        return Path(options.workload.dataset).stem or "study"
    return options.recording.stem if options.recording is not None else options.objective


def set_up(
    options: RunOptions,
    host: HostInfo,
    default: LoaderConfig,
    measured_before: Mapping[LoaderConfig, int] | None = None,
) -> Setup:
    """Return the objective and space the options ask for.

    Args:
        options: As asked.
        host: This host.
        default: The export target's defaults, from which the baseline is made.
        measured_before: Slices of each configuration that the study has already: what is played goes on after them.

    Raises:
        UserError: If something named is missing or cannot be measured here.
    """
    if options.objective != "replay" and options.recording is not None:
        raise UserError(
            f"--recording {options.recording} goes with --objective replay, not {options.objective}",
            "a recording is played back, nothing is trained",
            f"tuner run --objective replay --recording {options.recording}",
        )
    if options.objective == "lora":
        return _lora(options, host, default)
    if options.objective == "replay":
        return _replay(options, default, measured_before)
    if options.objective == "synthetic":
        from objectives.synthetic import SyntheticObjective

        objective = SyntheticObjective(seed=options.workload.seed, measured_before=measured_before)
        space = build_space(_narrowed(objective, options.chosen), default)
        return Setup(objective, space, on_host=False)
    from objectives.registry import names

    raise UserError(
        f"no objective '{options.objective}'", f"objectives: {', '.join(names())}", "tuner run --objective lora"
    )


def _lora(options: RunOptions, host: HostInfo, default: LoaderConfig) -> Setup:
    from objectives.lora import LoraObjective, LoraOptions
    from objectives.workload import resolve

    if options.python is not None and shutil.which(options.python) is None:
        raise UserError(
            f"--python {options.python} is not a program", "it is the interpreter that trains", "which python3"
        )
    device = find_gpu(options.device, host)
    on_cpu = device == "cpu"
    dtype = options.torch_dtype if options.torch_dtype != "auto" else ("float32" if on_cpu else "bfloat16")
    threads = options.cpu_threads or max(1, host.usable_cpus // 2)
    workload = _replace(options.workload, device=device, torch_dtype=dtype, cpu_threads=threads)
    resolved = resolve(workload)
    work = resolved.workload
    choices = bounds(
        host,
        rows=resolved.rows.rows,
        batch_size=work.per_device_train_batch_size,
        max_length=work.max_length,
        device=device,
        accumulation=work.gradient_accumulation_steps,
        chosen=options.chosen,
    )
    # A token is at least one character, so the longest row bounds the length of a batch too; 64 for the template.
    tokens = min(work.max_length, resolved.rows.longest_row_chars + 64)
    batch_bytes = estimate_batch_bytes(work.per_device_train_batch_size, tokens)
    space = build_space(choices, default, lambda config: fits(config, host, batch_bytes=batch_bytes))
    embedded = work.model == EMBEDDED
    seconds = options.slice_seconds or (EMBEDDED_SLICE_SECONDS if embedded else SLICE_SECONDS)
    lora = LoraOptions(slice_seconds=seconds, python=options.python or sys.executable, isolation=options.isolation)
    return Setup(LoraObjective(resolved, choices, lora), space, on_host=True, warnings=resolved.warnings)


def _replay(options: RunOptions, default: LoaderConfig, measured_before: Mapping[LoaderConfig, int] | None) -> Setup:
    from objectives.replay import ReplayObjective

    if options.recording is None:
        from objectives.embedded import recording

        raise UserError(
            "--objective replay needs a recording",
            "it plays back a recorded table instead of training",
            f"tuner run --objective replay --recording {recording('guide-4090d')}",
        )
    objective = ReplayObjective(options.recording, measured_before=measured_before)
    return Setup(objective, build_space(objective.choices(), default), on_host=False, can_confirm=False)


def _narrowed(objective: Objective, chosen: Mapping[str, tuple[int | bool, ...]]) -> Choices:
    """Return the objective's choices with the user's values in place of its own."""
    choices = objective.choices()
    reasons = {knob: f"set by --{knob.replace('_', '-')}" for knob in chosen}
    return Choices(
        {**choices.values, **chosen}, {**choices.reasons, **reasons}, choices.configurations, choices.baseline
    )


def _replace(workload: Workload, *, device: str, torch_dtype: str, cpu_threads: int) -> Workload:
    """Return the workload with what the host decides filled in."""
    if torch_dtype not in ("bfloat16", "float16", "float32"):
        raise UserError(
            f"--torch-dtype {torch_dtype} is not a type to train in",
            "bfloat16, float16 or float32",
            "--torch-dtype auto",
        )
    return replace(workload, device=device, torch_dtype=torch_dtype, cpu_threads=cpu_threads)  # type: ignore[arg-type]

"""Options of every command that measures, written once: workload, slice, space, score and what is measured.

Runs in: parent. *Not covered*: what they are turned into (`tuner.asked`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tuner.cli.options import TargetOption

_WORK = "Workload (named as ms-swift names it)"
_SLICE = "Slice"
_SPACE = "Search space"
_SCORE = "Score"


@dataclass(frozen=True, slots=True)
class Asked:
    """The values of the shared options, by the names of their parameters."""

    values: Mapping[str, Any]
    given: frozenset[str]
    """Names of those that were on the command line; the others have their defaults."""


def _declared(
    model: Annotated[
        str, typer.Option(help="Directory, hub id, or a preset such as qwen2.5-7b.", rich_help_panel=_WORK)
    ] = "embedded",
    dataset: Annotated[
        str, typer.Option(help="A .json array or .jsonl file.", rich_help_panel=_WORK, metavar="FILE")
    ] = "embedded",
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer's directory; default: the model's.", rich_help_panel=_WORK)
    ] = None,
    weights: Annotated[
        Literal["auto", "random", "load"],
        typer.Option(
            help="random builds from the config: speed does not depend on dense values.", rich_help_panel=_WORK
        ),
    ] = "auto",
    per_device_train_batch_size: Annotated[int, typer.Option(min=1, rich_help_panel=_WORK)] = 1,
    gradient_accumulation_steps: Annotated[int, typer.Option(min=1, rich_help_panel=_WORK)] = 16,
    max_length: Annotated[int, typer.Option(min=1, help="Rows are cut here.", rich_help_panel=_WORK)] = 2048,
    lora_rank: Annotated[int, typer.Option(min=1, rich_help_panel=_WORK)] = 8,
    lora_alpha: Annotated[int, typer.Option(min=1, rich_help_panel=_WORK)] = 32,
    target_modules: Annotated[str, typer.Option(help="Comma between names.", rich_help_panel=_WORK)] = "all-linear",
    torch_dtype: Annotated[
        str, typer.Option(help="auto: bfloat16 on a GPU, float32 on a CPU.", rich_help_panel=_WORK)
    ] = "auto",
    gradient_checkpointing: Annotated[
        Literal["true", "false"], typer.Option(rich_help_panel=_WORK, metavar="true|false")
    ] = "true",
    seed: Annotated[int, typer.Option(help="Of data order, weights and sampler.", rich_help_panel=_WORK)] = 42,
    row_delay_ms: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="Reading a row takes this much longer: shows what a slow disk or images to decode would do.",
            rich_help_panel=_WORK,
        ),
    ] = 0.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=_SLICE)] = "auto",
    slice_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.5,
            help="Wanted length of the timed part; whole epochs if one fits. Default 20, 4 for the embedded model.",
            rich_help_panel=_SLICE,
        ),
    ] = None,
    isolation: Annotated[
        Literal["resident", "process"],
        typer.Option(help="process: a fresh child per trial, slower.", rich_help_panel=_SLICE),
    ] = "resident",
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter (3.11 or newer) that trains, such as ms-swift's.", rich_help_panel=_SLICE),
    ] = None,
    cpu_threads: Annotated[
        int | None,
        typer.Option(min=1, help="Model's threads on a CPU. Default: half the CPUs.", rich_help_panel=_SLICE),
    ] = None,
    num_workers: Annotated[
        str | None, typer.Option(help="Values to try, such as 0,2,4,8.", rich_help_panel=_SPACE)
    ] = None,
    prefetch_factor: Annotated[
        str | None, typer.Option(help="Values to try, such as 2,4.", rich_help_panel=_SPACE)
    ] = None,
    persistent_workers: Annotated[
        str | None, typer.Option(help="Values to try: true, false or true,false.", rich_help_panel=_SPACE)
    ] = None,
    pin_memory: Annotated[
        str | None, typer.Option(help="Values to try: true, false or true,false.", rich_help_panel=_SPACE)
    ] = None,
    cpu_soft_fraction: Annotated[
        float, typer.Option(help="CPU load from which the score is cut.", rich_help_panel=_SCORE)
    ] = 0.85,
    cpu_hard_fraction: Annotated[float, typer.Option(help="CPU load of the full cut.", rich_help_panel=_SCORE)] = 1.0,
    cpu_max_penalty: Annotated[float, typer.Option(help="The full cut.", rich_help_panel=_SCORE)] = 0.25,
    objective: Annotated[str, typer.Option(help="lora, synthetic or replay.")] = "lora",
    recording: Annotated[Path | None, typer.Option(help="Table that replay plays back.", metavar="FILE")] = None,
    target: TargetOption = "swift",
) -> None:
    """Declare the options: typer reads them off this signature."""


def measures(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return the command with the shared options in place of its parameter `asked`, which gets their values."""
    shared = inspect.signature(_declared, eval_str=True).parameters

    def expanded(ctx: typer.Context, **values: Any) -> int | None:
        given = frozenset(name for name in shared if _was_given(ctx, name))
        asked = Asked({name: values.pop(name) for name in shared}, given)
        return command(asked=asked, **values)

    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for own in inspect.signature(command, eval_str=True).parameters.values():
        found = shared.values() if own.name == "asked" else [own]
        parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in found]
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {p.name: p.annotation for p in parameters}
    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    return expanded


def _was_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"

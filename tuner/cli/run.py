"""`tuner run`: search for the best settings.

Runs in: parent. *Not covered*: the loop (`tuner.study`), the objective (`tuner.setup`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tuner.cli import context
from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption, Target, TargetOption

if TYPE_CHECKING:
    from objectives.score import ScorePolicy
    from tuner.setup import RunOptions

_WORK = "Workload (named as ms-swift names it)"
_SLICE = "Slice"
_SPACE = "Search space"
_SCORE = "Score"


def run(
    trials: Annotated[int, typer.Option(help="Trials the study is to have in all; a study goes on up to it.")] = 30,
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
    study: Annotated[
        str | None, typer.Option(help="Name of the study. Default: the data set's name.", metavar="NAME")
    ] = None,
    storage: StorageOption = DEFAULT_STORAGE,
    target: TargetOption = "swift",
    json: JsonOption = False,
) -> int:
    """Search for the best settings; run again with the same study name, it goes on where it stopped.

    Example: tuner run --trials 30 --model qwen2.5-7b --dataset train.jsonl
    """
    from objectives.errors import EXIT_INTERRUPTED, UserError
    from objectives.schema import KNOBS, Workload
    from objectives.score import ScorePolicy
    from tuner.bounds import parse_menu
    from tuner.setup import RunOptions

    if trials < 1:
        raise UserError(f"--trials {trials}", "a study needs at least one trial", "tuner run --trials 30")
    menus = dict(zip(KNOBS, (num_workers, prefetch_factor, persistent_workers, pin_memory), strict=True))
    try:
        policy = ScorePolicy(cpu_soft_fraction, cpu_hard_fraction, cpu_max_penalty)
    except ValueError as error:
        raise UserError(str(error), "the penalty grows from the soft to the hard load", "tuner run --help") from error
    options = RunOptions(
        objective=objective,
        recording=recording,
        workload=Workload(
            model=model,
            dataset=dataset,
            tokenizer=tokenizer,
            weights=weights,
            per_device_train_batch_size=per_device_train_batch_size,
            gradient_accumulation_steps=gradient_accumulation_steps,
            max_length=max_length,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            target_modules=tuple(t.strip() for t in target_modules.split(",") if t.strip()),
            gradient_checkpointing=gradient_checkpointing == "true",
            seed=seed,
            row_delay_ms=row_delay_ms,
        ),
        device=device,
        torch_dtype=torch_dtype,
        cpu_threads=cpu_threads,
        slice_seconds=slice_seconds,
        python=python,
        isolation=isolation,
        chosen={knob: parse_menu(text, knob) for knob, text in menus.items() if text is not None},
    )
    finished = _run(options, policy, trials, study, storage, target, json)
    return 0 if finished else EXIT_INTERRUPTED


def _run(
    options: RunOptions, policy: ScorePolicy, trials: int, name: str | None, storage: str, target: Target, json: bool
) -> bool:
    """Run the study and print its report; return False if it was interrupted."""
    from contextlib import closing
    from dataclasses import asdict

    from objectives.host import identity, read_host
    from storage.store import open_store
    from tuner.binding import bind
    from tuner.cli.show import print_report
    from tuner.export import defaults
    from tuner.progress import Progress
    from tuner.render import to_markdown
    from tuner.report import build_report
    from tuner.setup import set_up
    from tuner.study import run_study

    host = read_host()
    default, baseline_of = defaults(target)
    setup = set_up(options, host, default)
    finished = True
    with (
        open_store(storage, create=True) as store,
        closing(setup.objective),
        closing(Progress(verbose=context.verbose)) as progress,
    ):
        study_name = name or setup.default_name
        found = store.study(study_name)
        record = bind(
            found,
            study_name,
            setup.objective,
            setup.space,
            host=asdict(host),
            bound_host=identity(host) if setup.on_host else {},
            baseline_of=baseline_of,
            policy=policy,
            seed=options.workload.seed,
        )
        progress.header(host, record, setup.space, store.url, found is None)
        for warning in setup.warnings:
            progress.note(f"warning: {warning}")
        if trials > len(setup.space.configurations):
            progress.note(
                f"{trials} trials, {len(setup.space.configurations)} configurations: some are measured more than once"
            )
        try:
            data = run_study(
                store,
                record,
                setup.objective,
                setup.space,
                new=found is None,
                max_workers=host.usable_cpus,
                policy=policy,
                total=trials,
                progress=progress,
            )
        except KeyboardInterrupt:
            if store.study(study_name) is None:
                raise  # nothing was measured yet, not even begun
            finished = False
            data = store.data(record)
        progress.close()
        if finished or any(t.state == "complete" for t in data.trials):
            report = build_report(data, storage=None if storage == DEFAULT_STORAGE else storage)
            store.set_note(record, to_markdown(report))
            print_report(report, json)
    return finished

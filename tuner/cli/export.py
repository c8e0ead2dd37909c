"""`tuner export`: print the best settings as flags of the trainer.

Runs in: parent. *Not covered*: the flags themselves (`tuner.export`), which settings are best (`tuner.selection`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyOption, TargetOption, find_study


def export(
    study: StudyOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    target: TargetOption = "swift",
    json: JsonOption = False,
    configuration: Annotated[
        str | None,
        typer.Option(help="Export this configuration instead of the best, such as 'w4 p2 persist'.", metavar="KEY"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Export the choice even if it was measured to be no better or slower.")
    ] = False,
) -> None:
    """Print the best settings as one line of flags.

    Example: swift sft --model ... $(tuner export)
    """
    from objectives.errors import EXIT_NO_RESULT, UserError
    from storage.store import open_store
    from tuner.confirmed import allowed
    from tuner.export import export_line, unmeasured, unsupported
    from tuner.pooling import varied_knobs
    from tuner.report import build_report

    with open_store(storage, create=False) as store:
        record = find_study(store, study, "export")
        data = store.data(record, raw=True)
    report = build_report(data)
    if configuration is None:
        if report.best is None:
            raise UserError(
                f"study '{record.name}' has no usable configuration",
                "every configuration crashed or ran out of memory headroom",
                f"tuner show --study {record.name}",
                exit_code=EXIT_NO_RESULT,
            )
        chosen = report.best.config
    else:
        known = {t.config.key: t.config for t in data.trials if t.state == "complete"}
        if configuration not in known:
            raise UserError(
                f"configuration '{configuration}' was not measured in study '{record.name}'",
                f"measured: {', '.join(sorted(known))}",
                f"tuner show --study {record.name}",
            )
        chosen = known[configuration]
    chosen, said = allowed(data, chosen, force=force)
    chosen, notes = unmeasured(chosen, varied_knobs(data.trials), target)
    chosen, dropped = unsupported(chosen, target)
    for note in [*notes, *dropped]:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"note: {said}", err=True)
    line = export_line(chosen, target)
    if json:
        import json as codec
        from dataclasses import asdict

        verdict = report.verdict if configuration is None else None
        head = {"study": record.name, "target": target, "flags": line, "verdict": verdict}
        typer.echo(codec.dumps({**head, **asdict(chosen)}))
    else:
        typer.echo(line)

"""`tuner confirm`: measure the best settings and the baseline again, in turns, and say what holds.

Runs in: parent. *Not covered*: the rounds (`tuner.confirm`), the statistics (`tuner.confirmation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyOption, find_study

if TYPE_CHECKING:
    from objectives.schema import LoaderConfig
    from storage.records import StudyData


def confirm(
    study: StudyOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    finalist: Annotated[
        str | None,
        typer.Option(help="Confirm this configuration instead of the best, such as 'w4 p2 persist'.", metavar="KEY"),
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Rounds at most, of four slices each; looked at after 4, 8 and 12.", min=2, max=12)
    ] = 12,
    json: JsonOption = False,
) -> int:
    """Measure the best settings against the baseline again, in turns; only this may claim a speed-up.

    A confirmation that was interrupted goes on where it stopped. Example: tuner confirm --rounds 8
    """
    from objectives.errors import EXIT_NO_RESULT
    from storage.store import open_store
    from tuner.asked import stored_values
    from tuner.cli.work import confirm as confirm_finalist
    from tuner.cli.work import open_work
    from tuner.cli.workload_options import Asked

    with open_store(storage, create=False) as store:
        record = find_study(store, study, "confirm")
        values = stored_values(record)
        chosen = _chosen(store.data(record, raw=True), finalist)
    asked = Asked(values, frozenset(values))
    with open_work(asked, name=record.name, storage=storage, quiet=True) as work:
        progress = work.session.progress
        _refuse_recording(work.setup.can_confirm, record.name)
        try:
            judgement, verdict = confirm_finalist(work, chosen, rounds)
        except KeyboardInterrupt:
            progress.note("interrupted: what was measured is kept, `tuner confirm` goes on with it")
            raise
        progress.close()
        self_test = work.self_test
    if json:
        import json as codec
        from dataclasses import asdict

        from tuner.confirm import plain_values

        document = {
            "study": record.name,
            "self_test": self_test,
            "baseline": {"key": record.baseline.key, **asdict(record.baseline)},
            "finalist": {"key": chosen.key, **asdict(chosen)},
            **plain_values(judgement),
            "text": verdict,
        }
        typer.echo(codec.dumps(document, ensure_ascii=False))
    else:
        typer.echo(verdict)
    return EXIT_NO_RESULT if self_test and judgement.verdict in ("confirmed", "regressed") else 0


def _chosen(data: StudyData, key: str | None) -> LoaderConfig:
    """Return the configuration to confirm: the one named, or the report's best.

    Raises:
        UserError: If it was not measured, or there is nothing to compare.
    """
    from objectives.errors import EXIT_NO_RESULT, UserError
    from tuner.binding import is_self_test
    from tuner.report import build_report

    study = data.study
    known = {t.config.key: t.config for t in data.trials if t.state == "complete"}
    if is_self_test(study):
        if key is not None:
            raise UserError(
                f"--finalist '{key}' in the A/A study '{study.name}'",
                "both its arms have the baseline's settings",
                f"tuner confirm --study {study.name}",
            )
        return study.baseline
    if key is not None:
        if key not in known:
            raise UserError(
                f"configuration '{key}' was not measured in study '{study.name}'",
                f"measured: {', '.join(sorted(known))}",
                f"tuner show --study {study.name}",
            )
        return known[key]
    best = build_report(data).best
    if best is None or best.config == study.baseline:
        others = [k for k, config in known.items() if config != study.baseline]
        raise UserError(
            f"study '{study.name}' has nothing to confirm",
            "no configuration is usable" if best is None else f"its choice is the baseline, {best.config.key}",
            f"tuner confirm --study {study.name} --finalist '{others[0]}'"
            if others
            else f"tuner run --study {study.name}",
            exit_code=EXIT_NO_RESULT,
        )
    return best.config


def _refuse_recording(can_confirm: bool, name: str) -> None:
    from objectives.errors import UserError

    if not can_confirm:
        raise UserError(
            f"study '{name}' plays back a recording",
            "a recorded slice cannot be measured again",
            "tuner run --objective lora",
        )

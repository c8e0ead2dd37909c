"""`tuner show`: print the report of a study.

Runs in: parent. *Not covered*: what the report says (`tuner.report`).
"""

from __future__ import annotations

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption, StudyOption, find_study


def show(study: StudyOption = None, storage: StorageOption = DEFAULT_STORAGE, json: JsonOption = False) -> None:
    """Print the report of a study.

    Example: tuner show --json | jq .best
    """
    from storage.store import open_store
    from tuner.report import build_report

    with open_store(storage, create=False) as store:
        report = build_report(store.data(find_study(store, study, "show"), raw=True))
    print_report(report, json)


def print_report(report: object, json: bool) -> None:
    """Print a report to stdout, as JSON or as text."""
    from tuner.report import Report

    assert isinstance(report, Report)
    if json:
        from tuner.render_json import to_json

        typer.echo(to_json(report))
        return
    from rich.console import Console

    from tuner.render import render

    render(report, Console())

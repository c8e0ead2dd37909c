"""What optuna-dashboard shows beyond the trials' attributes: notes, the metric's name, and the program itself.

Runs in: parent. A note on a trial must be there before the trial is told: the dashboard keeps no later one.
*Not covered*: the attributes (`storage.attributes`), the server (`tuner.cli.dashboard`).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import optuna
from optuna.exceptions import ExperimentalWarning

from objectives.schema import Crash
from storage.codec import clean

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

METRIC = "samples_per_s"

LOG_LENGTH = 8000
"""Characters of a crash's log shown in its note: about a hundred lines, and four pieces as the dashboard stores it."""


def app(storage: optuna.storages.BaseStorage) -> WSGIApplication:
    """Return the dashboard of a storage as a WSGI application."""
    import optuna_dashboard

    application: WSGIApplication = optuna_dashboard.wsgi(storage)
    return application


def name_metric(study: optuna.Study) -> None:
    """Label the dashboard's axes and table with what a trial's value is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study.set_metric_names([METRIC])


def save_note(target: optuna.Study | optuna.Trial, markdown: str) -> None:
    """Write the note of a study, or of a trial that still runs; a second one replaces the first."""
    import optuna_dashboard

    optuna_dashboard.save_note(target, clean(markdown))


def crash_note(crash: Crash) -> str:
    """Return what a trial's page says of its crash: kind, remedy and the end of the log."""
    ended = ", ".join(
        part
        for part in (
            f"blame {crash.blame}",
            f"signal {crash.signal}" if crash.signal else "",
            f"exit code {crash.exit_code}" if crash.exit_code is not None else "",
            crash.exception or "",
        )
        if part
    )
    text = f"**{crash.kind}** in phase `{crash.phase}` ({ended})\n\n{crash.message}\n\n{crash.remedy}\n"
    log = crash.log_tail[-LOG_LENGTH:].strip("\n")
    if not log:
        return text
    fence = "```"
    while fence in log:
        fence += "`"
    return f"{text}\n{fence}\n{log}\n{fence}\n"

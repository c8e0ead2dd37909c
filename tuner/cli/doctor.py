"""`tuner doctor`: is this host fit to measure?

Runs in: parent. *Not covered*: the checks (`tuner.doctor`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, StorageOption


def doctor(
    device: Annotated[str, typer.Option(help="Device that will be trained on: auto, cpu, cuda or cuda:N.")] = "auto",
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> int:
    """Check that this host can give a trustworthy measurement.

    Exit code 3 if something would make every measurement unusable.
    """
    from objectives.errors import EXIT_HOST
    from tuner.doctor import diagnose
    from tuner.render_checks import checks_json, checks_text

    checks = diagnose(device, storage)
    typer.echo(checks_json(checks) if json else checks_text(checks))
    return EXIT_HOST if any(c.status == "fail" for c in checks) else 0

"""The errors that end a study or a confirmation early: what was lost was not the configuration's fault.

Runs in: parent. *Not covered*: which crash is whose fault (`objectives.crash`).
"""

from __future__ import annotations

from objectives.errors import EXIT_HOST, EXIT_NO_RESULT, UserError
from objectives.schema import Crash

MAX_LOSSES = 3
"""Losses in a row, blamed on the host, after which nothing more is tried: no later slice would fare better."""


def cannot_go_on(crash: Crash) -> UserError:
    """Return the error for a crash that no loader setting cures: a bad row, a model that does not fit."""
    tail = [line for line in crash.log_tail.strip().splitlines() if line.strip()][-1:]
    return UserError(
        f"{crash.kind.replace('_', ' ')}: {crash.message}",
        "no loader setting cures this, so the study stops; what was measured is kept"
        + "".join(f"\n  {t}" for t in tail),
        crash.remedy,
        exit_code=EXIT_NO_RESULT,
    )


def host_not_fit(crash: Crash | None, what: str = "trials") -> UserError:
    """Return the error for a host that keeps failing.

    Args:
        crash: The last loss, if it is known.
        what: What was lost, in the plural.
    """
    message = crash.message if crash is not None else "the training process was lost"
    return UserError(
        f"{MAX_LOSSES} {what} in a row were lost: {message}",
        "the host failed, not the configuration; what was measured is kept",
        "tuner doctor",
        exit_code=EXIT_HOST,
    )

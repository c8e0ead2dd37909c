"""The objectives there are, by the name the command line knows them by.

Runs in: parent. Names alone, so that `tuner --help` loads none of them.
*Not covered*: constructing one (`tuner.cli`), since each takes options of its own.
"""

from __future__ import annotations

import difflib

from objectives.errors import UserError

_NAMES = ("lora", "synthetic", "replay")


def names() -> tuple[str, ...]:
    """Return the names of all objectives, the default first."""
    return _NAMES


def require(name: str) -> str:
    """Return the name if there is such an objective.

    Raises:
        UserError: If there is none; the hint names the closest.
    """
    if name in _NAMES:
        return name
    closest = (difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.5) or [_NAMES[0]])[0]
    raise UserError(
        f"objective '{name}' does not exist",
        f"an objective says what is measured; there are {', '.join(_NAMES[:-1])} and {_NAMES[-1]}",
        f"--objective {closest}",
    )

"""One finding about a host or a study: what was seen, what it was held against, and what to do.

Runs in: parent. *Not covered*: which checks there are (`tuner.doctor`) and how they are printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
"""ok: fine. warn: measurements work and may mislead. fail: no measurement is worth taking."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check with its outcome. `code` never changes its meaning, so scripts may rely on it."""

    code: str
    status: Status
    observed: float | str | None
    """None: this host cannot tell."""
    threshold: float | str | None
    """What `observed` was held against, in the same unit; None where there is no number to it."""
    unit: str
    """`bytes`, `fraction`, `ratio`, `version` or what is counted (`cpus`, `files`, `slices`, ...); may be empty."""
    message: str
    """One line with the values in it."""
    advice: str = ""
    """What to do, a command where there is one; empty if it is ok."""

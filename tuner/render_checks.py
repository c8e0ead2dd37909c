"""Prints the checks of a host: a line each, with what to do about it.

Runs in: parent. *Not covered*: what is checked (`tuner.doctor`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from tuner.checks import Check


def checks_text(checks: Sequence[Check]) -> str:
    """Return the checks as text, worst last so that they stay in sight, advice indented below."""
    order = {"ok": 0, "warn": 1, "fail": 2}
    lines = []
    for check in sorted(checks, key=lambda c: order[c.status]):
        lines.append(f"{check.status:<5} {check.code:<16} {check.message}")
        if check.status != "ok" and check.advice:
            lines.append(f"{'hint:':>22} {check.advice}")
    return "\n".join(lines)


def checks_json(checks: Sequence[Check]) -> str:
    """Return the checks as one JSON document."""
    return json.dumps({"schema": "tuner.checks/1", "checks": [asdict(c) for c in checks]}, indent=1)

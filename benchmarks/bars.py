"""A bar: one figure, what it must be, and whether it is; and how tables and JSON are made of them.

*Not covered*: how figures come about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure with its bar. Shares are fractions of 1."""

    name: str
    value: float
    threshold: float
    sense: Literal["at most", "at least"]
    runs: int
    """Confirmations or studies behind it."""
    passed: bool


def at_most(name: str, value: float, threshold: float, runs: int) -> Bar:
    """Return a bar that a value above misses; so does one that is not a number."""
    return Bar(name, value, threshold, "at most", runs, value <= threshold)


def at_least(name: str, value: float, threshold: float, runs: int) -> Bar:
    """Return a bar that a value below misses; so does one that is not a number."""
    return Bar(name, value, threshold, "at least", runs, value >= threshold)


def table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of equal keys as an aligned table under a title."""
    if not rows:
        return f"{title}\n  (nothing)\n"
    names = list(rows[0])
    cells = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join([title, *(f"  {line.rstrip()}" for line in lines), ""])


def bars_table(bars: Sequence[Bar]) -> str:
    """Return the bars as a table, those missed first."""
    rows = [
        {"": "ok" if b.passed else "MISSED", "figure": b.name, "value": b.value, "bar": f"{b.sense} {b.threshold:g}",
         "runs": b.runs}
        for b in sorted(bars, key=lambda b: b.passed)
    ]  # fmt: skip
    return table(f"bars ({sum(b.passed for b in bars)} of {len(bars)} held)", rows)


def write(path: Path, bars: Sequence[Bar], tables: dict[str, list[dict[str, Any]]], about: dict[str, Any]) -> None:
    """Write everything as JSON."""
    document = {"about": about, "bars": [asdict(b) for b in bars], "tables": tables}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_plain(document), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return "-" if value is None else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return None if not math.isfinite(value) else round(value, 6)
    return value

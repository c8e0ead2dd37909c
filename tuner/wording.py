"""Puts figures into words, the same in every view.

Runs in: parent. Pure. *Not covered*: layout (`tuner.render`, `tuner.render_markdown`, `tuner.progress`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from objectives.schema import Penalty

VISIBLE_CUT_FRACTION = 0.005
"""Penalties below half a percent are left out of tables."""

_SHORT = {"cpu_overload": "cpu", "occasional_crashes": "crashes", "frequent_crashes": "crashes"}
"""Names of penalties as a narrow column holds them."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def plain(text: str) -> str:
    """Return the text on one line without control characters: a child's log may hold colours and cursor moves."""
    text = _ANSI.sub("", text)
    return " ".join("".join(" " if unicodedata.category(c) == "Cc" else c for c in text).split())


def percent(fraction: float | None, decimals: int = 0) -> str:
    """Return `5.4 %`, or `-` if not known."""
    return "-" if fraction is None else f"{100 * fraction:.{decimals}f} %"


def signed_percent(fraction: float) -> str:
    """Return `+5.4 %` or `-5.4 %`; what rounds to zero has no sign."""
    text = f"{100 * fraction:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def decimals_for(rates: Iterable[float | None]) -> int:
    """Return the decimals that give the largest of these rates four digits or so; one table uses one number of them."""
    top = max((r for r in rates if r is not None), default=0.0)
    return next((d for limit, d in ((1000.0, 0), (100.0, 1), (1.0, 2)) if top >= limit), 3)


def rate(per_s: float | None, decimals: int, half_width_per_s: float | None = None) -> str:
    """Return `1.06 ± 0.02`, without the interval where it is not known, or `-`."""
    if per_s is None:
        return "-"
    spread = "" if half_width_per_s is None else f" ± {half_width_per_s:.{decimals}f}"
    return f"{per_s:.{decimals}f}{spread}"


def duration(seconds: float) -> str:
    """Return `42 s`, `18 min 12 s` or `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def cuts(penalties: Iterable[Penalty]) -> list[str]:
    """Return the visible penalties as `cpu -15 %`."""
    return [
        f"{_SHORT.get(p.name, p.name.replace('_', ' '))} -{percent(p.fraction)}"
        for p in penalties
        if p.fraction >= VISIBLE_CUT_FRACTION
    ]


def values_text(values: Sequence[int | bool | None]) -> str:
    """Return a knob's values as a user would type them: `0 to 8`, `2, 4, 8` or `true, false`."""
    numbers = sorted(v for v in values if type(v) is int)
    if len(numbers) == len(values) > 3 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(value_text(v) for v in values)


def value_text(value: int | bool | None) -> str:
    """Return one knob's value: `4`, `true`, or `-` for a knob that does not apply."""
    return "-" if value is None else str(value).lower()


def host_summary(host: Mapping[str, Any]) -> str:
    """Return the host of a study in one line; what the record does not hold is left out.

    A study that is bound to no host (`bound` is empty) replays or simulates: this host's speed is not in it.
    """
    if host.get("bound") == {}:
        return "any: nothing was measured on a host"
    names = [str(gpu.get("name", "GPU")) + _size(" ", gpu.get("memory_bytes")) for gpu in host.get("gpus") or ()]
    parts = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)] or ["no GPU"]
    if cpus := host.get("usable_cpus"):
        cores = host.get("physical_cores")
        parts.append(_count(cpus, "usable CPU") + (f" ({_count(cores, 'physical core')})" if cores else ""))
    for key, name in (("memory_bytes", "memory "), ("shm_bytes", "/dev/shm ")):
        parts += [text] if (text := _size(name, host.get(key))) else []
    return plain(", ".join(parts))


def size_text(size_bytes: float) -> str:
    """Return `64 MiB` or `31 GiB`."""
    return f"{size_bytes / 2**20:.0f} MiB" if size_bytes < 2**30 else f"{size_bytes / 2**30:.0f} GiB"


def _size(label: str, size_bytes: Any) -> str:
    return f"{label}{size_text(size_bytes)}" if isinstance(size_bytes, int | float) else ""


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'' if number == 1 else 's'}"

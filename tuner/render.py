"""Shows a report: as text for a terminal or a pipe, and as Markdown for the study's note.

Runs in: parent. *Not covered*: what it says (`tuner.report`, `tuner.findings`), JSON (`tuner.render_json`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from objectives.schema import LoaderConfig
from tuner.findings import Finding, findings, heading, notes, report_decimals
from tuner.report import Figures, Report
from tuner.wording import percent, rate, value_text

if TYPE_CHECKING:
    from rich.console import Console

LABEL_WIDTH = 11
NARROWEST = 10
"""Columns a sentence gets at least; a terminal narrower than that wraps by itself."""
TABLE = ("configuration", "samples/s", "model", "wait", "restart", "GPU", "CPU", "score", "slices")
OPTIONAL = ("model", "restart", "GPU")
"""Columns left out where no row has a figure."""
SUMMARY = ("", "workers", "prefetch", "persist", "pin", "samples/s", "wait", "GPU", "CPU")

_UNIT_BLANK = re.compile(r"(?<=\d) (?=%|±|(?:GiB|MiB|min|h|s)\b)|(?<=±) ")
_KEPT = "\ue000"
"""Stands for a blank inside `5.4 %` while a line is wrapped; rich breaks at no-break spaces too."""


def render(report: Report, console: Console) -> None:
    """Print the report; lines that are to be pasted are never wrapped. Plain text when piped."""
    for label, text in heading(report):
        _labelled(console, label, text)
    console.print()
    lines = _aligned(_table(report))
    _line(console, lines[0], "bold")
    for figures, line in zip(report.configurations, lines[1:], strict=True):
        style = "bold" if "best" in figures.roles else "dim" if not figures.slices else ""
        beside = _packed(notes(figures), max(NARROWEST, console.width - len(line) - 2))
        for index, text in enumerate(beside):
            _line(console, f"{line if index == 0 else ' ' * len(line)}  {text}", style)
    if report.noise_floor_fraction is not None:
        _line(console, "± is half of the 95 % interval, from what repeats in this study scatter", "dim")
    console.print()
    summary = _aligned([SUMMARY, *_summary(report)])
    _line(console, summary[0], "bold")
    for line in summary[1:]:
        _line(console, line)
    console.print()
    for label, text in findings(report):
        _labelled(console, label, text)
    for label, text in commands(report):
        _line(console, f"{label:<{LABEL_WIDTH}}{text}")


def to_markdown(report: Report) -> str:
    """Return the report as Markdown: tables, sentences, and the command to paste."""
    head, *body = _table(report)
    rows = [(*row, ", ".join(notes(f))) for row, f in zip(body, report.configurations, strict=True)]
    parts = [
        _bullets(heading(report)),
        _markdown_table([SUMMARY, *_summary(report)]),
        _bullets(findings(report)),
        "\n\n".join(f"{label}:\n\n```\n{text}\n```" for label, text in commands(report)),
        _markdown_table([(*head, ""), *rows]),
    ]
    return "\n\n".join(parts) + "\n"


def commands(report: Report) -> list[Finding]:
    """Return the lines to paste."""
    return [("next", report.next_command), *([("flags", report.flags)] if report.flags else [])]


def _table(report: Report) -> list[tuple[str, ...]]:
    """Return the head and a row per configuration, without columns that are empty in all."""
    rows = [TABLE, *(_row(figures, report_decimals(report)) for figures in report.configurations)]
    columns = list(zip(*rows, strict=True))
    kept = [c for c in columns if c[0] not in OPTIONAL or any(cell not in ("-", "0.0 %") for cell in c[1:])]
    return [tuple(row) for row in zip(*kept, strict=True)]


def _row(figures: Figures, decimals: int) -> tuple[str, ...]:
    measured = rate(figures.samples_per_s, decimals, figures.half_width_per_s)
    return (
        figures.config.key,
        measured if figures.slices else "crash",
        rate(figures.modelled_per_s, decimals),
        percent(figures.wait_fraction, 1),
        percent(figures.restart_fraction, 1),
        percent(figures.gpu_util_fraction),
        percent(figures.cpu_busy_fraction),
        f"{figures.score:.{decimals}f}",
        str(figures.slices),
    )


def _summary(report: Report) -> list[tuple[str, ...]]:
    decimals = report_decimals(report)
    rows = []
    for name, figures in (("best", report.best), ("baseline", report.baseline)):
        if figures is not None:
            row = dict(zip(TABLE, _row(figures, decimals), strict=True))
            rows.append((name, *_knobs(figures.config), *(row[column] for column in SUMMARY[5:])))
    if report.ceiling_per_s is not None:
        rows.append(("ceiling", *"----", rate(report.ceiling_per_s, decimals), percent(0.0, 1), "-", "-"))
    return rows


def _knobs(config: LoaderConfig) -> tuple[str, ...]:
    flags = (config.persistent_workers, config.pin_memory)
    return str(config.num_workers), value_text(config.prefetch_factor), *("yes" if flag else "no" for flag in flags)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines: first column to the left, the others to the right, two spaces between."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _packed(parts: list[str], width: int) -> list[str]:
    """Return the parts joined by commas in lines of at most that width, broken between parts only."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > width:
            lines.append(part)
        else:
            lines[-1] = joined
    return lines


def _labelled(console: Console, label: str, text: str) -> None:
    """Print the text beside its label, continuation lines below its own first column."""
    from rich.text import Text

    lines = Text(_UNIT_BLANK.sub(_KEPT, text)).wrap(console, max(NARROWEST, console.width - LABEL_WIDTH))
    for index, line in enumerate(lines):
        _line(console, f"{'' if index else label:<{LABEL_WIDTH}}{line.plain.replace(_KEPT, ' ')}")


def _line(console: Console, line: str, style: str = "") -> None:
    console.print(line.rstrip(), style=style or None, markup=False, highlight=False, soft_wrap=True)


def _bullets(found: list[Finding]) -> str:
    return "\n".join(f"- **{label}** {_escaped(text)}" for label, text in found)


def _markdown_table(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    rule = "|" + "---|" + "--:|" * (len(head) - 1)
    return "\n".join([_markdown_row(head), rule, *map(_markdown_row, body)])


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Return the text with what Markdown or HTML would act on made literal; log lines hold paths and brackets."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#~$" else c for c in text)

"""Tells on stderr how a study comes along: one live line on a terminal, plain lines in a pipe.

Runs in: parent. rich is imported for a terminal alone, so that `tuner --help` and pipes stay quick.
*Not covered*: the result (`tuner.render`, on stdout).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, TextIO

from objectives.schema import LoaderConfig, Measurement
from storage.records import Origin, StudyData, StudyRecord, TrialRecord
from tuner.findings import knob_findings, trial_notes
from tuner.pooling import agreed_ceiling
from tuner.report_parts import LEFT_OUT_PREFIX
from tuner.study_checks import long_rows
from tuner.wording import decimals_for, duration, host_summary, percent, plain, rate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from objectives.host import HostInfo
    from tuner.space import SearchSpace

LABEL_WIDTH = 11
HEAD = f"{'trial':>5}  {'configuration':<19}  {'samples/s':>9}  {'wait':>6}  {'GPU':>5}  {'CPU':>5}  {'score':>6}"
FRAMES = "|/-\\"
REFRESH_PER_S = 4


class Progress:
    """Shows a study on stderr. Close it, or use `contextlib.closing`: a live line hides the cursor.

    Args:
        stream: Where to write; stderr if None.
        clock: Seconds on a monotonic clock.
        verbose: Write the phases of each slice as lines of their own where there is no live line.
    """

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic, verbose: bool = False
    ) -> None:
        self._verbose = verbose
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._terminal = self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._console: Console | None = None
        self._live: Live | None = None
        self._now = "starting"
        self._step = ""
        self._best_per_s: float | None = None
        self._decimals: int | None = None
        self._finished, self._total = 0, 0
        self._began_s: float | None = None
        self._durations_s: list[float] = []

    def header(self, host: HostInfo, study: StudyRecord, space: SearchSpace, storage: str, new: bool) -> None:
        """Say where and what is measured, which values are open and why."""
        # The host as it is now; the record alone knows whether it matters.
        now = {**asdict(host), **({"bound": study.host["bound"]} if "bound" in study.host else {})}
        self.labelled("host", host_summary(now))
        state = "new" if new else "continued"
        size = f"{len(space.configurations)} configurations"
        self.labelled("study", f"{study.name} ({state}) in {storage}, {size}, seed {study.seed}")
        self.labelled("baseline", f"{space.baseline.key}, the defaults of {study.baseline_of}")
        for label, text in knob_findings(_as_open(study, space)):
            self.labelled(label, text)
        self._say("")

    def prepared(self, data: StudyData) -> None:
        """Say what the ceilings tell, go on from the best score so far, and start the table."""
        agreed = agreed_ceiling(data.ceilings)
        if agreed:
            mean_per_s = sum(c.samples_per_s for c in agreed) / len(agreed)
            self._decimals = decimals_for([mean_per_s])
            self.labelled("ceiling", f"{rate(mean_per_s, self._decimals)} samples/s with data for free")
        elif data.ceilings:
            self.labelled("ceiling", f"not settled: {len(data.ceilings)} tries and no two in a row agree")
        check = long_rows(data.study)
        if check is not None and check.status != "ok":
            self.note(f"warning: {check.message}; {check.advice}")
        self._best_per_s = _best(data)
        self._step = ""
        self._say(HEAD)

    def trial_started(self, finished: int, total: int, config: LoaderConfig, origin: Origin) -> None:
        """Say what is measured next, after `finished` of `total` trials."""
        self._finished, self._total, self._began_s = finished, total, self._clock()
        self._now = f"trial {finished}/{total}  {config.key}" + (
            f" ({origin})" if origin in ("repeat", "retry") else ""
        )
        self._step = ""
        self._show()

    def trial_text(self, text: str) -> None:
        """Replace what the live line says of the slice; shown at the next refresh, and on a terminal only."""
        self._step = text
        self._show()
        if self._verbose and not self._terminal:
            self._say(f"{self._now}: {plain(text)}")

    def trial_finished(self, trial: TrialRecord, data: StudyData) -> None:
        """Add the trial's row; `data` is the study with the trial in it."""
        if self._began_s is not None:
            self._durations_s.append(self._clock() - self._began_s)
        self._finished += trial.state == "complete"
        self._began_s = None
        best_per_s = _best(data)
        value = trial.score.value if trial.score is not None else None
        leads = value is not None and value == best_per_s and value > (self._best_per_s or 0.0)
        self._best_per_s = best_per_s
        self._now, self._step = f"trial {self._finished}/{self._total}", ""
        self._say(self._row(trial, leads))

    def note(self, text: str) -> None:
        """Add a line of its own."""
        self._say(plain(text))

    def labelled(self, label: str, text: str) -> None:
        """Add a line under a label."""
        self._say(f"{label:<{LABEL_WIDTH}}{plain(text)}")

    def doing(self, text: str) -> None:
        """Replace what the live line says is done, when that is no trial: then nothing is known of the time left."""
        self._now, self._step = text, ""
        self._total, self._began_s = 0, None
        self._show()

    def close(self) -> None:
        """Take the live line away and show the cursor again. May be called twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self) -> str:
        """Return the live line: what runs, the best score so far, and the time left once a trial has finished."""
        parts = [self._now, plain(self._step)]
        if self._best_per_s is not None:
            parts.append(f"best {rate(self._best_per_s, 2 if self._decimals is None else self._decimals)}")
        if self._durations_s and self._total:
            each_s = sum(self._durations_s) / len(self._durations_s)
            spent_s = 0.0 if self._began_s is None else self._clock() - self._began_s
            # The running trial has some of its time behind it, but never more than all of it.
            left_s = each_s * max(0, self._total - self._finished) - min(spent_s, each_s)
            parts.append(f"ETA {duration(max(0.0, left_s))}")
        return "  ".join(part for part in parts if part)

    def __rich__(self) -> Text:
        from rich.text import Text

        frame = FRAMES[int(self._clock() * REFRESH_PER_S) % len(FRAMES)]
        return Text(f"{frame} {self.line()}", no_wrap=True, overflow="ellipsis")

    def _row(self, trial: TrialRecord, leads: bool) -> str:
        head = f"{trial.number:>5}  {trial.config.key:<19}"
        notes = "  ".join(trial_notes(trial, leads))
        if not isinstance(trial.outcome, Measurement):
            return f"{head}  {notes}"
        seen = trial.outcome
        if self._decimals is None:
            self._decimals = decimals_for([seen.samples_per_s])
        score = trial.score.value if trial.score is not None else seen.samples_per_s
        figures = (
            f"{rate(seen.samples_per_s, self._decimals):>9}  {percent(seen.wait_fraction, 1):>6}  "
            f"{percent(seen.gpu_util_fraction):>5}  {percent(seen.cpu_busy_fraction):>5}  "
            f"{rate(score, self._decimals):>6}"
        )
        return f"{head}  {figures}  {notes}".rstrip()

    def _say(self, line: str) -> None:
        if self._terminal:
            self._open_console().print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=self._stream, flush=True)

    def _show(self) -> None:
        if self._terminal and self._live is None:
            from rich.live import Live

            # stdout is the result and is never touched; other lines on stderr, such as warnings, go above the live one.
            self._live = Live(
                self,
                console=self._open_console(),
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=True,
            )
            self._live.start()

    def _open_console(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self._stream)
        return self._console


def _as_open(study: StudyRecord, space: SearchSpace) -> StudyRecord:
    """Return the record with this run's values: a continued study may have others than it began with."""
    return replace(
        study,
        measured_knobs=space.measured_knobs,
        values={knob: list(menu) for knob, menu in space.values.items()},
        reasons={**space.reasons, **{LEFT_OUT_PREFIX + reason: str(n) for reason, n in space.left_out.items()}},
    )


def _best(data: StudyData) -> float | None:
    """Return the highest score of a measured trial."""
    measured = (t for t in data.trials if t.state == "complete" and isinstance(t.outcome, Measurement))
    return max((t.score.value for t in measured if t.score is not None), default=None)

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import unicodedata
from dataclasses import replace

import pytest
from builders import HOST, crash, measured, study, study_data, trial

from objectives.gpu import GpuInfo
from objectives.host import HostInfo
from storage.records import StudyData, TrialRecord
from tuner.progress import Progress
from tuner.space import SearchSpace


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


class Clock:
    """A clock that is moved by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


TRIALS = (
    trial(0, "w1 p2 persist pin", measured(1.06, wait_fraction=0.054, gpu_util_fraction=0.86, cpu_busy_fraction=0.12)),
    trial(1, "w4 p4 persist pin", measured(1.12, wait_fraction=0.001, gpu_util_fraction=0.91, cpu_busy_fraction=0.94)),
    trial(2, "w12 p8 pin", crash(message="/dev/shm full\x1b[31m\n")),
    trial(3, "w2 p2", crash("gpu_lost", blame="host", message="GPU is lost"), state="failed", score=None),
    trial(4, "w4 p4", measured(1.11), origin="search"),
)
HEADER = """\
host       1 × RTX 4090D 24 GiB, 16 usable CPUs (8 physical cores), memory 64 GiB, /dev/shm 31 GiB
study      self_cognition (new) in tuner.db, 2 configurations, seed 42
baseline   w1 p2 persist pin, the defaults of ms-swift 4.6.0
values     num_workers 1 to 4: half of the usable CPUs
held       prefetch_factor at 2, not measured
held       persistent_workers at true, not measured
held       pin_memory at true: no accelerator
left out   3 configurations: /dev/shm is too small

ceiling    1.12 samples/s with data for free
trial  configuration        samples/s    wait    GPU    CPU   score
"""


def host() -> HostInfo:
    """Return the host of the builders' study."""
    known = {key: HOST[key] for key in ("hostname", "cpu_model", "usable_cpus", "physical_cores", "memory_bytes")}
    return HostInfo(
        **known,
        shm_bytes=HOST["shm_bytes"],
        logical_cpus=16,
        affinity_cpus=16,
        quota_cpus=None,
        memory_available_bytes=2**30,
        shm_free_bytes=2**30,
        swap_used_bytes=0,
        open_files_limit=1024,
        gpus=(GpuInfo(0, "GPU-1", "RTX 4090D", 24 * 2**30, "570.1"),),
        versions={},
        kernel="6.1",
        python="3.11.2",
    )


def play(progress: Progress, trials: tuple[TrialRecord, ...] = TRIALS) -> None:
    """Call it as the loop of a study does."""
    record = study()
    reasons = {"num_workers": "half of the usable CPUs", "pin_memory": "no accelerator"}
    space = SearchSpace(
        configurations=(trials[0].config, trials[1].config),
        baseline=trials[0].config,
        values={"num_workers": (1, 2, 3, 4), "pin_memory": (True,)},
        reasons=reasons,
        left_out={"/dev/shm is too small": 3},
    )
    progress.header(host(), record, space, "tuner.db", new=True)
    progress.trial_text("ceiling: train 3")
    progress.prepared(study_data([], ceilings=[0.6, 1.11, 1.13]))
    done: tuple[TrialRecord, ...] = ()
    for one in trials:
        progress.trial_started(sum(t.state == "complete" for t in done), 30, one.config, one.origin)
        progress.trial_text("step 3/12")
        done = (*done, one)
        progress.trial_finished(one, StudyData(record, done, ()))
    progress.close()


def test_pipe_gets_plain_lines():
    """In a pipe: the header, then exactly one line a finished trial, in columns."""
    stream = io.StringIO()
    play(Progress(stream))
    assert (
        stream.getvalue()
        == HEADER
        + """\
    0  w1 p2 persist pin         1.06   5.4 %   86 %   12 %    1.06  baseline  best
    1  w4 p4 persist pin         1.12   0.1 %   91 %   94 %    0.95  cpu -15 %
    2  w12 p8 pin           crash: /dev/shm full
    3  w2 p2                lost, not counted: GPU is lost
    4  w4 p4                     1.11       -      -      -    1.11  best
"""
    )


def test_pipe_gets_no_control_characters():
    """Not even those of a child's log reach a file."""
    stream = io.StringIO()
    play(Progress(stream))
    assert [c for c in stream.getvalue() if c != "\n" and unicodedata.category(c) == "Cc"] == []


def test_terminal_rows_stay_and_the_live_line_goes(monkeypatch: pytest.MonkeyPatch):
    """On a terminal finished trials are rows, and closing gives the cursor back."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    play(Progress(stream))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    for number, one in enumerate(TRIALS):
        assert text.count(f"{number:>5}  {one.config.key} ") == 1
    assert "trial 4/30" in text
    assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l") >= 0


def test_dumb_terminal_is_a_pipe(monkeypatch: pytest.MonkeyPatch):
    """A terminal that cannot move its cursor gets plain lines."""
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    play(Progress(stream))
    assert "\x1b" not in stream.getvalue()


def test_live_line_tells_step_best_and_time_left():
    """The time left is the mean of finished trials for those to come, less what the running one has used."""
    clock = Clock()
    progress = Progress(io.StringIO(), clock=clock)
    progress.trial_started(0, 4, TRIALS[0].config, "baseline")
    assert progress.line() == "trial 0/4  w1 p2 persist pin"
    clock.now_s = 60.0
    progress.trial_finished(TRIALS[0], StudyData(study(), TRIALS[:1], ()))
    progress.trial_started(1, 4, TRIALS[1].config, "repeat")
    clock.now_s = 80.0
    progress.trial_text("step 37/60")
    expected = "trial 1/4  w4 p4 persist pin (repeat)  step 37/60  best 1.06  ETA 2 min 40 s"
    assert progress.line() == expected


def test_continued_study_knows_its_best():
    """After a restart a trial is called best only if it beats what was measured before."""
    stream = io.StringIO()
    progress = Progress(stream)
    before = StudyData(study(), TRIALS[:1], ())
    progress.prepared(before)
    slower = replace(trial(1, "w2 p2", 1.0), origin="search")
    progress.trial_finished(slower, replace(before, trials=(*before.trials, slower)))
    assert "best" not in stream.getvalue()


def test_rich_is_not_imported_for_a_pipe():
    """Importing the module, and writing to a pipe, loads neither rich nor optuna nor torch."""
    code = (
        "import sys, tuner.progress as p; p.Progress().note('x'); print({'rich', 'optuna', 'torch'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert (ran.stdout, ran.stderr) == ("set()\n", "x\n")


def test_rows_that_the_trainer_would_drop_are_told_once() -> None:
    """Rows over `max_length` are a warning before the first trial, with what to do; none of them is no word."""
    stream = io.StringIO()
    for count in (3.0, 0.0):
        Progress(stream).prepared(study_data([], facts={"long_rows": count, "touched_rows": 50.0}))
    told = [line for line in stream.getvalue().splitlines() if line.startswith("warning:")]
    assert len(told) == 1
    assert "3 of 50 rows" in told[0]
    assert "--truncation_strategy" in told[0]

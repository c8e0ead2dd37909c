"""Says what a study found: one value, built from its records, that every view renders.

Runs in: parent. Pure. *Not covered*: how it looks (`tuner.render`, `tuner.render_json`), its sentences
(`tuner.findings`), the trainer's flags (`tuner.export`).
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from objectives.errors import EXIT_NO_RESULT, UserError
from objectives.schema import Crash, LoaderConfig, Penalty
from storage.records import StudyData
from tuner.pooling import Pooled, agreed_ceiling, difference_noise, noise_floor, pool
from tuner.report_parts import Counts, CrashNote, KnobNote, count, crash_notes, host_facts, knob_notes, left_out
from tuner.selection import Selection, Selector, has_memory_headroom, select
from tuner.split import Bound, Difference, bound_of, compare, headroom
from tuner.wording import host_summary, plain

SCHEMA = "tuner.report/1"

Verdict = Literal["no difference seen", "not resolved"]
Role = Literal["best", "baseline", "tied"]


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration in the report: means over its slices."""

    config: LoaderConfig
    roles: tuple[Role, ...]
    trials: tuple[int, ...]
    slices: int
    crashed: bool
    memory_exceeded: bool
    """Came too close to the memory limit to be chosen."""
    score: float
    samples_per_s: float | None
    half_width_per_s: float | None
    """Half of the 95 % interval of `samples_per_s`, from what repeats in this study scatter; None if not known."""
    wait_fraction: float | None
    restart_fraction: float | None
    h2d_fraction: float | None
    headroom_fraction: float | None
    """`(wait + restart) / compute`: how much faster it would be with data for free."""
    gpu_util_fraction: float | None
    cpu_busy_fraction: float | None
    peak_memory_fraction: float | None
    penalties: tuple[Penalty, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What a study found. Rates are samples/s, fractions are of 1, `spent_s` is wall time."""

    schema: str
    study: str
    objective: str
    stopped: str | None
    spent_s: float
    host_summary: str
    host: dict[str, Any]
    baseline_of: str
    best: Figures | None
    baseline: Figures | None
    ceiling_per_s: float | None
    """Mean of the last two ceilings that agree; a check, noisy like any slice: headroom does not come from it."""
    headroom_fraction: float | None
    """Of the baseline, from the split of its steps."""
    bound: Bound | None
    noise_floor_fraction: float | None
    """Relative half-width that holds 95 % of single slices of one configuration."""
    difference: Difference | None
    """Best against baseline, as measured; None if they are the same or one of them was not measured."""
    verdict: Verdict
    confirmed: bool
    """Always false here: only an interleaved re-measurement can confirm."""
    reason: str
    """Why this configuration was chosen, or why none."""
    tied: tuple[LoaderConfig, ...]
    """Others whose scores cannot be told from the highest, cheapest first."""
    counts: Counts
    configurations: tuple[Figures, ...]
    """All that have a finished trial, highest score first."""
    crashes: tuple[CrashNote, ...]
    knobs: tuple[KnobNote, ...]
    left_out: dict[str, int]
    """Reason → configurations this host cannot hold."""
    ceilings_per_s: tuple[float, ...]
    """All ceilings, oldest first: a drift chart."""
    next_command: str
    flags: str | None = None
    """The trainer's flags for the best configuration; set by the caller with `dataclasses.replace`."""


def build_report(data: StudyData, *, storage: str | None = None, selector: Selector = select) -> Report:
    """Return the report of a study.

    Args:
        data: The study; at least one trial must be complete.
        storage: What the user gave as `--storage`, repeated in the command to paste; None for the default.
        selector: Chooses the configuration.

    Raises:
        UserError: If no trial has finished.
    """
    if not any(t.state == "complete" and t.outcome is not None for t in data.trials):
        raise _no_finished_trial(data)
    selection = selector(data)
    noise = noise_floor(data, "samples_per_s")
    ranked = sorted(pool(data.trials), key=lambda p: (-p.value, p.config.num_workers, p.config.prefetch_factor or 0))
    rows = {p.config: _figures(p, selection, noise) for p in ranked}
    best, baseline = selection.best, selection.baseline
    difference = None
    if best is not None and baseline is not None and best.config != baseline.config:
        difference = compare(best, baseline, difference_noise(noise, best.slices, max(1, baseline.slices)))
    agreed = agreed_ceiling(data.ceilings)
    study = data.study
    return Report(
        schema=SCHEMA,
        study=study.name,
        objective=study.objective,
        stopped=None if study.stopped is None else plain(study.stopped),
        spent_s=study.spent_s,
        host_summary=host_summary(study.host),
        host=host_facts(study.host),
        baseline_of=study.baseline_of,
        best=rows[best.config] if best else None,
        baseline=rows[baseline.config] if baseline else None,
        ceiling_per_s=sum(c.samples_per_s for c in agreed) / len(agreed) if agreed else None,
        headroom_fraction=headroom(baseline) if baseline else None,
        bound=bound_of(baseline, noise) if baseline else None,
        noise_floor_fraction=noise,
        difference=difference,
        verdict=_verdict(best, baseline, difference),
        confirmed=False,
        reason=selection.reason,
        tied=tuple(p.config for p in selection.tied if p is not best),
        counts=count(data),
        configurations=tuple(rows.values()),
        crashes=crash_notes(data),
        knobs=knob_notes(data.study),
        left_out=left_out(data.study),
        ceilings_per_s=tuple(c.samples_per_s for c in data.ceilings),
        next_command=_command("export", study.name, storage) if best else "tuner doctor",
    )


def _figures(pooled: Pooled, selection: Selection, noise: float | None) -> Figures:
    named: tuple[tuple[Role, bool], ...] = (
        ("best", selection.best is not None and pooled.config == selection.best.config),
        ("baseline", selection.baseline is not None and pooled.config == selection.baseline.config),
        ("tied", len(selection.tied) > 1 and any(pooled.config == t.config for t in selection.tied)),
    )
    spread = None
    if noise is not None and pooled.samples_per_s is not None:
        spread = noise / math.sqrt(pooled.slices) * pooled.samples_per_s
    return Figures(
        config=pooled.config,
        roles=tuple(role for role, holds in named if holds),
        trials=pooled.trials,
        slices=pooled.slices,
        crashed=pooled.crashed,
        memory_exceeded=not has_memory_headroom(pooled),
        score=pooled.value,
        samples_per_s=pooled.samples_per_s,
        half_width_per_s=spread,
        wait_fraction=pooled.wait_fraction,
        restart_fraction=pooled.restart_fraction,
        h2d_fraction=pooled.h2d_fraction,
        headroom_fraction=headroom(pooled),
        gpu_util_fraction=pooled.gpu_util_fraction,
        cpu_busy_fraction=pooled.cpu_busy_fraction,
        peak_memory_fraction=pooled.peak_memory_fraction,
        penalties=pooled.penalties,
    )


def _verdict(best: Pooled | None, baseline: Pooled | None, difference: Difference | None) -> Verdict:
    """Return what may be said before an interleaved re-measurement: never that anything is faster."""
    if best is not None and baseline is not None and best.config == baseline.config:
        return "no difference seen"
    if difference is not None and difference.noise_fraction is not None:
        return "no difference seen" if abs(difference.rate_fraction) <= difference.noise_fraction else "not resolved"
    return "not resolved"


def _command(name: str, study: str, storage: str | None) -> str:
    words = ["tuner", name, "--study", study, *(("--storage", storage) if storage else ())]
    return shlex.join(words)


def _no_finished_trial(data: StudyData) -> UserError:
    lost = [t.outcome.message for t in data.trials if isinstance(t.outcome, Crash)]
    why = (
        f"{len(lost)} lost to the host or the user, the last one: {plain(lost[-1])}"
        if lost
        else "nothing is measured yet"
    )
    return UserError(
        f"study '{data.study.name}' has no finished trial",
        why,
        shlex.join(["tuner", "run", "--study", data.study.name]),
        exit_code=EXIT_NO_RESULT,
    )

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
from tuner.appraisal import Appraisal, appraise
from tuner.checks import Check
from tuner.confirmation import NOT_WORTH_IT
from tuner.pooling import Pooled, agreed_ceiling, difference_noise, noise_floor, pool
from tuner.report_confirmation import ConfirmationNote, confirmation_note
from tuner.report_model import BreakEven, Headroom, ModelNote, break_even, headroom_of, model_note
from tuner.report_parts import (
    Counts,
    CrashNote,
    KnobNote,
    Spent,
    count,
    crash_notes,
    host_facts,
    knob_notes,
    left_out,
    spent_steps,
)
from tuner.selection import Selection, Selector, has_memory_headroom, select
from tuner.split import Bound, Difference, bound_of, compare, headroom
from tuner.study_checks import check_study
from tuner.wording import host_summary, plain

SCHEMA = "tuner.report/1"

Verdict = Literal["confirmed", "no difference", "regressed", "not resolved", "not confirmed", "keep the defaults"]
"""The first four are of an interleaved re-measurement of best and baseline. `not confirmed`: there was none yet.
`keep the defaults`: the choice is the baseline, there is nothing to confirm."""
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
    modelled_per_s: float | None
    """Samples/s by the queue model, over the compute of all slices of the study; None without step series."""
    loss_fraction: float | None
    """Share of the best modelled throughput that it does not reach, penalties considered."""
    samples_per_s: float | None
    half_width_per_s: float | None
    """Half of the 95 % interval of `samples_per_s`, from what repeats in this study scatter; None if not known."""
    wait_fraction: float | None
    restart_fraction: float | None
    h2d_fraction: float | None
    headroom_fraction: float | None
    """How much faster it would be with data for free: modelled, else `(wait + restart) / compute`."""
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
    """The choice of the search."""
    recommended: LoaderConfig | None
    """What to use: the choice, or the baseline if the re-measurement showed no difference or a loss."""
    baseline: Figures | None
    ceiling_per_s: float | None
    """Mean of the last two ceilings that agree; a check, noisy like any slice: headroom does not come from it."""
    headroom_fraction: float | None
    """Of the baseline."""
    headroom: Headroom | None
    """The same with its interval; None without step series."""
    model: ModelNote | None
    break_even: BreakEven | None
    """When the choice has paid for the search; None if it is the baseline or saves nothing."""
    bound: Bound | None
    noise_floor_fraction: float | None
    """Relative half-width that holds 95 % of single slices of one configuration."""
    difference: Difference | None
    """Best against baseline, as measured; None if they are the same or one of them was not measured."""
    verdict: Verdict
    confirmed: bool
    """Whether an interleaved re-measurement confirmed the gain: nothing else can."""
    confirmation: ConfirmationNote | None
    """The last re-measurement, if it compared this best with this baseline."""
    reason: str
    """Why this configuration was chosen, or why none."""
    tied: tuple[LoaderConfig, ...]
    """Others whose scores cannot be told from the highest, cheapest first."""
    counts: Counts
    steps: Spent
    configurations: tuple[Figures, ...]
    """All that have a finished trial, highest score first."""
    crashes: tuple[CrashNote, ...]
    knobs: tuple[KnobNote, ...]
    left_out: dict[str, int]
    """Reason → configurations this host cannot hold."""
    checks: tuple[Check, ...]
    """What may have disturbed the study, passed ones too."""
    ceilings_per_s: tuple[float, ...]
    """All ceilings, oldest first: a drift chart."""
    next_command: str
    flags: str | None = None
    """The trainer's flags for the recommended configuration; set by `tuner.export.with_flags`."""


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
    appraisal = appraise(data, ())
    noise = noise_floor(data, "samples_per_s")
    ranked = sorted(pool(data.trials), key=lambda p: (-p.value, p.config.num_workers, p.config.prefetch_factor or 0))
    rows = {p.config: _figures(p, selection, noise, appraisal) for p in ranked}
    best, baseline = selection.best, selection.baseline
    difference = None
    if best is not None and baseline is not None and best.config != baseline.config:
        difference = compare(best, baseline, difference_noise(noise, best.slices, max(1, baseline.slices)))
    agreed = agreed_ceiling(data.ceilings)
    study = data.study
    room = None
    if appraisal is not None and baseline is not None and baseline.slices:
        room = headroom_of(appraisal, baseline.config)
    noted = confirmation_note(data, best.config, baseline.config) if best and baseline else None
    verdict = _verdict(best, baseline, noted)
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
        recommended=_recommended(best, baseline, verdict),
        baseline=rows[baseline.config] if baseline else None,
        ceiling_per_s=sum(c.samples_per_s for c in agreed) / len(agreed) if agreed else None,
        headroom_fraction=rows[baseline.config].headroom_fraction if baseline else None,
        headroom=room,
        model=model_note(appraisal) if appraisal else None,
        break_even=(
            break_even(appraisal, best.config, baseline.config, study.spent_s)
            if appraisal and room and best and baseline and best is not baseline
            else None
        ),
        bound=_bound(baseline, noise, room),
        noise_floor_fraction=noise,
        difference=difference,
        verdict=verdict,
        confirmed=verdict == "confirmed",
        confirmation=noted,
        reason=selection.reason,
        tied=tuple(p.config for p in selection.tied if p is not best),
        counts=count(data),
        steps=spent_steps(data),
        configurations=tuple(rows.values()),
        crashes=crash_notes(data),
        knobs=knob_notes(data.study),
        left_out=left_out(data.study),
        checks=check_study(data, appraisal.model.mismatch_fraction if appraisal else None),
        ceilings_per_s=tuple(c.samples_per_s for c in data.ceilings),
        next_command=_next(best, verdict, study.name, storage),
    )


def _figures(pooled: Pooled, selection: Selection, noise: float | None, appraisal: Appraisal | None) -> Figures:
    named: tuple[tuple[Role, bool], ...] = (
        ("best", selection.best is not None and pooled.config == selection.best.config),
        ("baseline", selection.baseline is not None and pooled.config == selection.baseline.config),
        ("tied", len(selection.tied) > 1 and any(pooled.config == t.config for t in selection.tied)),
    )
    spread = None
    if noise is not None and pooled.samples_per_s is not None:
        spread = noise / math.sqrt(pooled.slices) * pooled.samples_per_s
    known = appraisal is not None and pooled.slices > 0
    return Figures(
        config=pooled.config,
        roles=tuple(role for role, holds in named if holds),
        trials=pooled.trials,
        slices=pooled.slices,
        crashed=pooled.crashed,
        memory_exceeded=not has_memory_headroom(pooled),
        score=pooled.value,
        modelled_per_s=appraisal.samples_per_s(pooled.config) if appraisal and known else None,
        loss_fraction=appraisal.loss(pooled.config) if appraisal and known else None,
        samples_per_s=pooled.samples_per_s,
        half_width_per_s=spread,
        wait_fraction=pooled.wait_fraction,
        restart_fraction=pooled.restart_fraction,
        h2d_fraction=pooled.h2d_fraction,
        headroom_fraction=appraisal.headroom(pooled.config)[0] if appraisal and known else headroom(pooled),
        gpu_util_fraction=pooled.gpu_util_fraction,
        cpu_busy_fraction=pooled.cpu_busy_fraction,
        peak_memory_fraction=pooled.peak_memory_fraction,
        penalties=pooled.penalties,
    )


def _bound(baseline: Pooled | None, noise: float | None, room: Headroom | None) -> Bound | None:
    if baseline is None:
        return None
    if room is None:
        return bound_of(baseline, noise)
    return bound_of(baseline, noise, room.fraction, (room.upper_fraction - room.lower_fraction) / 2)


def _verdict(best: Pooled | None, baseline: Pooled | None, noted: ConfirmationNote | None) -> Verdict:
    if noted is not None:
        return noted.verdict
    if best is not None and baseline is not None and best.config == baseline.config:
        return "keep the defaults"
    return "not confirmed"


def _recommended(best: Pooled | None, baseline: Pooled | None, verdict: Verdict) -> LoaderConfig | None:
    if verdict in NOT_WORTH_IT and baseline is not None:
        return baseline.config
    return best.config if best is not None else None


def _next(best: Pooled | None, verdict: Verdict, study: str, storage: str | None) -> str:
    if best is None:
        return "tuner doctor"
    return _command("confirm" if verdict == "not confirmed" else "export", study, storage)


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

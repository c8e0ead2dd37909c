"""Puts a report into sentences, each under a label; every view prints these same ones.

Runs in: parent. Pure. *Not covered*: tables and layout (`tuner.render`).
"""

from __future__ import annotations

from objectives.schema import Crash, Measurement
from storage.records import StudyRecord, TrialRecord
from tuner.drift import chart
from tuner.report import Figures, Report
from tuner.report_parts import KnobNote, knob_notes, left_out
from tuner.wording import cuts, decimals_for, duration, percent, plain, rate, signed_percent, value_text, values_text

Finding = tuple[str, str]
"""Label and sentence."""

NOT_CONFIRMED = "not confirmed: only an interleaved re-measurement (tuner confirm) can"
SHOWN = 3
"""Ties and crashes named one by one; the rest are counted (the table and the JSON hold all)."""


def heading(report: Report) -> list[Finding]:
    """Return what was measured, where, and the two figures that frame it."""
    counts = report.counts
    study = (
        f"{report.study} ({report.objective}): {_many(counts.trials, 'trial')}, {counts.measured} measured, "
        f"{counts.crashed} crashed, {counts.lost} lost; {duration(report.spent_s)}"
    )
    return [
        ("host", report.host_summary),
        ("study", study),
        ("stopped", report.stopped or "not finished: still running, or killed"),
        *_steps(report),
        *([("ceiling", ceiling_text(report))] if report.ceiling_per_s is not None else []),
    ]


def _steps(report: Report) -> list[Finding]:
    steps = report.steps
    if steps.per_slice is None or not steps.trials:
        return []
    others = (("ceilings", steps.ceilings), ("confirmations", steps.confirmations))
    also = "".join(f", {number} in {name}" for name, number in others if number)
    return [("steps", f"{steps.per_slice} a slice; {steps.trials} timed in trials{also}")]


def ceiling_text(report: Report) -> str:
    """Return ceiling and baseline in one line; the ceiling must be known."""
    decimals = report_decimals(report)
    base = report.baseline
    text = f"{rate(report.ceiling_per_s, decimals)} samples/s with data for free"
    if base is None or base.samples_per_s is None:
        return text
    wait = "" if base.wait_fraction is None else f" (wait {percent(base.wait_fraction, 1)})"
    return f"{text}; baseline {rate(base.samples_per_s, decimals, base.half_width_per_s)}{wait}"


def findings(report: Report) -> list[Finding]:
    """Return what was found, from the choice to what could not be tried. Only a re-measurement claims a gain."""
    return [
        ("choice", f"{report.best.config.key}: {report.reason}" if report.best else f"none: {report.reason}"),
        ("verdict", _verdict(report)),
        *_use(report),
        *_effects(report),
        *_difference(report),
        *_headroom(report),
        *_break_even(report),
        *_model(report),
        *_tie(report),
        *_checks(report),
        *_ceilings(report),
        *_crashes(report),
        *_knobs(report.knobs, report.left_out),
    ]


def report_decimals(report: Report) -> int:
    """Return the decimals of all rates in the report."""
    return decimals_for([report.ceiling_per_s, *(f.samples_per_s for f in report.configurations)])


def notes(figures: Figures) -> list[str]:
    """Return what a table says beside a configuration: its roles, what was cut, what rules it out."""
    roles = [role for role in figures.roles if role != "tied" or "best" not in figures.roles]
    crash = ["crash"] if figures.crashed and figures.slices else []
    memory = [f"memory {percent(figures.peak_memory_fraction)}"] if figures.memory_exceeded else []
    return [*roles, *crash, *memory, *cuts(figures.penalties)]


def trial_notes(trial: TrialRecord, best: bool) -> list[str]:
    """Return what a trial's line says at its end."""
    if isinstance(trial.outcome, Crash) or trial.state == "failed":
        message = plain(trial.outcome.message) if isinstance(trial.outcome, Crash) else "not finished"
        return [f"crash: {message}" if trial.state == "complete" else f"lost, not counted: {message}"]
    origin = [trial.origin] if trial.origin in ("baseline", "repeat", "retry") else []
    measured = isinstance(trial.outcome, Measurement)
    return [*origin, *(["best"] if best and measured else []), *cuts(trial.score.penalties if trial.score else ())]


def _verdict(report: Report) -> str:
    noted = report.confirmation
    if noted is None:
        return NOT_CONFIRMED if report.verdict == "not confirmed" else report.verdict
    if noted.reason:
        return f"{noted.verdict}: {noted.reason}"
    within = f"{signed_percent(noted.lower_fraction)} to {signed_percent(noted.upper_fraction)}"
    text = (
        f"{noted.verdict}: {signed_percent(noted.gain_fraction)} ({within}, 95 %) in {noted.rounds} interleaved rounds"
    )
    if noted.verdict != "not resolved":
        return text
    needed = noted.rounds_needed
    return text + (f"; {needed} rounds should tell" if needed else "; more rounds would not tell: compute is too noisy")


def _use(report: Report) -> list[Finding]:
    if report.recommended is None or report.best is None or report.recommended == report.best.config:
        return []
    why = "nothing is gained by another" if report.verdict == "no difference" else "the choice is slower"
    return [("use", f"{report.recommended.key}, the defaults of {report.baseline_of}: {why}")]


def _effects(report: Report) -> list[Finding]:
    """Return the two effects of a re-measurement apart: what loaders take hardly scatters, compute does."""
    noted = report.confirmation
    if noted is None or noted.reason:
        return []
    saved = noted.loader_saved_fraction
    loader = (
        f"{'saves' if saved >= 0 else 'costs'} {percent(abs(saved), 1)} of the baseline's time in waits, restarts and "
        f"copies, ± {percent(noted.loader_half_width, 1)}"
    )
    compute = f"{signed_percent(noted.compute_fraction)} ± {percent(noted.compute_half_width, 1)}"
    load = "; the CPUs are shared, so it may be real" if noted.loaded else "; no sign of load: taken as noise"
    return [("loader", loader), ("compute", compute + load)]


def _difference(report: Report) -> list[Finding]:
    """Return best against baseline: by the model, then as measured, which is no claim."""
    difference, best, base = report.difference, report.best, report.baseline
    if difference is None:
        return [] if report.noise_floor_fraction is None else [("noise", _noise_text(report.noise_floor_fraction))]
    found: list[Finding] = []
    if best and base and best.modelled_per_s and base.modelled_per_s:
        modelled = signed_percent(best.modelled_per_s / base.modelled_per_s - 1.0)
        found.append(("modelled", f"{modelled} samples/s to the baseline over the same compute{_saved(report)}"))
    noise = difference.noise_fraction
    within = "too few true repeats to know the noise" if noise is None else f"noise alone gives ± {percent(noise, 1)}"
    found.append(("raw", f"{signed_percent(difference.rate_fraction)} samples/s to the baseline; {within}"))
    return found


def _saved(report: Report) -> str:
    """Return what is saved, as shares of the baseline's time: `: data wait 7.6 %, restarts 0.2 %`."""
    difference = report.difference
    assert difference is not None
    parts = (
        ("data wait", difference.wait_saved_fraction),
        ("restarts", difference.restart_saved_fraction),
        ("copies", difference.h2d_saved_fraction),
    )
    named = [f"{signed_percent(-value)} {name}" for name, value in parts if value is not None and abs(value) >= 0.0005]
    return f" ({', '.join(named)} of its time)" if named else ""


def _break_even(report: Report) -> list[Finding]:
    even = report.break_even
    if even is None:
        return []
    text = f"saves {even.saved_s_per_1000_samples:.1f} s per 1000 samples; the search is paid for after {even.samples}"
    return [("pays", f"{text} samples")]


def _model(report: Report) -> list[Finding]:
    model = report.model
    if model is None:
        return []
    misses = percent(abs(model.mismatch_fraction), 1)
    fit = f"misses no wait by more than {misses} of a step" if model.fits else f"misses a wait by {misses} of a step"
    slower = f"busy workers slow compute by {percent(model.contention_fraction, 1)}"
    return [("model", f"{fit}; {slower} ± {percent(2 * model.contention_sd_fraction, 1)}")]


def _noise_text(noise: float) -> str:
    return f"slices of one configuration scatter by ± {percent(noise, 1)} (95 %)"


def _headroom(report: Report) -> list[Finding]:
    base, best = report.baseline, report.best
    found: list[Finding] = []
    if base is not None and base.samples_per_s is None:
        found.append(("baseline", f"the defaults of {report.baseline_of} crashed"))
    if report.headroom_fraction is not None:
        room = report.headroom
        within = f", {percent(room.lower_fraction, 1)} to {percent(room.upper_fraction, 1)}" if room else ""
        text = f"{percent(report.headroom_fraction, 1)} from the baseline to data for free ({report.bound}{within})"
        if best is not None and best is not base and best.headroom_fraction is not None:
            text += f"; {percent(best.headroom_fraction, 1)} left from the choice"
        found.append(("headroom", text))
    return found


def _tie(report: Report) -> list[Finding]:
    if not report.tied:
        return []
    named = ", ".join(c.key for c in report.tied[:SHOWN])
    more = f" and {len(report.tied) - SHOWN} more" if len(report.tied) > SHOWN else ""
    return [("tie", f"as good as the choice: {named}{more}")]


def _checks(report: Report) -> list[Finding]:
    """Return what did not pass, with what to do about it."""
    failed = [check for check in report.checks if check.status != "ok"]
    return [("check", f"{check.message}: {check.advice}" if check.advice else check.message) for check in failed]


def _ceilings(report: Report) -> list[Finding]:
    return [("ceilings", chart(report.ceilings_per_s))] if len(report.ceilings_per_s) > 1 else []


def _crashes(report: Report) -> list[Finding]:
    """Return one line per kind of crash, the first of the kind told in full."""
    found: list[Finding] = []
    for counted, label in ((True, "crash"), (False, "lost")):
        alike: dict[str, list[str]] = {}
        for note in report.crashes:
            if note.counted is counted:
                text = f"trial {note.trial} ({note.config.key}): {note.message}. {note.remedy}"
                alike.setdefault(note.kind, []).append(text)
        for kind, texts in alike.items():
            more = f" ({len(texts) - 1} more {kind.replace('_', ' ')})" if len(texts) > 1 else ""
            found.append((label, texts[0] + more))
    return found


def knob_findings(study: StudyRecord) -> list[Finding]:
    """Return which values are open to the search, which knobs are held and what the host cannot hold, with reasons."""
    return _knobs(knob_notes(study), left_out(study))


def _knobs(knobs: tuple[KnobNote, ...], missing: dict[str, int]) -> list[Finding]:
    found: list[Finding] = []
    for note in knobs:
        why = f": {note.reason}" if note.reason else ""
        if note.measured:
            found.append(("values", f"{note.knob} {values_text(note.values)}{why}"))
        else:
            found.append(("held", f"{note.knob} at {value_text(note.held)}{why or ', not measured'}"))
    return found + [("left out", f"{_many(number, 'configuration')}: {reason}") for reason, number in missing.items()]


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

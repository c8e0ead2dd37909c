"""The loop of a study: choose, measure, score, store, until the budget is spent.

Runs in: parent. *Not covered*: what to choose (`tuner.search`), how it is measured (`objectives`).
"""

from __future__ import annotations

import time
from dataclasses import replace

from objectives.errors import UserError
from objectives.schema import Crash, LoaderConfig, Outcome
from objectives.score import ScorePolicy, score
from storage.records import Origin, StudyData, TrialRecord
from tuner.binding import is_self_test
from tuner.losses import MAX_LOSSES, cannot_go_on, host_not_fit
from tuner.search import next_configuration, stop_reason
from tuner.session import Session
from tuner.slice_length import fix_length
from tuner.space import SearchSpace

CEILING_EVERY = 8
"""Trials between two ceilings."""


def run_study(
    session: Session,
    space: SearchSpace,
    *,
    policy: ScorePolicy,
    total: int,
    early_stop: bool = True,
    choose_length: bool = True,
) -> StudyData:
    """Bring the study to `total` finished trials and return it; a study that has them is returned at once.

    Every finished slice is stored before the next begins. Trials lost to a kill, or to the host, are not counted and
    their configuration is measured again. In an A/A study every trial is the baseline.

    Args:
        session: The study with its objective.
        space: What may be measured.
        policy: How an outcome becomes a score.
        total: Trials the study is to have in all.
        early_stop: Whether it may end before them when nothing can be gained.
        choose_length: Whether the first slices may set the length of the others.

    Raises:
        UserError: If a row of the data set is bad, the model does not fit, or the host keeps failing.
        KeyboardInterrupt: After the interrupted trial was closed.
    """
    began_s = time.monotonic()
    store, progress = session.store, session.progress
    lost = [t.config for t in session.claim()]
    if not session.new:
        data = store.data(session.study, raw=True)
        if _finished(data) >= total or (early_stop and not lost and _why_stop(data, space)):
            return data
    study = session.ready()
    stopped = "interrupted"
    try:
        data = store.data(study, raw=True)
        progress.prepared(data)
        losses, reason = 0, None
        while _finished(data) < total:
            reason = _why_stop(data, space) if early_stop and not lost else None
            if reason is not None:
                break
            config, origin = _next(data, space, total)
            if lost:
                config, origin = lost.pop(0), "retry"
            trial = _run_trial(session, config, origin, policy, total, _finished(data))
            data = replace(data, trials=(*data.trials, trial))
            progress.trial_finished(trial, data)
            losses = losses + 1 if trial.state == "failed" else 0
            if losses >= MAX_LOSSES:
                stopped = f"{losses} trials lost in a row"
                raise host_not_fit(trial.outcome if isinstance(trial.outcome, Crash) else None)
            if losses:
                lost.insert(0, config)
            elif choose_length:
                data = _with_length(session, data)
            data = _with_ceiling(session, data)
        stopped = reason or f"{total} trials done"
    except UserError as error:
        stopped = error.what if stopped == "interrupted" else stopped
        raise
    finally:
        store.set_stopped(study, stopped, time.monotonic() - began_s)
    return store.data(study, raw=True)


def _why_stop(data: StudyData, space: SearchSpace) -> str | None:
    """Return why the study may end now; an A/A study is measured to its end."""
    return None if is_self_test(data.study) else stop_reason(data, space)


def _with_length(session: Session, data: StudyData) -> StudyData:
    """Return the study with the length that its first slices ask for, once; stored before the next slice."""
    remember = fix_length(session.objective, data)
    if remember is None:
        return data
    session.remember(remember)
    return replace(data, study=session.study)


def _with_ceiling(session: Session, data: StudyData) -> StudyData:
    """Return the study with one more ceiling, every few trials: whether the machine drifts is seen from them."""
    if _finished(data) % CEILING_EVERY:
        return data
    ceiling = session.objective.ceiling(session.progress.trial_text)
    if ceiling is None:
        return data
    session.store.add_ceiling(session.study, ceiling)
    return replace(data, ceilings=(*data.ceilings, ceiling))


def _next(data: StudyData, space: SearchSpace, total: int) -> tuple[LoaderConfig, Origin]:
    """Return what is measured next and why."""
    if is_self_test(data.study):
        return space.baseline, "repeat" if data.trials else "baseline"
    return next_configuration(data, space, total)


def _run_trial(
    session: Session, config: LoaderConfig, origin: Origin, policy: ScorePolicy, total: int, finished: int
) -> TrialRecord:
    """Return the trial, stored: complete, or failed when nothing was learnt of the configuration."""
    store, study, progress = session.store, session.study, session.progress
    trial = store.begin_trial(study, config, origin)
    progress.trial_started(finished, total, config, origin)
    outcome: Outcome | None = None
    try:
        outcome = session.objective.measure(config, progress.trial_text)
    finally:
        if outcome is None:
            store.lose_trial(study, trial, "interrupted")
    if isinstance(outcome, Crash) and outcome.blame != "config":
        lost = store.lose_trial(study, trial, outcome.message, outcome)
        if outcome.blame in ("data", "user"):
            raise cannot_go_on(outcome)
        return lost
    progress.trial_text("storing")
    return store.finish_trial(study, trial, outcome, score(outcome, policy))


def _finished(data: StudyData) -> int:
    return sum(t.state == "complete" for t in data.trials)

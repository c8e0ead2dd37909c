"""The loop of a study: choose, measure, score, store, until the budget is spent.

Runs in: parent. *Not covered*: what to choose (`tuner.search`), how it is measured (`objectives`).
"""

from __future__ import annotations

import time
from dataclasses import replace

from objectives.errors import EXIT_NO_RESULT, UserError
from objectives.protocol import Objective
from objectives.schema import Crash, LoaderConfig, Outcome
from objectives.score import ScorePolicy, score
from storage.records import Origin, StudyData, StudyRecord, TrialRecord
from storage.store import Store
from tuner.progress import Progress
from tuner.search import next_configuration
from tuner.space import SearchSpace

MAX_LOSSES = 3
"""Losses in a row, blamed on the host, after which the study stops: no later trial would fare better."""


def run_study(
    store: Store,
    study: StudyRecord,
    objective: Objective,
    space: SearchSpace,
    *,
    new: bool,
    max_workers: int,
    policy: ScorePolicy,
    total: int,
    progress: Progress,
) -> StudyData:
    """Bring the study to `total` finished trials and return it; a study that has them is returned at once.

    A new study is stored once its objective is ready: a model that cannot be trained must not take its name. Every
    finished slice is stored before the next begins. Trials lost to a kill, or to the host, are not counted and their
    configuration is measured again.

    Raises:
        UserError: If a row of the data set is bad, the model does not fit, or the host keeps failing.
        KeyboardInterrupt: After the interrupted trial was closed.
    """
    began_s = time.monotonic()
    lost: list[LoaderConfig] = []
    if not new:
        lost = [t.config for t in store.recover(study)]
        data = store.data(study)
        if _finished(data) >= total:
            return data
    prepared = objective.prepare(study.remember, progress.trial_text)
    study = replace(study, remember=dict(prepared.remember), facts=dict(prepared.facts))
    if new:
        store.create_study(study, max_workers=max_workers)
    else:
        store.set_remember(study)
    stopped = "interrupted"
    try:
        for ceiling in prepared.ceilings:
            store.add_ceiling(study, ceiling)
        data = store.data(study)
        progress.prepared(data)
        losses = 0
        while _finished(data) < total:
            config, origin = next_configuration(data, space, total)
            if lost:
                config, origin = lost.pop(0), "retry"
            trial = _run_trial(store, study, objective, config, origin, policy, total, _finished(data), progress)
            data = store.data(study)
            progress.trial_finished(trial, data)
            losses = losses + 1 if trial.state == "failed" else 0
            if losses >= MAX_LOSSES:
                stopped = f"{losses} trials lost in a row"
                raise _host_not_fit(trial)
            if losses:
                lost.insert(0, config)
        stopped = f"{total} trials done"
    except UserError as error:
        stopped = error.what if stopped == "interrupted" else stopped
        raise
    finally:
        store.set_stopped(study, stopped, time.monotonic() - began_s)
    return store.data(study)


def _run_trial(
    store: Store,
    study: StudyRecord,
    objective: Objective,
    config: LoaderConfig,
    origin: Origin,
    policy: ScorePolicy,
    total: int,
    finished: int,
    progress: Progress,
) -> TrialRecord:
    """Return the trial, stored: complete, or failed when nothing was learnt of the configuration."""
    trial = store.begin_trial(study, config, origin)
    progress.trial_started(finished, total, config, origin)
    outcome: Outcome | None = None
    try:
        outcome = objective.measure(config, progress.trial_text)
    finally:
        if outcome is None:
            store.lose_trial(study, trial, "interrupted")
    if isinstance(outcome, Crash) and outcome.blame != "config":
        lost = store.lose_trial(study, trial, outcome.message, outcome)
        if outcome.blame in ("data", "user"):
            raise _cannot_go_on(outcome)
        return lost
    progress.trial_text("storing")
    return store.finish_trial(study, trial, outcome, score(outcome, policy))


def _finished(data: StudyData) -> int:
    return sum(t.state == "complete" for t in data.trials)


def _cannot_go_on(crash: Crash) -> UserError:
    tail = [line for line in crash.log_tail.strip().splitlines() if line.strip()][-1:]
    return UserError(
        f"{crash.kind.replace('_', ' ')}: {crash.message}",
        "no loader setting cures this, so the study stops; what was measured is kept"
        + "".join(f"\n  {t}" for t in tail),
        crash.remedy,
        exit_code=EXIT_NO_RESULT,
    )


def _host_not_fit(trial: TrialRecord) -> UserError:
    message = trial.outcome.message if isinstance(trial.outcome, Crash) else "the training process was lost"
    return UserError(
        f"{MAX_LOSSES} trials in a row were lost: {message}",
        "the host failed, not the configuration; what was measured is kept",
        "tuner doctor",
        exit_code=3,
    )

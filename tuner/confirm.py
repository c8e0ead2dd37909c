"""Measures finalist and baseline again, in turns, and judges the two: the only way to a claim of a speed-up.

Runs in: parent. The arms are labels. Their settings decide what is measured, and nothing else looks at them, so that
an A/A study, whose arms are equal, goes the same way.
*Not covered*: the statistics (`tuner.confirmation`), which configuration is the finalist (`tuner.selection`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from objectives.protocol import Objective
from objectives.schema import Crash, LoaderConfig
from storage.records import Arm, Confirmation, ConfirmationSlice, StudyData, StudyRecord
from storage.store import Store
from tuner.binding import is_self_test
from tuner.confirm_wording import arms_text, look_text, round_text
from tuner.confirmation import LOOKS, ORDER, Judgement, judge
from tuner.losses import MAX_LOSSES, cannot_go_on, host_not_fit
from tuner.progress import Progress
from tuner.queue_model.terms import terms_of

Judge = Callable[..., Judgement]
"""As `tuner.confirmation.judge`."""

MIN_ROUNDS = 2
"""Fewer cannot be judged: the interval comes from what rounds scatter."""


def run_confirmation(
    store: Store,
    study: StudyRecord,
    objective: Objective,
    *,
    baseline: LoaderConfig,
    finalist: LoaderConfig,
    progress: Progress,
    rounds: int = LOOKS[-1],
    judge: Judge = judge,
) -> Judgement:
    """Return the judgement of at most so many rounds; every slice is stored before the next begins.

    A confirmation of the same settings that was killed goes on where it stopped. A finalist that crashes has
    regressed, whatever its speed; a baseline that crashes leaves nothing to compare with. The reason is stored beside
    the judgement.

    Args:
        store: Where the study is kept.
        study: The study, owned by this process.
        objective: Made ready already.
        baseline: Settings of the arm `baseline`.
        finalist: Settings of the arm `finalist`.
        progress: Told of each round and look.
        rounds: Rounds at most, `MIN_ROUNDS` or more; the last one is looked at in any case.
        judge: Judges the rounds.

    Raises:
        UserError: If a row of the data set is bad, the model does not fit, or the host keeps failing.
        KeyboardInterrupt: What was measured until then is kept.
    """
    if rounds < MIN_ROUNDS:
        raise ValueError(f"rounds must be at least {MIN_ROUNDS} but got {rounds}.")
    began_s = time.monotonic()
    confirmation = unfinished(store.data(study, raw=True), baseline, finalist)
    if confirmation is None:
        confirmation = store.begin_confirmation(study, baseline, finalist)
    progress.labelled("confirm", arms_text(confirmation, is_self_test(study)))
    if confirmation.slices:
        progress.labelled("", f"goes on after {len(confirmation.slices)} slices")
    try:
        _add_ceiling(store, study, objective, progress)
        slices = list(confirmation.slices)
        judgement = None
        while judgement is None or not judgement.final:
            judgement = _look(study, slices, baseline, finalist, rounds, progress, judge)
            if judgement is None or not judgement.final:
                slices.append(_next_slice(store, study, objective, confirmation, len(slices), rounds, progress))
                if len(slices) % len(ORDER) == 0:
                    progress.labelled(f"round {len(slices) // len(ORDER)}", round_text(slices[-len(ORDER) :]))
        store.set_judgement(study, confirmation, {**plain_values(judgement), "reason": why_ended(slices)})
        _add_ceiling(store, study, objective, progress)
    finally:
        store.add_spent(study, time.monotonic() - began_s)
    return judgement


def unfinished(data: StudyData, baseline: LoaderConfig, finalist: LoaderConfig) -> Confirmation | None:
    """Return the latest confirmation if it was of these settings and was killed or interrupted."""
    last = data.confirmations[-1] if data.confirmations else None
    same = last is not None and (last.baseline, last.finalist) == (baseline, finalist)
    return last if last is not None and same and last.judgement is None else None


def why_ended(slices: Sequence[ConfirmationSlice]) -> str:
    """Return the crash that ended a confirmation before its time; empty if there was none."""
    last = slices[-1] if slices else None
    return f"the {last.arm} crashed: {last.outcome.message}" if last and isinstance(last.outcome, Crash) else ""


def plain_values(judgement: Judgement) -> dict[str, Any]:
    """Return the judgement as values that JSON can hold: what is not finite is None."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(judgement).items()
    }


def _look(
    study: StudyRecord,
    slices: Sequence[ConfirmationSlice],
    baseline: LoaderConfig,
    finalist: LoaderConfig,
    rounds: int,
    progress: Progress,
    judge: Judge,
) -> Judgement | None:
    """Return the judgement if this is a point to look at; it is final if no slice is to follow."""
    if slices and isinstance(slices[-1].outcome, Crash):
        return _crashed(slices)
    done, within = divmod(len(slices), len(ORDER))
    if done < rounds and (within or done not in LOOKS):
        return None
    found = judge(slices, baseline=baseline, finalist=finalist, max_rounds=rounds, **asdict(terms_of(study)))
    final = found.final or found.verdict != "not resolved" or done >= rounds
    found = replace(found, final=final)
    progress.labelled("look", look_text(found))
    return found


def _next_slice(
    store: Store,
    study: StudyRecord,
    objective: Objective,
    confirmation: Confirmation,
    position: int,
    rounds: int,
    progress: Progress,
) -> ConfirmationSlice:
    """Measure and store the slice of this position; one that the host lost is measured again."""
    number, within = divmod(position, len(ORDER))
    arm: Arm = "baseline" if ORDER[within] == "baseline" else "finalist"
    config = confirmation.baseline if arm == "baseline" else confirmation.finalist
    progress.doing(f"round {number + 1}/{rounds}  {arm} {config.key}")
    for attempt in range(1, MAX_LOSSES + 1):
        outcome = objective.measure(config, progress.trial_text)
        if isinstance(outcome, Crash) and outcome.blame in ("data", "user"):
            raise cannot_go_on(outcome)
        if isinstance(outcome, Crash) and outcome.blame == "host":
            progress.labelled("lost", f"{arm}, not counted: {outcome.message}")
            if attempt == MAX_LOSSES:
                raise host_not_fit(outcome, "slices")
            continue
        break
    measured = ConfirmationSlice(number, arm, config, outcome)
    store.add_confirmation_slice(study, confirmation, measured)
    return measured


def _crashed(slices: Sequence[ConfirmationSlice]) -> Judgement:
    """Return the judgement of a confirmation that a crash has ended: a finalist that crashes trains nothing.

    Of a baseline that crashed nothing is known: the interval is as wide as a share of time can be.
    """
    regressed = slices[-1].arm == "finalist"
    return Judgement(
        verdict="regressed" if regressed else "not resolved",
        rounds=len(slices) // len(ORDER),
        gain_fraction=-1.0 if regressed else 0.0,
        lower_fraction=-1.0,
        upper_fraction=-1.0 if regressed else 1.0,
        loader_saved_fraction=0.0,
        loader_half_width=0.0 if regressed else 1.0,
        compute_fraction=0.0,
        compute_half_width=0.0 if regressed else 1.0,
        loaded=False,
        slice_noise_fraction=0.0,
        rounds_needed=None,
        final=True,
    )


def _add_ceiling(store: Store, study: StudyRecord, objective: Objective, progress: Progress) -> None:
    progress.doing("ceiling")
    ceiling = objective.ceiling(progress.trial_text)
    if ceiling is not None:
        store.add_ceiling(study, ceiling)

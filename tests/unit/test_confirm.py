"""The rounds of a confirmation: order, looks, what ends them, and going on after a kill."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import BASELINE, config, crash, measured, study

from objectives.errors import UserError
from objectives.schema import LoaderConfig, Measurement, Outcome
from storage.records import Confirmation, ConfirmationSlice
from storage.store import Store, open_store
from tuner.confirm import run_confirmation
from tuner.confirmation import LOOKS, ORDER, Judgement, Verdict
from tuner.progress import Progress

FINALIST = config("w4 p4 persist pin")
RECORD = study(stopped="3 trials done", spent_s=0.0, identity={})


class Objective:
    """An objective that answers from a list, then with a measurement."""

    def __init__(self, *answers: Outcome | type[BaseException]) -> None:
        self.answers = list(answers)
        self.asked: list[LoaderConfig] = []
        self.ceilings = 0

    def measure(self, asked: LoaderConfig, _progress: object) -> Outcome:
        """Return or raise the next answer."""
        self.asked.append(asked)
        answer = self.answers.pop(0) if self.answers else measured(5.0)
        if isinstance(answer, type):
            raise answer
        return answer

    def ceiling(self, _progress: object) -> Measurement:
        """Return one more."""
        self.ceilings += 1
        return measured(9.0)


class Judge:
    """A judge that gives this verdict from so many rounds on, and remembers its looks."""

    def __init__(self, verdict: Verdict, from_round: int = 0) -> None:
        self.verdict = verdict
        self.from_round = from_round
        self.looks: list[int] = []
        self.seen: list[tuple[LoaderConfig, LoaderConfig]] = []

    def __call__(self, slices: Sequence[ConfirmationSlice], **known: Any) -> Judgement:
        """Judge."""
        rounds = len(slices) // len(ORDER)
        self.looks.append(rounds)
        self.seen.append((known["baseline"], known["finalist"]))
        verdict: Verdict = self.verdict if rounds >= self.from_round else "not resolved"
        return Judgement(verdict, rounds, 0.1, 0.05, 0.15, 0.1, 0.01, 0.0, 0.01, False, 0.02, None, False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return a store with a study."""
    with open_store(str(tmp_path / "tuner.db"), create=True) as opened:
        opened.create_study(RECORD, max_workers=8)
        yield opened


def confirm(store: Store, objective: Objective, judge: Judge, **more: Any) -> Judgement:
    """Run a confirmation."""
    given: dict[str, Any] = {"baseline": BASELINE, "finalist": FINALIST, "rounds": LOOKS[-1], **more}
    progress = Progress(io.StringIO())
    return run_confirmation(store, RECORD, objective, progress=progress, judge=judge, **given)  # type: ignore[arg-type]


def stored(store: Store) -> Confirmation:
    """Return the latest confirmation."""
    return store.data(RECORD).confirmations[-1]


def test_rounds_are_baseline_finalist_finalist_baseline(store: Store) -> None:
    """Two looks of a verdict that comes at 8 rounds: 32 slices in turns, stored, a ceiling before and after."""
    objective, judge = Objective(), Judge("confirmed", from_round=8)
    judgement = confirm(store, objective, judge)
    assert (judgement.verdict, judgement.rounds, judgement.final) == ("confirmed", 8, True)
    assert judge.looks == [4, 8]
    assert objective.asked == [BASELINE, FINALIST, FINALIST, BASELINE] * 8
    found = stored(store)
    assert [(s.round, s.arm) for s in found.slices] == [(r, arm) for r in range(8) for arm in ORDER]
    assert found.judgement is not None
    assert (found.judgement["verdict"], found.judgement["reason"]) == ("confirmed", "")
    assert (objective.ceilings, len(store.data(RECORD).ceilings)) == (2, 2)
    assert store.data(RECORD).study.stopped == "3 trials done"


@pytest.mark.parametrize(("rounds", "looks"), [(12, [4, 8, 12]), (2, [2]), (5, [4, 5])])
def test_the_last_round_is_looked_at(store: Store, rounds: int, looks: list[int]) -> None:
    """What is never resolved is looked at after 4, 8 and 12 rounds and after the last one allowed."""
    judge = Judge("not resolved")
    judgement = confirm(store, Objective(), judge, rounds=rounds)
    assert judge.looks == looks
    assert (judgement.verdict, judgement.rounds, judgement.final) == ("not resolved", rounds, True)


def test_equal_arms_are_measured_and_judged_like_others(store: Store) -> None:
    """In an A/A confirmation the labels alone tell the arms apart: as many slices, both named to the judge."""
    judge = Judge("no difference")
    confirm(store, Objective(), judge, finalist=BASELINE)
    assert judge.seen == [(BASELINE, BASELINE)]
    assert [s.arm for s in stored(store).slices] == list(ORDER) * 4


def test_a_finalist_that_crashes_has_regressed(store: Store) -> None:
    """Its first crash ends it at once, with the reason stored; nobody is asked for statistics."""
    judge = Judge("confirmed")
    judgement = confirm(store, Objective(measured(5.0), crash(message="/dev/shm full")), judge)
    assert (judgement.verdict, judgement.final, judgement.upper_fraction) == ("regressed", True, -1.0)
    assert judge.looks == []
    found = stored(store)
    assert found.judgement is not None
    assert "the finalist crashed: /dev/shm full" in found.judgement["reason"]
    assert [s.arm for s in found.slices] == ["baseline", "finalist"]


def test_a_baseline_that_crashes_proves_nothing_for_the_finalist(store: Store) -> None:
    """It ends unresolved, with the reason: there is no speed to compare with."""
    judgement = confirm(store, Objective(crash()), Judge("confirmed"))
    assert judgement.verdict == "not resolved"
    assert "the baseline crashed" in (stored(store).judgement or {})["reason"]


def test_what_the_host_loses_is_measured_again(store: Store) -> None:
    """Two losses are not counted and do not shift the order; three in a row end it, and it goes on later."""
    lost = crash("gpu_lost", blame="host", message="GPU is lost")
    objective = Objective(measured(5.0), lost, lost)
    confirm(store, objective, Judge("confirmed"))
    assert objective.asked[:4] == [BASELINE, FINALIST, FINALIST, FINALIST]
    assert [s.arm for s in stored(store).slices] == list(ORDER) * 4
    with pytest.raises(UserError, match="3 slices in a row") as raised:
        confirm(store, Objective(measured(5.0), lost, lost, lost), Judge("confirmed"))
    assert raised.value.exit_code == 3
    assert (len(stored(store).slices), stored(store).judgement) == (1, None)


def test_a_bad_row_ends_it_as_it_ends_a_study(store: Store) -> None:
    """A crash that no setting cures is an error and counts for neither arm."""
    with pytest.raises(UserError, match="data error"):
        confirm(store, Objective(crash("data_error", blame="data")), Judge("confirmed"))
    assert stored(store).slices == ()


@pytest.mark.parametrize("kept", [0, 6, 16])
def test_an_interrupted_one_goes_on_where_it_stopped(store: Store, kept: int) -> None:
    """After Ctrl-C the finished slices are kept; the next call measures the rest and no slice twice."""
    with pytest.raises(KeyboardInterrupt):
        confirm(store, Objective(*[measured(5.0)] * kept, KeyboardInterrupt), Judge("not resolved"))
    assert (len(stored(store).slices), stored(store).judgement) == (kept, None)
    objective, judge = Objective(), Judge("confirmed", from_round=8)
    confirm(store, objective, judge)
    assert len(store.data(RECORD).confirmations) == 1
    assert [(s.round, s.arm) for s in stored(store).slices] == [(r, arm) for r in range(8) for arm in ORDER]
    assert len(objective.asked) == 32 - kept
    assert judge.looks[-1] == 8


def test_another_finalist_begins_anew(store: Store) -> None:
    """An unfinished confirmation of other settings is left as it is."""
    with pytest.raises(KeyboardInterrupt):
        confirm(store, Objective(measured(5.0), KeyboardInterrupt), Judge("confirmed"))
    confirm(store, Objective(), Judge("confirmed"), finalist=config("w2 p2"))
    first, second = store.data(RECORD).confirmations
    assert (len(first.slices), first.judgement) == (1, None)
    assert (second.finalist, len(second.slices)) == (config("w2 p2"), 16)

"""The laws every objective must pass. Subclass `ObjectiveContract` and supply the fixture `objective`.

An objective that is dear to start may give its fixture the scope `class`: each law then sees the same one, and the
last law closes it. `most_configurations` bounds how much of the space is measured.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Sequence

import psutil
import pytest

from objectives.protocol import Choices, Objective, Prepared
from objectives.schema import KNOBS, Crash, LoaderConfig, Measurement, Outcome, canonical

SHM = "/dev/shm"
GRACE_S = 5.0
"""Other programs' short-lived segments are given this long to go away."""


def space(choices: Choices) -> list[LoaderConfig]:
    """Return the configurations that choices stand for, sorted; a knob that is not measured is held."""
    if choices.configurations is not None:
        return sorted(choices.configurations)
    held = choices.baseline or canonical(1, 2, False, False)
    menus = [choices.values.get(knob) or (getattr(held, knob),) for knob in KNOBS]
    return sorted({canonical(w, p, bool(persist), bool(pin)) for w, p, persist, pin in itertools.product(*menus)})


def spread(configurations: Sequence[LoaderConfig], most: int) -> list[LoaderConfig]:
    """Return at most so many configurations, the first and the last among them."""
    if len(configurations) <= most:
        return list(configurations)
    return [configurations[round(i * (len(configurations) - 1) / max(1, most - 1))] for i in range(most)]


def shm_names() -> set[str]:
    """Return the files in /dev/shm; none where there is no such place."""
    return set(os.listdir(SHM)) if os.path.isdir(SHM) else set()


def child_pids() -> set[int]:
    """Return the processes started by this one that still exist, grandchildren too."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


class ObjectiveContract:
    """Laws of `objectives.protocol.Objective`."""

    most_configurations = 200

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def before() -> tuple[set[int], set[str]]:
        """Return the processes and segments there were before any objective of this class was made."""
        return child_pids(), shm_names()

    def prepared(self, objective: Objective) -> Prepared:
        """Prepare an objective once, however many laws ask."""
        cached = getattr(self.__class__, "_prepared", None)
        if cached is None or cached[0] is not objective:
            cached = (objective, objective.prepare({}, lambda _text: None))
            self.__class__._prepared = cached
        return cached[1]

    def outcomes(self, objective: Objective) -> dict[LoaderConfig, Outcome]:
        """Measure the configurations of an objective once, however many laws ask."""
        self.prepared(objective)
        cached = getattr(self.__class__, "_outcomes", None)
        if cached is None or cached[0] is not objective:
            configurations = spread(space(objective.choices()), self.most_configurations)
            cached = (objective, {c: objective.measure(c, lambda _text: None) for c in configurations})
            self.__class__._outcomes = cached
        return cached[1]

    def measured(self, objective: Objective) -> list[Measurement]:
        """Return the outcomes that are not crashes; at least one, or the laws would hold of nothing."""
        found = [o for o in self.outcomes(objective).values() if isinstance(o, Measurement)]
        assert found, "no configuration was measured"
        return found

    def test_keeps_the_protocol(self, objective: Objective) -> None:
        """It has every member of the protocol and a name."""
        assert isinstance(objective, Objective)
        assert objective.name

    def test_identity_is_plain_and_stable(self, objective: Objective) -> None:
        """The identity survives JSON and does not change by preparing or measuring."""
        first = dict(objective.identity())
        assert json.loads(json.dumps(first, allow_nan=False)) == first
        self.outcomes(objective)
        assert dict(objective.identity()) == first

    def test_choices_are_valid_and_hold_the_baseline(self, objective: Objective) -> None:
        """Every knob named is a knob with distinct values and a reason; the baseline can be measured."""
        choices = objective.choices()
        configurations = space(choices)
        assert set(choices.values) <= set(KNOBS)
        for knob, values in choices.values.items():
            assert len(values) > 0
            assert len(set(values)) == len(values)
            assert choices.reasons[knob]
        assert len(configurations) > 0
        assert len(set(configurations)) == len(configurations)
        if choices.baseline is not None:
            assert choices.baseline in configurations

    def test_prepare_returns_usable_ceilings(self, objective: Objective) -> None:
        """Every ceiling trained something, and what is to be remembered survives JSON."""
        prepared = self.prepared(objective)
        assert all(ceiling.samples_per_s > 0 for ceiling in prepared.ceilings)
        assert json.loads(json.dumps(dict(prepared.remember))) == dict(prepared.remember)

    def test_one_more_ceiling(self, objective: Objective) -> None:
        """A ceiling asked for later trained the same tokens as the first ones, without a loader; or there is none."""
        first = self.prepared(objective).ceilings
        later = objective.ceiling(lambda _text: None)
        if later is None:
            assert objective.name == "replay", "only a recording has no more"
            return
        assert later.samples_per_s > 0
        assert later.tokens == first[-1].tokens
        assert later.raw is not None
        assert later.raw.kind == "ceiling"
        assert sum(later.raw.steps.data_wait_s) <= 0.01 * sum(later.raw.steps.step_s)

    def test_measure_returns_an_outcome_for_every_configuration(self, objective: Objective) -> None:
        """No configuration raises; each is a crash with a remedy or has a throughput."""
        for config, outcome in self.outcomes(objective).items():
            assert isinstance(outcome, Measurement | Crash), config.key
            if isinstance(outcome, Crash):
                assert outcome.message
                assert outcome.remedy
            else:
                assert outcome.samples_per_s > 0, config.key

    def test_the_parts_of_a_step_add_up(self, objective: Objective) -> None:
        """A step is restart, data wait, copy and compute, none of them negative; all series are of one length."""
        for measurement in self.measured(objective):
            if measurement.raw is None:
                continue
            steps = measurement.raw.steps
            rows = zip(steps.step_s, steps.restart_s, steps.data_wait_s, steps.h2d_s, steps.compute_s, strict=True)
            for step_s, *parts in rows:
                assert min(parts) >= -1e-4
                assert sum(parts) == pytest.approx(step_s, abs=1e-9)
            assert len(steps.samples) == len(steps.tokens) == len(steps) > 0
            assert len(steps.run_delay_s) in (0, len(steps))
            assert len(steps.trainer_cpu_s) in (0, len(steps))

    def test_batches_agree_with_steps(self, objective: Objective) -> None:
        """A batch is made before it is got, and the waits of a step's batches add up to the step's."""
        for measurement in self.measured(objective):
            if measurement.raw is None or len(measurement.raw.batches) == 0:
                continue
            steps, batches = measurement.raw.steps, measurement.raw.batches
            waits = [0.0] * len(steps)
            rows = zip(
                batches.step, batches.service_start_s, batches.service_end_s, batches.requested_s, batches.got_s,
                strict=True,
            )  # fmt: skip
            for step, start_s, end_s, requested_s, got_s in rows:
                assert -1 <= step < len(steps)
                assert start_s <= end_s <= got_s + 1e-3
                assert requested_s <= got_s
                if step >= 0:
                    waits[step] += got_s - requested_s
            for wait_s, restart_s, data_wait_s in zip(waits, steps.restart_s, steps.data_wait_s, strict=True):
                if restart_s == 0:
                    assert wait_s == pytest.approx(data_wait_s, abs=1e-6)
                else:  # the first batch of an epoch counts as restart, part of which is before it was asked for
                    assert data_wait_s <= wait_s + 1e-6 <= data_wait_s + restart_s + 2e-6

    def test_all_configurations_do_equal_work(self, objective: Objective) -> None:
        """Every slice trains the same number of tokens, or their times could not be compared."""
        assert len({m.tokens for m in self.measured(objective) if m.tokens is not None}) <= 1

    def test_closing_leaves_nothing_behind(self, objective: Objective, before: tuple[set[int], set[str]]) -> None:
        """After measuring and closing, twice, there is no process and no shared-memory file that was not there."""
        self.outcomes(objective)
        objective.close()
        objective.close()
        pids, names = before
        deadline = time.monotonic() + GRACE_S
        while (child_pids() - pids or shm_names() - names) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert child_pids() - pids == set()
        assert shm_names() - names == set()

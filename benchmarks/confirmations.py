"""Part `confirm`: false `confirmed`, coverage and width of the interval, power. Rounds as `tuner confirm` runs them.

The product's `tuner.confirmation.judge` sees slices as storage returns them and is asked after its own looks.
*Not covered*: how the finalist was found (`benchmarks.studies`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from benchmarks.bars import Bar, at_least, at_most
from benchmarks.sim.job import Job, sample_times
from benchmarks.sim.machine import Machine
from benchmarks.sim.noise import NAMES
from objectives.schema import LoaderConfig, canonical
from storage.records import ConfirmationSlice
from tuner.confirmation import LOOKS, ORDER, Judgement, judge

FIXED_ROUNDS = 6
CHUNK = 10
Purpose = Literal["false", "coverage", "power"]
Kind = Literal["additive", "data-bound", "epochs"]

_NONE = canonical(0, None, False, True)
_ONE, _TWO, _SIX, _EIGHT = (canonical(w, 2, True, True) for w in (1, 2, 6, 8))
_C = 0.42


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two configurations of one job, compared."""

    name: str
    purpose: Purpose
    kind: Kind
    job: Job
    baseline: LoaderConfig
    finalist: LoaderConfig
    max_rounds: int = LOOKS[-1]

    @property
    def loaded(self) -> bool:
        """Return whether the finalist's workers compete with the trainer."""
        return self.job.loaded(self.finalist)


def _text(service_share: float, **fields: Any) -> Job:
    """Return a job that loses this share of compute without workers, and nothing with two."""
    return Job("text", _C, _C * service_share, cores=8, timed_steps=20, **fields)


def _images(service_share: float, **fields: Any) -> Job:
    return Job("images", _C, _C * service_share, **{"cores": 8, "timed_steps": 20, **fields})


SCENARIOS = (
    Scenario("A/A, data for free", "false", "additive", _text(0.001), _TWO, _TWO),
    Scenario("A/A, data-bound", "false", "data-bound", _images(1.05), _ONE, _ONE),
    Scenario("A/A, loaded", "false", "additive", _text(0.001, contention=0.05), _EIGHT, _EIGHT),
    Scenario("gain 0.4 %", "false", "additive", _text(0.005), _NONE, _TWO),
    Scenario("wait -3 %, compute +5 %", "false", "additive", _text(0.031, contention=0.05), _NONE, _EIGHT),
    Scenario(
        "wait -3 %, compute +5 %, delay not seen", "false", "additive",
        _text(0.031, contention=0.05, visible=False), _NONE, _EIGHT,
    ),
    Scenario("additive 3 %", "coverage", "additive", _text(0.031), _NONE, _TWO),
    Scenario("additive 10 %", "coverage", "additive", _text(0.10), _NONE, _TWO),
    Scenario("additive 3 %, loaded, no harm", "coverage", "additive", _text(0.031), _NONE, _EIGHT),
    Scenario("additive 10 %, loaded, +5 %", "coverage", "additive", _text(0.10, contention=0.05), _NONE, _EIGHT),
    Scenario("data-bound 1.5 x", "coverage", "data-bound", _images(1.5), _ONE, canonical(4, 2, True, True)),
    Scenario("data-bound 1.05 x", "coverage", "data-bound", _images(1.05), _ONE, canonical(4, 2, True, True)),
    Scenario("marginal with 2 workers", "coverage", "data-bound", _images(1.84), _TWO, _SIX),
    Scenario(
        "bursts of 8, 2 x 1", "coverage", "data-bound",
        Job("bursts", 2.8, 0.128, 8, cores=8, timed_steps=8), canonical(2, 1, True, True), canonical(4, 2, True, True),
    ),
    Scenario(
        "epochs of 50 rows", "coverage", "epochs",
        Job("epochs", 4.8, 0.05, 16, cores=8, epoch_batches=50, timed_steps=20),
        canonical(1, 2, False, True), canonical(4, 4, True, True),
    ),
    Scenario("gain 3 %", "power", "additive", _text(0.0309), _NONE, _TWO, FIXED_ROUNDS),
    Scenario("gain 5 %", "power", "additive", _text(0.0509), _NONE, _TWO, FIXED_ROUNDS),
)  # fmt: skip


def true_gain(scenario: Scenario, profile: str) -> float:
    """Return `time of baseline / time of finalist - 1` in the long run."""
    times = sample_times(scenario.job, profile, [scenario.baseline, scenario.finalist])
    return times[scenario.baseline] / times[scenario.finalist] - 1.0


def confirm_once(scenario: Scenario, profile: str, seed: Sequence[int]) -> tuple[Judgement, Judgement]:
    """Return the judgement the procedure ends with, and the one after a fixed number of rounds."""
    machine = Machine(scenario.job, profile, np.random.default_rng(seed))
    plan = scenario.job.plan
    judged = partial(
        judge,
        baseline=scenario.baseline,
        finalist=scenario.finalist,
        usable_cpus=scenario.job.cores,
        epochs=plan.epochs,
        epoch_batches=plan.epoch_batches,
    )
    slices: list[ConfirmationSlice] = []
    ended = fixed = None
    for number in range(1, max(scenario.max_rounds, FIXED_ROUNDS) + 1):
        for arm in ORDER:
            config = scenario.baseline if arm == "baseline" else scenario.finalist
            slices.append(ConfirmationSlice(number - 1, arm, config, machine.measure(config)))  # type: ignore[arg-type]
        if number == FIXED_ROUNDS:
            fixed = judged(slices, max_rounds=FIXED_ROUNDS)
        if ended is None and (number in LOOKS or number == scenario.max_rounds) and number <= scenario.max_rounds:
            now = judged(slices, max_rounds=scenario.max_rounds)
            ended = now if now.final or number == scenario.max_rounds else None
        if ended is not None and fixed is not None:
            return ended, fixed
    raise AssertionError("the last round is always judged")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some confirmations of one scenario: what one process does at a time."""

    scenario: int
    profile: str
    first: int
    count: int
    seed: int


def chunks(runs: int, seed: int) -> list[Chunk]:
    """Return the work, cut into pieces."""
    return [
        Chunk(index, profile, first, min(CHUNK, runs - first), seed)
        for first in range(0, runs, CHUNK)
        for index in range(len(SCENARIOS))
        for profile in NAMES
    ]


def work(chunk: Chunk) -> list[dict[str, Any]]:
    """Return one row per confirmation."""
    scenario = SCENARIOS[chunk.scenario]
    truth = true_gain(scenario, chunk.profile)
    rows = []
    for n in range(chunk.first, chunk.first + chunk.count):
        seed = (chunk.seed, chunk.scenario, NAMES.index(chunk.profile), n)
        ended, fixed = confirm_once(scenario, chunk.profile, seed)
        rows.append(
            {
                "scenario": chunk.scenario,
                "profile": chunk.profile,
                "n": n,
                "truth": truth,
                "verdict": ended.verdict,
                "rounds": ended.rounds,
                "error": ended.gain_fraction - truth,
                "half_width": (ended.upper_fraction - ended.lower_fraction) / 2,
                "covers": ended.lower_fraction <= truth <= ended.upper_fraction,
                "fixed_error": fixed.gain_fraction - truth,
                "fixed_half_width": (fixed.upper_fraction - fixed.lower_fraction) / 2,
                "fixed_covers": fixed.lower_fraction <= truth <= fixed.upper_fraction,
                "loaded": ended.loaded,
            }
        )
    return rows


def summarise_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line per scenario and profile; shares and gains in percent."""
    lines = []
    for index, scenario in enumerate(SCENARIOS):
        for profile in NAMES:
            found = [r for r in rows if r["scenario"] == index and r["profile"] == profile]
            if not found:
                continue
            lines.append(
                {
                    "for": scenario.purpose,
                    "scenario": scenario.name,
                    "profile": profile,
                    "runs": len(found),
                    "true gain %": 100 * found[0]["truth"],
                    "confirmed %": _percent(found, "confirmed"),
                    "no difference %": _percent(found, "no difference"),
                    "regressed %": _percent(found, "regressed"),
                    "not resolved %": _percent(found, "not resolved"),
                    "rounds": _mean(found, "rounds"),
                    "covers %": 100 * _mean(found, "covers"),
                    "half-width %": 100 * float(np.median([r["half_width"] for r in found])),
                    "bias %": 100 * _mean(found, "error"),
                    "covers at 6 %": 100 * _mean(found, "fixed_covers"),
                    "half-width at 6 %": 100 * float(np.median([r["fixed_half_width"] for r in found])),
                    "bias at 6 %": 100 * _mean(found, "fixed_error"),
                    "loaded %": 100 * _mean(found, "loaded"),
                }
            )
    return lines


def _mean(found: Sequence[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in found]))


def _percent(found: Sequence[dict[str, Any]], verdict: str) -> float:
    return 100 * float(np.mean([row["verdict"] == verdict for row in found]))


def bars(lines: Sequence[dict[str, Any]]) -> list[Bar]:
    """Return the bars of this part."""
    found: list[Bar] = []
    for line in lines:
        label = f"{line['scenario']}, {line['profile']}"
        if line["for"] == "false":
            found.append(at_most(f"false confirmed: {label}", line["confirmed %"] / 100, 0.035, line["runs"]))
        if line["for"] == "power":
            bar = 0.85 if "3 %" in line["scenario"] else 0.98
            found.append(at_least(f"power in 24 slices: {label}", line["confirmed %"] / 100, bar, line["runs"]))
    for index, scenario in enumerate(SCENARIOS):
        if scenario.purpose != "coverage":
            continue
        floor = 0.93 if scenario.kind != "data-bound" else 0.90
        mine = [line for line in lines if line["scenario"] == scenario.name and line["for"] == "coverage"]
        if not mine:
            continue
        for column, when in (("covers %", "at the end"), ("covers at 6 %", "after 6 rounds")):
            whole = sum(line["runs"] for line in mine)
            mean = sum(line[column] * line["runs"] for line in mine) / whole / 100
            found.append(at_least(f"coverage {when}: {scenario.name}, all profiles", mean, floor, whole))
            for line in mine:
                label = f"coverage {when}: {scenario.name}, {line['profile']}"
                found.append(at_least(label, line[column] / 100, 0.88, line["runs"]))
        for line in mine:
            if scenario.kind == "additive" and line["profile"] == "hard":
                limit = 0.075 if SCENARIOS[index].loaded else 0.022
                label = f"half-width after 6 rounds: {scenario.name}, hard"
                found.append(at_most(label, line["half-width at 6 %"] / 100, limit, line["runs"]))
    return found

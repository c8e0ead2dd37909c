"""Studies of the synthetic objective in memory: search, selection and judgement without storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime

from objectives.schema import LoaderConfig, canonical
from objectives.score import ScorePolicy, score
from objectives.synthetic import SyntheticObjective
from objectives.synthetic_job import SyntheticJob
from storage.records import Arm, ConfirmationSlice, StudyData, StudyRecord, TrialRecord
from tuner.confirmation import ORDER
from tuner.search import next_configuration
from tuner.space import SearchSpace, build_space

BASELINE = canonical(1, 2, True, True)


def quiet(_text: str) -> None:
    """Ignore what a slice is doing."""


def empty_study(job: SyntheticJob, seed: int = 0) -> tuple[SyntheticObjective, SearchSpace, StudyData]:
    """Return an objective, its space and a study with ceilings and no trial."""
    objective = SyntheticObjective(job, seed=seed)
    space = build_space(objective.choices(), BASELINE)
    prepared = objective.prepare({}, quiet)
    record = StudyRecord(
        name="simulated", uuid="0", objective="synthetic", identity=dict(objective.identity()), host={"bound": {}},
        fingerprint="", baseline=BASELINE, baseline_of="ms-swift 4.6.0", measured_knobs=space.measured_knobs,
        values={knob: list(menu) for knob, menu in space.values.items()}, reasons={},
        configurations=len(space.configurations), seed=seed, created_at=datetime(2026, 1, 1, tzinfo=UTC),
        remember=asdict(job.plan), facts=dict(prepared.facts),
    )  # fmt: skip
    return objective, space, StudyData(record, (), prepared.ceilings)


def with_trial(data: StudyData, objective: SyntheticObjective, config: LoaderConfig, origin: str = "seed") -> StudyData:
    """Return the study with one more trial, measured now."""
    outcome = objective.measure(config, quiet)
    number = len(data.trials)
    graded = score(outcome, ScorePolicy())
    trial = TrialRecord(number, "complete", config, origin, str(number), outcome=outcome, score=graded)  # type: ignore[arg-type]
    return StudyData(data.study, (*data.trials, trial), data.ceilings)


def study_of(job: SyntheticJob, configs: Iterable[LoaderConfig], seed: int = 0) -> tuple[StudyData, SearchSpace]:
    """Return a study of these configurations, in order."""
    objective, space, data = empty_study(job, seed)
    for config in configs:
        data = with_trial(data, objective, config)
    return data, space


def searched(job: SyntheticJob, trials: int, seed: int = 0) -> tuple[StudyData, SearchSpace]:
    """Return a study whose trials the search chose."""
    objective, space, data = empty_study(job, seed)
    while len(data.trials) < trials:
        config, origin = next_configuration(data, space, trials)
        data = with_trial(data, objective, config, origin)
    return data, space


def truths(job: SyntheticJob, space: SearchSpace) -> dict[LoaderConfig, float]:
    """Return the samples/s of every configuration; the job must be without noise."""
    objective = SyntheticObjective(job)
    return {c: objective.measure(c, quiet).samples_per_s for c in space.configurations}  # type: ignore[union-attr]


def rounds_of(job: SyntheticJob, arms: dict[Arm, LoaderConfig], rounds: int, seed: int = 0) -> list[ConfirmationSlice]:
    """Return the slices of a confirmation, in order."""
    objective = SyntheticObjective(job, seed=seed)
    return [
        ConfirmationSlice(number, arm, arms[arm], objective.measure(arms[arm], quiet))
        for number in range(rounds)
        for arm in ORDER
    ]

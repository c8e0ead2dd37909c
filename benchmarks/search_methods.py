"""Search methods to compare: each chooses the next trial from the trials so far and, in the end, one configuration.

Ours is the product's own code. The others are what people use: samplers from Optuna, grids, an engineer's sweep, the
pipeline prediction alone, and the rules of loadtune. Optuna's samplers work as documented: linear values, a crash
told as 0.0 (its samplers ignore failed trials), the choice is `study.best_trial`.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from benchmarks.loadtune_rules import BASELINE as NO_WORKERS
from benchmarks.loadtune_rules import Seen, choice, proposals
from benchmarks.surfaces.objective import BASELINE, PipelineObjective
from benchmarks.surfaces.pipeline import MAX_WORKERS, PREFETCH, configurations
from objectives.schema import Crash, LoaderConfig, Measurement, canonical
from storage.records import StudyData, StudyRecord, TrialRecord
from tuner.search import next_configuration, predict
from tuner.selection import select
from tuner.space import SearchSpace, build_space

Trials = Sequence[TrialRecord]


class Method(Protocol):
    """One run of one method."""

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return the next configuration; None when the method has had enough."""
        ...

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the configuration it recommends after these trials."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What a method is told when it starts."""

    objective: PipelineObjective
    space: SearchSpace
    study: StudyRecord
    total: int
    seed: int

    @property
    def cores(self) -> int:
        """Return the cores the host shows."""
        return self.objective.machine.seen


def best_trial(trials: Trials) -> LoaderConfig:
    """Return the configuration of the highest single value, as `study.best_trial` does."""
    return max(trials, key=lambda t: t.score.value if t.score else 0.0).config


class Listed:
    """A list fixed in advance; the choice is the best trial."""

    def __init__(self, order: Sequence[LoaderConfig]) -> None:
        self._order = order

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return the next of the list."""
        return self._order[len(trials)] if len(trials) < len(self._order) else None

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the best trial."""
        return best_trial(trials)


def random_search(setting: Setting) -> Method:
    """Return every configuration at most once, in random order."""
    return Listed([configurations()[i] for i in np.random.default_rng(setting.seed).permutation(258)])


class Exhaustive(Listed):
    """Every configuration once, whatever the budget."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(configurations())


class OptunaSampler:
    """A sampler of Optuna on a flat space; knobs that sleep without workers are suggested and ignored."""

    def __init__(self, sampler: Any, first: Sequence[LoaderConfig] = ()) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        flags = optuna.distributions.CategoricalDistribution([False, True])
        self._distributions: dict[str, Any] = {
            "num_workers": optuna.distributions.IntDistribution(0, MAX_WORKERS),
            "prefetch_factor": optuna.distributions.IntDistribution(PREFETCH[0], PREFETCH[-1], step=2),
            "persistent_workers": flags,
            "pin_memory": flags,
        }
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._asked: Any = None
        for config in first:
            self._study.enqueue_trial(
                {
                    "num_workers": config.num_workers,
                    "prefetch_factor": config.prefetch_factor or 2,
                    "persistent_workers": config.persistent_workers,
                    "pin_memory": config.pin_memory,
                }
            )

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Tell the last value and return the sampler's next point."""
        if self._asked is not None and trials[-1].score is not None:
            self._study.tell(self._asked, trials[-1].score.value)
        self._asked = self._study.ask(self._distributions)
        return canonical(**self._asked.params)

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the best trial."""
        return best_trial(trials)


def first_points() -> list[LoaderConfig]:
    """Return the seeds that came within 2 % after 5 trials in earlier comparisons."""
    return [NO_WORKERS, *(canonical(w, 2, True, True) for w in (2, 4, 8, 15))]


def qmc(setting: Setting) -> Method:
    """Return a scrambled Sobol sequence."""
    return OptunaSampler(_sampler("QMCSampler", seed=setting.seed, scramble=True, warn_independent_sampling=False))


def tpe(setting: Setting) -> Method:
    """Return Optuna's default."""
    return OptunaSampler(_sampler("TPESampler", seed=setting.seed))


def tpe_seeded(setting: Setting) -> Method:
    """Return Optuna's default after first points."""
    return OptunaSampler(_sampler("TPESampler", seed=setting.seed, n_startup_trials=6), first_points())


def gp(setting: Setting) -> Method:
    """Return Optuna's Gaussian process as it comes."""
    return OptunaSampler(_sampler("GPSampler", seed=setting.seed, warn_independent_sampling=False))


def gp_seeded(setting: Setting) -> Method:
    """Return Optuna's Gaussian process after first points."""
    options = {"seed": setting.seed, "n_startup_trials": 6, "warn_independent_sampling": False}
    return OptunaSampler(_sampler("GPSampler", **options), first_points())


def _sampler(name: str, **options: Any) -> Any:
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return getattr(optuna.samplers, name)(**options)


class Sweep:
    """What a careful engineer does: double the workers until it stops paying, refine, toggle the rest, repeat."""

    PAYS = 1.02

    def __init__(self, setting: Setting) -> None:
        pass

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return the next point of the sweep; at last the three highest means again, in turn."""
        means = _means(trials)
        previous = 0.0
        for workers in (1, 2, 4, 8, 16):
            config = canonical(workers, 2, True, True)
            if config not in means:
                return config
            if means[config] < previous * self.PAYS:
                break
            previous = means[config]
        straight = {c: v for c, v in means.items() if c == canonical(c.num_workers, 2, True, True)}
        best = max(straight, key=lambda c: straight[c])
        for step in (4, 2, 1):
            for workers in (best.num_workers - step, best.num_workers + step):
                config = canonical(workers, 2, True, True) if 1 <= workers <= MAX_WORKERS else None
                if config is not None and config not in means and step < max(2, best.num_workers):
                    return config
        for variant in (
            replace(best, prefetch_factor=4),
            replace(best, persistent_workers=False),
            replace(best, pin_memory=False),
            replace(best, prefetch_factor=8),
            NO_WORKERS,
        ):
            if variant not in means:
                return variant
        leaders = sorted(means, key=lambda c: -means[c])[:3]
        return min(leaders, key=lambda c: sum(t.config == c for t in trials))

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the highest mean."""
        means = _means(trials)
        return max(means, key=lambda c: means[c])


def _means(trials: Trials) -> dict[LoaderConfig, float]:
    values: dict[LoaderConfig, list[float]] = defaultdict(list)
    for trial in trials:
        values[trial.config].append(trial.score.value if trial.score else 0.0)
    return {config: fmean(found) for config, found in values.items()}


class ModelOnly:
    """The pipeline prediction after three slices (baseline, no workers, 2 workers) and two ceilings, nothing more."""

    POINTS = (BASELINE, canonical(0, None, False, True), canonical(2, 2, True, True))

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._ceilings = setting.objective.prepare({}, lambda _text: None).ceilings

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return the three slices."""
        return self.POINTS[len(trials)] if len(trials) < len(self.POINTS) else None

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the fewest workers that should keep up."""
        data = StudyData(self._setting.study, tuple(trials), self._ceilings)
        return predict(data, self._setting.space) or best_trial(trials)


class Loadtune:
    """loadtune's rules; its throughputs know no penalty."""

    def __init__(self, setting: Setting) -> None:
        self._cores = setting.cores

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return its baseline, then what it proposes."""
        if not trials:
            return NO_WORKERS
        first = trials[0].outcome
        if not isinstance(first, Measurement):
            return None
        busy = first.cpu_busy_fraction
        planned = proposals(Seen(first.wait_fraction or 0.0, None if busy is None else 100 * busy, self._cores))
        return planned[len(trials) - 1] if len(trials) <= len(planned) else None

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the fewest workers within 2 % of its fastest trial."""
        if not isinstance(trials[0].outcome, Measurement):
            return NO_WORKERS
        measured = [(t.config, t.outcome.samples_per_s) for t in trials[1:] if isinstance(t.outcome, Measurement)]
        return choice(trials[0].outcome.samples_per_s, measured)


class Ours:
    """The product: `tuner.search.next_configuration` without step series or ceilings, and the choice by values."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def ask(self, trials: Trials) -> LoaderConfig | None:
        """Return the product's next configuration."""
        data = StudyData(self._setting.study, tuple(trials), ())
        return next_configuration(data, self._setting.space, self._setting.total)[0]

    def choose(self, trials: Trials) -> LoaderConfig:
        """Return the cheapest of the best by the product's model."""
        best = select(StudyData(self._setting.study, tuple(trials), ())).best
        return best.config if best is not None else best_trial(trials)


METHODS: dict[str, Callable[[Setting], Method]] = {
    "ours": Ours,
    "random": random_search,
    "quasi-random": qmc,
    "TPE": tpe,
    "TPE, first points": tpe_seeded,
    "GP": gp,
    "GP, first points": gp_seeded,
    "doubling sweep": Sweep,
    "exhaustive": Exhaustive,
    "model only": ModelOnly,
    "loadtune 0.3.0": Loadtune,
}


def space_of(objective: PipelineObjective) -> SearchSpace:
    """Return the product's space of a surface."""
    return build_space(objective.choices(), BASELINE)


def crashed(trial: TrialRecord) -> bool:
    """Return whether the trial crashed."""
    return isinstance(trial.outcome, Crash)

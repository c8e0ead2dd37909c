"""The machines search methods are compared on, and loadtune's rules."""

from __future__ import annotations

import pytest

from benchmarks.loadtune_rules import BASELINE as NO_WORKERS
from benchmarks.loadtune_rules import Seen, choice, proposals
from benchmarks.surfaces.objective import PipelineObjective
from benchmarks.surfaces.pipeline import NAMED, best_utility, configurations, random_machine, regret, truth
from objectives.schema import LoaderConfig, canonical


@pytest.mark.parametrize(
    ("machine", "key", "utility"),
    [
        (NAMED[3], LoaderConfig(6, 2, True, True), 8.855716),
        (NAMED[5], LoaderConfig(2, 8, True, False), None),
        (random_machine(32), LoaderConfig(8, 2, True, True), None),
    ],
)
def test_the_best_configuration_is_the_known_one(machine: object, key: LoaderConfig, utility: float | None) -> None:
    """The formulas give the optimum they were published with."""
    assert regret(machine, key) == pytest.approx(0.0, abs=1e-4)  # type: ignore[arg-type]
    if utility is not None:
        assert best_utility(machine) == pytest.approx(utility, rel=1e-6)  # type: ignore[arg-type]


def test_noise_repeats_by_seed_and_scatters_around_the_truth() -> None:
    """The same seed gives the same values; their mean is the truth less what the outliers take."""
    machine, config = NAMED[0], LoaderConfig(2, 2, True, True)
    values = []
    for _ in range(2):
        objective = PipelineObjective(machine, 7)
        rows = [objective.measure(config, lambda _text: None) for _ in range(2000)]
        values.append([objective.score(config, row).value for row in rows])
    assert values[0] == values[1]
    assert sum(values[0]) / 2000 == pytest.approx(truth(machine, config).value * (1 - 0.03 * 0.1), rel=2e-3)
    assert len(configurations()) == 258


def test_loadtune_sweeps_workers_when_input_bound_and_cuts_after_six() -> None:
    """40 % wait on 16 CPUs: 1, 2, 4, 4 with fewer threads, 8, 8 with fewer threads; 3 % wait: 2, then 2 pinned."""
    swept = proposals(Seen(0.40, 30.0, 16))
    assert [c.num_workers for c in swept] == [1, 2, 4, 4, 8, 8]
    assert proposals(Seen(0.03, 30.0, 16)) == [canonical(2, 2, True, False), canonical(2, 2, True, True)]
    assert proposals(Seen(0.40, 90.0, 16)) == [canonical(2, 2, True, True)], "no more workers on a full CPU"


def test_loadtune_takes_the_fewest_workers_within_two_percent() -> None:
    """8 workers are 1.5 % faster than 4: it takes 4; slower than its baseline: it keeps that."""
    rows = [(canonical(w, 2, True, False), v) for w, v in ((2, 90.0), (4, 98.5), (8, 100.0))]
    assert choice(50.0, rows).num_workers == 4
    assert choice(120.0, rows) == NO_WORKERS

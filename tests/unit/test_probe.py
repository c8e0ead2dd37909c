"""What three slices say of the whole space, and what they advise."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import crash, study_data
from simulated import BASELINE, empty_study, searched, study_of, with_trial

from objectives.errors import UserError
from objectives.schema import canonical
from objectives.synthetic_job import SyntheticJob
from tuner.probe import build_probe, probe_json, render_probe


def test_a_data_bound_job_is_worth_a_search() -> None:
    """The bound, a sufficient configuration and what common advice loses come from three slices; next is the search."""
    data, space = searched(SyntheticJob(slice_noise_sd=0.1), 3)
    probe = build_probe(data, space)
    assert probe.bound == "data-bound"
    assert probe.headroom.lower_fraction < probe.headroom.fraction < probe.headroom.upper_fraction
    assert probe.sufficient.config.num_workers >= 4
    assert probe.gain_fraction == pytest.approx(2.4, rel=0.25)
    assert probe.next_command == "tuner run"
    assert len(probe.space) == len(space.configurations)
    text = render_probe(probe)
    assert ("(common advice) loses" in text) == (probe.sufficient.config != canonical(4, 2, True, True))
    assert "is predicted, not confirmed" in text


def test_keep_the_defaults_is_a_full_answer() -> None:
    """A job that waits for nothing: at most so much to gain, no search advised."""
    data, space = searched(SyntheticJob(service_s=0.0001, slice_noise_sd=0.1), 3)
    probe = build_probe(data, space)
    assert probe.sufficient.config == BASELINE
    assert probe.bound == "compute-bound"
    assert probe.headroom.upper_fraction < 0.01
    assert "keep the defaults: at most 0." in render_probe(probe)
    assert probe.next_command == "tuner show"


def test_the_table_has_a_row_per_worker_count() -> None:
    """Losses by workers and prefetch: none where data wait is none, most without workers."""
    data, space = searched(SyntheticJob(), 3)
    lines = [line.split() for line in render_probe(build_probe(data, space)).splitlines()]
    rows = {
        line[0]: [float(cell) for cell in line[1:]] for line in lines if line and line[0] in ("w0", "w1", "w4", "w6")
    }
    assert rows["w0"][0] > rows["w1"][0] > rows["w4"][0]
    assert min(rows["w6"]) < 1.0


def test_one_document_of_json() -> None:
    """JSON holds the same figures, every configuration included."""
    data, space = searched(SyntheticJob(), 3)
    probe = build_probe(data, space)
    document = json.loads(probe_json(probe))
    assert document["schema"] == "tuner.probe/1"
    assert document["gain_fraction"] == probe.gain_fraction
    assert len(document["space"]) == len(space.configurations)


def test_what_crashed_is_not_called_sufficient() -> None:
    """A configuration that crashed in the probe is passed over, however fast the model finds it."""
    objective, space, data = empty_study(SyntheticJob(crashes={"num_workers >= 6": "shm_full"}))
    for config in (BASELINE, canonical(0, None, False, True), canonical(6, 4, True, True)):
        data = with_trial(data, objective, config)
    assert build_probe(data, space).sufficient.config != canonical(6, 4, True, True)


def test_without_a_baseline_nothing_can_be_told() -> None:
    """A baseline that crashed, or slices without series, end in an error with the way on."""
    _, space = study_of(SyntheticJob(), [])
    with pytest.raises(UserError, match="the baseline crashed"):
        build_probe(study_data([("w1 p2 persist pin", crash())]), space)
    data, _ = study_of(SyntheticJob(), [BASELINE])
    bare = tuple(replace(t, outcome=replace(t.outcome, raw=None)) for t in data.trials)  # type: ignore[type-var]
    with pytest.raises(UserError, match="has no step series"):
        build_probe(replace(data, trials=bare), space)

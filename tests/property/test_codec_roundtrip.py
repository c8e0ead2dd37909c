"""Values survive the way into rows and back."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from builders import crash, measured, study
from hypothesis import given
from hypothesis import strategies as st

from objectives.schema import (
    BatchSeries,
    Blame,
    Crash,
    CrashKind,
    LoaderConfig,
    LoadSample,
    Measurement,
    Penalty,
    RawSlice,
    Score,
    StepSeries,
    canonical,
)
from storage.codec import (
    decode_config,
    decode_outcome,
    decode_score,
    decode_study,
    encode_config,
    encode_outcome,
    encode_score,
    encode_study,
)
from storage.records import StudyRecord
from storage.tables import TunerBatch, TunerLoad, TunerSlice, TunerStep, TunerStudy

NUMBER = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 2**62)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
SECONDS = st.dictionaries(TEXT, NUMBER, max_size=3)
JSON = st.recursive(st.none() | st.booleans() | COUNT | NUMBER | TEXT, lambda v: st.lists(v) | st.dictionaries(TEXT, v))
CONFIG = st.builds(canonical, st.integers(0, 64), st.integers(1, 16), st.booleans(), st.booleans())


@st.composite
def a_series(draw: st.DrawFn, kind: type) -> Any:
    """Return a step or batch series: all entries of one length, or a series that was not measured."""
    length = draw(st.integers(0, 4))
    values = {}
    for field in dataclasses.fields(kind):
        entry = COUNT if "int" in str(field.type) else NUMBER
        values[field.name] = tuple(draw(st.just([]) | st.lists(entry, min_size=length, max_size=length)))
    return kind(**values)


def optional(kind: type, /, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return instances with every other field None, a count or a number."""
    others = {
        f.name: st.none() | (COUNT if "int" in str(f.type) else NUMBER)
        for f in dataclasses.fields(kind)
        if f.name not in known
    }
    return st.builds(kind, **known, **others)


RAW = optional(
    RawSlice, kind=st.sampled_from(["trial", "ceiling"]), steps=a_series(StepSeries), batches=a_series(BatchSeries),
    batch_bytes=COUNT, wall_s=SECONDS,
)  # fmt: skip
MEASUREMENT = optional(
    Measurement, samples_per_s=NUMBER, crash_frequency=st.sampled_from(["none", "occasional", "frequent"]),
    raw=st.none() | RAW, load=st.lists(optional(LoadSample, t_s=NUMBER), max_size=3).map(tuple),
)  # fmt: skip
CRASH = st.builds(
    Crash, kind=st.sampled_from(get_args(CrashKind)), blame=st.sampled_from(get_args(Blame)), phase=TEXT,
    message=TEXT, remedy=TEXT, exit_code=st.none() | st.integers(-64, 255), signal=st.none() | TEXT,
    exception=st.none() | TEXT, log_tail=TEXT, peak_memory_fraction=st.none() | NUMBER, wall_s=SECONDS,
)  # fmt: skip
SCORE = st.builds(Score, NUMBER, NUMBER, st.lists(st.builds(Penalty, TEXT, NUMBER, TEXT), max_size=3).map(tuple))
MAPPING = st.dictionaries(TEXT, JSON, max_size=3)
STUDY = st.builds(
    StudyRecord, name=TEXT, uuid=TEXT, objective=TEXT, identity=MAPPING, host=MAPPING, fingerprint=TEXT,
    baseline=CONFIG, baseline_of=TEXT, measured_knobs=st.lists(TEXT, max_size=4).map(tuple),
    values=st.dictionaries(TEXT, st.lists(COUNT | st.booleans(), max_size=3), max_size=4),
    reasons=st.dictionaries(TEXT, TEXT, max_size=2), configurations=COUNT, seed=COUNT,
    created_at=st.datetimes(timezones=st.just(UTC)), score_policy=SECONDS, remember=MAPPING, facts=MAPPING,
    stopped=st.none() | TEXT, spent_s=NUMBER,
)  # fmt: skip


@given(MEASUREMENT | CRASH)
def test_outcomes(outcome: Measurement | Crash) -> None:
    """A measurement with its raw slice, and a crash, come back equal; every key is a column."""
    rows = encode_outcome(outcome)
    assert decode_outcome(rows) == outcome
    for table, found in ((TunerStep, rows.steps), (TunerBatch, rows.batches), (TunerLoad, rows.load)):
        for row in found:
            assert {"slice_uuid", *row} == set(table.__table__.columns.keys())
    assert set(rows.columns) <= set(TunerSlice.__table__.columns.keys())


@given(SCORE)
def test_scores(score: Score) -> None:
    """A score comes back with its penalties in order; no score comes back as none."""
    assert decode_score(encode_score(score)) == score
    assert decode_score(encode_score(None)) is None


@given(CONFIG)
def test_configurations(config: LoaderConfig) -> None:
    """A configuration comes back equal."""
    assert decode_config(encode_config(config)) == config


@given(STUDY)
def test_studies(record: StudyRecord) -> None:
    """A study comes back equal, host included; every key is a column."""
    row, host = encode_study(record)
    assert decode_study(row, host) == record
    assert set(row) <= set(TunerStudy.__table__.columns.keys())


def test_equal_hosts_share_a_row() -> None:
    """Two studies of one host have one host row, whatever the order of its facts."""
    first = study(host={"cpu": "a", "gpus": []})
    second = study(name="other", host={"gpus": [], "cpu": "a"})
    assert encode_study(first)[1] == encode_study(second)[1]


def test_text_that_no_database_holds_is_replaced() -> None:
    """A log with NUL and broken characters is stored with replacements; it must not cost the trial."""
    found = decode_outcome(encode_outcome(crash(log_tail="a\x00b\udcffc")))
    assert isinstance(found, Crash)
    assert found.log_tail == "a\ufffdb?c"


def test_series_of_different_length_are_refused() -> None:
    """Steps without partners cannot be stored as rows."""
    raw = RawSlice("trial", StepSeries(step_s=(1.0, 2.0), samples=(4,)))
    with pytest.raises(ValueError, match="samples must be empty or have 2 entries"):
        encode_outcome(measured(1.0, raw=raw))


def test_text_columns_are_readable() -> None:
    """Chinese in a study's identity is kept as it is written, so that plain SQL finds it."""
    row, _ = encode_study(study(identity={"dataset": "自我认知"}, created_at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert "自我认知" in row["identity_json"]
    assert json.loads(row["identity_json"]) == {"dataset": "自我认知"}

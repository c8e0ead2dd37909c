from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.errors import UserError
from objectives.replay import EXAMPLE, ReplayObjective
from objectives.schema import Crash, LoaderConfig, Measurement
from objectives.score import ScorePolicy, score

HEADER, *ROWS = EXAMPLE.read_text(encoding="utf-8").splitlines()


def silent(_text: str) -> None:
    """Take progress and say nothing."""


def table(path: Path, rows: list[str], header: str = HEADER) -> Path:
    """Write a CSV table."""
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def slices(path: Path, **changes: object) -> Path:
    """Write two repeats of one configuration as JSON lines, with fields changed; None removes one."""
    lines = []
    for repeat, step_s in enumerate((0.5, 0.25)):
        step = {"step_s": step_s, "data_wait_s": 0.05, "h2d_s": 0.0, "tokens": 10}
        line = {
            "kind": "configuration", "workload": "w", "batch_size": 2, "accumulation": 3, "repeat": repeat,
            "num_workers": 4, "prefetch_factor": 2, "persistent_workers": True, "pin_memory": True,
            "restart_s": 1.5, "cpu_busy_percent": 40.0, "steps": [step] * 4, **changes,
        }  # fmt: skip
        lines.append(json.dumps({k: v for k, v in line.items() if v is not None}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@given(st.permutations(ROWS))
def test_the_guide_says_four_workers_in_any_order(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    """The highest score of the guide's table is 4 workers, and the order of rows changes neither space nor identity."""
    shuffled = ReplayObjective(table(tmp_path_factory.mktemp("table") / "guide.csv", rows))
    guide = ReplayObjective(EXAMPLE)
    scores = {c: score(shuffled.measure(c, silent), ScorePolicy()).value for c in shuffled.choices().configurations}
    assert max(scores, key=lambda config: scores[config]).num_workers == 4
    assert shuffled.identity() == guide.identity()
    assert shuffled.choices().configurations == guide.choices().configurations


def test_the_guide_is_scored_row_by_row() -> None:
    """Throughput is 1000 / micro_step_ms, the recorded harms cut it, and continuous crashes are a crash."""
    guide = ReplayObjective(EXAMPLE)
    outcomes = {c.num_workers: guide.measure(c, silent) for c in guide.choices().configurations}
    values = {workers: score(outcome, ScorePolicy()).value for workers, outcome in outcomes.items()}
    assert values == pytest.approx(
        {0: 1000 / 1240, 2: 1000 / 1020, 4: 1000 / 940, 6: 0.9 * 1000 / 955, 8: 0.5 * (5 / 6) * 1000 / 980, 12: 0.0}
    )
    crash = outcomes[12]
    assert isinstance(crash, Crash)
    assert (crash.kind, crash.blame) == ("worker_killed", "config")


def test_only_recorded_knobs_are_choices() -> None:
    """Knobs without a column are left out of the values; the baseline is the row without workers."""
    choices = ReplayObjective(EXAMPLE).choices()
    assert dict(choices.values) == {"num_workers": (0, 2, 4, 6, 8, 12), "prefetch_factor": (2,)}
    assert choices.baseline == LoaderConfig(0, None, False, False)


def test_without_a_zero_worker_row_the_fewest_workers_are_the_baseline(tmp_path: Path) -> None:
    """The baseline is the cheapest row there is."""
    choices = ReplayObjective(table(tmp_path / "t.csv", ROWS[:0:-1])).choices()
    assert choices.baseline == LoaderConfig(2, 2, False, False)


def test_two_columns_are_a_table(tmp_path: Path) -> None:
    """What was not recorded is unknown, not an error; other columns are notes."""
    path = table(tmp_path / "t.csv", ["0, 100, slow", '2, 50, "fast, twice"'], "num_workers, micro_step_ms, note")
    replay = ReplayObjective(path)
    outcome = replay.measure(LoaderConfig(2, 2, False, False), silent)
    assert outcome == Measurement(samples_per_s=20.0)
    assert dict(replay.choices().values) == {"num_workers": (0, 2)}


def test_duplicate_rows_are_repeats_in_turn(tmp_path: Path) -> None:
    """Every repeat is served once before one is served again, in an order that the order of rows does not change."""
    rows = [f"4,2,,{ms},," for ms in (100, 125, 200)]
    config = LoaderConfig(4, 2, False, False)

    def served(order: list[str]) -> list[float]:
        replay = ReplayObjective(table(tmp_path / "t.csv", order))
        return [replay.measure(config, silent).samples_per_s for _ in range(6)]

    first = served(rows)
    assert sorted(first[:3]) == [5.0, 8.0, 10.0]
    assert first[3:] == first[:3]
    assert served(rows[::-1]) == first


def test_slices_are_served_by_their_repeat_number(tmp_path: Path) -> None:
    """The n-th measurement is the n-th repeat: samples over the mean step, restart apart; a resumed study goes on."""
    path, config = slices(tmp_path / "s.jsonl"), LoaderConfig(4, 2, True, True)
    replay = ReplayObjective(path)
    first, second, third = (replay.measure(config, silent) for _ in range(3))
    assert (first.samples_per_s, second.samples_per_s) == pytest.approx((12.0, 24.0))
    assert third == first
    assert (first.wait_fraction, first.restart_s, first.cpu_busy_fraction) == pytest.approx((0.1, 1.5, 0.4))
    assert first.raw.steps.step_s[0] == pytest.approx(2.0)
    assert ReplayObjective(path, measured_before={config: 1}).measure(config, silent) == second


def test_workloads_are_never_mixed(tmp_path: Path) -> None:
    """A file of two workloads is refused with a command that takes one, unless one is named."""
    lines = slices(tmp_path / "a.jsonl").read_text() + "\n" + slices(tmp_path / "b.jsonl", workload="v").read_text()
    both = tmp_path / "both.jsonl"
    both.write_text(lines)
    with pytest.raises(UserError, match="holds 2 workloads: w, v") as caught:
        ReplayObjective(both)
    assert "grep" in caught.value.hint
    assert ReplayObjective(both, workload="v").recording.rows == 2
    with pytest.raises(UserError, match="no workload 'x'"):
        ReplayObjective(both, workload="x")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"num_workers,micro_step_ms\n", "holds no configuration"),
        (b"workers,ms\n1,2\n", "lacks the columns num_workers, micro_step_ms"),
        (b"num_workers,cpu_percent\n1,2\n", "lacks the column micro_step_ms"),
        (b"num_workers,micro_step_ms,num_workers\n1,2,3\n", "num_workers twice"),
        (b"num_workers,micro_step_ms,cpu_percnt\n1,2,3\n", "has a column cpu_percnt"),
        (b"num_workers,micro_step_ms\n0,9\nfour,9\n", "row 2 .*num_workers is 'four'"),
        (b"num_workers,micro_step_ms\n-1,9\n", "row 1 .*num_workers is '-1'"),
        (b"num_workers,micro_step_ms\n1,0\n", "row 1 .*micro_step_ms is '0'"),
        (b"num_workers,micro_step_ms\n1,nan\n", "row 1 .*micro_step_ms is 'nan'"),
        (b"num_workers,micro_step_ms\n1,2,3\n", "row 1 .*3 cells"),
        (b"num_workers,prefetch_factor,micro_step_ms\n1,0,5\n", "row 1 .*prefetch_factor is '0'"),
        (b"num_workers,micro_step_ms,cpu_percent\n1,2,101\n", "row 1 .*cpu_percent is '101'"),
        (b"num_workers,micro_step_ms,worker_crash\n1,2,maybe\n", "row 1 .*worker_crash is 'maybe'"),
        (b'{"kind": "note"}\n', "holds no configuration"),
        (b'{"kind": "ceiling"}\n', "line 1 .*steps is missing"),
        (b'{"kind": "configuration", "workload": []}\n', "line 1 .*workload is"),
        (b'{"kind": "configuration"}\n{oops\n', "line 2 .*not JSON"),
        (b'{"kind": "configuration"}\n', "line 1 .*num_workers is missing"),
        (b'{"kind": "configuration", "num_workers": 1.5}\n', "line 1 .*num_workers must be an integer"),
        (b'{"kind": "configuration", "num_workers": 1}\n', "line 1 .*steps is missing"),
    ],
)
def test_a_bad_file_is_named_with_its_place(tmp_path: Path, content: bytes | None, what: str) -> None:
    """The error says which file, column, row or line, why it matters, and what to paste."""
    path = tmp_path / "recording"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=what) as caught:
        ReplayObjective(path)
    assert str(path) in caught.value.what
    assert caught.value.why
    assert str(path) in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": None},
        {"accumulation": 0},
        {"steps": []},
        {"steps": [{"step_s": 1.0}]},
        {"steps": [{"step_s": 0.1, "data_wait_s": 0.2}]},
        {"steps": [7]},
        {"batches": [{"start_s": 0.0}]},
        {"restart_s": "long"},
        {"persistent_workers": 1},
        {"prefetch_factor": 0},
    ],
)
def test_a_bad_slice_is_a_user_error(tmp_path: Path, changes: dict[str, object]) -> None:
    """A line that cannot be added up is refused with its number."""
    with pytest.raises(UserError, match="line 1 of recording"):
        ReplayObjective(slices(tmp_path / "s.jsonl", **changes))


def test_a_directory_is_not_a_recording(tmp_path: Path) -> None:
    """What cannot be read is refused with the system's reason."""
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        ReplayObjective(tmp_path)


def test_a_configuration_outside_the_table_is_the_callers_error() -> None:
    """Only rows can be played back."""
    with pytest.raises(ValueError, match="config must be one of the recorded configurations but got 'w3 p2'"):
        ReplayObjective(EXAMPLE).measure(LoaderConfig(3, 2, False, False), silent)


def test_shuffled_slices_have_one_identity(tmp_path: Path) -> None:
    """The order of lines is no part of the identity; their content is."""
    path = slices(tmp_path / "s.jsonl")
    (tmp_path / "other.jsonl").write_text("\n".join(reversed(path.read_text().splitlines())))
    assert ReplayObjective(tmp_path / "other.jsonl").identity() == ReplayObjective(path).identity()
    assert ReplayObjective(slices(tmp_path / "t.jsonl", batch_size=4)).identity() != ReplayObjective(path).identity()

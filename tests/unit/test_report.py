from __future__ import annotations

import io
import json
from dataclasses import replace

import jsonschema
import pytest
from builders import config, crash, measured, study_data, trial
from rich.console import Console

from objectives.errors import EXIT_NO_RESULT, UserError
from objectives.schema import Measurement
from storage.records import StudyData
from tuner.render import render, to_markdown
from tuner.render_json import schema, to_json
from tuner.report import Report, build_report


def seen(samples_per_s: float, wait: float, **figures: float) -> Measurement:
    """Return a measurement with its split; copies take 1 % of the time."""
    return measured(samples_per_s, wait_fraction=wait, h2d_fraction=0.01, **figures)


def noisy_study(**fields) -> StudyData:
    """Return a data-bound baseline, a clear leader, a crash, a lost trial and enough repeats for a noise floor."""
    rows = [
        ("w1 p2 persist pin", seen(100.0, 0.24, restart_fraction=0.05, gpu_util_fraction=0.7, cpu_busy_fraction=0.1)),
        ("w8 p4 persist pin", seen(138.0, 0.01, gpu_util_fraction=0.95, cpu_busy_fraction=0.94)),
        ("w12 p8 pin", crash()),
        ("w4 p4 persist pin", seen(139.0, 0.02, gpu_util_fraction=0.95, cpu_busy_fraction=0.3)),
        ("w1 p2 persist pin", seen(102.0, 0.24, restart_fraction=0.05, gpu_util_fraction=0.7, cpu_busy_fraction=0.1)),
        ("w4 p4 persist pin", seen(141.0, 0.02, gpu_util_fraction=0.95, cpu_busy_fraction=0.3)),
    ]
    data = study_data(rows, ceilings=[70.0, 144.0, 146.0], **fields)
    lost = crash("gpu_lost", blame="host", message="\x1b[31mGPU is lost\x1b[0m", remedy="Look at dmesg.")
    return replace(data, trials=(*data.trials, trial(6, "w2 p2", lost, state="failed", score=None)))


def text_of(report: Report, width: int = 80) -> str:
    """Return what a pipe of that width gets."""
    stream = io.StringIO()
    render(report, Console(file=stream, width=width))
    return stream.getvalue()


EXPECTED = """\
host       1 × RTX 4090D 24 GiB, 16 usable CPUs (8 physical cores), memory
           64 GiB, /dev/shm 31 GiB
study      self_cognition (lora): 7 trials, 5 measured, 1 crashed, 1 lost;
           18 min 12 s
stopped    30 trials done
ceiling    145.0 samples/s with data for free; baseline 101.0 ± 2.6 (wait
           24.0 %)

configuration        samples/s    wait  restart   GPU   CPU  score  slices
w4 p4 persist pin  140.0 ± 3.6   2.0 %        -  95 %  30 %  140.0       2  best
w8 p4 persist pin  138.0 ± 5.0   1.0 %        -  95 %  94 %  117.3       1  cpu -15 %
w1 p2 persist pin  101.0 ± 2.6  24.0 %    5.0 %  70 %  10 %  101.0       2  baseline
w12 p8 pin               crash       -        -     -     -    0.0       0
± is half of the 95 % interval, from what repeats in this study scatter

          workers  prefetch  persist  pin    samples/s    wait   GPU   CPU
best            4         4      yes  yes  140.0 ± 3.6   2.0 %  95 %  30 %
baseline        1         2      yes  yes  101.0 ± 2.6  24.0 %  70 %  10 %
ceiling         -         -        -    -        145.0   0.0 %     -     -

choice     w4 p4 persist pin: highest expected score
verdict    not confirmed: only an interleaved re-measurement (tuner confirm) can
raw        +38.6 % samples/s to the baseline; noise alone gives ± 3.6 %
headroom   41.4 % from the baseline to data for free (data-bound); 2.1 % left
           from the choice
ceilings   70.0 144.0 146.0  ▇█
crash      trial 2 (w12 p8 pin): /dev/shm full (worker killed by SIGBUS). Use
           fewer workers or a larger /dev/shm.
lost       trial 6 (w2 p2): GPU is lost. Look at dmesg.
values     num_workers 0 to 4: half of the usable CPUs
values     prefetch_factor 2, 4
values     persistent_workers true, false
held       pin_memory at true: no accelerator
next       tuner confirm --study self_cognition
flags      --dataloader_num_workers 4 --dataloader_prefetch_factor 4 --dataloader_pin_memory true
"""


def test_text_snapshot():
    """The text of a study is exactly this: 80 columns, no colour, no trailing blanks, commands on one line."""
    report = replace(
        build_report(noisy_study()),
        flags="--dataloader_num_workers 4 --dataloader_prefetch_factor 4 --dataloader_pin_memory true",
    )
    assert text_of(report) == EXPECTED


def test_difference_is_taken_apart():
    """The wait saved is a share of the baseline's time per sample; compute is compared apart; neither is a claim."""
    difference = build_report(noisy_study()).difference
    assert difference is not None
    assert difference.rate_fraction == pytest.approx(140 / 101 - 1)
    assert difference.wait_saved_fraction == pytest.approx(0.24 - 0.02 * 101 / 140)
    assert difference.restart_saved_fraction == pytest.approx(0.05)
    assert difference.compute_fraction == pytest.approx((0.97 / 140) / (0.70 / 101) - 1)


def test_headroom_comes_from_the_split():
    """Headroom is (wait + restart) / compute of the baseline, whatever the ceilings read."""
    for ceilings in ((), (500.0, 500.0)):
        report = build_report(replace(noisy_study(), ceilings=tuple(measured(c) for c in ceilings)))
        assert report.headroom_fraction == pytest.approx((0.24 + 0.05) / 0.70)
        assert report.bound == "data-bound"


def test_counts():
    """A repeat is a trial of a configuration already tried; a lost trial counts as neither measured nor crashed."""
    counts = build_report(noisy_study()).counts
    assert (counts.trials, counts.measured, counts.crashed, counts.lost) == (7, 5, 1, 1)
    assert (counts.configurations, counts.repeats) == (4, 2)


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("w4 p4", 300.0)], "not confirmed"),
        ([("w4 p4", 100.0)], "keep the defaults"),
        ([("w1 p2 persist pin", crash()), ("w4 p4", 300.0)], "not confirmed"),
    ],
)
def test_never_confirmed(rows, verdict):
    """However large a raw difference is, it is not called a speed-up before an interleaved re-measurement."""
    scatter = [("w1 p2 persist pin", rate) for rate in (98.0, 100.0, 102.0, 100.0)]
    report = build_report(study_data([*scatter, *rows]))
    assert report.verdict == verdict
    assert report.confirmed is False
    for view in (text_of(report), to_markdown(report)):
        assert verdict in view
        assert "speed-up" not in view
        assert "faster" not in view


def test_json_matches_its_schema():
    """Every report, the poorest too, is one document that the packaged schema describes down to the last key."""
    rows = [("w1 p2", crash()), ("w2 p2", measured(5.0, gpu_util_fraction=float("nan")))]
    poor = study_data(rows, measured_knobs=(), values={}, reasons={}, stopped=None)
    alone = study_data([("w1 p2 persist pin", crash())])
    for data in (noisy_study(), poor, alone):
        jsonschema.Draft202012Validator(schema()).validate(json.loads(to_json(build_report(data))))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(to_json(build_report(alone))), "unknown": 1}, schema())


def test_json_and_text_agree():
    """The same figures stand in every view."""
    report = build_report(noisy_study())
    document = json.loads(to_json(report))
    best, baseline = document["best"], document["baseline"]
    assert best["config"] == {"num_workers": 4, "prefetch_factor": 4, "persistent_workers": True, "pin_memory": True}
    for view in (text_of(report), to_markdown(report)):
        assert f"{best['samples_per_s']:.1f} ± {best['half_width_per_s']:.1f}" in view
        assert f"{baseline['samples_per_s']:.1f} ± {baseline['half_width_per_s']:.1f}" in view
        assert f"{100 * document['headroom_fraction']:.1f} %" in view
        assert document["next_command"] in view


def test_control_characters_stay_out():
    """A log line with colours in it reaches no view."""
    report = build_report(noisy_study())
    assert [note.message for note in report.crashes if not note.counted] == ["GPU is lost"]
    assert "\x1b" not in text_of(report) + to_markdown(report) + to_json(report)


def test_command_survives_a_shell():
    """A study name or storage with blanks is quoted in the command to paste."""
    report = build_report(noisy_study(name="my study"), storage="/data/my runs.db")
    assert report.next_command == "tuner confirm --study 'my study' --storage '/data/my runs.db'"


def test_left_out_and_held_knobs_are_said():
    """A knob that was not searched is never a finding; configurations the host cannot hold are counted."""
    data = noisy_study(reasons={"pin_memory": "no accelerator", "left out: /dev/shm is too small": "12"})
    report = build_report(data)
    assert report.left_out == {"/dev/shm is too small": 12}
    assert [(k.knob, k.held) for k in report.knobs if not k.measured] == [("pin_memory", True)]
    assert "held       pin_memory at true: no accelerator" in text_of(report)


def test_another_selector_can_take_over():
    """A later way to choose is passed in; the report follows it."""
    from tuner.selection import Selection, pool

    def last(data: StudyData) -> Selection:
        found = next(p for p in pool(data.trials) if p.config == config("w8 p4 persist pin"))
        return Selection(found, None, (found,), "modelled")

    report = build_report(noisy_study(), selector=last)
    assert report.best is not None
    assert (report.best.config.key, report.reason) == ("w8 p4 persist pin", "modelled")


def test_no_finished_trial():
    """A study without a finished trial has no report: exit code 1 and the command to run."""
    lost = trial(0, "w1 p2", crash("gpu_lost", blame="host", message="GPU is lost"), state="failed", score=None)
    for trials in ((), (lost,)):
        with pytest.raises(UserError) as caught:
            build_report(replace(noisy_study(), trials=trials))
        assert caught.value.exit_code == EXIT_NO_RESULT
        assert caught.value.what == "study 'self_cognition' has no finished trial"
        assert caught.value.hint == "tuner run --study self_cognition"

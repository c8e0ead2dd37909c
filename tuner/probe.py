"""Says after a few slices whether the loader matters, what should suffice and what to do next.

Runs in: parent. Pure; sentences and a table, all by the queue model.
*Not covered*: measuring (`tuner.study`), the report of a whole search (`tuner.report`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from objectives.errors import EXIT_NO_RESULT, UserError
from objectives.schema import Crash, LoaderConfig, canonical
from storage.records import StudyData
from tuner.appraisal import Appraisal, appraise
from tuner.pooling import Pooled, pool
from tuner.report_model import Headroom, ModelNote, headroom_of, model_note
from tuner.search import HEADROOM_FRACTION
from tuner.selection import LOSS_FRACTION, has_memory_headroom
from tuner.space import SearchSpace, cost_of, nearest
from tuner.split import Bound, bound_of
from tuner.wording import decimals_for, duration, percent, plain, rate, signed_percent

SCHEMA = "tuner.probe/1"
WORTH_FRACTION = 0.01
"""Predicted gain below which a search is not advised."""
_LABEL_WIDTH = 11


@dataclass(frozen=True, slots=True)
class Predicted:
    """One configuration by the model."""

    config: LoaderConfig
    samples_per_s: float
    lower_per_s: float
    upper_per_s: float
    """Ends of the 95 % interval; most of it is how fast compute is, which all configurations share."""
    wait_fraction: float
    loss_fraction: float
    """Share of the best throughput of all that it does not reach."""
    measured: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """What a few slices tell."""

    schema: str
    study: str
    slices: int
    spent_s: float
    bound: Bound
    headroom: Headroom
    baseline: Predicted
    sufficient: Predicted
    """The cheapest configuration whose expected loss is within 0.25 % of the least."""
    advice: Predicted
    """Common advice: 4 workers with 2 batches each, or the closest to it."""
    gain_fraction: float
    """Of the sufficient one over the baseline."""
    model: ModelNote
    space: tuple[Predicted, ...]
    """Every configuration, in order of the space."""
    next_command: str


def build_probe(data: StudyData, space: SearchSpace, *, command: Sequence[str] = ("tuner", "run")) -> Probe:
    """Return what the slices measured so far tell of the whole space.

    Args:
        data: The study, with raw series.
        space: What may be measured.
        command: What goes on with the search, as words.

    Raises:
        UserError: If the baseline crashed, or if the slices have no series.
    """
    pooled = {p.config: p for p in pool(data.trials)}
    base = pooled.get(space.baseline)
    appraisal = appraise(data, space.configurations) if base is not None and base.slices else None
    if base is None or appraisal is None:
        raise _nothing_to_tell(data, base)
    losses = appraisal.expected_losses(space.configurations)
    open_to = [c for c in space.configurations if c not in pooled or _usable(pooled[c])] or [space.baseline]
    least = min(losses[c] for c in open_to)
    enough = [c for c in open_to if losses[c] <= least + LOSS_FRACTION]
    sufficient = space.baseline if space.baseline in enough else min(enough, key=lambda c: cost_of(c, space.baseline))
    advice = nearest(space, canonical(4, 2, space.baseline.persistent_workers, space.baseline.pin_memory))
    room = headroom_of(appraisal, space.baseline)
    gain = appraisal.samples_per_s(sufficient) / appraisal.samples_per_s(space.baseline) - 1.0
    return Probe(
        schema=SCHEMA,
        study=data.study.name,
        slices=sum(p.slices for p in pooled.values()),
        spent_s=data.study.spent_s,
        bound=bound_of(base, None, room.fraction, (room.upper_fraction - room.lower_fraction) / 2) or "compute-bound",
        headroom=room,
        baseline=_predicted(appraisal, space.baseline, pooled),
        sufficient=_predicted(appraisal, sufficient, pooled),
        advice=_predicted(appraisal, advice, pooled),
        gain_fraction=gain,
        model=model_note(appraisal),
        space=tuple(_predicted(appraisal, c, pooled) for c in space.configurations),
        next_command=shlex.join(command) if _worth_it(room, gain) else shlex.join(["tuner", "show"]),
    )


def render_probe(probe: Probe) -> str:
    """Return the probe as text, every line beside its label."""
    lines = [f"{label:<{_LABEL_WIDTH}}{text}" for label, text in [*_sentences(probe), *_table(probe)]]
    return "\n".join(line.rstrip() for line in lines)


def probe_json(probe: Probe) -> str:
    """Return the probe as one JSON document."""
    return json.dumps(asdict(probe), indent=1)


def _sentences(probe: Probe) -> list[tuple[str, str]]:
    base, room, digits = probe.baseline, probe.headroom, decimals_for([probe.sufficient.samples_per_s])
    within = f"{percent(room.lower_fraction, 1)} to {percent(room.upper_fraction, 1)}"
    lines = [
        ("probe", f"{plain(probe.study)}: {probe.slices} slices, {duration(probe.spent_s)}"),
        ("bound", probe.bound),
        ("headroom", f"{percent(room.fraction, 1)} from the baseline to data for free ({within})"),
        ("baseline", f"{base.config.key}: {rate(base.samples_per_s, digits)} samples/s, wait "
                     f"{percent(base.wait_fraction, 1)}, loses {percent(base.loss_fraction, 1)} to the best"),
    ]  # fmt: skip
    if probe.advice.config not in (base.config, probe.sufficient.config):
        text = f"{probe.advice.config.key} (common advice) loses {percent(probe.advice.loss_fraction, 1)}"
        lines.append(("advice", text))
    if probe.sufficient.config != base.config:
        best = probe.sufficient
        text = f"{best.config.key}: {rate(best.samples_per_s, digits)} samples/s, {signed_percent(probe.gain_fraction)}"
        lines.append(("sufficient", f"{text}, {'measured' if best.measured else 'not measured yet'}"))
    if not probe.model.fits:
        miss = percent(abs(probe.model.mismatch_fraction), 1)
        lines.append(("model", f"misses the wait of a measured configuration by {miss} of its step: search"))
    return [*lines, ("do", _what_to_do(probe)), ("next", probe.next_command)]


def _what_to_do(probe: Probe) -> str:
    most = percent(probe.headroom.upper_fraction, 1)
    if probe.headroom.upper_fraction < HEADROOM_FRACTION:
        limit = {"cpu-bound": "the launch of kernels is the limit", "data-bound": "", "compute-bound": "compute is"}
        why = limit[probe.bound]
        return f"keep the defaults: at most {most} to gain" + (f"; {why}" if why != "compute is" else "")
    if not _worth_it(probe.headroom, probe.gain_fraction):
        return f"keep the defaults: at most {most} to gain, and no configuration is predicted to gain 1 %"
    return f"search: {signed_percent(probe.gain_fraction)} is predicted, not confirmed"


def _table(probe: Probe) -> list[tuple[str, str]]:
    """Return the loss by workers and prefetch, each the best of its persistence and pinning."""
    losses: dict[tuple[int, int], float] = {}
    for entry in probe.space:
        place = (entry.config.num_workers, entry.config.prefetch_factor or 0)
        losses[place] = min(entry.loss_fraction, losses.get(place, float("inf")))
    depths = sorted({p for _, p in losses if p})
    rows = [("", ""), ("loss in %", "".join(f"{f'p{p}':>7}" for p in depths) or f"{'':>7}")]
    for workers in sorted({w for w, _ in losses}):
        if workers == 0:
            rows.append(("w0", f"{100 * losses[0, 0]:>7.1f}"))
            continue
        cells = [f"{100 * losses[workers, p]:.1f}" if (workers, p) in losses else "-" for p in depths]
        rows.append((f"w{workers}", "".join(f"{cell:>7}" for cell in cells)))
    return rows


def _predicted(appraisal: Appraisal, config: LoaderConfig, pooled: dict[LoaderConfig, Pooled]) -> Predicted:
    lower, upper = appraisal.interval_per_s(config)
    return Predicted(
        config=config,
        samples_per_s=appraisal.samples_per_s(config),
        lower_per_s=lower,
        upper_per_s=upper,
        wait_fraction=appraisal.wait_fraction(config),
        loss_fraction=appraisal.loss(config),
        measured=config in pooled and pooled[config].slices > 0,
    )


def _usable(pooled: Pooled) -> bool:
    return not pooled.crashed and has_memory_headroom(pooled)


def _worth_it(room: Headroom, gain: float) -> bool:
    return room.upper_fraction >= HEADROOM_FRACTION and gain >= WORTH_FRACTION


def _nothing_to_tell(data: StudyData, base: Pooled | None) -> UserError:
    crashes = [t.outcome for t in data.trials if t.config == data.study.baseline and isinstance(t.outcome, Crash)]
    if base is not None and crashes:
        what, why = "the baseline crashed", f"{plain(crashes[-1].message)}; what it would gain cannot be told"
    else:
        what, why = f"study '{data.study.name}' has no step series", "a probe needs slices that were really run"
    return UserError(what, why, shlex.join(["tuner", "run", "--study", data.study.name]), exit_code=EXIT_NO_RESULT)

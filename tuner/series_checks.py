"""Did a slice do what it was meant to? The checks that need the raw series, pure.

Runs in: parent. Slices without their series are left out, and so is a check that then has nothing to look at.
*Not covered*: the checks of summary figures (`tuner.study_checks`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from objectives.schema import LoaderConfig, Measurement, RawSlice
from storage.records import StudyRecord
from tuner.checks import Check
from tuner.wording import percent

Slices = Sequence[tuple[LoaderConfig, Measurement]]

FIRST_WAIT_FRACTION = 0.5
"""Of the wait that a loader slower than its demand must show in the first step, if its queue was empty."""
SLOW_LOADER_FRACTION = 0.9
"""Of the demand; nearer to it the loader's optimistic rate proves nothing."""
GROWTH_RATIO = 1.25
"""Of the median service time with most workers to that with fewest; on 6 recorded CPUs 1.8, for 12 and for 3."""
MIN_BATCHES = 8
FULL_CPU_FRACTION = 0.90
UNEVEN_FRACTION = 0.50
"""By which one CPU is busier than the mean of all."""
FULL_TRAINER_FRACTION = 0.80
"""The trainer's own two threads explain a full core from here on."""
BUSY_FRACTION = 0.85


def series_checks(study: StudyRecord, slices: Slices) -> list[Check | None]:
    """Return one entry per check, None for one that nothing here can tell."""
    known = [(config, m, m.raw) for config, m in slices if m.raw is not None and len(m.raw.steps)]
    return [_drained(study, known), _equal_tokens(known), _service_growth(known), _uneven_cores(known)]


_Known = Sequence[tuple[LoaderConfig, Measurement, RawSlice]]


def _drained(study: StudyRecord, known: _Known) -> Check | None:
    fed = [(config, raw) for config, _, raw in known if config.num_workers > 0 and len(raw.batches)]
    if not fed:
        return None
    full = [config.key for config, raw in fed if _made_before(raw) or _no_first_wait(raw)]
    if not full:
        message = f"the queue was empty when the timed steps began, in all {len(fed)} slices"
        return Check("buffer_drained", "ok", 0, 0, "slices", message)
    isolation = study.identity.get("slice.isolation")
    advice = "such a slice times the buffer, up to 22 % too fast: "
    if isolation == "resident":
        advice += "--isolation process starts every slice afresh"
    else:
        advice += f"longer slices dilute it: --slice-seconds above {study.identity.get('slice.seconds', 20):g}"
    if study.objective == "replay":
        advice = "the recording timed the buffer, up to 22 % too fast; record it with a drained queue"
    message = f"{len(full)} of {len(fed)} slices began with batches ready, the first {full[0]}"
    return Check("buffer_drained", "warn", len(full), 0, "slices", message, advice)


def _made_before(raw: RawSlice) -> bool:
    """Return whether a timed batch was finished before the timed part began."""
    batches = raw.batches
    return any(s >= 0 and end_s < 0 for s, end_s in zip(batches.step, batches.service_end_s, strict=True))


def _no_first_wait(raw: RawSlice) -> bool:
    """Return whether the first step hardly waited although the loader is slower than the steps ask for.

    Such a loader makes a group wait for `batches / rate - compute` at least; an empty queue adds to it.
    """
    rate_per_s, steps = raw.drain_batches_per_s, raw.steps
    group = raw.batches.step.count(0)
    compute_s = statistics.median(steps.compute_s)
    if not rate_per_s or not group or compute_s <= 0 or rate_per_s > SLOW_LOADER_FRACTION * group / compute_s:
        return False
    expected_s = group / rate_per_s - compute_s
    return steps.restart_s[0] + steps.data_wait_s[0] < FIRST_WAIT_FRACTION * expected_s


def _equal_tokens(known: _Known) -> Check | None:
    series = [(config, raw.steps.tokens) for config, _, raw in known if any(raw.steps.tokens)]
    if len(series) < 2:
        return None
    differing, worst = 0, 0.0
    _, reference = max(series, key=lambda item: len(item[1]))
    for _, tokens in series:
        same = reference[: len(tokens)]
        differing += tokens != same
        worst = max(worst, abs(sum(tokens) / sum(same) - 1) if sum(same) else 0.0)
    if not differing:
        return Check("equal_tokens", "ok", 0, 0, "slices", "equal steps of all slices had equal tokens")
    return Check(
        "equal_tokens", "warn", differing, 0, "slices",
        f"{differing} of {len(series)} slices trained other tokens in the same steps, up to {percent(worst, 1)} more "
        "or less in all",
        "samples/s then compare different work; was the data set changed while the study ran? Start a new study",
    )  # fmt: skip


def _service_growth(known: _Known) -> Check | None:
    services: dict[int, list[float]] = defaultdict(list)
    own: dict[int, list[float]] = defaultdict(list)
    for config, m, raw in known:
        if config.num_workers > 0:
            services[config.num_workers] += _timed_services_s(raw)
            own[config.num_workers] += [m.own_cpu_fraction] if m.own_cpu_fraction is not None else []
    medians = {workers: statistics.median(s) for workers, s in sorted(services.items()) if len(s) >= MIN_BATCHES}
    if len(medians) < 2:
        return None
    few, many = min(medians), max(medians)
    ratio = medians[many] / medians[few] if medians[few] > 0 else 1.0
    message = (
        f"a worker takes {1000 * medians[few]:.3g} ms for a batch with {few}, {1000 * medians[many]:.3g} with {many}"
    )
    if ratio <= GROWTH_RATIO:
        return Check("service_growth", "ok", ratio, GROWTH_RATIO, "ratio", message)
    enough = max(workers for workers, median_s in medians.items() if median_s <= GROWTH_RATIO * medians[few])
    if not own[many]:
        cause = "they wait for each other at the disk or for CPUs"
    elif statistics.fmean(own[many]) >= BUSY_FRACTION:
        cause = "the CPUs are full"
    else:
        cause = "CPUs are left, so they wait for each other at the disk, a lock or memory"
    advice = f"{cause}: above {enough} workers each one more brings less than its share"
    return Check("service_growth", "warn", ratio, GROWTH_RATIO, "ratio", message, advice)


def _timed_services_s(raw: RawSlice) -> Iterator[float]:
    batches = raw.batches
    rows = zip(batches.step, batches.service_start_s, batches.service_end_s, strict=True)
    return (end_s - start_s for step, start_s, end_s in rows if step >= 0)


def _uneven_cores(known: _Known) -> Check | None:
    seen = [
        (raw.busiest_cpu_fraction, raw.cpu_busy_fraction, m.trainer_cpu_fraction)
        for _, m, raw in known
        if raw.busiest_cpu_fraction is not None and raw.cpu_busy_fraction is not None
    ]
    if not seen:
        return None
    busiest = statistics.median(b for b, _, _ in seen)
    mean = statistics.median(m for _, m, _ in seen)
    message = f"the busiest CPU is {percent(busiest)} busy, the mean of all {percent(mean)}"
    if busiest < FULL_CPU_FRACTION or busiest - mean < UNEVEN_FRACTION:
        return Check("uneven_cores", "ok", busiest, FULL_CPU_FRACTION, "fraction", message)
    trainer = [t for _, _, t in seen if t is not None]
    if trainer and statistics.median(trainer) >= FULL_TRAINER_FRACTION:
        advice = "it is the trainer's own launching that fills it: no loader setting helps, a larger batch does"
    else:
        advice = "processes may share one CPU: check taskset, OMP_PROC_BIND and KMP_AFFINITY, which workers inherit"
    return Check("uneven_cores", "warn", busiest, FULL_CPU_FRACTION, "fraction", message, advice)

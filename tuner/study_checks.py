"""Did anything disturb the study, so that its figures mislead? The checks, pure.

Runs in: parent. What a study cannot tell (a recording knows no CPU load) is left out, not passed.
*Not covered*: whether the host is fit before a study (`tuner.doctor`), what only the raw series tell
(`tuner.series_checks`), printing (`tuner.render_checks`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from objectives.schema import LoaderConfig, Measurement
from storage.records import StudyData, StudyRecord
from tuner.checks import Check
from tuner.drift import chart, drift
from tuner.pooling import noise_floor, pool, settled
from tuner.series_checks import Slices, series_checks
from tuner.split import headroom
from tuner.wording import duration, percent, signed_percent, size_text

FOREIGN_CPU_FRACTION = 0.10
"""Of the usable CPUs in one slice. On 8 CPUs it is most of a core; own and busy time differ by 1 % on a quiet host."""
DRIFT_FRACTION = 0.03
"""Below this a change of the ceilings is no trouble, however sure."""
CLOCK_FRACTION = 0.10
"""Between slices; the clock of a cool card with power to spare moves by less."""
MISFIT_FRACTION = 0.01
"""Of the step, between modelled and observed data wait (`docs/measuring.md`)."""
WORTH_FRACTION = 0.005
"""A gain below this is not worth resolving."""
ARM_SLICES = 24
"""What each side of a confirmation gets in 12 rounds."""
FREE_WAIT_FRACTION = 0.02
IDLE_GPU_FRACTION = 0.70
"""A GPU that is fed reads 88 % and more; one that waits for launches read 16 to 35 %."""
PRINTED_BYTES = 200
"""Per step: two lines of a log. The trainer of a slice prints nothing."""


def check_study(data: StudyData, mismatch: Mapping[LoaderConfig, float] | None = None) -> tuple[Check, ...]:
    """Return every check this study can be held against, passed ones too, in the order of a report.

    Args:
        data: The study. With the raw series there are more checks.
        mismatch: Configuration → modelled less observed data wait, as a share of the step; None without a model.
    """
    slices = measured(data)
    found = [
        *series_checks(data.study, slices),
        _noise(data, slices),
        _foreign_cpu(slices),
        _gpu_shared(slices),
        _drift(data),
        _gpu_clock(slices),
        _model_fit(mismatch or {}),
        _gpu_idle(data.study, slices),
        _worker_output(data.study, slices),
        _cold_cache(data.study),
        long_rows(data.study),
    ]
    return tuple(check for check in found if check is not None)


def measured(data: StudyData) -> Slices:
    """Return the measured slices that count, of trials and then of confirmations, each in order of time."""
    trials = [(t.config, t.outcome) for t in data.trials if t.state == "complete"]
    rounds = [(s.config, s.outcome) for c in data.confirmations for s in c.slices]
    return [(config, outcome) for config, outcome in (*trials, *rounds) if isinstance(outcome, Measurement)]


def _noise(data: StudyData, slices: Slices) -> Check | None:
    noise = noise_floor(data, "samples_per_s")
    baseline = next((p for p in pool(data.trials) if p.config == data.study.baseline), None)
    room = headroom(baseline) if baseline is not None else None
    if noise is None or room is None:
        return None
    scatter = f"slices of one configuration scatter by ± {percent(noise, 1)}"
    if room < WORTH_FRACTION:
        message = f"{scatter}; data for free would gain {percent(room, 1)}, so there is nothing to resolve"
        return Check("noise", "ok", noise, None, "fraction", message)
    resolvable = room * math.sqrt(ARM_SLICES / 2)
    needed = math.ceil(2 * (noise / room) ** 2)
    message = f"{scatter}; throughput tells a gain of {percent(room, 1)}, all there is, after {needed} slices each"
    if noise <= resolvable:
        return Check("noise", "ok", noise, resolvable, "fraction", message)
    each_s = _slice_s(data, slices)
    message += "" if each_s is None else f", {duration(2 * needed * each_s)}"
    return Check(
        "noise", "warn", noise, resolvable, "fraction", message,
        "judge by the data wait, which scatters far less, and by a confirmation; "
        + ("`tuner doctor` says whether the machine is quiet" if data.study.host.get("bound") != {} else "repeat more"),
    )  # fmt: skip


def _slice_s(data: StudyData, slices: Slices) -> float | None:
    """Return the wall time of a slice, its drain and start-up included where the trials were timed."""
    whole_s = [(t.ended_at - t.started_at).total_seconds() for t in data.trials if t.started_at and t.ended_at]
    timed_s = [m.timed_s for _, m in slices if m.timed_s is not None]
    return statistics.median(whole_s or timed_s) if whole_s or timed_s else None


def _foreign_cpu(slices: Slices) -> Check | None:
    seen = [m.foreign_cpu_fraction for _, m in slices if m.foreign_cpu_fraction is not None]
    if not seen:
        return None
    worst, over = max(seen), sum(f > FOREIGN_CPU_FRACTION for f in seen)
    message = f"other programs used up to {percent(worst)} of the usable CPUs"
    if not over:
        return Check("foreign_cpu", "ok", worst, FOREIGN_CPU_FRACTION, "fraction", message)
    return Check(
        "foreign_cpu", "warn", worst, FOREIGN_CPU_FRACTION, "fraction",
        f"{message}, more than {percent(FOREIGN_CPU_FRACTION)} in {over} of {len(seen)} slices",
        "see `top`; those slices read too slow, and not equally: measure again when it is quiet",
    )  # fmt: skip


def _gpu_shared(slices: Slices) -> Check | None:
    seen = [m.gpu_other_processes for _, m in slices if m.gpu_other_processes is not None]
    if not seen:
        return None
    over = sum(n > 0 for n in seen)
    if not over:
        return Check("foreign_gpu", "ok", 0, 0, "processes", "nothing else computed on the GPU")
    return Check(
        "foreign_gpu", "warn", max(seen), 0, "processes",
        f"up to {max(seen)} other processes computed on the GPU, in {over} of {len(seen)} slices",
        "see `nvidia-smi`; end them, or train on another GPU: --device cuda:N",
    )  # fmt: skip


def _drift(data: StudyData) -> Check | None:
    ceilings_per_s = [c.samples_per_s for c in settled(data.ceilings)]
    found = drift(ceilings_per_s)
    if found is None:
        return None
    change, threshold = found.change_fraction, max(DRIFT_FRACTION, found.half_width_fraction)
    message = f"ceilings {chart(ceilings_per_s)}: {signed_percent(change)} from first to last"
    message += f", ± {percent(found.half_width_fraction, 1)} by their scatter"
    if abs(change) <= threshold:
        return Check("drift", "ok", abs(change), threshold, "fraction", message)
    return Check(
        "drift", "warn", abs(change), threshold, "fraction", message,
        "the machine changed speed: trials of different times do not compare, rounds of a confirmation do; "
        "heat and power limits show in `nvidia-smi -q -d PERFORMANCE`",
    )  # fmt: skip


def _gpu_clock(slices: Slices) -> Check | None:
    seen = [m.gpu_clock_hz for _, m in slices if m.gpu_clock_hz]
    if len(seen) < 2:
        return None
    low, high = min(seen), max(seen)
    fall = 1 - low / high
    message = f"the GPU's clock was {low / 1e6:.0f} to {high / 1e6:.0f} MHz, mean of a slice"
    if fall <= CLOCK_FRACTION:
        return Check("gpu_clock", "ok", fall, CLOCK_FRACTION, "fraction", message)
    return Check(
        "gpu_clock", "warn", fall, CLOCK_FRACTION, "fraction", message,
        "see `nvidia-smi -q -d PERFORMANCE` for the reason (heat, power); `nvidia-smi -lgc` fixes the clock",
    )  # fmt: skip


def _model_fit(mismatch: Mapping[LoaderConfig, float]) -> Check | None:
    if not mismatch:
        return None
    config, off = max(mismatch.items(), key=lambda item: abs(item[1]))
    over = sum(abs(value) > MISFIT_FRACTION for value in mismatch.values())
    message = f"the queue model misses the data wait of {config.key} by {percent(abs(off), 1)} of the step"
    if not over:
        return Check("model_fit", "ok", abs(off), MISFIT_FRACTION, "fraction", f"{message}, the most of all")
    return Check(
        "model_fit", "warn", abs(off), MISFIT_FRACTION, "fraction",
        f"{message}; more than {percent(MISFIT_FRACTION)} for {over} of {len(mismatch)} configurations",
        "for these the measured wait counts and the interval is wider; predictions for others are less sure",
    )  # fmt: skip


def _gpu_idle(study: StudyRecord, slices: Slices) -> Check | None:
    fed = [
        m.gpu_util_fraction
        for _, m in slices
        if m.gpu_util_fraction is not None
        and m.wait_fraction is not None
        and m.wait_fraction + (m.restart_fraction or 0.0) < FREE_WAIT_FRACTION
    ]
    if not fed:
        return None
    busy = statistics.fmean(fed)
    message = f"the GPU is {percent(busy)} busy where it hardly waits for data ({len(fed)} slices)"
    if busy >= IDLE_GPU_FRACTION:
        return Check("gpu_idle", "ok", busy, IDLE_GPU_FRACTION, "fraction", message)
    advice = f"no loader setting helps: kernels are launched too slowly for their size; {_larger_batch(study)}"
    return Check("gpu_idle", "warn", busy, IDLE_GPU_FRACTION, "fraction", message, advice)


def _larger_batch(study: StudyRecord) -> str:
    size = int(study.identity.get("workload.per_device_train_batch_size", 1))
    group = int(study.identity.get("workload.gradient_accumulation_steps", 1))
    if group >= 2:
        text = (
            f"--per-device-train-batch-size {2 * size} --gradient-accumulation-steps {math.ceil(group / 2)} has fewer"
        )
        return f"{text} launches for the same samples a step"
    return f"try a larger --per-device-train-batch-size (now {size})"


def _worker_output(study: StudyRecord, slices: Slices) -> Check | None:
    planned = study.remember.get("timed_steps")
    seen = [
        m.log_bytes / steps
        for _, m in slices
        if m.log_bytes is not None and (steps := len(m.raw.steps) if m.raw else planned)
    ]
    if not seen:
        return None
    printed = statistics.median(seen)
    message = f"trainer and workers print {printed:.0f} bytes a step"
    if printed <= PRINTED_BYTES:
        return Check("worker_output", "ok", printed, PRINTED_BYTES, "bytes", message)
    return Check(
        "worker_output", "warn", printed, PRINTED_BYTES, "bytes", message,
        "printing takes the lock and the time of those who print: silence it in the tokenizer's or data set's code",
    )  # fmt: skip


def _cold_cache(study: StudyRecord) -> Check | None:
    size, free = _figure(study.facts.get("dataset_bytes")), _figure(study.host.get("memory_available_bytes"))
    if size is None or free is None:
        return None
    message = f"the data set has {size_text(size)}, free memory had {size_text(free)}"
    if size <= free:
        return Check("cold_cache", "ok", size, free, "bytes", message)
    return Check(
        "cold_cache", "warn", size, free, "bytes", f"{message}: a slice reads from memory, a whole epoch from disk",
        "read times of the disk are not in these figures: --row-delay-ms with the time your disk takes a row adds them",
    )  # fmt: skip


def long_rows(study: StudyRecord) -> Check | None:
    """Return whether rows are longer than `max_length`; None where it was not counted."""
    count, read = _figure(study.facts.get("long_rows")), _figure(study.facts.get("touched_rows"))
    if count is None or read is None:
        return None
    limit = study.identity.get("workload.max_length", "max_length")
    message = f"{count:.0f} of {read:.0f} rows have more than {limit} tokens"
    if not count:
        return Check("long_rows", "ok", count, 0, "rows", message)
    return Check(
        "long_rows", "warn", count, 0, "rows", f"{message}: cut here, but ms-swift leaves such rows out",
        "give swift --truncation_strategy right to cut them there too, or raise --max-length",
    )  # fmt: skip


def _figure(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

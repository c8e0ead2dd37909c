"""Which values of each knob this host and this job allow, and why; pure.

Runs in: parent. Bounds keep the search small and the machine alive; the user can override each of them.
*Not covered*: which configuration is tried next (`tuner.search`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from objectives.errors import UserError
from objectives.host import HostInfo
from objectives.protocol import Choices
from objectives.schema import KNOBS, LoaderConfig
from tuner.wording import size_text

ADVISED_WORKERS = 4
"""What most guides advise: offered on any host, so that the advice is measured and not only doubted."""

EVERY_UP_TO = 8
PAIRS_UP_TO = 16
"""On hosts with more CPUs than this the ladder grows coarser: every value to 8, pairs to 16, then multiples of 4."""

PREFETCH_MENU = (1, 2, 4, 8)
"""Doublings around PyTorch's default of 2; deeper queues cost memory and only help with bursts longer than these."""

TOKEN_BYTES = 24
"""input_ids, attention_mask and labels: three 64-bit integers per token."""

WORKER_BYTES = 200_000_000
"""Memory of one worker that it does not share: what a forked text worker comes to own over its first epochs."""

MEMORY_SHARE = 0.5
"""Share of the free `/dev/shm` and of the available memory that workers and queue may take: the rest is the job's."""

LARGEST_VALUE = 1024
"""No host runs more workers than this; a typing error must not become a list of a billion values."""

INTEGER_KNOBS: Mapping[str, int] = {"num_workers": 0, "prefetch_factor": 1}
"""Knobs that take integers, with the smallest one each."""


def bounds(
    host: HostInfo,
    *,
    rows: int,
    batch_size: int,
    max_length: int,
    device: str,
    accumulation: int,
    chosen: Mapping[str, tuple[int | bool, ...]],
) -> Choices:
    """Return the values per knob with the reason of each, one line.

    The values stand for themselves; what two knobs cannot have together is left out by `fits`.

    Args:
        host: As read on this machine.
        rows: Of the data set; workers beyond the batches of an epoch would have nothing to do.
        batch_size: Rows per batch.
        max_length: Tokens per row at most.
        device: `cpu` or a GPU's UUID.
        accumulation: Batches the trainer asks for at once.
        chosen: The user's own values per knob; they replace the bounds.

    Raises:
        UserError: If one of the user's values is out of range.
        ValueError: If `chosen` names an unknown knob or a size is below 1.
    """
    for name, size in (("rows", rows), ("batch_size", batch_size), ("max_length", max_length)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1 but got {size}.")
    unknown = set(chosen) - set(KNOBS)
    if unknown:
        raise ValueError(f"chosen must name knobs only but got {sorted(unknown)}.")
    batches = -(-rows // batch_size)
    queued = _batch_text(estimate_batch_bytes(batch_size, max_length))
    workers, workers_reason = _workers(host, batches)
    values: dict[str, tuple[int | bool, ...]] = {
        "num_workers": workers,
        "prefetch_factor": PREFETCH_MENU,
        "persistent_workers": (False, True),
        "pin_memory": (False,) if device == "cpu" else (False, True),
    }
    reasons = {
        "num_workers": workers_reason,
        "prefetch_factor": (
            f"batches each worker keeps ready, up to {queued} each; the trainer takes {accumulation} at once"
        ),
        "persistent_workers": "what it saves depends on how short the epochs are",
        "pin_memory": "no accelerator: pinning has no effect"
        if device == "cpu"
        else "it speeds up copies to the GPU and costs host memory",
    }
    for knob, wanted in chosen.items():
        values[knob] = _checked(knob, wanted)
        reasons[knob] = f"set by {option(knob)}"
    if "num_workers" in chosen:
        reasons["num_workers"] += _excess(max(values["num_workers"]), host, batches)
    return Choices(values=values, reasons=reasons)


def fits(config: LoaderConfig, host: HostInfo, *, batch_bytes: int, worker_bytes: int = WORKER_BYTES) -> str | None:
    """Return None, or why this configuration is left out: its queue or its workers need too much memory.

    Batches wait in `/dev/shm`, all of the queue and the one in use; a full one kills workers with SIGBUS. The reason
    names no configuration, so that those left out can be counted by it.
    """
    if config.num_workers == 0:
        return None
    queue_bytes = (config.depth + 1) * batch_bytes
    if queue_bytes > MEMORY_SHARE * host.shm_free_bytes:
        return (
            f"a queue of {_batch_text(batch_bytes)} batches would fill more than half of "
            f"the {size_text(host.shm_free_bytes)} free in /dev/shm"
        )
    if config.num_workers * worker_bytes + queue_bytes > MEMORY_SHARE * host.memory_available_bytes:
        return (
            f"workers of {size_text(worker_bytes)} and their batches would take more than half of "
            f"the {size_text(host.memory_available_bytes)} of memory available"
        )
    return None


def estimate_batch_bytes(batch_size: int, max_length: int) -> int:
    """Return the largest size of a batch of tokens, in bytes, before one has been seen."""
    return batch_size * max_length * TOKEN_BYTES


def parse_menu(text: str, knob: str) -> tuple[int | bool, ...]:
    """Return the values an option lists, in its order and without repeats.

    Integers are single or ranges with both ends: `0,2,4,8`, `0-8`, `0-4,8`. The other knobs take `true,false`.

    Raises:
        UserError: If it is empty or a value cannot be one of the knob's.
    """
    values: list[int | bool] = []
    for part in (part.strip() for part in text.split(",")):
        if not part:
            raise _bad(knob, f"has an empty value in {text!r}")
        if knob not in INTEGER_KNOBS:
            if part.lower() not in ("true", "false"):
                raise _bad(knob, f"must be true or false but got {part!r}")
            values.append(part.lower() == "true")
        elif span := re.fullmatch(r"([0-9]+)-([0-9]+)", part):
            first, last = _integer(knob, span[1]), _integer(knob, span[2])
            if first > last:
                raise _bad(knob, f"has a range that runs backwards: {part!r}")
            values.extend(range(first, last + 1))
        else:
            values.append(_integer(knob, part))
    return tuple(dict.fromkeys(values))


def option(knob: str) -> str:
    """Return the command-line option of a knob."""
    return "--" + knob.replace("_", "-")


def _workers(host: HostInfo, batches: int) -> tuple[tuple[int, ...], str]:
    largest = max(ADVISED_WORKERS, host.usable_cpus)
    ladder = list(range(largest + 1))
    if largest > PAIRS_UP_TO:
        ladder = [
            *range(EVERY_UP_TO + 1),
            *range(EVERY_UP_TO + 2, PAIRS_UP_TO + 1, 2),
            *range(PAIRS_UP_TO + 4, largest + 1, 4),
        ]
    values = tuple(workers for workers in ladder if workers <= batches)
    reason = _cpus(host)
    if batches < largest:
        reason += f"; an epoch has {batches} batches" if batches > 1 else "; an epoch has 1 batch"
    elif host.usable_cpus < ADVISED_WORKERS:
        reason += f"; {ADVISED_WORKERS} is common advice"
    return values, reason


def _cpus(host: HostInfo) -> str:
    """Return how many CPUs are usable and what limits them."""
    text = f"{host.usable_cpus} usable CPU{'s' if host.usable_cpus != 1 else ''}"
    if host.quota_cpus is not None and host.quota_cpus < host.affinity_cpus:
        text += f" (cgroup quota {host.quota_cpus:g} of {host.affinity_cpus})"
    elif host.affinity_cpus < host.logical_cpus:
        text += f" (affinity, of {host.logical_cpus})"
    if host.physical_cores < host.usable_cpus:
        text += f", {host.physical_cores} physical cores: more than {host.physical_cores} share cores"
    return text


def _batch_text(size_bytes: int) -> str:
    """Return a size such as `48 KiB`: batches of text are small."""
    return f"{size_bytes / 2**10:.0f} KiB" if size_bytes < 2**20 else size_text(size_bytes)


def _excess(largest: int, host: HostInfo, batches: int) -> str:
    text = f"; {largest} is more than the {_cpus(host)}" if largest > host.usable_cpus else ""
    return text + (f"; an epoch has only {batches} batches" if largest > batches else "")


def _checked(knob: str, wanted: Sequence[int | bool]) -> tuple[int | bool, ...]:
    """Return the user's values in order and once each."""
    if not wanted:
        raise _bad(knob, "has no values")
    for value in wanted:
        if knob in INTEGER_KNOBS:
            _integer(knob, value)
        elif not isinstance(value, bool):
            raise _bad(knob, f"must be true or false but got {value!r}")
    return tuple(sorted(set(wanted)))


def _integer(knob: str, value: object) -> int:
    smallest = INTEGER_KNOBS[knob]
    is_integer = type(value) is int or (isinstance(value, str) and re.fullmatch(r"-?[0-9]+", value))
    if not is_integer:
        raise _bad(knob, f"must be an integer but got {value!r}")
    number = int(str(value)) if len(str(value)) < 20 else LARGEST_VALUE + 1
    if number < smallest:
        raise _bad(knob, f"must be at least {smallest} but got {value}")
    if number > LARGEST_VALUE:
        raise _bad(knob, f"must be at most {LARGEST_VALUE} but got {value}")
    return number


def _bad(knob: str, problem: str) -> UserError:
    why = {
        "num_workers": "It lists how many worker processes to try; 0 loads in the trainer itself.",
        "prefetch_factor": "It lists how many batches each worker keeps ready; PyTorch needs at least 1.",
    }.get(knob, "It lists which of the two settings to try.")
    example = {"num_workers": "0,2,4,8", "prefetch_factor": "2,4"}.get(knob, "true,false")
    return UserError(f"{option(knob)} {problem}", why, f"{option(knob)} {example}")

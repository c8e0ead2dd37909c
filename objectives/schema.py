"""The values that flow from a configuration to a score.

Runs in: parent and child. Standard library only, so that a foreign trainer's interpreter can import it.
*Not covered*: how they are measured (`objectives.slice`), judged (`objectives.score`) or stored (`storage`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

KNOBS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
"""The four settings searched, by the names PyTorch's `DataLoader` gives them, in the order they are shown."""


@dataclass(frozen=True, slots=True, order=True)
class LoaderConfig:
    """One value per knob, in canonical form.

    Without workers there is nothing to prefetch and nothing to keep alive, so 0 workers means
    `prefetch_factor` None and `persistent_workers` False; PyTorch refuses anything else.

    Raises:
        ValueError: If a value is out of range or the form is not canonical.
    """

    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool

    def __post_init__(self) -> None:
        if type(self.num_workers) is not int or self.num_workers < 0:
            raise ValueError(f"num_workers must be an integer of at least 0 but got {self.num_workers!r}.")
        if self.num_workers == 0:
            if self.prefetch_factor is not None:
                raise ValueError(f"prefetch_factor must be None with 0 workers but got {self.prefetch_factor!r}.")
            if self.persistent_workers:
                raise ValueError("persistent_workers must be False with 0 workers but got True.")
        elif type(self.prefetch_factor) is not int or self.prefetch_factor < 1:
            raise ValueError(f"prefetch_factor must be an integer of at least 1 but got {self.prefetch_factor!r}.")

    @property
    def key(self) -> str:
        """Return the short form used in tables: `w4 p2 persist pin`, flags that are off left out."""
        parts = [f"w{self.num_workers}"]
        if self.prefetch_factor is not None:
            parts.append(f"p{self.prefetch_factor}")
        if self.persistent_workers:
            parts.append("persist")
        if self.pin_memory:
            parts.append("pin")
        return " ".join(parts)

    @property
    def depth(self) -> int:
        """Return how many batches the loader may hold ready (`num_workers x prefetch_factor`)."""
        return self.num_workers * (self.prefetch_factor or 0)


def canonical(
    num_workers: int, prefetch_factor: int | None, persistent_workers: bool, pin_memory: bool
) -> LoaderConfig:
    """Return the canonical configuration: with 0 workers the dormant knobs are dropped."""
    if num_workers == 0:
        return LoaderConfig(0, None, False, pin_memory)
    return LoaderConfig(num_workers, prefetch_factor or 2, persistent_workers, pin_memory)


@dataclass(frozen=True, slots=True)
class Workload:
    """What is trained: equal for every trial of a study, and part of its fingerprint.

    Field names are ms-swift's where it has one. `model` is `embedded`, a preset such as `qwen2.5-7b`, a local
    directory or a hub id; `dataset` is `embedded` or a path to a `.json` array or `.jsonl` file.
    """

    model: str = "embedded"
    dataset: str = "embedded"
    tokenizer: str | None = None
    weights: Literal["auto", "random", "load"] = "auto"
    """`auto` builds dense models from their config and loads sparse and quantised ones."""
    per_device_train_batch_size: int = 1
    gradient_accumulation_steps: int = 16
    max_length: int = 2048
    lora_rank: int = 8
    lora_alpha: int = 32
    target_modules: tuple[str, ...] = ("all-linear",)
    torch_dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    gradient_checkpointing: bool = True
    seed: int = 42
    device: str = "cpu"
    """`cpu` or a GPU's UUID; the child is shown that one GPU alone."""
    cpu_threads: int = 1
    """Threads of the model on a CPU, fixed so that trials compare."""
    row_delay_ms: float = 0.0
    """Reading a row takes this much longer, to see what a slow disk or images to decode would do."""


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """How much of the workload one slice runs; fixed for a study once the ceilings have told the step time."""

    timed_steps: int
    """Optimizer steps that are timed."""
    epochs: int
    """Whole epochs the timed steps make up; 0 when the slice is part of one epoch."""
    epoch_batches: int
    """Batches of one real epoch."""


@dataclass(frozen=True, slots=True)
class StepSeries:
    """One entry per timed optimizer step, all its micro-batches included, in order.

    `step_s` runs from the end of the step before to the end of this one (device synchronised) and is the sum of
    `restart_s` (epoch end to first batch, zero inside an epoch), `data_wait_s`, `h2d_s` and compute.
    """

    step_s: tuple[float, ...] = ()
    restart_s: tuple[float, ...] = ()
    data_wait_s: tuple[float, ...] = ()
    h2d_s: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    run_delay_s: tuple[float, ...] = ()
    """Time the trainer's threads were runnable but not running; empty where the kernel does not tell."""
    trainer_cpu_s: tuple[float, ...] = ()
    """CPU time of the trainer's main and autograd threads."""

    def __len__(self) -> int:
        return len(self.step_s)

    @property
    def compute_s(self) -> tuple[float, ...]:
        """Return what is left of each step after restart, data wait and copy, in seconds."""
        rows = zip(self.step_s, self.restart_s, self.data_wait_s, self.h2d_s, strict=True)
        return tuple(step - restart - wait - h2d for step, restart, wait, h2d in rows)


@dataclass(frozen=True, slots=True)
class BatchSeries:
    """One entry per batch, in order of delivery; times in seconds on one monotonic clock, 0 = first timed step.

    `step` is the optimizer step the batch belongs to, -1 for the drain epoch. `worker` is the worker's process id,
    or the trainer's own with 0 workers. A service runs from `service_start_s` to `service_end_s` in that process;
    the trainer asked at `requested_s` and had it at `got_s`.
    """

    step: tuple[int, ...] = ()
    worker: tuple[int, ...] = ()
    service_start_s: tuple[float, ...] = ()
    service_end_s: tuple[float, ...] = ()
    requested_s: tuple[float, ...] = ()
    got_s: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One look at the host during a slice; fractions are of the CPUs usable here. None: this host cannot tell."""

    t_s: float
    cpu_busy_fraction: float | None = None
    cpu_pressure_fraction: float | None = None
    memory_fraction: float | None = None
    shm_used_bytes: int | None = None
    gpu_util_fraction: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_clock_hz: float | None = None
    gpu_other_processes: int | None = None


@dataclass(frozen=True, slots=True)
class RawSlice:
    """What the child saw in one slice, before anything is derived from it."""

    kind: Literal["trial", "ceiling"]
    steps: StepSeries
    batches: BatchSeries = field(default_factory=BatchSeries)
    startup_s: float | None = None
    """`iter()` to first batch with fresh workers; None for a ceiling."""
    drain_batches_per_s: float | None = None
    """Loader rate with nothing else to do: an optimistic bound."""
    batch_bytes: int = 0
    """Largest batch seen, in bytes."""
    worker_uss_bytes: int | None = None
    """Largest unique set size of a worker."""
    cpu_busy_fraction: float | None = None
    """Busy share of the usable CPUs over the timed steps (affinity and cgroup quota), by whomever."""
    own_cpu_fraction: float | None = None
    """Share of the usable CPUs that the trainer and its workers used themselves in that time."""
    cpu_pressure_fraction: float | None = None
    """Share of the timed steps in which some task waited for a CPU (PSI `some`)."""
    busiest_cpu_fraction: float | None = None
    gpu_peak_bytes: int | None = None
    wall_s: dict[str, float] = field(default_factory=dict)
    """Seconds per phase: build, drain, train, shutdown."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One finished slice: the derived figures every view uses, and the raw series they came from.

    `objectives.estimate.summarise` derives them, in that one place. Throughput counts samples trained per second
    of steady running with each epoch's restart paid once; start-up is apart.
    """

    samples_per_s: float
    step_s: float | None = None
    """Mean optimizer step."""
    tokens_per_s: float | None = None
    half_width_per_s: float | None = None
    """Half of the 95 % interval of `samples_per_s` from the scatter of this slice's steps; slices scatter more."""
    wait_fraction: float | None = None
    h2d_fraction: float | None = None
    compute_s: float | None = None
    """Mean compute part of an optimizer step."""
    restart_s: float | None = None
    """Epoch end to first batch of the next epoch."""
    restart_fraction: float | None = None
    """Share of the running time that restarts take, epochs at their real length."""
    startup_s: float | None = None
    loader_batches_per_s: float | None = None
    cpu_busy_fraction: float | None = None
    """Busy share of the usable CPUs, by whomever."""
    own_cpu_fraction: float | None = None
    """What the trainer and its workers used of it."""
    foreign_cpu_fraction: float | None = None
    """The rest: other programs."""
    cpu_pressure_fraction: float | None = None
    run_delay_fraction: float | None = None
    trainer_cpu_fraction: float | None = None
    gpu_util_fraction: float | None = None
    gpu_clock_hz: float | None = None
    """Mean over the slice."""
    gpu_other_processes: int | None = None
    """Most at one look, besides the trainer; None where NVML does not tell."""
    gpu_peak_bytes: int | None = None
    peak_memory_fraction: float | None = None
    peak_shm_bytes: int | None = None
    batch_bytes: int | None = None
    worker_uss_bytes: int | None = None
    tokens: int | None = None
    timed_s: float | None = None
    log_bytes: int | None = None
    """What trainer and workers printed during the timed part."""
    crash_frequency: Literal["none", "occasional", "frequent"] = "none"
    """Worker crashes a recorded run survived; a measured slice that lost a worker is a `Crash`."""
    raw: RawSlice | None = None
    load: tuple[LoadSample, ...] = ()


CrashKind = Literal[
    "gpu_oom", "host_oom", "shm_full", "fd_limit", "worker_killed", "worker_crashed", "worker_exited",
    "child_killed", "stall", "data_error", "exception", "interrupted", "gpu_lost", "environment",
]  # fmt: skip
Blame = Literal["config", "data", "host", "user"]


@dataclass(frozen=True, slots=True)
class Crash:
    """A slice that did not finish, as a value.

    `blame` decides what becomes of it: `config` is scored 0.0 so that the sampler learns, `data` stops the study
    with the row's name, `host` and `user` are not counted and tried again.
    """

    kind: CrashKind
    blame: Blame
    phase: str
    message: str
    """The first relevant line, for a table."""
    remedy: str
    """One sentence a user can act on."""
    exit_code: int | None = None
    signal: str | None = None
    exception: str | None = None
    log_tail: str = ""
    peak_memory_fraction: float | None = None
    wall_s: dict[str, float] = field(default_factory=dict)


Outcome = Measurement | Crash


@dataclass(frozen=True, slots=True)
class Penalty:
    """One itemised cut of a score."""

    name: str
    fraction: float
    reason: str


@dataclass(frozen=True, slots=True)
class Score:
    """`value = throughput x product(1 - fraction)` in samples/s; 0.0 for a crash."""

    value: float
    throughput: float
    penalties: tuple[Penalty, ...] = ()

"""Pipeline machines: throughput, load, memory and crash probability of a job as formulas of the four knobs.

A producer/consumer model, everything per optimizer step. Workers make a batch every `t_prep x slow / parallelism`
seconds, the trainer takes one every `t_main + max(t_gpu, h2d)` (their sum without pinning); the queue of `workers x
prefetch` between them blocks with the probability of an M/M/1/K queue, more so the more preparation scatters. Restarts
are spread over an epoch, peak memory is linear in workers and in queued batches, a crash is a sigmoid of it, and CPU
load above 90 % is penalised. Observations scatter log-normally by 1 to 4 %, and 3 % of them read 10 % slow.
*Not covered*: step series (`objectives.synthetic`), drift, caches, anything measured on real hardware.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from objectives.schema import LoaderConfig, canonical

MAX_WORKERS = 16
PREFETCH = (2, 4, 6, 8)
CRASH_WIDTH = 0.03
"""Share of memory over which the crash probability rises."""
OUTLIER_SHARE = 0.03
OUTLIER_FACTOR = 0.90
MEMORY_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class Machine:
    """One job on one host. Times in seconds per step, memory in GiB."""

    name: str
    cores: float
    t_gpu: float
    t_prep: float
    t_main: float
    t_h2d: float
    cv2: float
    """Squared coefficient of variation of batch preparation."""
    steps_epoch: int
    t_spawn: float
    """Per worker, at each start of the iterator."""
    mem_base: float
    mem_w: float
    mem_b: float
    mem_lim: float
    sigma: float
    """Log-normal noise of one observation."""
    membw: float = 0.01
    """Slow-down per worker by memory bandwidth."""
    visible: int = 0
    """Cores the host shows; 0: all it has. More than it has: a hidden quota."""
    smt: float = 1.0
    """Gain of the second half of the cores."""
    pf_pen: float = 0.0015
    """Cost of deep queues."""
    per_mem: float = 0.05
    pin_f: float = 0.35
    """Copy time with pinned memory over that without."""

    @property
    def seen(self) -> int:
        """Return the cores the host shows."""
        return int(self.visible or self.cores)


@dataclass(frozen=True, slots=True)
class Truth:
    """What a configuration really does on a machine, noise apart."""

    throughput_per_s: float
    penalty_fraction: float
    crash_probability: float
    memory_fraction: float
    load_fraction: float

    @property
    def value(self) -> float:
        """Return the throughput after the load penalty: what a trial observes with noise."""
        return self.throughput_per_s * (1.0 - self.penalty_fraction)

    @property
    def utility(self) -> float:
        """Return the value a user can expect: a run that crashes is worth nothing."""
        return self.value * (1.0 - self.crash_probability)


NAMED = (
    Machine("gpu_bound", 16, 0.300, 0.120, 0.006, 0.004, 0.3, 2000, 0.15, 10, 1.0, 0.05, 128, 0.010),
    Machine("slight_input", 8, 0.120, 0.200, 0.006, 0.004, 0.5, 400, 0.15, 10, 1.0, 0.05, 128, 0.020),
    Machine("heavy_input", 13, 0.080, 1.20, 0.006, 0.006, 0.5, 600, 0.15, 10, 1.5, 0.10, 256, 0.030),
    Machine("mem_limited", 32, 0.100, 0.600, 0.006, 0.006, 0.6, 500, 0.20, 8, 4.0, 0.60, 48, 0.020),
    Machine("small_epochs", 12, 0.080, 0.240, 0.006, 0.004, 0.4, 24, 0.35, 8, 1.0, 0.05, 96, 0.020),
    Machine("cpu_limited", 3, 0.100, 0.250, 0.012, 0.004, 0.5, 400, 0.20, 6, 1.0, 0.05, 32, 0.040),
    Machine("stragglers_h2d", 24, 0.050, 0.350, 0.004, 0.016, 2.5, 800, 0.15, 10, 1.0, 0.20, 192, 0.030),
    Machine("hidden_quota", 7, 0.110, 0.550, 0.008, 0.010, 0.6, 300, 0.20, 10, 1.5, 0.10, 96, 0.040, 0.02, 32),
)


def random_machine(number: int) -> Machine:
    """Return random machine `number`; 0 to 79 are for tuning, 80 to 159 are held out."""
    rng = np.random.default_rng(1000 + number)

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    cores = int(rng.choice([2, 3, 4, 6, 8, 12, 16, 24, 32, 64]))
    t_gpu = log_uniform(0.03, 0.6)
    return Machine(
        name=f"rnd{number:02d}",
        cores=cores,
        t_gpu=t_gpu,
        t_prep=t_gpu * log_uniform(0.1, 12),
        t_main=rng.uniform(0.002, 0.015),
        t_h2d=t_gpu * log_uniform(0.005, 0.25),
        cv2=log_uniform(0.1, 4),
        steps_epoch=int(log_uniform(10, 3000)),
        t_spawn=log_uniform(0.05, 1.0),
        mem_base=8,
        mem_w=log_uniform(0.3, 5),
        mem_b=log_uniform(0.02, 0.8),
        mem_lim=log_uniform(24, 512),
        sigma=rng.uniform(0.008, 0.04),
        membw=log_uniform(0.003, 0.04),
        visible=int(min(64, cores * rng.choice([2, 4, 8]))) if rng.random() < 0.25 else 0,
        smt=float(rng.choice([1.0, 0.35])),
        pf_pen=log_uniform(0.0002, 0.01),
        per_mem=float(rng.choice([0.0, 0.05, 0.3])),
        pin_f=float(rng.choice([0.3, 0.5, 1.1])),
    )


@cache
def configurations() -> tuple[LoaderConfig, ...]:
    """Return the 258 configurations of the space, fewest workers first."""
    flags = (False, True)
    found = [canonical(0, None, False, pin) for pin in flags]
    found += [
        canonical(workers, prefetch, persistent, pin)
        for workers in range(1, MAX_WORKERS + 1)
        for prefetch in PREFETCH
        for persistent in flags
        for pin in flags
    ]
    return tuple(found)


@cache
def truth(machine: Machine, config: LoaderConfig) -> Truth:
    """Return what a configuration really does on a machine."""
    pin, workers = config.pin_memory, config.num_workers
    h2d_s = machine.t_h2d * (machine.pin_f if pin else 1.0)
    if workers == 0:
        step_s = machine.t_prep + machine.t_main + machine.t_gpu + h2d_s + (0.5 * machine.t_h2d if pin else 0.0)
        memory = machine.mem_base + 2 * machine.mem_b
        load = (machine.t_prep + machine.t_main) / step_s / machine.cores
    else:
        step_s, load = _with_workers(machine, config, h2d_s)
        memory = machine.mem_base + workers * machine.mem_w + config.depth * machine.mem_b
        memory += 2 * machine.mem_b if pin else 0.0
        memory += machine.per_mem * workers * machine.mem_w if config.persistent_workers else 0.0
    fraction = memory / machine.mem_lim
    edge = (fraction - 1.0) / CRASH_WIDTH
    return Truth(
        throughput_per_s=1.0 / step_s,
        penalty_fraction=0.15 * min(max((load - 0.9) / 0.2, 0.0), 1.5),
        crash_probability=1.0 / (1.0 + math.exp(-min(50.0, max(-50.0, edge)))),
        memory_fraction=fraction,
        load_fraction=load,
    )


def _with_workers(machine: Machine, config: LoaderConfig, h2d_s: float) -> tuple[float, float]:
    """Return the step's seconds and the CPU load of a configuration with workers."""
    workers, depth, pin = config.num_workers, config.depth, config.pin_memory
    available = max(machine.cores - 0.6, 0.4)  # the trainer keeps 0.6 of a core busy
    slow = (1 + machine.membw * workers) * (1 + 0.10 * max(0.0, workers - available) / machine.cores)
    parallel = min(float(workers), available)
    if machine.smt < 1:
        parallel = min(parallel, available / 2) + machine.smt * max(0.0, parallel - available / 2)
    produce_s = machine.t_prep * slow / parallel
    crowding = max(0.0, workers + 1 - machine.cores) / machine.cores
    trainer_slow = 1 + 1.2 * crowding
    pin_cpu_s = (2.0 if machine.cores < 4 else 0.06) * machine.t_h2d if pin else 0.0
    consume_s = (machine.t_main + pin_cpu_s) * trainer_slow
    consume_s += max(machine.t_gpu, h2d_s) if pin else machine.t_gpu + h2d_s
    consume_s += 0.004 * (trainer_slow - 1)
    longer_s, shorter_s = max(produce_s, consume_s), min(produce_s, consume_s)
    rho = shorter_s / longer_s
    even = abs(1 - rho) < 1e-9
    blocked = 1 / (depth + 1) if even else (1 - rho) * rho**depth / (1 - rho ** (depth + 1))
    step_s = longer_s * (1 + machine.cv2 * blocked) * (1 + machine.pf_pen * depth / 8)
    first_s = machine.t_prep * slow
    restart_s = 0.15 * first_s if config.persistent_workers else machine.t_spawn * workers + first_s
    step_s += restart_s / machine.steps_epoch
    busy = min(machine.t_prep * slow / step_s, parallel) + 0.6
    return step_s, busy / machine.cores + 0.25 * crowding


@cache
def best_utility(machine: Machine) -> float:
    """Return the highest utility on a machine."""
    return max(truth(machine, config).utility for config in configurations())


def regret(machine: Machine, config: LoaderConfig) -> float:
    """Return what a choice loses of the best utility, as a fraction."""
    return 1.0 - truth(machine, config).utility / best_utility(machine)

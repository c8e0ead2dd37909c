"""Builds small studies by hand, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from objectives.schema import Crash, LoaderConfig, Measurement, Outcome, canonical
from objectives.score import ScorePolicy, score
from storage.records import StudyData, StudyRecord, TrialRecord

BASELINE = LoaderConfig(1, 2, True, True)
HOST: dict[str, Any] = {
    "hostname": "desk",
    "cpu_model": "Example 8",
    "usable_cpus": 16,
    "physical_cores": 8,
    "memory_bytes": 64 * 2**30,
    "shm_bytes": 31 * 2**30,
    "gpus": [{"index": 0, "uuid": "GPU-1", "name": "RTX 4090D", "memory_bytes": 24 * 2**30, "driver": "570.1"}],
    "versions": {"torch": "2.13.0"},
    "bound": {"usable_cpus": 16},
}


def config(key: str) -> LoaderConfig:
    """Return the configuration of a key such as `w4 p2 persist pin`."""
    words = key.split()
    numbers = {word[0]: int(word[1:]) for word in words if word[1:].isdigit()}
    return canonical(numbers["w"], numbers.get("p"), "persist" in words, "pin" in words)


def measured(samples_per_s: float, **figures: Any) -> Measurement:
    """Return a measurement of that throughput; other fields by name."""
    return Measurement(samples_per_s=samples_per_s, **figures)


def crash(kind: str = "shm_full", **fields: Any) -> Crash:
    """Return a crash that is the configuration's fault."""
    given: dict[str, Any] = {
        "blame": "config",
        "phase": "train",
        "message": "/dev/shm full (worker killed by SIGBUS)",
        "remedy": "Use fewer workers or a larger /dev/shm.",
        **fields,
    }
    return Crash(kind=kind, **given)  # type: ignore[arg-type]


def trial(number: int, key: str, outcome: Outcome | float, **fields: Any) -> TrialRecord:
    """Return a complete trial; a bare number is a throughput. The score is what the default policy gives."""
    found = measured(outcome) if isinstance(outcome, int | float) else outcome
    given: dict[str, Any] = {
        "state": "complete",
        "origin": "baseline" if number == 0 else "search",
        "score": score(found, ScorePolicy()),
        **fields,
    }
    return TrialRecord(number=number, config=config(key), slice_uuid=f"slice-{number}", outcome=found, **given)


def study(**fields: Any) -> StudyRecord:
    """Return a study's record."""
    given: dict[str, Any] = {
        "name": "self_cognition",
        "uuid": "study-1",
        "objective": "lora",
        "identity": {"objective": "lora"},
        "host": HOST,
        "fingerprint": "0123456789abcdef",
        "baseline": BASELINE,
        "baseline_of": "ms-swift 4.6.0",
        "measured_knobs": ("num_workers", "prefetch_factor", "persistent_workers"),
        "values": {
            "num_workers": [0, 1, 2, 3, 4],
            "prefetch_factor": [2, 4],
            "persistent_workers": [True, False],
            "pin_memory": [True],
        },
        "reasons": {"num_workers": "half of the usable CPUs", "pin_memory": "no accelerator"},
        "configurations": 17,
        "seed": 42,
        "created_at": datetime(2026, 11, 30, tzinfo=UTC),
        "stopped": "30 trials done",
        "spent_s": 1092.0,
        **fields,
    }
    return StudyRecord(**given)


def study_data(rows: Iterable[tuple[str, Outcome | float]], ceilings: Iterable[float] = (), **fields: Any) -> StudyData:
    """Return a study whose complete trials are the rows, in order."""
    trials = tuple(trial(number, key, outcome) for number, (key, outcome) in enumerate(rows))
    return StudyData(study(**fields), trials, tuple(measured(c) for c in ceilings))

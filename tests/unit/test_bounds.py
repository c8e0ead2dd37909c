from __future__ import annotations

from typing import Any

import pytest
from hosts import GIB, a_host

from objectives.errors import UserError
from objectives.host import HostInfo
from objectives.protocol import Choices
from objectives.schema import LoaderConfig
from tuner.bounds import bounds, fits, parse_menu


def choices(host: HostInfo | None = None, **fields: Any) -> Choices:
    """Return the bounds of a long data set on a desktop."""
    job: dict[str, Any] = {
        "rows": 10_000,
        "batch_size": 1,
        "max_length": 2048,
        "device": "GPU-aaaa",
        "accumulation": 16,
        "chosen": {},
    }
    return bounds(host or a_host(), **(job | fields))


@pytest.mark.parametrize(
    ("cpus", "quota", "workers"),
    [
        (1, None, [0, 1, 2, 3, 4]),
        (6, None, [0, 1, 2, 3, 4, 5, 6]),
        (16, None, list(range(17))),
        (16, 2.5, [0, 1, 2, 3, 4]),
        (30, None, [*range(9), 10, 12, 14, 16, 20, 24, 28]),
    ],
)
def test_workers_reach_the_usable_cpus(cpus: int, quota: float | None, workers: list[int]) -> None:
    """Every value up to 16, then a coarser ladder; 4 is always there because guides advise it."""
    host = a_host(affinity_cpus=cpus, logical_cpus=cpus, quota_cpus=quota)
    assert list(choices(host).values["num_workers"]) == workers


def test_an_epoch_bounds_the_workers() -> None:
    """A worker without a batch has nothing to do: 50 rows in batches of 20 are three batches."""
    found = choices(rows=50, batch_size=20)
    assert found.values["num_workers"] == (0, 1, 2, 3)
    assert "an epoch has 3 batches" in found.reasons["num_workers"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "16 usable CPUs, 8 physical cores: more than 8 share cores"),
        ({"quota_cpus": 4.5}, "4 usable CPUs (cgroup quota 4.5 of 16)"),
        ({"affinity_cpus": 2, "physical_cores": 2}, "2 usable CPUs (affinity, of 16); 4 is common advice"),
    ],
)
def test_the_reason_names_the_limit(fields: dict[str, Any], reason: str) -> None:
    """Quota, affinity and shared cores are told apart."""
    assert choices(a_host(**fields)).reasons["num_workers"] == reason


def test_pinning_is_open_on_a_gpu_only() -> None:
    """Without an accelerator the knob is fixed, and the reason says so."""
    assert choices().values["pin_memory"] == (False, True)
    on_cpu = choices(device="cpu")
    assert on_cpu.values["pin_memory"] == (False,)
    assert on_cpu.reasons["pin_memory"] == "no accelerator: pinning has no effect"


def test_the_users_values_replace_the_bounds() -> None:
    """They are sorted, once each, and may pass the usable CPUs, which the reason then says."""
    found = choices(chosen={"num_workers": (32, 0, 32), "prefetch_factor": (16,)})
    assert (found.values["num_workers"], found.values["prefetch_factor"]) == ((0, 32), (16,))
    assert found.reasons["num_workers"].startswith("set by --num-workers; 32 is more than the 16 usable CPUs")
    assert found.reasons["prefetch_factor"] == "set by --prefetch-factor"


@pytest.mark.parametrize(
    ("knob", "values"),
    [
        ("num_workers", (-1,)),
        ("num_workers", (True,)),
        ("prefetch_factor", (0,)),
        ("pin_memory", (1,)),
        ("pin_memory", ()),
    ],
)
def test_values_out_of_range_are_refused(knob: str, values: Any) -> None:
    """The error names the option, not the Python name."""
    with pytest.raises(UserError, match="--" + knob.replace("_", "-")):
        choices(chosen={knob: values})


def test_a_developers_mistake_is_no_user_error() -> None:
    """An unknown knob or a batch of nothing is a ValueError."""
    with pytest.raises(ValueError, match="knobs only"):
        choices(chosen={"workers": (1,)})
    with pytest.raises(ValueError, match="batch_size"):
        choices(batch_size=0)


@pytest.mark.parametrize(
    ("text", "knob", "values"),
    [
        ("0,2,4,8", "num_workers", (0, 2, 4, 8)),
        ("0-4, 8,2", "num_workers", (0, 1, 2, 3, 4, 8)),
        ("2", "prefetch_factor", (2,)),
        ("true,False,true", "pin_memory", (True, False)),
    ],
)
def test_a_menu_is_a_list_or_a_range(text: str, knob: str, values: tuple[int | bool, ...]) -> None:
    """Ranges hold both ends and repeats are dropped."""
    found = parse_menu(text, knob)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "knob", "problem"),
    [
        ("-1", "num_workers", "at least 0 but got -1"),
        ("2.5", "num_workers", "an integer but got '2.5'"),
        ("0", "prefetch_factor", "at least 1 but got 0"),
        ("0-4", "prefetch_factor", "at least 1 but got 0"),
        ("", "num_workers", "empty"),
        ("2,,4", "num_workers", "empty"),
        ("8-0", "num_workers", "backwards"),
        ("0-99999999999", "num_workers", "at most 1024"),
        ("1", "pin_memory", "true or false but got '1'"),
    ],
)
def test_a_bad_menu_is_refused(text: str, knob: str, problem: str) -> None:
    """Each error names the option and the value, with exit code 2 and an example to paste."""
    with pytest.raises(UserError, match=problem) as caught:
        parse_menu(text, knob)
    option = "--" + knob.replace("_", "-")
    assert caught.value.what.startswith(option)
    assert caught.value.hint.startswith(option)
    assert caught.value.exit_code == 2


def test_shared_memory_holds_the_queue_and_the_batch_in_use() -> None:
    """Half of what is free is the limit: 4 x 2 + 1 batches of 1 MB fit in 18 MB, not in one byte less."""
    config = LoaderConfig(4, 2, True, True)
    assert fits(config, a_host(shm_free_bytes=18_000_000), batch_bytes=1_000_000) is None
    reason = fits(config, a_host(shm_free_bytes=17_999_999), batch_bytes=1_000_000)
    assert reason is not None
    assert "/dev/shm" in reason


def test_memory_holds_the_workers_too() -> None:
    """Workers that would take more than half of the available memory are left out; no workers always fit."""
    host = a_host(memory_available_bytes=2 * GIB)
    assert fits(LoaderConfig(8, 2, True, True), host, batch_bytes=1000) is not None
    assert fits(LoaderConfig(8, 2, True, True), host, batch_bytes=1000, worker_bytes=10**8) is None
    assert fits(LoaderConfig(0, None, False, True), a_host(shm_free_bytes=0), batch_bytes=10**12) is None

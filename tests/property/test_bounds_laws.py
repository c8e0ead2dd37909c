from __future__ import annotations

import itertools

from hosts import a_host
from hypothesis import given
from hypothesis import strategies as st

from objectives.host import HostInfo
from objectives.schema import KNOBS, LoaderConfig, canonical
from tuner.bounds import bounds, fits, parse_menu

SIZES = st.integers(0, 2**40)


@st.composite
def hosts(draw: st.DrawFn) -> HostInfo:
    """Any host: CPUs, quota, cores, shared and available memory."""
    cpus = draw(st.integers(1, 256))
    return a_host(
        logical_cpus=draw(st.integers(cpus, 512)),
        affinity_cpus=cpus,
        quota_cpus=draw(st.none() | st.floats(0.1, 300.0)),
        physical_cores=draw(st.integers(1, cpus)),
        shm_free_bytes=draw(SIZES),
        memory_available_bytes=draw(SIZES),
    )


CONFIGS = st.builds(canonical, st.integers(0, 64), st.integers(1, 16), st.booleans(), st.booleans())


@given(hosts(), st.integers(1, 10**7), st.integers(1, 512), st.sampled_from(["cpu", "GPU-aaaa"]))
def test_every_configuration_within_the_bounds_is_valid(host: HostInfo, rows: int, batch: int, device: str) -> None:
    """Whatever the host, the menus are sorted, hold 0 workers, stay within an epoch and make valid configurations."""
    found = bounds(host, rows=rows, batch_size=batch, max_length=2048, device=device, accumulation=16, chosen={})
    workers = found.values["num_workers"]
    batches = -(-rows // batch)
    assert list(workers) == sorted(set(workers))
    assert workers[0] == 0
    assert workers[-1] <= min(batches, max(4, host.usable_cpus))
    assert 4 in workers or batches < 4
    assert set(found.values) == set(found.reasons) == set(KNOBS)
    assert all(reason and "\n" not in reason for reason in found.reasons.values())
    for values in itertools.product(*(found.values[knob] for knob in KNOBS)):
        canonical(int(values[0]), int(values[1]), bool(values[2]), bool(values[3]))


@given(hosts(), CONFIGS, st.integers(1, 2**30), st.integers(0, 64), st.integers(0, 16), SIZES)
def test_a_greater_need_never_fits_better(
    host: HostInfo, config: LoaderConfig, batch_bytes: int, workers: int, prefetch: int, more_bytes: int
) -> None:
    """What does not fit, does not with more workers, a deeper queue, larger batches or heavier workers either."""
    if fits(config, host, batch_bytes=batch_bytes) is None:
        return
    larger = canonical(config.num_workers + workers, (config.prefetch_factor or 1) + prefetch, True, True)
    assert fits(larger, host, batch_bytes=batch_bytes) is not None
    assert fits(config, host, batch_bytes=batch_bytes + more_bytes) is not None
    assert fits(config, host, batch_bytes=batch_bytes, worker_bytes=200_000_000 + more_bytes) is not None


@given(st.lists(st.integers(0, 1024), min_size=1))
def test_a_written_menu_reads_back(values: list[int]) -> None:
    """What was written as a list comes back, in order and once each."""
    assert parse_menu(",".join(map(str, values)), "num_workers") == tuple(dict.fromkeys(values))

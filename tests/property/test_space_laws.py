"""Laws of configurations and of the space, for any values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from objectives.protocol import Choices
from objectives.schema import LoaderConfig, canonical
from objectives.wire import pack, unpack
from tuner.space import build_space, nearest

CONFIGS = st.builds(canonical, st.integers(0, 64), st.integers(1, 64), st.booleans(), st.booleans())


@given(CONFIGS)
def test_the_canonical_form_is_its_own(config: LoaderConfig) -> None:
    """Making a canonical configuration canonical again changes nothing; the wire neither."""
    again = canonical(config.num_workers, config.prefetch_factor, config.persistent_workers, config.pin_memory)
    assert again == config
    assert unpack(LoaderConfig, pack(config)) == config


@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:'pin_memory' argument is set")
@given(CONFIGS)
def test_the_real_loader_accepts_every_configuration(config: LoaderConfig) -> None:
    """PyTorch's own constructor raises for none of them."""
    loader = DataLoader(
        [0],  # type: ignore[arg-type]
        num_workers=config.num_workers,
        prefetch_factor=config.prefetch_factor,
        persistent_workers=config.persistent_workers,
        pin_memory=config.pin_memory,
    )
    assert loader.num_workers == config.num_workers


@given(
    workers=st.sets(st.integers(0, 32), min_size=1, max_size=5),
    prefetch=st.sets(st.integers(1, 16), min_size=1, max_size=4),
    flags=st.sets(st.booleans(), min_size=1),
    wanted=CONFIGS,
)
def test_the_space_holds_each_configuration_once(
    workers: set[int], prefetch: set[int], flags: set[bool], wanted: LoaderConfig
) -> None:
    """2 or less without workers, the product with them, and the baseline; the nearest one is in the space."""
    values: dict[str, tuple[int | bool, ...]] = {
        "num_workers": tuple(workers),
        "prefetch_factor": tuple(prefetch),
        "persistent_workers": tuple(flags),
        "pin_memory": tuple(flags),
    }
    space = build_space(Choices(values, {}), LoaderConfig(1, 2, True, True))
    asleep = len(flags) if 0 in workers else 0
    awake = len(workers - {0}) * len(prefetch) * len(flags) ** 2
    assert len(set(space.configurations)) == len(space.configurations)
    assert len(space.configurations) - (asleep + awake) in (0, 1)
    assert space.baseline in space.configurations
    assert nearest(space, wanted) in space.configurations
    assert all(nearest(space, c) == c for c in space.configurations)


REFUSED = [
    (-1, 2, False, False),
    (0, 2, False, False),
    (0, None, True, False),
    (2, 0, False, False),
    (2, None, False, False),
    (True, 2, False, False),
]


@pytest.mark.parametrize("values", REFUSED)
def test_what_the_loader_refuses_cannot_be_made(values: tuple[int, int | None, bool, bool]) -> None:
    """Negative workers, prefetch or persistence without workers, and prefetch 0 raise."""
    with pytest.raises(ValueError, match="must be"):
        LoaderConfig(*values)

"""The exported line, and what is said beside it."""

from __future__ import annotations

import pytest

from objectives.schema import LoaderConfig
from tuner.export import export_line, flags, unmeasured, unsupported
from tuner.swift_versions import SWIFT_VERSIONS


@pytest.mark.parametrize("target", ["swift", "swift3"])
def test_every_flag_is_explicit(target: str) -> None:
    """With workers all four flags are written, whether they equal the trainer's defaults or not."""
    assert export_line(LoaderConfig(4, 2, True, False), target) == (
        "--dataloader_num_workers 4 --dataloader_prefetch_factor 2 "
        "--dataloader_persistent_workers true --dataloader_pin_memory false"
    )


@pytest.mark.parametrize("target", ["swift", "swift3"])
def test_zero_workers_write_no_prefetch(target: str) -> None:
    """With 0 workers a prefetch flag would be refused, and persistent workers are turned off in so many words."""
    assert export_line(LoaderConfig(0, None, False, True), target) == (
        "--dataloader_num_workers 0 --dataloader_persistent_workers false --dataloader_pin_memory true"
    )


def test_swift2_has_two_flags() -> None:
    """ms-swift 2.x refuses flags it does not know, and it knows two of the four."""
    assert export_line(LoaderConfig(4, 2, True, False), "swift2") == (
        "--dataloader_num_workers 4 --dataloader_pin_memory false"
    )


def test_unmeasured_knobs_are_exported_at_the_trainers_defaults() -> None:
    """What a study held fixed is not a finding: it is replaced by the target's own default, and named."""
    config, notes = unmeasured(LoaderConfig(4, 8, True, False), ["num_workers"], "swift3")
    assert config == LoaderConfig(4, 2, False, True)
    assert notes == [
        "prefetch_factor was not measured: exported at the default of ms-swift 3.12.6, 2",
        "persistent_workers was not measured: exported at the default of ms-swift 3.12.6, false",
        "pin_memory was not measured: exported at the default of ms-swift 3.12.6, true",
    ]


def test_measured_knobs_stay() -> None:
    """A study that measured everything is exported as it is, without a word."""
    config = LoaderConfig(4, 8, False, False)
    assert unmeasured(config, ["pin_memory", "persistent_workers", "prefetch_factor", "num_workers"], "swift") == (
        config,
        [],
    )


def test_dormant_knobs_are_not_named() -> None:
    """With 0 workers, knobs that do nothing are neither exported nor excused."""
    assert unmeasured(LoaderConfig(0, None, False, False), ["num_workers"], "swift") == (
        LoaderConfig(0, None, False, True),
        ["pin_memory was not measured: exported at the default of ms-swift 4.6.0, true"],
    )


def test_unmeasured_workers_bring_their_own_defaults() -> None:
    """Where 0 workers were only held, what sleeps with them was never measured and comes from the trainer too."""
    config, notes = unmeasured(LoaderConfig(0, None, False, False), ["persistent_workers", "pin_memory"], "swift")
    assert config == LoaderConfig(1, 2, True, False)
    assert [note.split()[0] for note in notes] == ["num_workers", "prefetch_factor", "persistent_workers"]


def test_knobs_without_a_flag_are_told_apart() -> None:
    """For 2.x the result is what the trainer will do, and each choice it cannot follow is named."""
    assert unsupported(LoaderConfig(4, 8, False, False), "swift2") == (
        LoaderConfig(4, 2, False, False),
        ["ms-swift 2.6.1 has no flag for prefetch_factor: it uses 2, where the study chose 8"],
    )
    assert unmeasured(LoaderConfig(4, 8, False, False), ["num_workers", "prefetch_factor", "pin_memory"], "swift2")[
        1
    ] == ["persistent_workers was not measured: ms-swift 2.6.1 has no flag for it and uses false"]


@pytest.mark.parametrize("target", SWIFT_VERSIONS)
def test_zero_workers_lose_nothing_for_want_of_a_flag(target: str) -> None:
    """A configuration without workers can be said to every trainer."""
    config = LoaderConfig(0, None, False, False)
    assert unsupported(config, target) == (config, [])


def test_unknown_target() -> None:
    """A target that does not exist is the caller's error and names those that do."""
    with pytest.raises(ValueError, match="target must be one of swift, swift3, swift2 but got 'axolotl'"):
        flags(LoaderConfig(0, None, False, True), "axolotl")

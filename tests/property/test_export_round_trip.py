"""Laws of the exported line, for any configuration."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives.schema import KNOBS, LoaderConfig, canonical
from tuner.export import export_line, unmeasured, unsupported
from tuner.swift_versions import SWIFT_VERSIONS

configurations = st.builds(canonical, st.integers(0, 64), st.integers(1, 64), st.booleans(), st.booleans())
with_all_flags = st.sampled_from(["swift", "swift3"])
targets = st.sampled_from(list(SWIFT_VERSIONS))


def parse(line: str) -> LoaderConfig:
    """Return the configuration a line of all flags means; a prefetch flag may be missing, nothing else may."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataloader_num_workers", type=int, required=True)
    parser.add_argument("--dataloader_prefetch_factor", type=int)
    parser.add_argument("--dataloader_persistent_workers", choices=["true", "false"], required=True)
    parser.add_argument("--dataloader_pin_memory", choices=["true", "false"], required=True)
    args = parser.parse_args(shlex.split(line))
    return LoaderConfig(
        args.dataloader_num_workers,
        args.dataloader_prefetch_factor,
        args.dataloader_persistent_workers == "true",
        args.dataloader_pin_memory == "true",
    )


@pytest.fixture(scope="module")
def training_arguments() -> Callable[[str], LoaderConfig]:
    """Return a function that reads a line with the parser every transformers-based trainer builds on."""
    from transformers import HfArgumentParser, TrainingArguments

    parser = HfArgumentParser(TrainingArguments)  # type: ignore[arg-type]

    def read(line: str) -> LoaderConfig:
        (args,) = parser.parse_args_into_dataclasses(shlex.split(line))
        return LoaderConfig(*(getattr(args, f"dataloader_{knob}") for knob in KNOBS))

    return read


@given(configurations, with_all_flags)
def test_export_parses_back(config: LoaderConfig, target: str) -> None:
    """A line means the configuration it was made from."""
    assert parse(export_line(config, target)) == config


@given(configurations, with_all_flags)
def test_transformers_reads_the_same(
    training_arguments: Callable[[str], LoaderConfig], config: LoaderConfig, target: str
) -> None:
    """`TrainingArguments`, cross-field rules included, accepts the line and sets what it says."""
    assert training_arguments(export_line(config, target)) == config


@given(configurations, st.sets(st.sampled_from(KNOBS)), targets)
def test_replacing_what_was_not_measured_is_idempotent(config: LoaderConfig, measured: set[str], target: str) -> None:
    """Done twice it changes nothing more, and measured knobs keep their values while there are workers."""
    replaced, notes = unmeasured(config, measured, target)
    assert unmeasured(replaced, measured, target)[0] == replaced
    if config.num_workers > 0:
        assert {knob: getattr(replaced, knob) for knob in measured} == {
            knob: getattr(config, knob) for knob in measured
        }
        assert len(notes) == len(KNOBS) - len(measured)


@given(configurations, targets)
def test_what_has_no_flag_changes_no_line(config: LoaderConfig, target: str) -> None:
    """The configuration that the trainer will run with is exported by the same line."""
    real, notes = unsupported(config, target)
    assert export_line(real, target) == export_line(config, target)
    assert (real == config) == (not notes)

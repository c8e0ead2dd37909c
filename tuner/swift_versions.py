"""What each ms-swift release line does with its loader when told nothing, and which flags it takes.

Runs in: parent. *Not covered*: how the flags are written (`tuner.export`). Also not other trainers.
"""

from __future__ import annotations

from dataclasses import dataclass

from objectives.schema import KNOBS, LoaderConfig


@dataclass(frozen=True, slots=True)
class SwiftVersion:
    """One release line of ms-swift, described by the release it was checked against."""

    name: str
    """The trainer with that release, as shown to the user."""
    defaults: LoaderConfig
    """What it runs with when no loader flag is given, on Linux and without streaming."""
    flagged: tuple[str, ...]
    """The knobs it has a flag for; the others stay at `defaults` whatever the user wants."""


SWIFT_VERSIONS = {
    # swift/trainers/arguments.py, TrainArgumentsMixin.__post_init__: no workers given -> 1, no prefetch -> 2.
    # persistent_workers is on since 4.5.3 only; every flag is exported, so older 4.x run with the same settings.
    "swift": SwiftVersion("ms-swift 4.6.0", LoaderConfig(1, 2, True, True), KNOBS),
    # The same place; prefetch was 10 before 3.12.0. persistent_workers is transformers' TrainingArguments default.
    "swift3": SwiftVersion("ms-swift 3.12.6", LoaderConfig(1, 2, False, True), KNOBS),
    # swift/llm/utils/argument.py, SftArguments: two fields only. The rest is torch's and transformers' default.
    "swift2": SwiftVersion("ms-swift 2.6.1", LoaderConfig(1, 2, False, True), ("num_workers", "pin_memory")),
}
"""Export targets by the name the command line gives them; the first is the default."""


def swift_version(target: str) -> SwiftVersion:
    """Return the release line behind an export target.

    Raises:
        ValueError: If there is no such target.
    """
    if target not in SWIFT_VERSIONS:
        raise ValueError(f"target must be one of {', '.join(SWIFT_VERSIONS)} but got {target!r}.")
    return SWIFT_VERSIONS[target]


def target_of(name: str) -> str | None:
    """Return the export target whose release has this name, such as `ms-swift 4.6.0`; None if there is none."""
    return next((target for target, version in SWIFT_VERSIONS.items() if version.name == name), None)

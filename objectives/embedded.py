"""Where the files that ship with the package lie: the embedded default, architecture presets and recordings.

Runs in: parent and child. Standard library only. The package must be installed as a directory, as pip does; a zip
would need the files unpacked, because other programs open them by path.
*Not covered*: reading them (`objectives.rows`, `objectives.replay`, `objectives.slice.model`).
"""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
PRESETS = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b", "qwen2.5-14b")
"""Architecture presets, smallest first: the configs published with Qwen2.5-*-Instruct, nothing else of them."""


def embedded_dataset() -> Path:
    """Return the 50 self-cognition rows (alpaca fields, half Chinese and half English), a `.json` array."""
    return ASSETS / "embedded" / "self_cognition.json"


def embedded_tokenizer() -> Path:
    """Return the directory of the small byte-level BPE tokenizer (2000 tokens, ChatML)."""
    return ASSETS / "embedded" / "tokenizer"


def embedded_config() -> Path:
    """Return the config of the small Qwen2 model: a micro-batch takes some 17 ms on one CPU thread (LoRA, float32)."""
    return ASSETS / "embedded" / "config.json"


def preset_names() -> tuple[str, ...]:
    """Return the names of the architecture presets, smallest first."""
    return PRESETS


def preset_config(name: str) -> Path:
    """Return the config file of a preset.

    Raises:
        ValueError: If there is no preset of that name.
    """
    if name not in PRESETS:
        raise ValueError(f"name must be one of {', '.join(PRESETS)} but got {name!r}.")
    return ASSETS / "presets" / f"{name}.json"


def recording(name: str) -> Path:
    """Return the file of a recorded table that ships with the package, such as `guide-4090d`.

    Raises:
        ValueError: If there is no recording of that name.
    """
    names = sorted(path.stem for path in (ASSETS / "recordings").glob("*.csv"))
    if name not in names:
        raise ValueError(f"name must be one of {', '.join(names)} but got {name!r}.")
    return ASSETS / "recordings" / f"{name}.csv"

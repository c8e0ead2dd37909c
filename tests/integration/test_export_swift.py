"""The exported line in ms-swift's own parser, cross-field rules included."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from objectives.schema import KNOBS, LoaderConfig, canonical
from tuner.export import defaults, flags

pytestmark = pytest.mark.swift

BOTH = (False, True)
SPACE = sorted(set(itertools.starmap(canonical, itertools.product((0, 1, 2, 16), (1, 2, 8), BOTH, BOTH))))

# Enough of a model for ms-swift to know its kind; the arguments are checked without reading weights or a tokenizer.
MODEL_CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
}

# One process reads every case: importing ms-swift takes seconds, a case milliseconds. What the trainer will use is on
# `training_args`; the outer object keeps None where nothing was said.
READER = """
import json, sys
from swift.arguments import SftArguments
from swift.utils import parse_args

answers = []
for argv in json.load(sys.stdin):
    try:
        args, unknown = parse_args(SftArguments, sys.argv[2:] + argv)
    except (SystemExit, Exception) as error:
        answers.append(f"{type(error).__name__}: {error}")
        continue
    read = [getattr(args.training_args, f"dataloader_{knob}") for knob in sys.argv[1].split(",")]
    answers.append(f"unknown: {unknown}" if unknown else read)
print(json.dumps(answers))
"""


def read_with_swift(cases: list[list[str]], folder: Path) -> list[object]:
    """Return for each list of flags the four values ms-swift would train with, or its complaint as a string."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL_CONFIG))
    always = ["--model", "model", "--model_type", "qwen2", "--template", "qwen2_5", "--dataset", "rows.jsonl"]
    always += ["--output_dir", "out", "--add_version", "false"]
    offline = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "LOG_LEVEL": "ERROR", "MODELSCOPE_CACHE": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", READER, ",".join(KNOBS), *always],
        input=json.dumps(cases),
        env=os.environ | offline,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[object] = json.loads(done.stdout.splitlines()[-1])
    return answers


def values(config: LoaderConfig) -> list[object]:
    """Return the four values in the order of `KNOBS`."""
    return [getattr(config, knob) for knob in KNOBS]


def test_ms_swift_accepts_every_export_and_means_the_same(tmp_path: Path) -> None:
    """Every configuration of a small space comes back from the trainer's parser, and so do its own defaults."""
    default, name = defaults("swift")
    answers = read_with_swift([[], *(flags(config, "swift") for config in SPACE)], tmp_path)
    assert f"ms-swift {importlib.metadata.version('ms-swift')}" == name
    assert answers == [values(default), *map(values, SPACE)]

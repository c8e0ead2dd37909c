"""What ships with the package is there, complete and readable offline by the trainer's stack."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectives.embedded import (
    ASSETS,
    embedded_config,
    embedded_dataset,
    embedded_tokenizer,
    preset_config,
    preset_names,
    recording,
)
from objectives.messages import to_messages
from objectives.rows import check_rows, open_rows

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Return the shipped tokenizer, as the child loads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(embedded_tokenizer()), local_files_only=True)


def test_fifty_rows_half_of_them_chinese() -> None:
    """The embedded data set is 50 clean alpaca rows, half in each language, no two alike."""
    summary = check_rows(embedded_dataset(), batch_size=16)
    rows = list(open_rows(embedded_dataset()))
    assert (summary.format_counts, summary.warnings) == ({"alpaca": 50}, ())
    assert sum(bool(CHINESE.search(row["instruction"])) for row in rows) == 25
    assert len({row["output"] for row in rows}) == 50
    assert {bool(row["input"]) for row in rows} == {True, False}


@pytest.mark.parametrize(
    "text",
    [
        "I am Lumen; who, by the way, are you?\n\tTabs  and  spaces.",
        "你好，我是 Lumen。𠮷野家 🙂",
        "naïve Ωμέγα 한국어",
    ],
)
def test_tokenizer_round_trips(tokenizer: Any, text: str) -> None:
    """A byte-level tokenizer gives back any text, also of scripts it never saw."""
    assert tokenizer.is_fast
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_tokenizer_speaks_chatml(tokenizer: Any) -> None:
    """Each special token is one token, and a row ends with the token generation stops at."""
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [tokenizer(token)["input_ids"] for token in specials] == [[0], [1], [2]]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "q"}], tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_model_holds_every_token_and_row(tokenizer: Any) -> None:
    """Every token has an embedding, and the longest row fits into the model and the default `max_length`."""
    config = json.loads(embedded_config().read_text())
    longest = max(
        len(tokenizer.apply_chat_template(to_messages(row), return_dict=False)) for row in open_rows(embedded_dataset())
    )
    assert config["vocab_size"] == -(-len(tokenizer) // 64) * 64
    assert longest <= min(config["max_position_embeddings"], 2048)


def test_the_tokenizer_is_the_one_its_script_builds(tmp_path: Path) -> None:
    """The shipped tokenizer is that of the shipped rows: it can be rebuilt byte for byte."""
    copy = tmp_path / "assets"
    (copy / "embedded").mkdir(parents=True)
    for name in ("rebuild_tokenizer.py", "embedded/self_cognition.json"):
        (copy / name).write_bytes((ASSETS / name).read_bytes())
    subprocess.run([sys.executable, copy / "rebuild_tokenizer.py"], check=True, capture_output=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        rebuilt = json.loads((copy / "embedded/tokenizer" / name).read_text())
        assert rebuilt == json.loads((embedded_tokenizer() / name).read_text())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen2.5-0.5b", 0.494),
        ("qwen2.5-1.5b", 1.544),
        ("qwen2.5-3b", 3.086),
        ("qwen2.5-7b", 7.616),
        ("qwen2.5-14b", 14.770),
    ],
)
def test_presets_are_the_published_architectures(name: str, billions: float) -> None:
    """Each preset loads as a Qwen2 config, rope base included, and gives the model card's number of parameters."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(preset_config(name)), local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert (config.model_type, config.max_position_embeddings) == ("qwen2", 32768)
    assert config.rope_parameters["rope_theta"] == 1_000_000
    assert round(sum(p.numel() for p in model.parameters()) / 1e9, 3) == billions


def test_every_preset_file_has_a_name() -> None:
    """A preset is offered if and only if its file ships, and an unknown name is refused."""
    assert {path.stem for path in (ASSETS / "presets").glob("*.json")} == set(preset_names())
    with pytest.raises(ValueError, match="name must be one of"):
        preset_config("gpt-2")


def test_the_recorded_guide_ships() -> None:
    """The recorded table is there under its name, one row per number of workers."""
    with recording("guide-4090d").open(encoding="utf-8", newline="") as file:
        assert [row["num_workers"] for row in csv.DictReader(file)] == ["0", "2", "4", "6", "8", "12"]
    with pytest.raises(ValueError, match="name must be one of"):
        recording("missing")

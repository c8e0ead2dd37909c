"""Rebuilds the embedded tokenizer from the embedded rows.

Runs in: neither; by hand, after the rows were edited: `python objectives/assets/rebuild_tokenizer.py`. The same rows
give the same file byte for byte. `vocab_size` in `embedded/config.json` must stay at or above the tokenizer's size.
*Not covered*: a tokenizer fit for real use; this one exists so that tokenising costs something true.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

EMBEDDED = Path(__file__).parent / "embedded"
VOCAB_SIZE = 2000
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokenizer splits text before merging; `Qwen2Tokenizer` in transformers sets the same."""
CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' %}"
    "{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""ChatML with Qwen2.5's kind of default system turn."""
TURN_HEADS = ["system\n", "user\n", "assistant\n", "You are a helpful assistant."]
"""Text the template adds to every row."""


def train(texts: list[str]) -> Tokenizer:
    """Return a byte-level BPE of at most `VOCAB_SIZE` tokens, the special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_config(tokenizer: Tokenizer) -> dict[str, object]:
    """Return the settings transformers reads beside `tokenizer.json`, in the form Qwen2.5 publishes them."""
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(tokenizer.token_to_id(token)): {"content": token, **flags} for token in SPECIAL},
        "additional_special_tokens": list(SPECIAL[1:]),
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def main() -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    rows = json.loads((EMBEDDED / "self_cognition.json").read_text(encoding="utf-8"))
    tokenizer = train([row[field] for row in rows for field in ("instruction", "input", "output")] + TURN_HEADS)
    target = EMBEDDED / "tokenizer"
    target.mkdir(exist_ok=True)
    tokenizer.save(str(target / "tokenizer.json"))
    config = json.dumps(tokenizer_config(tokenizer), ensure_ascii=False, indent=2) + "\n"
    (target / "tokenizer_config.json").write_text(config, encoding="utf-8")
    sys.stdout.write(f"{tokenizer.get_vocab_size()} tokens in {target}\n")


if __name__ == "__main__":
    main()

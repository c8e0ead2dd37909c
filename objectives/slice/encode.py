"""Messages to token ids and labels: the loss is on the assistant's turns alone.

Runs in: child and its workers. *Not covered*: other templates than the tokenizer's own and ChatML; multimodal rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from objectives.messages import Message

IGNORED = -100
"""Label of tokens without loss: the `ignore_index` of PyTorch's cross entropy."""
DEFAULT_SYSTEM = "You are a helpful assistant."
"""ms-swift's default system prompt for Qwen2.5's template."""


class Encoder:
    """Encodes one row. ChatML is built turn by turn, each piece tokenised for itself, as ms-swift does.

    A tokenizer without ChatML's special tokens is asked for its own chat template, prompt and whole text, which
    costs the prompt twice.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.chatml = "<|im_start|>" in tokenizer.get_vocab()

    def encode(self, messages: Sequence[Message]) -> dict[str, list[int]]:
        """Return `input_ids` and `labels` of equal length, cut at `max_length`."""
        ids, labels = self.whole(messages)
        return {"input_ids": ids[: self.max_length], "labels": labels[: self.max_length]}

    def whole(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Return ids and labels of equal length, however long they are."""
        return self._chatml(messages) if self.chatml else self._template(messages)

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _chatml(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        ids: list[int] = []
        labels: list[int] = []
        if messages and messages[0]["role"] != "system":
            messages = [{"role": "system", "content": DEFAULT_SYSTEM}, *messages]
        for message in messages:
            head = self._ids(f"<|im_start|>{message['role']}\n")
            body = self._ids(f"{message['content']}<|im_end|>\n")
            ids += head + body
            learnt = message["role"] == "assistant"
            labels += [IGNORED] * len(head) + (body if learnt else [IGNORED] * len(body))
        return ids, labels

    def _template(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        if self.tokenizer.chat_template is None:
            prompt = "\n".join(m["content"] for m in messages[:-1])
            whole = prompt + "\n" + messages[-1]["content"] + (self.tokenizer.eos_token or "")
        else:
            render = self.tokenizer.apply_chat_template
            prompt = render(list(messages[:-1]), tokenize=False, add_generation_prompt=True) if messages[1:] else ""
            whole = render(list(messages), tokenize=False)
        ids = self._ids(whole)
        masked = min(len(self._ids(prompt)), len(ids))
        return ids, [IGNORED] * masked + ids[masked:]

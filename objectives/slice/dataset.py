"""Raw rows, tokenised when a worker asks for them, as ms-swift has done since 3.11.

Runs in: child and its workers. *Not covered*: reading rows (`objectives.rows`), mapping fields (`objectives.messages`).
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import Dataset

from objectives.messages import to_messages
from objectives.rows import Rows
from objectives.slice.encode import IGNORED, Encoder


class RowDataset(Dataset):
    """Row → messages → token ids and labels; the work of `LazyLLMDataset` in ms-swift.

    Args:
        rows: The raw rows.
        encoder: Turns messages into ids.
        delay_s: What `data[i]` sleeps before it reads: a slow disk, whose wait takes no CPU.
    """

    def __init__(self, rows: Rows, encoder: Encoder, delay_s: float = 0.0) -> None:
        self.rows = rows
        self.encoder = encoder
        self.delay_s = delay_s

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        if self.delay_s:
            time.sleep(self.delay_s)
        return self.at_once(index)

    def at_once(self, index: int) -> dict[str, list[int]]:
        """Return the row without the delay: what is held in memory does not wait for it."""
        return self.encoder.encode(to_messages(self.rows[index]))

    def is_long(self, index: int) -> bool:
        """Return whether the row has more tokens than `max_length`; reads and tokenises it without the delay."""
        return len(self.encoder.whole(to_messages(self.rows[index]))[0]) > self.encoder.max_length


class PadCollate:
    """Pads a batch on the right to its longest row; int64 tensors, three per batch, as ms-swift's collator."""

    def __init__(self, pad_token_id: int) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, samples: list[dict[str, list[int]]]) -> dict[str, Any]:
        """Return `input_ids`, `labels` and `attention_mask`, each of shape (batch, longest row)."""
        ids = [torch.tensor(s["input_ids"]) for s in samples]
        labels = [torch.tensor(s["labels"]) for s in samples]
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            "input_ids": pad(ids, batch_first=True, padding_value=self.pad_token_id),
            "labels": pad(labels, batch_first=True, padding_value=IGNORED),
            "attention_mask": pad([torch.ones_like(i) for i in ids], batch_first=True),
        }

"""The real objective passes the same laws as the played ones."""

from __future__ import annotations

import sys

import pytest
from objective_contract import ObjectiveContract

from objectives.lora import LoraObjective, LoraOptions
from objectives.protocol import Choices
from objectives.schema import Workload
from objectives.workload import resolve


class TestLora(ObjectiveContract):
    """The embedded model on the CPU, short slices, a few configurations."""

    most_configurations = 4

    @pytest.fixture(scope="class")
    @staticmethod
    def objective() -> LoraObjective:
        """Return the embedded workload."""
        values: dict[str, tuple[int | bool, ...]] = {
            "num_workers": (0, 1, 2),
            "prefetch_factor": (1, 4),
            "persistent_workers": (False, True),
            "pin_memory": (False,),
        }
        choices = Choices(values, dict.fromkeys(values, "for the test"))
        resolved = resolve(Workload(torch_dtype="float32"))
        return LoraObjective(resolved, choices, LoraOptions(slice_seconds=0.5, python=sys.executable))

from __future__ import annotations

import json
from pathlib import Path

import pytest
from objective_contract import ObjectiveContract

from objectives.replay import EXAMPLE, ReplayObjective


class TestReplayOfATable(ObjectiveContract):
    """A CSV table without any series."""

    @pytest.fixture
    def objective(self) -> ReplayObjective:
        """Return the guide's table."""
        return ReplayObjective(EXAMPLE)


class TestReplayOfSlices(ObjectiveContract):
    """JSON lines with steps and stamped batches."""

    @pytest.fixture
    def objective(self, tmp_path: Path) -> ReplayObjective:
        """Return three slices with stamped batches at accumulation 2, and a ceiling."""
        step = {"step_s": 0.5, "data_wait_s": 0.1, "h2d_s": 0.01, "tokens": 300}
        common = {"workload": "w", "batch_size": 2, "accumulation": 2}
        lines = [{"kind": "ceiling", **common, "steps": [{**step, "data_wait_s": 0.0}] * 3}]
        for workers in (0, 2, 4):
            batches = [{"start_s": 0.1 * k, "end_s": 0.1 * k + 0.1, "worker": k % 2} for k in range(6)]
            knobs = {"num_workers": workers, "prefetch_factor": 2 if workers else None}
            more = {"restart_s": 0.3, "batches": batches, "steps": [step] * 3}
            lines.append({"kind": "configuration", **common, **knobs, **more})
        path = tmp_path / "slices.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in lines))
        return ReplayObjective(path)

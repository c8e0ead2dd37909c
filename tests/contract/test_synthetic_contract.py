from __future__ import annotations

import pytest
from objective_contract import ObjectiveContract

from objectives.synthetic import SyntheticObjective
from objectives.synthetic_job import SyntheticJob


class TestSynthetic(ObjectiveContract):
    """The default job: a slice is part of a long epoch."""

    @pytest.fixture
    def objective(self) -> SyntheticObjective:
        """Return the default job."""
        return SyntheticObjective(seed=1)


class TestSyntheticOfWholeEpochs(ObjectiveContract):
    """A job whose slices are whole epochs."""

    @pytest.fixture
    def objective(self) -> SyntheticObjective:
        """Return 50 rows at accumulation 16, whose last group is short, with crashes of both sorts."""
        job = SyntheticJob(accumulation=16, epoch_batches=50, crashes={3: "gpu_lost", "depth > 64": "shm_full"})
        return SyntheticObjective(job, seed=2)

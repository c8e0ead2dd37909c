"""What the queue model must know of a study beside its slices.

Runs in: parent. Pure. *Not covered*: the slices (`tuner.queue_model.evidence`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storage.records import StudyRecord


@dataclass(frozen=True, slots=True)
class SliceTerms:
    """How slices and epochs are made up, and what trainer and workers share."""

    epochs: int
    """Whole epochs of a slice; 0 if it is a part of one."""
    epoch_batches: int
    """Batches of a real epoch; 0 if not known."""
    batch_size: int
    """Samples of a full batch."""
    usable_cpus: float

    def epoch_windows(self, batches: int) -> float:
        """Return how many parts of so many batches a real epoch has; 1 where slices hold whole ones."""
        if self.epochs or not self.epoch_batches or not batches:
            return 1.0
        return max(1.0, self.epoch_batches / batches)


def terms_of(study: StudyRecord) -> SliceTerms:
    """Return the terms of a study as its record has them."""
    identity, remember = study.identity, study.remember
    cpus = study.facts.get("synthetic.cores") or study.host.get("usable_cpus") or math.inf
    return SliceTerms(
        epochs=int(remember.get("epochs", 0)),
        epoch_batches=int(remember.get("epoch_batches", 0)),
        batch_size=int(identity.get("workload.per_device_train_batch_size", identity.get("job.batch_size", 1))),
        usable_cpus=float(cpus),
    )

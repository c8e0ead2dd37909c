"""A study with its objective, claimed and made ready at the first need and once only.

Runs in: parent. Making ready is dear (a model is loaded, ceilings are measured), so a study that has nothing left to
measure never pays for it. *Not covered*: what is measured then (`tuner.study`, `tuner.confirm`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from objectives.protocol import JsonScalar, Objective
from storage.records import StudyRecord, TrialRecord
from storage.store import Store
from tuner.progress import Progress


class Session:
    """One process's work on one study.

    Args:
        store: Where it is kept.
        study: Its record; not stored yet if it is new.
        objective: What measures; closed by the caller.
        progress: Told what happens.
        new: Whether the study is to be made.
        max_workers: The largest worker count a new study's range must have.
    """

    def __init__(
        self, store: Store, study: StudyRecord, objective: Objective, progress: Progress, *, new: bool, max_workers: int
    ) -> None:
        self.store = store
        self.study = study
        self.objective = objective
        self.progress = progress
        self.new = new
        self._max_workers = max_workers
        self._claimed = False
        self._ready = False

    def claim(self) -> list[TrialRecord]:
        """Become the study's owner; return the trials that a killed owner left and that failed now.

        Raises:
            UserError: If a living process works on the study.
        """
        if self.new or self._claimed:
            return []
        self._claimed = True
        lost = self.store.recover(self.study)
        self.store.set_remember(self.study)  # the options: an older version kept none
        return lost

    def remember(self, fixed: Mapping[str, JsonScalar]) -> None:
        """Store what is fixed for the rest of the study."""
        self.study = replace(self.study, remember=dict(fixed))
        self.store.set_remember(self.study)

    def ready(self) -> StudyRecord:
        """Make the objective ready, store the study and the ceilings, and return the study as it is stored.

        A new study is stored once its objective is ready: a model that cannot be trained must not take its name.

        Raises:
            UserError: If the workload cannot be trained.
        """
        if self._ready:
            return self.study
        self.claim()
        prepared = self.objective.prepare(self.study.remember, self.progress.trial_text)
        self.study = replace(self.study, remember=dict(prepared.remember), facts=dict(prepared.facts))
        if self.new:
            self.store.create_study(self.study, max_workers=self._max_workers)
            self.new, self._claimed = False, True
        else:
            self.store.set_remember(self.study)
        for ceiling in prepared.ceilings:
            self.store.add_ceiling(self.study, ceiling)
        self._ready = True
        return self.study

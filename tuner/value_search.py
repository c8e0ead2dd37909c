"""Chooses the next trial from one number per trial: whatever most raises the score of the final choice.

Runs in: parent. The knowledge gradient (Frazier, Powell and Dayanik 2009): for every configuration, the expected
maximum of the posterior means after one more trial of it, less the maximum now. It repeats a leader when that settles
more than something new would, so that neither needs a rule of its own. Only what has been measured, or
would be by this trial, counts: nothing else can be chosen.
*Not covered*: first points (`tuner.search`), the model (`tuner.surface`, `tuner.edge`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from objectives.schema import LoaderConfig
from storage.records import Origin, TrialRecord
from tuner.space import SearchSpace
from tuner.value_appraisal import Appraised, appraise

NODES = 7
"""Gauss-Hermite nodes of the expectation."""


def next_by_value(done: Sequence[TrialRecord], space: SearchSpace) -> tuple[LoaderConfig, Origin] | None:
    """Return what to measure next, and whether it is new; None while no trial was measured.

    Never the configuration that was measured last, so that drift does not look like agreement, and nothing that is
    likely to crash unless there is nothing else.

    Args:
        done: Complete trials, oldest first.
        space: What may be measured.
    """
    known = appraise(done, space.configurations)
    if known is None:
        return None
    open_to = np.zeros(len(known.configurations), dtype=bool)
    open_to[: len(space.configurations)] = True
    last = done[-1].config
    candidates = [i for i in np.flatnonzero(known.fit & open_to) if known.configurations[i] != last]
    if not candidates:
        least = np.argsort(known.edge.crash_probability[open_to], kind="stable")
        candidates = [i for i in least if known.configurations[i] != last][:1] or [0]
    gains = knowledge_gradient(known, np.asarray(candidates))
    best = known.configurations[candidates[int(np.argmax(gains))]]
    return best, "repeat" if any(t.config == best for t in done) else "search"


def knowledge_gradient(known: Appraised, candidates: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return, per candidate, by how much one more trial of it is expected to raise the log utility of the choice."""
    utility, surface = known.log_utility, known.surface
    rivals = np.flatnonzero(known.fit & (known.slices > 0))
    variance = np.maximum(np.diag(surface.covariance)[candidates], 1e-12) + surface.noise_sd**2
    shift = surface.covariance[:, candidates] / np.sqrt(variance)
    own, own_shift = utility[candidates], shift[candidates, np.arange(len(candidates))]
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    best_after = np.zeros(len(candidates))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        after = own + own_shift * node
        if len(rivals):
            after = np.maximum(after, (utility[rivals, None] + shift[rivals] * node).max(axis=0))
        best_after += weight * after
    now = utility[rivals].max() if len(rivals) else 0.0
    return np.asarray((best_after - now) * (1.0 - known.edge.crash_probability[candidates]))

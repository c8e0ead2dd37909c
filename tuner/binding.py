"""Binds a study to what it measures: the same name goes on, a different workload or host is refused.

Runs in: parent. *Not covered*: storing it (`storage.store`).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from objectives.errors import UserError
from objectives.protocol import Objective
from objectives.score import ScorePolicy
from storage.records import StudyRecord
from tuner.space import SearchSpace

SELF_TEST = "self_test"
"""Key of the identity that marks an A/A study; others do not have it, so that their fingerprints stay as they were."""


def is_self_test(study: StudyRecord) -> bool:
    """Return whether this is an A/A study: every trial is the baseline, and so are both arms of a confirmation."""
    return SELF_TEST in study.identity


def fingerprint(identity: Mapping[str, Any], host: Mapping[str, Any]) -> str:
    """Return the hash a study is bound to; 16 hex digits of SHA-256 over both, keys sorted."""
    text = json.dumps([dict(identity), dict(host)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def bind(
    found: StudyRecord | None,
    name: str,
    objective: Objective,
    space: SearchSpace,
    *,
    host: Mapping[str, Any],
    bound_host: Mapping[str, Any],
    baseline_of: str,
    policy: ScorePolicy,
    seed: int,
    options: Mapping[str, Any],
    self_test: bool = False,
) -> StudyRecord:
    """Return the record of the study to run: the one found, or a new one that is not stored yet.

    Args:
        found: The stored study of this name, if there is one.
        host: The host as recorded.
        bound_host: The part of it that makes measurements comparable; empty for a recorded table.
        options: What the user asked for, kept for later commands.
        self_test: Whether it is an A/A study.

    Raises:
        UserError: If a study of this name measured something else.
    """
    identity = {
        "objective": objective.name,
        "baseline": baseline_of,
        **{f"score.{name}": value for name, value in asdict(policy).items()},
        **objective.identity(),
        **({SELF_TEST: "A/A"} if self_test else {}),
    }
    if found is not None:
        _refuse_other(found, identity, bound_host)
        return replace(found, options=dict(options))
    return StudyRecord(
        name=name,
        uuid=uuid.uuid4().hex,
        objective=objective.name,
        identity=identity,
        host={**host, "bound": dict(bound_host)},
        fingerprint=fingerprint(identity, bound_host),
        baseline=space.baseline,
        baseline_of=baseline_of,
        measured_knobs=space.measured_knobs,
        values={knob: list(menu) for knob, menu in space.values.items()},
        reasons={**space.reasons, **{f"left out: {reason}": str(n) for reason, n in space.left_out.items()}},
        configurations=len(space.configurations),
        seed=seed,
        created_at=datetime.now(UTC),
        score_policy=asdict(policy),
        options=dict(options),
    )


def _refuse_other(found: StudyRecord, identity: Mapping[str, Any], bound_host: Mapping[str, Any]) -> None:
    """Raise if the study was measured on another workload or host, naming the first difference."""
    if found.fingerprint == fingerprint(identity, bound_host):
        return
    before = {**found.identity, **{f"host.{k}": v for k, v in found.host.get("bound", {}).items()}}
    now = {**identity, **{f"host.{k}": v for k, v in bound_host.items()}}
    differing = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    first = differing[0] if differing else "the host"
    label = first.removeprefix("workload.").removeprefix("score.")
    raise UserError(
        f"study '{found.name}' was measured with {label}={before.get(first)}, this run has {now.get(first)}",
        f"speeds of different workloads or hosts cannot be compared inside one study"
        f" ({len(differing)} difference{'s' if len(differing) != 1 else ''}: {', '.join(sorted(differing))})",
        f"tuner run --study {found.name}-2",
    )

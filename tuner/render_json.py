"""Shows a report as one JSON document.

Runs in: parent. The document is described by `report_schema.json`, which ships with the package.
*Not covered*: what it says (`tuner.report`).
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from tuner.report import Report


def to_json(report: Report) -> str:
    """Return the report as one JSON document, keys in the order of the dataclasses.

    Numbers are not rounded. A number that JSON cannot hold (infinite, NaN) becomes null.
    """
    return json.dumps(_finite(asdict(report)), indent=2, ensure_ascii=False, allow_nan=False)


def schema() -> dict[str, Any]:
    """Return the JSON schema of `tuner.report/1`."""
    loaded: dict[str, Any] = json.loads(files("tuner").joinpath("report_schema.json").read_text(encoding="utf-8"))
    return loaded


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

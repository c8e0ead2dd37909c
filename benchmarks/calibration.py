"""Part `calibration`: the noise of the profiles beside the noise that was recorded.

*Not covered*: service times, of which the recordings hold few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.sim.noise import GPU_BOUND, LAUNCH_BOUND, NAMES, Array, factors, recorded

LAGS = (1, 2, 3, 5, 10, 20)
BLOCKS = (5, 10, 20, 60)
STEP_S = 0.42
GAP_STEPS = 10
SLICE_STEPS = 20
SERIES_STEPS = 240
"""Length of the one long recorded slice, `long7b`."""


def slices_table() -> list[dict[str, Any]]:
    """Return the scatter of slices: log of the mean and of the median between slices, log of steps within."""
    lines = []
    for workload in (*LAUNCH_BOUND, *GPU_BOUND):
        found = recorded()[workload]
        if len(found) > 1:
            lines.append(_scatter(f"recorded {workload}", [found]))
    for name in NAMES:
        series = factors(name, np.random.default_rng(1), 200, 10 * (SLICE_STEPS + GAP_STEPS), STEP_S)
        cut = series.reshape(200, 10, SLICE_STEPS + GAP_STEPS)[:, :, :SLICE_STEPS]
        lines.append(_scatter(f"simulated {name}", [list(study) for study in cut]))
    return lines


def series_table() -> list[dict[str, Any]]:
    """Return one long slice: autocorrelation, and how slowly means of more steps scatter less."""
    lines = [_series("recorded long7b", recorded()["long7b"][0][None])]
    lines += [
        _series(f"simulated {name}", factors(name, np.random.default_rng(2), 400, SERIES_STEPS, STEP_S))
        for name in NAMES
    ]
    return lines


def _scatter(name: str, studies: list[list[Array]]) -> dict[str, Any]:
    def between(of: Any) -> float:
        return float(np.sqrt(np.mean([np.var([np.log(of(s)) for s in study], ddof=1) for study in studies])))

    slices = [s for study in studies for s in study]
    return {
        "series": name,
        "slices": len(slices),
        "steps": len(slices[0]),
        "sd log mean": between(np.mean),
        "sd log median": between(np.median),
        "sd log step within": float(np.sqrt(np.mean([np.log(s).var(ddof=1) for s in slices]))),
        "steps > 1.4 x median %": 100 * float(np.mean(np.concatenate([s > 1.4 * np.median(s) for s in slices]))),
    }


def _series(name: str, series: Array) -> dict[str, Any]:
    x = np.log(series) - np.log(series).mean(axis=1, keepdims=True)
    power = (x * x).sum(axis=1)
    line: dict[str, Any] = {"series": name, "sd log step": float(np.sqrt((x * x).mean()))}
    for lag in LAGS:
        line[f"acf {lag}"] = float(np.mean((x[:, :-lag] * x[:, lag:]).sum(axis=1) / power))
    for size in BLOCKS:
        means = x[:, : x.shape[1] // size * size].reshape(len(x), -1, size).mean(axis=2)
        line[f"sd of {size}"] = float(np.sqrt(means.var(axis=1, ddof=1).mean()))
    return line

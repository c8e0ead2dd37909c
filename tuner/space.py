"""The canonical space: every configuration that may be measured, each once.

Runs in: parent. *Not covered*: where the values come from (`tuner.bounds`, recorded tables) and in which order they
are tried (`tuner.search`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from objectives.protocol import Choices
from objectives.schema import KNOBS, LoaderConfig, canonical

Fits = Callable[[LoaderConfig], str | None]
"""Returns None, or why a configuration is left out."""


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Configurations in canonical form, sorted; the baseline is always one of them."""

    configurations: tuple[LoaderConfig, ...]
    baseline: LoaderConfig
    values: Mapping[str, tuple[int | bool, ...]]
    reasons: Mapping[str, str]
    left_out: Mapping[str, int]
    """Reason → how many configurations were left out for it."""

    @property
    def measured_knobs(self) -> tuple[str, ...]:
        """Return the knobs with more than one value; the others are held, and nothing is learnt of them."""
        return tuple(knob for knob in KNOBS if len(self.values.get(knob, ())) > 1)


def build_space(choices: Choices, default: LoaderConfig, fits: Fits = lambda _config: None) -> SearchSpace:
    """Return the space of an objective's choices.

    Args:
        choices: Values per knob, or the explicit list of configurations.
        default: The export target's defaults; the baseline unless the objective names its own. A knob that cannot
            vary here takes the one value it has.
        fits: Says which configurations this host cannot hold.
    """
    baseline = choices.baseline or _held(default, choices.values)
    if choices.configurations is not None:
        found = {*choices.configurations, baseline}
        return SearchSpace(tuple(sorted(found, key=order)), baseline, choices.values, choices.reasons, {})
    menus = [choices.values.get(knob) or (getattr(baseline, knob),) for knob in KNOBS]
    found = {baseline}
    left_out: dict[str, int] = {}
    for workers, prefetch, persistent, pin in itertools.product(*menus):
        config = canonical(workers, prefetch, bool(persistent), bool(pin))
        reason = fits(config)
        if reason is None:
            found.add(config)
        elif config not in found:
            left_out[reason] = left_out.get(reason, 0) + 1
    return SearchSpace(tuple(sorted(found, key=order)), baseline, choices.values, choices.reasons, left_out)


def order(config: LoaderConfig) -> tuple[int, int, bool, bool]:
    """Return the sort key of a configuration: fewest workers first, then prefetch."""
    return config.num_workers, config.prefetch_factor or 0, config.persistent_workers, config.pin_memory


def nearest(space: SearchSpace, wanted: LoaderConfig) -> LoaderConfig:
    """Return the configuration of the space closest to the one wanted, itself if it is in the space.

    Workers weigh most, then prefetch, then the flags; at equal distance the cheaper one.
    """

    def distance(config: LoaderConfig) -> tuple[int, int, int, tuple[int, int, bool, bool]]:
        flags = (config.persistent_workers != wanted.persistent_workers) + (config.pin_memory != wanted.pin_memory)
        prefetch = abs((config.prefetch_factor or 0) - (wanted.prefetch_factor or 0))
        return abs(config.num_workers - wanted.num_workers), prefetch, flags, order(config)

    return min(space.configurations, key=distance)


def _held(default: LoaderConfig, values: Mapping[str, tuple[int | bool, ...]]) -> LoaderConfig:
    """Return the defaults with every knob that has one value only set to it."""
    held = {knob: menu[0] for knob, menu in values.items() if len(menu) == 1}
    return canonical(
        int(held.get("num_workers", default.num_workers)),
        int(held.get("prefetch_factor", default.prefetch_factor or 2)),
        bool(held.get("persistent_workers", default.persistent_workers)),
        bool(held.get("pin_memory", default.pin_memory)),
    )


def cost_of(config: LoaderConfig, baseline: LoaderConfig) -> tuple[int, int, int]:
    """Return what a configuration costs: workers, then batches held per worker, then settings to change."""
    changed = sum(getattr(config, knob) != getattr(baseline, knob) for knob in KNOBS)
    return (config.num_workers, config.prefetch_factor or 0, changed)

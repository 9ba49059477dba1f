"""How much a setting that is on or off changes the throughput of a sweep."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lotus.settings.space import Setting
from lotus.sweep.sweep_summary import SweepSummary, label
from lotus.tune.search.trials.trial_rates import Speedup, compared

SWITCHES = ("pin_memory", "persistent_workers")


@dataclass(frozen=True)
class Switch:
    """Two settings that differ in one switch: how fast the faster one is, over the other.

    `others` describes what they have in common; `on`: the faster one has it on. The pairs are the
    rounds that both settings have.
    """

    name: str
    others: str
    on: bool
    speedup: Speedup


def switches(summary: SweepSummary) -> Iterator[Switch]:
    """Yield each pair of settings that differ only in a switch, if a round has both."""
    for name in SWITCHES:
        if name not in summary.varied or "samples_per_s" not in summary.runs:
            continue
        varied = tuple(other for other in summary.varied if other != name)
        places = {setting: place for place, setting in enumerate(summary.settings)}
        for setting, place in places.items():
            other = _without(setting, name)
            if other is None or other not in places:
                continue
            rates = _by_round(summary.runs, place), _by_round(summary.runs, places[other])
            pairs = [(rates[0][each], rates[1][each]) for each in rates[0] if each in rates[1]]
            if pairs:
                shown = compared(pairs)
                on = shown.mean >= 1
                faster = shown if on else compared([(off, with_it) for with_it, off in pairs])
                yield Switch(name, label(setting, varied), on, faster)


def _without(setting: Setting, name: str) -> Setting | None:
    """Return the same setting with the switch off; None where it is off already."""
    if not getattr(setting, name):
        return None
    off: dict[str, Any] = {name: False}
    return dataclasses.replace(setting, **off)


def _by_round(runs: pd.DataFrame, place: int) -> dict[int, float]:
    mine = runs[(runs["setting"] == place) & (runs["samples_per_s"] > 0)]
    return dict(zip(mine["repeat"].astype(int), mine["samples_per_s"].astype(float), strict=True))

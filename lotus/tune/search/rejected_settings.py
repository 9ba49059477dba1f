"""Why settings that a table shows as faster than the recommended one were not chosen."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Protocol

from lotus.settings.space import Measurement, Setting
from lotus.tune.search import search_notes
from lotus.tune.search.trial_rates import Checked, Speedup
from lotus.tune.search.trial_runner import TrialRow
from lotus.tune.strategies.preference import TIE


class Searched(Protocol):
    """What this needs of a `lotus.tune.Result`."""

    @property
    def best(self) -> Setting: ...
    @property
    def own(self) -> Setting: ...
    @property
    def measured(self) -> tuple[TrialRow, ...]: ...
    @property
    def checked(self) -> Checked | None:
        """How the best setting and the own one compare in real training steps."""

    @property
    def compared(self) -> tuple[tuple[Setting, Speedup], ...]:
        """Settings that were measured in turn with the own one."""


def passed_over(result: Searched) -> dict[Setting, str]:
    """A reason for each setting whose mean rate is above that of `result.best`, in words."""
    measured: dict[Setting, list[Measurement]] = {}
    for row in result.measured:
        measured.setdefault(row.measurement.setting.normal(), []).append(row.measurement)
    best = result.best.normal()
    chosen = _mean(measured.get(best, ()))
    if chosen is None:
        return {}
    faster = [
        setting
        for setting, rows in measured.items()
        if setting != best and (_mean(rows) or 0.0) > chosen
    ]
    return {setting: _why(result, setting, measured[setting], measured[best]) for setting in faster}


def _why(
    result: Searched, rejected: Setting, rows: Sequence[Measurement], chosen: Sequence[Measurement]
) -> str:
    checked, name = result.checked, search_notes.setting(result.best)
    if checked is not None and _alike(checked.setting, rejected):
        return f"not chosen: {search_notes.checked(checked, rejected)}"
    compared = next((shown for setting, shown in result.compared if setting == rejected), None)
    if compared is not None:
        return (
            "not chosen: measured in turn with the program's own setting it was not shown to be "
            f"faster: {search_notes.speedup(compared)}"
        )
    failed = [row.failed for row in rows if row.failed]
    if failed:
        return f"not chosen: another trial of it failed: {failed[-1]}"
    more = (_mean(rows) or 0.0) / (_mean(chosen) or math.inf) - 1
    if more <= TIE and rejected > result.best.normal():
        return f"not chosen: {more:.1%} faster at most than {name}, which takes less"
    if not (_low(rows) > 0 and math.isfinite(_high(rows))):
        return f"not chosen: too few batches of it were measured to tell it from {name}"
    if _low(rows) <= _high(chosen):
        return f"not chosen: trials do not tell it from {name}, their intervals overlap"
    if result.best.normal() != result.own.normal():
        return (
            f"not chosen: {name} was chosen and held against the own setting, by all trials that "
            "there were until then"
        )
    if checked is not None:
        return (
            f"not chosen: what looked best, {search_notes.setting(checked.setting)}, was not shown "
            "to be faster in the program's own steps, and this one was not held against them"
        )
    return "not chosen: it was not measured in turn with the program's own setting"


def _alike(setting: Setting, other: Setting) -> bool:
    """Whether they differ in what a check may leave out: what is prefetched, and who stays."""
    setting, other = (
        dataclasses.replace(each, prefetch_factor=None, persistent_workers=False)
        for each in (setting, other)
    )
    return setting == other


def _worked(rows: Sequence[Measurement]) -> list[Measurement]:
    return [row for row in rows if not row.failed]


def _mean(rows: Sequence[Measurement]) -> float | None:
    """Of the rates, as the table has it."""
    worked = _worked(rows)
    return statistics.mean(row.samples_per_s for row in worked) if worked else None


def _low(rows: Sequence[Measurement]) -> float:
    return min(row.low for row in _worked(rows))


def _high(rows: Sequence[Measurement]) -> float:
    return max(row.high for row in _worked(rows))

"""Explains why settings with a higher measured rate than the recommended one were not chosen."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Protocol

from lotus.settings.space import Measurement, Setting
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from lotus.tune.search.trials.trial_runner import TrialRow
from lotus.tune.strategies.preference import TIE


class Searched(Protocol):
    """The part of a `lotus.tune.Result` that is needed here."""

    @property
    def best(self) -> Setting: ...
    @property
    def own(self) -> Setting: ...
    @property
    def measured(self) -> tuple[TrialRow, ...]: ...
    @property
    def checked(self) -> Checked | None:
        """The comparison of the best setting and the own one in real training steps."""

    @property
    def compared(self) -> tuple[tuple[Setting, Speedup], ...]:
        """Settings that were measured in turn with the own setting."""


def passed_over(result: Searched) -> dict[Setting, str]:
    """Return the reason, for each setting whose mean rate is above that of `result.best`."""
    measured: dict[Setting, list[Measurement]] = {}
    for row in result.measured:
        measured.setdefault(row.measurement.setting.normal(), []).append(row.measurement)
    best = dataclasses.replace(result.best.normal(), torch_threads=None)  # as it was in trials
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
    if result.best.torch_threads is not None:
        return (
            "not chosen: trials have torch's threads as they are; fewer were faster in the "
            "program's own steps"
        )
    if checked is not None and _alike(checked.setting, rejected):
        return f"not chosen: {search_notes.checked(checked, rejected)}"
    compared = next((shown for setting, shown in result.compared if setting == rejected), None)
    if compared is not None:
        return (
            "not chosen: measured in turn with the program's own setting, it was not clearly "
            f"faster: {search_notes.speedup(compared)}"
        )
    failed = [row.failed for row in rows if row.failed]
    if failed:
        return f"not chosen: another trial of it failed: {failed[-1]}"
    more = (_mean(rows) or 0.0) / (_mean(chosen) or math.inf) - 1
    if more <= TIE and rejected > result.best.normal():
        return f"not chosen: only {more:.1%} faster than {name}, which needs less"
    if not (_low(rows) > 0 and math.isfinite(_high(rows))):
        return f"not chosen: too few batches of it were measured to compare it with {name}"
    if _low(rows) <= _high(chosen):
        return f"not chosen: its interval overlaps with that of {name}"
    if result.best.normal() != result.own.normal():
        return (
            f"not chosen: {name} was chosen by the trials up to then, and compared with the own "
            "setting"
        )
    if checked is not None:
        return (
            f"not chosen: {search_notes.setting(checked.setting)} looked best, but was not shown "
            "to be faster in the program's own steps, with which this one was not compared"
        )
    return "not chosen: it was not measured in turn with the program's own setting"


def _alike(setting: Setting, other: Setting) -> bool:
    """Return True if they differ only in what a check may change: prefetch, persistent workers."""
    setting, other = (
        dataclasses.replace(each, prefetch_factor=None, persistent_workers=False)
        for each in (setting, other)
    )
    return setting == other


def _worked(rows: Sequence[Measurement]) -> list[Measurement]:
    return [row for row in rows if not row.failed]


def _mean(rows: Sequence[Measurement]) -> float | None:
    """Return the mean rate, as in the table."""
    worked = _worked(rows)
    return statistics.mean(row.samples_per_s for row in worked) if worked else None


def _low(rows: Sequence[Measurement]) -> float:
    return min(row.low for row in _worked(rows))


def _high(rows: Sequence[Measurement]) -> float:
    return max(row.high for row in _worked(rows))

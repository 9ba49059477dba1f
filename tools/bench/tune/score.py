"""Scores the searches of comparison.py (loss, settings tried, seconds) and summarises them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from lotus.settings.space import PARAMETERS, Setting
from tools.bench.tune.strategy_replay import Timings

# Issue of `lotus tune`: median and 95th percentile of regret, settings and seconds of any search.
AIMS = {"median": 0.02, "p95": 0.05, "most_settings": 5, "most_seconds": 60.0}


@dataclass(frozen=True)
class Search:
    """One search, or one rule applied. Regret: 1 - rate of the setting / highest rate."""

    method: str
    workload: str
    setting: Setting
    regret: float
    settings: int  # different ones that were tried
    seconds: float
    failed: str = ""  # then the program keeps its own setting, and `regret` is that one's


@dataclass(frozen=True)
class Row:
    """All searches of one method."""

    method: str
    searches: int
    median: float  # of regret
    p95: float
    worst: float
    settings: float  # median
    most_settings: int
    seconds: float  # median
    most_seconds: float
    failures: int


def summed_up(searches: Sequence[Search]) -> list[Row]:
    """Return a row a method, in the order in which methods appear."""
    rows = []
    for method in dict.fromkeys(search.method for search in searches):
        some = [search for search in searches if search.method == method]
        regrets = [search.regret for search in some]
        rows.append(
            Row(
                method,
                len(some),
                statistics.median(regrets),
                percentile(regrets, 0.95),
                max(regrets),
                statistics.median(search.settings for search in some),
                max(search.settings for search in some),
                statistics.median(search.seconds for search in some),
                max(search.seconds for search in some),
                sum(bool(search.failed) for search in some),
            )
        )
    return rows


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that at least this share of them does not exceed."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(math.ceil(share * len(values) - 1e-9), 1) - 1]


def aims(row: Row) -> dict[str, bool]:
    """Return which of the aims are reached; `failures`: there was none."""
    met = {name: getattr(row, name) <= most for name, most in AIMS.items()}
    return {**met, "failures": row.failures == 0}


def ahead(row: Row, other: Row) -> tuple[bool, bool]:
    """Return if a method loses less (median and 95th percentile), and if it takes less time."""
    lost, others = (row.median, row.p95), (other.median, other.p95)
    less = lost != others and all(a <= b for a, b in zip(lost, others, strict=True))
    return less, row.seconds < other.seconds


def of_trials(
    method: str,
    workload: str,
    trials: pd.DataFrame,
    chosen: Setting | None,
    own: Setting,
    timings: Timings,
) -> Search:
    """Return the search that `strategy_replay.replay` ran; one without a choice has
    failed.
    """
    kept = own if chosen is None else chosen
    return Search(
        method,
        workload,
        kept.normal(),
        timings.regret(kept),
        len(trials[list(PARAMETERS)].drop_duplicates()),
        float(trials.seconds.sum()),
        "nothing was found" if chosen is None else "",
    )


def of_rule(method: str, workload: str, setting: Setting, own: Setting, timings: Timings) -> Search:
    """Return a rule that tries nothing."""
    if setting not in timings:
        why = "the table has no such setting"
        return Search(method, workload, own.normal(), timings.regret(own), 0, 0.0, why)
    return Search(method, workload, setting.normal(), timings.regret(setting), 0, 0.0)

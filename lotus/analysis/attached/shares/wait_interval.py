"""Computes the interval of the share of waits, from its variation and the error of stacks.

py-spy records which stack it read, but not since when the thread was there: between a stack inside
a wait and one outside, it is unknown when the wait began or ended. py-spy is also late when cores
are busy or processes start, and the program runs on while its stacks are read. Compared with the
program's own clock (tools/bench/attach/wait_shares.py), a quarter of that unknown time bounds such
errors.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.batches.wait_spread import spread_of
from lotus.analysis.common.columns import ratio
from lotus.common.numbers.array_types import Bools, Ints

UNSURE_PART = 0.25  # of the unknown time, that may count to the wrong side; see above
_UNSEEN = 3.0  # over the number of samples: what no sample met may take that share (95 %)
_MOST_PERIODS = 3.0  # between two stacks: after more, py-spy has read the same one meanwhile
_AT_ONCE_NS = 1e6  # py-spy writes what it reads of all threads at a time within that


class WaitRow(NamedTuple):
    """A sample of the thread that iterates, in nanoseconds; `unsure`: the unknown part."""

    time: float
    waited: float
    whole: float
    unsure: float


def reading_times(samples: pd.DataFrame) -> Ints:
    """Return when py-spy read stacks, sorted: the times at which a stack changed."""
    ordered = samples.sort_values(["pid", "tid", "time_ns"], kind="stable")
    threads = ordered[["pid", "tid", "label"]].to_numpy(np.int64)
    changed = np.ones(len(threads), np.bool_)
    changed[1:] = (np.diff(threads, axis=0) != 0).any(axis=1)
    return np.unique(ordered["time_ns"].to_numpy(np.int64)[changed])


def wait_rows(thread: pd.DataFrame, in_loop: Bools, read_ns: Ints) -> list[WaitRow]:
    """Return the samples of a loop; all time in `iter` and `next` is a wait.

    `thread`: all samples of the thread that iterates, by time; `in_loop`: which of them count.
    """
    waits = thread["phase"].isin((*phases.IN_NEXT, phases.STARTUP)).to_numpy()
    time = thread["time_ns"].to_numpy(np.float64)
    weight = thread["weight_ns"].to_numpy(np.float64)
    state = np.where(in_loop, waits, 2)
    changes = np.flatnonzero(np.diff(state) != 0)
    after = time[changes + 1]
    before = np.searchsorted(read_ns, after - _AT_ONCE_NS) - 1
    gap = after - read_ns[np.maximum(before, 0)]
    unsure = np.zeros(len(time))
    period = float(np.median(weight)) if len(weight) else 0.0
    unsure[changes] = np.where(before >= 0, np.minimum(gap, _MOST_PERIODS * period), 0.0)
    columns = (time, waits * weight, weight, unsure)
    return [
        WaitRow(*row) for row in zip(*(each[in_loop].tolist() for each in columns), strict=True)
    ]


def wait_spread(rows: Sequence[WaitRow], share: float) -> tuple[float, float]:
    """Return the 95 % interval of a loop's waits beyond its start-up, as factors of their `share`.

    It is as wide as that of all its waits: which of them are start-up is not sure either. NaN of
    fewer than 16 samples, and where nothing was waited for.
    """
    table = np.array(sorted(rows), np.float64).reshape(-1, len(WaitRow._fields))
    low, high = spread_of(table[:, 1:3])
    whole = ratio(float(table[:, 1].sum()), float(table[:, 2].sum()))
    if not share > 0 or math.isnan(low):
        return math.nan, math.nan
    off = math.hypot(UNSURE_PART * unsure_share(rows), _UNSEEN / len(rows))
    below, above = (math.hypot(whole * factor - whole, off) for factor in (low, high))
    return max(1.0 - below / share, 0.0), 1.0 + above / share


def unsure_share(rows: Sequence[WaitRow]) -> float:
    """Return the share of the loop's time of which it is unknown whether it was a wait."""
    return min(ratio(sum(row.unsure for row in rows), sum(row.whole for row in rows)), 1.0)


def first_left_out(rows: Sequence[WaitRow], left_out_ns: float) -> list[WaitRow]:
    """Return the rows without those of the first `left_out_ns` nanoseconds, the start-up."""
    passed = np.cumsum([row.whole for row in rows])
    return [row for row, until in zip(rows, passed.tolist(), strict=True) if until > left_out_ns]

"""The slowing of samples by others that are made at the same time.

While all workers make samples, the time of one tells nothing about the others. At the start of an
epoch some workers begin before others, and at its end some have no more to do: then fewer samples
are made at a time. Behind one limit, each of these takes less time; samples that wait independently
take as long as before.
"""

import math

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.samples.first_samples import first_samples
from lotus.common.numbers.array_types import Floats

# Exponents: from the first on, samples share a limit; up to the second, none.
SHARES_LIMIT, SHARES_NONE = 0.6, 0.2
SLOWING_FACTS = {
    "mutual_slowing": "Exponent by which a sample takes longer, the more are made at a time; "
    "0: it does not, 1: twice as long beside twice as many.",
}
# Of the most samples that are made at a time: up to the first share they are few, from the second
# many.
_FEW, _MANY = 0.7, 0.85
_LEAST = 6  # samples made beside few
_NEAR = 20  # for each of these, samples beside many that are compared, the nearest in time
# Of pairs of a sample beside few and one beside many, in which the latter took longer.
_PLAINLY = 0.85


def mutual_slowing(scope: Scope) -> float:
    """Return the exponent by which a sample takes longer, the more are made at a time.

    0: each takes as long as alone. 1: twice as long beside twice as many, as behind one limit.
    NaN where too few samples were made beside few others, or where their times vary too much to
    tell. Samples fetched many at once (`__getitems__`) have no time of their own and are left out.
    """
    if scope.num_workers < 2:
        return math.nan
    beside, took = _samples(scope)
    if not len(beside):
        return math.nan
    most = float(np.quantile(beside, 0.9))
    many = np.flatnonzero(beside >= _MANY * most)
    few = np.flatnonzero(beside <= _FEW * most)
    if len(few) < _LEAST or len(many) < _LEAST:
        return math.nan
    near = _nearest(many, few)
    slower = float((took[near] > took[few][:, None]).mean())
    less = np.log(np.median(beside[near]) / np.median(beside[few]))
    exponent = float(np.log(np.median(took[near]) / np.median(took[few])) / less)
    plain = slower >= _PLAINLY or exponent < 1.0 - _PLAINLY
    return max(exponent, 0.0) if plain else math.nan


def _nearest(many: np.ndarray, few: np.ndarray) -> np.ndarray:
    """Return for each place in `few`, those in `many` that are nearest to it: as many for each.

    Data may be sorted, and a program warms up: what is compared lies in the same stretch.
    """
    width = min(_NEAR, len(many))
    first = np.clip(np.searchsorted(many, few) - width // 2, 0, len(many) - width)
    return np.asarray(many[first[:, None] + np.arange(width)])


def _samples(scope: Scope) -> tuple[Floats, Floats]:
    """Return how many samples were made at a time, itself included, and the nanoseconds it took.

    For each sample, in the order of their starts.
    """
    samples, batches = first_samples(scope), scope.batches
    if samples.empty:
        return np.empty(0), np.empty(0)
    begin, took = float_column(samples, "start_ns"), float_column(samples, "duration_ns")
    start, fetched = float_column(batches, "fetch_start_ns"), float_column(batches, "samples_ns")
    beside = np.full(len(samples), np.nan)
    of_samples, of_batches = _epochs(samples), _epochs(batches)
    for epoch in of_samples.unique():
        own, theirs = np.asarray(of_samples == epoch), np.asarray(of_batches == epoch)
        theirs &= np.isfinite(start) & np.isfinite(fetched)
        if theirs.any():
            ends = start[theirs] + fetched[theirs]
            beside[own] = _made_at_once(start[theirs], ends, begin[own], took[own])
    order = np.argsort(begin, kind="stable")
    order = order[np.isfinite(beside[order]) & (took[order] > 0)]
    return beside[order], took[order]


def _epochs(table: pd.DataFrame) -> pd.MultiIndex:
    """Return the rank and the epoch of each row."""
    return pd.MultiIndex.from_arrays([int_column(table, "rank"), int_column(table, "epoch")])


def _made_at_once(starts: Floats, ends: Floats, begin: Floats, took: Floats) -> Floats:
    """Return how many fetches were under way in each interval: at its start or, if more, mean.

    In a queue, a sample waits for those that were there before it, even if they leave meanwhile.
    """
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times = times[order]
    under_way = np.cumsum(np.repeat([1.0, -1.0], [len(starts), len(ends)])[order])
    passed = np.concatenate([[0.0], np.cumsum(under_way[:-1] * np.diff(times))])
    inside = np.interp(begin + took, times, passed) - np.interp(begin, times, passed)
    at_start = under_way[np.maximum(np.searchsorted(times, begin, side="right") - 1, 0)]
    # Records of a stream may place a sample outside of its own fetch.
    return np.asarray(np.fmax(np.fmax(inside / np.fmax(took, 1.0), at_start), 1.0))

"""The confidence interval of the share of waits, from its variation between batches."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Floats

LEAST_BATCHES = 16
_BLOCK = 1 << 16  # rows that are added up at a time
_SEED = 0  # reports of the same run do not differ


def wait_spread(scope: Scope) -> tuple[float, float]:
    """Return the 95 % interval of the waits' share of the loop, as factors of that share.

    Of waits and steps after each epoch's first batch, which is start-up; a block bootstrap, as
    batches that follow one another are not independent. NaN with fewer than 16 batches.
    """
    return spread_of(_rows(scope))


def spread_of(rows: Floats) -> tuple[float, float]:
    """Return the same for the consecutive parts of a loop: time in waits, all time (n, 2)."""
    whole = rows.sum(axis=0)
    if len(rows) < LEAST_BATCHES or not whole[0] > 0:
        return math.nan, math.nan
    bins = binned(len(rows), lambda some: rows[some])
    low, high = np.quantile(replicated_shares(bins)[:, 0], [0.025, 0.975])
    return max(float(low), 0.0), float(high)


def replicated_shares(rows: Floats) -> Floats:
    """Return each part's share of the whole in replicates, relative to its share in `rows`.

    `rows`: the parts (n, c), and all time (n, 1) of one part of a loop after the other, `binned`.
    Blocks of them are drawn, the same for all parts: (REPLICATES, c). NaN for parts of nothing.
    """
    whole = rows.sum(axis=0)
    means = whole[:-1] / whole[-1]
    length = bootstrap.block_length(rows[:, :-1] - means * rows[:, -1:])
    drawn = bootstrap.draw(len(rows), length, np.random.default_rng(_SEED))
    sums = bootstrap.replicated(rows, length, drawn)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[:, :-1] / sums[:, -1:] / means)


def _rows(scope: Scope) -> Floats:
    """Return wait, and wait and step, of each batch except the first of an epoch: (n, 2) ns."""
    waits = scope.waits
    frame = pd.DataFrame(
        {
            **{name: int_column(waits, name) for name in ("rank", "epoch", "batch")},
            "wait": float_column(waits, "wait_ns"),
            "step": np.nan_to_num(float_column(waits, "step_ns")),
        }
    ).dropna()
    frame = frame.sort_values(["rank", "epoch", "batch"], kind="stable")
    frame = frame[frame.duplicated(["rank", "epoch"])]
    wait = float_column(frame, "wait")
    return np.stack([wait, wait + float_column(frame, "step")], axis=1)


def binned(count: int, rows: Callable[[slice], Floats]) -> Floats:
    """Return neighbours added up, at most MOST_BINS rows; the last few may be left out.

    `rows` returns some of `count` rows. It is called for a few at a time: a matrix of a million
    takes much memory.
    """
    width = -(-count // bootstrap.MOST_BINS)
    step, bins = max(_BLOCK // width, 1), count // width
    parts = []
    for at in range(0, bins, step):
        some = rows(slice(at * width, min(at + step, bins) * width))
        parts.append(some.reshape(-1, width, some.shape[1]).sum(axis=1))
    return np.concatenate(parts)

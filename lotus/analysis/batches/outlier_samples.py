"""Samples that took far longer than others of their worker, and what that cost their batches."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import Components, own_time
from lotus.analysis.common.columns import Bools, Floats, Ints, flag, integer, number

# A sample this many times slower than its worker's median is an outlier; if more than this share
# of the samples are, they are no outliers but a second kind of sample.
SLOW_TIMES, SLOW_SHARE, SLOW_LEAST_NS = 5.0, 0.05, 1e6
# Fetched again, a sample that is slow by itself takes at least so many times the median.
AGAIN_TIMES = 2.0
# Where more of the batches were slow as a whole, they are a second kind of batch.
SLOW_BATCHES_SHARE = 0.25
# The slow samples that are counted are those that make up this share of what all of them cost.
_MOST_OF_EXCESS = 0.9
# Distances between slow samples are regular where so many differ by so little of the usual one.
_LEAST_DISTANCES, _IRREGULAR = 3, 0.05


@dataclass(frozen=True)
class Outliers:
    """Which samples were outliers, one row per row of `samples` (m,); no row is in two of them.

    A sample that was fetched several times is slow by itself if it was slow in most of them.
    """

    alone: Bools  # slow by themselves, as far as that is known
    by_chance: Bools  # slow this time, but not in most of their fetches
    together: Bools  # with all of their batch
    typical_ns: Floats  # the median of their worker
    fetches: Ints  # of the same sample, as far as they were measured


def outlier_samples(
    batches: pd.DataFrame, samples: pd.DataFrame, sample_rows: Ints, first: Bools, whole: Bools
) -> Outliers:
    """Find them. `first`, `whole`: batches (n,) that are the first of their process, or slow as a
    whole.

    Samples of a process's first batch are no outliers: what is slow there is start-up.
    """
    duration = number(samples, "duration_ns")
    measured = (sample_rows >= 0) & ~flag(samples, "many") & ~np.isnan(duration)
    usable = measured
    if len(batches):
        usable = measured & ~first[np.maximum(sample_rows, 0)]
    frame = pd.DataFrame(
        {
            "rank": integer(samples, "rank"),
            "worker": integer(samples, "worker"),
            "duration": np.where(usable, duration, np.nan),
        }
    )
    typical = frame.groupby(["rank", "worker"])["duration"].transform("median").to_numpy(np.float64)
    slow = usable & (duration > SLOW_TIMES * typical) & (duration - typical > SLOW_LEAST_NS)
    if len(batches):
        # What its batch was without a core may have hit this sample alone.
        delay = np.nan_to_num(number(batches, "run_delay_ns"))[np.maximum(sample_rows, 0)]
        slow &= duration - typical > delay
    none = np.zeros(len(samples), np.bool_)
    together = slow & whole[np.maximum(sample_rows, 0)] if whole.any() else none
    single = slow & ~together
    if single.sum() > max(1.0, SLOW_SHARE * usable.sum()):
        single = none
    if whole.sum() > max(1.0, SLOW_BATCHES_SHARE * len(batches)):
        together = none
    again = measured & (duration > AGAIN_TIMES * typical)
    # A first batch, or one that was slow as a whole, says nothing of samples that were slow in it.
    telling = measured & ~(again & ~usable) & ~together
    often, fetches = _mostly_slow(integer(samples, "sample"), again, telling)
    return Outliers(
        alone=single & often,
        by_chance=single & ~often,
        together=together,
        typical_ns=typical,
        fetches=fetches,
    )


def _mostly_slow(sample: Ints, slow: Bools, telling: Bools) -> tuple[Bools, Ints]:
    """Whether each sample is slow in most of the fetches that tell, and how many those are (m,).

    A sample without an index cannot be recognised in another epoch: it was fetched once.
    """
    known = telling & (sample >= 0)
    frame = pd.DataFrame({"sample": sample[known], "slow": slow[known]})
    each = frame.groupby("sample")["slow"].agg(["mean", "size"]).reindex(sample)
    share = each["mean"].fillna(1.0).to_numpy(np.float64)
    fetches = each["size"].fillna(1).to_numpy(np.int64)
    return share > 0.5, np.asarray(fetches, np.int64)


def costliest(samples: pd.DataFrame, slow: Bools, typical: Floats) -> Ints:
    """Rows of those slow samples that make up most of what they cost beyond the typical."""
    excess = np.where(slow, number(samples, "duration_ns") - typical, 0.0)
    by_excess = np.argsort(-excess, kind="stable")
    most = np.searchsorted(np.cumsum(excess[by_excess]), _MOST_OF_EXCESS * excess.sum())
    return np.asarray(by_excess[: most + 1], np.int64)


def regular_distance(samples: pd.DataFrame, rows: Ints) -> int:
    """From one of these samples to the next in the order of its worker, if that is always the same.

    As where every so many samples another file is opened. 0 where it differs, or with too few.
    """
    frame = pd.DataFrame(
        {
            **{name: integer(samples, name) for name in ("rank", "epoch", "worker")},
            "start": number(samples, "start_ns"),
            "chosen": False,
        }
    )
    frame.loc[rows, "chosen"] = True
    frame = frame.sort_values(["rank", "epoch", "worker", "start"], kind="stable")
    groups = frame.groupby(["rank", "epoch", "worker"], sort=False)
    frame["place"] = groups.cumcount()
    chosen = frame[frame["chosen"]]
    steps = chosen.groupby(["rank", "epoch", "worker"], sort=False)["place"].diff().dropna()
    if len(steps) < _LEAST_DISTANCES:
        return 0
    usual = float(steps.median())
    regular = (steps - usual).abs() <= _IRREGULAR * usual
    return int(usual) if usual > 1 and regular.all() else 0


def outlier_parts(
    split: Components, samples: pd.DataFrame, ops: pd.DataFrame, slow: Bools, typical: Floats
) -> Floats:
    """What the outliers took beyond a typical sample, per batch and component (n, c)."""
    count, width = split.parts.shape
    excess = np.zeros((count, width))
    rows = np.flatnonzero(slow)
    if not rows.size:
        return excess
    duration = number(samples, "duration_ns")
    share = 1.0 - typical[rows] / duration[rows]
    batch = split.sample_rows[rows]
    excess[:, split.own] = np.bincount(batch, own_time(samples)[rows] * share, count)
    affected = np.zeros(count, np.bool_)
    affected[batch] = True
    near = np.flatnonzero((split.op_rows >= 0) & affected[np.maximum(split.op_rows, 0)])
    if near.size:
        position = integer(samples, "position")
        which = pd.DataFrame({"batch": batch, "position": position[rows], "share": share})
        their = pd.DataFrame(
            {
                "batch": split.op_rows[near],
                "position": integer(ops, "position")[near],
                "code": split.op_codes[near],
                "duration": number(ops, "duration_ns")[near],
            }
        ).merge(which, on=["batch", "position"])
        place = their["batch"].to_numpy() * width + their["code"].to_numpy()
        weight = (their["duration"] * their["share"]).to_numpy()
        excess += np.bincount(place, weight, count * width).reshape(count, width)
    return np.minimum(excess, split.parts)

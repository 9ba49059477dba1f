"""Workers that repeat one another: the same samples, or the same random numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lotus.analysis.batches.data_shares import DataShares, data_shares
from lotus.analysis.common.columns import flag, integer, number
from lotus.analysis.common.scope import Scope

# Enough different samples to say that two workers had the same ones, and how many must agree.
_LEAST_DIGESTS, _SAME = 16, 0.8
_TWICE = 1.5  # as many samples as the data set says it has


def divided_data(scope: Scope) -> DataShares:
    """How the data of an iterable data set are divided among its workers, and how often read."""
    shares = data_shares(scope)
    return replace(shares, times_read=_times_read(scope, shares))


def _times_read(scope: Scope, shares: DataShares) -> int:
    """How many times an epoch of an iterable data set has each sample; 1 where once, or unknown.

    More where an epoch has that many times the samples that the data set says it has, where the
    first batches of all workers are equal, or where all workers had the same samples in whatever
    order.
    """
    if scope.settings.get("dataset_kind") != "iterable" or scope.num_workers < 2 or scope.partial:
        return 1
    by_length = _by_length(scope)
    if by_length:
        return by_length  # it was counted
    if shares.empty or shares.lost:
        return 1  # workers that read the same have as much of it, however alike samples are
    first = scope.first_batches
    first = first[(first["generator"] == "").to_numpy()] if len(first) else first
    equal = _most_alike(first, integer(first, "content"))
    # Where some workers get other data, or none, the data are divided: shards may begin alike.
    if equal == scope.num_workers or _all_had_the_same(scope):
        return scope.num_workers
    return 1


def _all_had_the_same(scope: Scope) -> bool:
    """By the smallest checksums of the samples of each worker; False where they are not known.

    Of workers that draw samples at random, with replacement, some have those of another.
    """
    digests = scope.sample_digests
    if not len(digests):
        return False
    ranks = np.unique(integer(scope.batches, "rank")).tolist()
    for rank in ranks:
        mine = digests[integer(digests, "rank") == rank]
        mine = mine[integer(mine, "epoch") == integer(mine, "epoch").min(initial=1 << 62)]
        each = [set(integer(rows, "digest").tolist()) for _, rows in mine.groupby("worker")]
        if len(each) != scope.num_workers or min(map(len, each)) < _LEAST_DIGESTS:
            return False
        if len(set.intersection(*each)) < _SAME * max(map(len, each)):
            return False
    return bool(ranks)


def _by_length(scope: Scope) -> int:
    """By the samples of whole epochs; 0 where the data set does not say how many it has."""
    length = scope.settings.get("dataset_length")
    epochs = scope.epochs[flag(scope.epochs, "exhausted")]
    if not isinstance(length, int) or length < 1 or not len(epochs):
        return 0
    sizes = pd.DataFrame(
        {
            **{name: integer(scope.batches, name) for name in ("rank", "epoch")},
            "size": np.nan_to_num(number(scope.batches, "size")),
        }
    )
    whole = sizes.merge(
        pd.DataFrame({name: integer(epochs, name) for name in ("rank", "epoch")}),
        on=["rank", "epoch"],
    )
    met = whole.groupby(["rank", "epoch"])["size"].sum()
    if not len(met):
        return 0
    times = float(met.median()) / length
    return round(times) if times >= _TWICE else 1


def shared_generators(scope: Scope) -> dict[str, int]:
    """Random generators that several workers began with in the same state: name -> how many.

    Only those that the first batch used.
    """
    first = scope.first_batches
    if scope.num_workers < 2 or not len(first):
        return {}
    used = first[(first["generator"] != "").to_numpy()]
    alike = {
        str(name): _most_alike(rows, integer(rows, "state"))
        for name, rows in used.groupby("generator", observed=True)
    }
    return {name: count for name, count in alike.items() if count > 1}


def _most_alike(rows: pd.DataFrame, values: np.ndarray) -> int:
    """In how many workers of one epoch a checksum was the same, at most; at least 1."""
    if not len(rows):
        return 1
    keys = pd.DataFrame(
        {
            **{name: integer(rows, name) for name in ("rank", "loader", "epoch", "worker")},
            "value": values,
        }
    )
    keys = keys[keys["value"] >= 0]
    groups = keys.groupby(["rank", "loader", "epoch", "value"])["worker"].nunique()
    return int(groups.max()) if len(groups) else 1

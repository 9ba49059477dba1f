"""Workers that repeat one another: the same samples, or the same random numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column
from lotus.analysis.common.random_names import is_random
from lotus.analysis.common.scope import Scope
from lotus.analysis.data.data_shares import DataShares, data_shares
from lotus.inside.trace.fetches.sample_digests import KEPT

# Enough different ones to say that two workers had the same, and the share that must agree.
_LEAST_DIGESTS = 16
# Of samples; of series, of which those across two shards differ where each worker reads the shards
# in an order of its own.
_SAME = {"sample": 0.8, "series": 0.5}
_CHECKSUMS = 1 << 32  # that there are
_SEVERAL = 3  # batches of a worker in an epoch
_TWICE = 1.5  # as many samples as the data set says it has
# As many as there are different ones; more series are of few labels, or in a fixed order.
_ALIKE = {"sample": _TWICE, "series": 1.2}


def divided_data(scope: Scope) -> DataShares:
    """Return how an iterable data set's data are divided among workers, and how often read."""
    shares = data_shares(scope)
    times = _times_read(scope, shares)
    if times == 1 and _are_whole_passes(scope, shares):
        return replace(shares, times_read=float(scope.num_workers), whole_passes=True)
    return replace(shares, times_read=times)


def _times_read(scope: Scope, shares: DataShares) -> float:
    """Return how often an epoch of an iterable data set has each sample; 1.0 also if unknown.

    More than 1.0 if an epoch has that many times the samples that the data set says it has, if a
    worker had nearly all of its samples in common with another one, in whatever order (of samples
    that are changed at random: series of their labels), or if the first batches of all workers are
    equal.
    """
    if scope.settings.get("dataset_kind") != "iterable" or scope.num_workers < 2 or scope.partial:
        return 1.0
    by_length = _by_length(scope)
    if by_length:
        return float(by_length)  # it was counted
    by_contents = _by_contents(scope)
    if by_contents > 1:
        return by_contents
    if _draws_at_random(scope) and (by_series := _by_contents(scope, "series")) > 1:
        return by_series
    if shares.empty or shares.lost:
        return 1.0  # workers that read the same have as much of it, however alike samples are
    first = scope.first_batches
    first = first[(first["generator"] == "").to_numpy()] if len(first) else first
    equal = _most_alike(first, int_column(first, "content"))
    # Where some workers get other data, or none, the data are divided: shards may begin alike.
    return float(scope.num_workers) if equal == scope.num_workers else 1.0


def _are_whole_passes(scope: Scope, shares: DataShares) -> bool:
    """Return True if each worker makes as many samples as one worker alone would make.

    So it is if nothing in a worker asks which one it is, and all of them made the same number of
    samples in each epoch that came to its end. This is for samples that are drawn at random, of
    which checksums say nothing; others would have been found to be equal.
    """
    if scope.settings.get("dataset_kind") != "iterable" or scope.num_workers < 2 or scope.partial:
        return False
    workers = scope.workers
    if len(workers) < scope.num_workers or "reads_worker_info" not in workers:
        return False
    if workers["reads_worker_info"].fillna(True).any():  # missing: not known
        return False
    if shares.empty or shares.lost or not _draws_at_random(scope) or _by_length(scope):
        return False
    made = _of_whole_epochs(scope).groupby(["rank", "epoch", "worker"])["size"]
    epochs = made.agg(["sum", "count"]).groupby(["rank", "epoch"])
    samples, fewest = epochs["sum"].agg(["count", "min", "max"]), epochs["count"].min()
    equal = (samples["count"] == scope.num_workers) & (samples["min"] == samples["max"])
    return len(samples) > 0 and bool((equal & (fewest >= _SEVERAL)).all())


def _of_whole_epochs(scope: Scope) -> pd.DataFrame:
    """Return rank, epoch, worker and size of the batches of epochs that came to their end."""
    epochs, names = scope.epochs[flag(scope.epochs, "exhausted")], ["rank", "epoch"]
    batches = pd.DataFrame(
        {name: int_column(scope.batches, name) for name in (*names, "worker")}
        | {"size": np.nan_to_num(float_column(scope.batches, "size"))}
    )
    return batches.merge(pd.DataFrame({name: int_column(epochs, name) for name in names}), on=names)


def _draws_at_random(scope: Scope) -> bool:
    """Return True if samples are changed at random, so that those of equal data differ."""
    first = scope.first_batches
    names = scope.operations["operation"] if len(scope.operations) else ()
    return any(map(is_random, names)) or bool(len(first) and (first["generator"] != "").any())


def _by_contents(scope: Scope, of: str = "sample") -> float:
    """Return the same by the smallest checksums of each worker's samples, or of their series of
    labels; 1.0: not known."""
    digests = scope.sample_digests
    if "of" in digests:  # not of a run by an older lotus
        digests = digests[(digests["of"] == of).to_numpy()]
    ranks = np.unique(int_column(scope.batches, "rank")).tolist() if len(digests) else []
    times = []
    for rank in ranks:
        mine = digests[int_column(digests, "rank") == rank]
        mine = mine[int_column(mine, "epoch") == int_column(mine, "epoch").min(initial=1 << 62)]
        workers = [rows for _, rows in mine.groupby("worker")]
        alike = any(_are_alike(rows, _ALIKE[of]) for rows in workers)
        each = [set(int_column(rows, "digest").tolist()) for rows in workers]
        known = len(workers) == scope.num_workers and not alike
        times.append(_times_had(each, _SAME[of]) if known else 1.0)
    return float(np.mean(times)) if times and min(times) > 1 else 1.0


def _are_alike(digests: pd.DataFrame, most: float) -> bool:
    """Return True if one worker had more than `most` times as many samples as different ones.

    That happens with few values, or if samples are drawn with replacement. The number of different
    ones follows from how close their smallest checksums are.
    """
    values = np.unique(int_column(digests, "digest"))
    different = float(len(values))
    if len(values) >= KEPT:
        different = (len(values) - 1) * _CHECKSUMS / max(float(values[-1]), 1.0)
    return bool(int_column(digests, "samples").max() > most * different)


def _times_had(each: list[set[int]], same: float) -> float:
    """Return how many workers had a sample, on average; 1.0 if none had another one's.

    All checksums of each worker are known up to the smallest limit, so these stand for all samples
    alike. Workers that draw samples at random have some in common: only one that had hardly any of
    its own counts.
    """
    limit = min((max(digests) for digests in each if len(digests) >= KEPT), default=_CHECKSUMS)
    known = [{digest for digest in digests if digest <= limit} for digests in each]
    common = [
        max(len(mine & other) for at, other in enumerate(known) if at != index) >= same * len(mine)
        for index, mine in enumerate(known)
        if len(mine) >= _LEAST_DIGESTS
    ]
    if not any(common):
        return 1.0
    if len(set.intersection(*known)) >= same * max(map(len, known)):
        return float(len(known))
    return sum(map(len, known)) / len(set.union(*known))


def _by_length(scope: Scope) -> int:
    """Return the same by the samples of whole epochs; 0 if no length is known."""
    length = scope.settings.get("dataset_length")
    if not isinstance(length, int) or length < 1:
        return 0
    whole = _of_whole_epochs(scope)
    met = whole.groupby(["rank", "epoch"])["size"].sum()
    if not len(met):
        return 0
    times = float(met.median()) / length
    return round(times) if times >= _TWICE else 1


def shared_generators(scope: Scope) -> dict[str, int]:
    """Return random generators that several workers began with in the same state: name -> workers.

    Only those that the first batch used.
    """
    first = scope.first_batches
    if scope.num_workers < 2 or not len(first):
        return {}
    used = first[(first["generator"] != "").to_numpy()]
    alike = {
        str(name): _most_alike(rows, int_column(rows, "state"))
        for name, rows in used.groupby("generator", observed=True)
    }
    return {name: count for name, count in alike.items() if count > 1}


def _most_alike(rows: pd.DataFrame, values: np.ndarray) -> int:
    """Return in how many workers of one epoch a checksum was the same, at most; at least 1."""
    if not len(rows):
        return 1
    keys = pd.DataFrame(
        {
            **{name: int_column(rows, name) for name in ("rank", "loader", "epoch", "worker")},
            "value": values,
        }
    )
    keys = keys[keys["value"] >= 0]
    groups = keys.groupby(["rank", "loader", "epoch", "value"])["worker"].nunique()
    return int(groups.max()) if len(groups) else 1

"""Samples that took far longer than others of their worker, and their cost in their batches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.collection_cost import fetch_collections
from lotus.analysis.batches.components import Components, held_up, usual_of_worker
from lotus.analysis.batches.usual_durations import (
    UsualDurations,
    is_usable,
    sample_durations,
    usual_durations,
)
from lotus.analysis.common.columns import BatchPlaces, flag, float_column, int_column
from lotus.analysis.common.sample_sums import own_time
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats, Ints

# A sample this many times slower than its worker's median is an outlier; if it takes more than this
# share of the samples to make up most of what slow ones cost, these are no outliers but a second
# kind of sample. On a busy machine many cheap samples are slow because they had no core.
SLOW_TIMES, SLOW_SHARE, SLOW_LEAST_NS = 5.0, 0.05, 1e6
# A sample that is slow by itself takes, when it is fetched again, at least so many times the
# median, and at least this part of its longest time.
AGAIN_TIMES, _AGAIN_PART = 2.0, 0.1
# If more of the batches were slow as a whole, they are a second kind of batch.
SLOW_BATCHES_SHARE = 0.25
# The slow samples that are counted are those that make up this share of what all of them cost.
_MOST_OF_EXCESS = 0.9
_ABOUT = 0.5  # at least this part of each other
# Distances between slow samples are regular if so many differ by so little from the usual one, or
# from a few times it: a slow sample that cost less than others is not among those that are counted.
_LEAST_DISTANCES, _IRREGULAR, _MOST_LEFT_OUT = 3, 0.05, 2
_KEYS = ("rank", "worker", "epoch", "batch", "position", "sample")
_JUDGED = ("row", "duration_ns", "typical_ns", "usable", "slow", "together")


@dataclass(frozen=True)
class Outliers:
    """The samples that are far slower than typical (m,); each is of one kind at most.

    A sample that was fetched several times is slow by itself if it was slow in most of them.
    """

    # rank worker epoch batch position sample start_ns duration_ns, row (of the batch), typical_ns
    # (the median of its worker)
    samples: pd.DataFrame
    alone: Bools  # slow by themselves, as far as that is known
    by_chance: Bools  # slow this time, but not in most of their fetches, or in a full collection
    together: Bools  # with all of their batch
    fetches: Ints  # of the same sample, as far as they were measured


@dataclass(frozen=True)
class _Judge:
    """Decides which samples of a part are slow. `first`, `whole`: see `outlier_samples`."""

    places: BatchPlaces
    usual: UsualDurations
    delay: Floats  # of each batch (n,)
    beyond: Floats  # of each batch beyond the usual of its worker, without its delay (n,)
    first: Bools
    whole: Bools

    def far(self, samples: pd.DataFrame) -> Bools:
        """Return which samples took so long that they may be slow."""
        duration, typical = sample_durations(samples), self.usual.typical(samples)
        return _is_far(duration - typical, typical)

    def slow(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return a row per sample: the columns _JUDGED."""
        row, duration = self.places.rows(samples), sample_durations(samples)
        typical, usable = self.usual.typical(samples), is_usable(row, duration, self.first)
        slow = usable & self.far(samples)
        together = np.zeros(len(samples), np.bool_)
        if len(self.delay):
            place = np.maximum(row, 0)
            whole = self.whole[place]
            # The batch's time without a core may have hit this sample alone. Batches that were slow
            # as a whole took longer than that, all their samples together.
            slow &= whole | self._by_itself(duration - typical, typical, place)
            together = slow & whole
        values = (row, duration, typical, usable, slow, together)
        return pd.DataFrame(dict(zip(_JUDGED, values, strict=True)))

    def _by_itself(self, excess: Floats, typical: Floats, place: Ints) -> Bools:
        """Return which samples took so much longer by themselves, and not for lack of a core.

        They are slow even if their batch was without one in them only; or beside that, their batch
        took longer by about as much, as if the sample slept.
        """
        beyond = self.beyond[place]
        alike = (beyond >= _ABOUT * excess) & (excess >= _ABOUT * beyond)
        return np.asarray(_is_far(excess - self.delay[place], typical) | alike, np.bool_)


def _is_far(excess: Floats, typical: Floats) -> Bools:
    """Return which samples may be slow that took so much longer than is typical."""
    far = (excess > (SLOW_TIMES - 1.0) * typical) & (excess > SLOW_LEAST_NS)
    return np.asarray(far, np.bool_)


def outlier_samples(scope: Scope, first: Bools, whole: Bools) -> Outliers:
    """Find the outliers.

    `first`, `whole`: batches (n,) that are the first of their process, or slow as a whole. Samples
    of a process's first batch are no outliers: what is slow there is start-up.
    """
    batches = scope.batches
    fetch = np.nan_to_num(float_column(batches, "fetch_ns"))
    delay = held_up(batches, fetch)
    own = fetch - delay
    beyond = np.nan_to_num(np.maximum(own - usual_of_worker(batches, own, first), 0.0))
    judge = _Judge(BatchPlaces(batches), usual_durations(scope), delay, beyond, first, whole)
    most, kept, cost = max(1, int(SLOW_SHARE * judge.usual.usable)), 0, 0.0
    parts = [pd.DataFrame({name: [] for name in (*_JUDGED, *_KEYS, "start_ns")})]
    for samples in scope.fetched.times():
        samples = samples[judge.far(samples)]
        judged = judge.slow(samples)
        slow = judged["slow"].to_numpy(np.bool_)
        keys = {name: int_column(samples, name)[slow] for name in _KEYS}
        part = judged[slow].assign(**keys, start_ns=float_column(samples, "start_ns")[slow])
        parts.append(part)
        kept += len(part)
        cost += _beyond(part).sum()
        if kept > 2 * most:
            parts = [_costly(parts, most)]
            kept = 0
    rows = _costly(parts, most)
    together = rows["together"].to_numpy(np.bool_)
    # A second kind of sample, or of batch.
    few = _beyond(rows).sum() >= _MOST_OF_EXCESS * cost
    ordinary = whole.sum() > max(1.0, SLOW_BATCHES_SHARE * len(whole))
    keep = (together & (not ordinary)) | (~together & few)
    rows, together = rows[keep].reset_index(drop=True), together[keep]
    often, fetches = _mostly_slow(scope, judge, rows, bool(ordinary))
    again = fetches > 1
    if (again & ~often).sum() > (again & often).sum():
        often &= again  # a sample that was fetched once is taken to be as most of the others are
    collections, _ = fetch_collections(scope)
    often &= again | ~(collections[np.maximum(int_column(rows, "row"), 0)] > 0)  # these were slow
    return Outliers(
        samples=rows,
        alone=~together & often,
        by_chance=~together & ~often,
        together=together,
        fetches=fetches,
    )


def _beyond(slow: pd.DataFrame) -> Floats:
    """Return how much each of these took beyond the typical, ns; 0.0 with all of its batch."""
    beyond = float_column(slow, "duration_ns") - float_column(slow, "typical_ns")
    return np.where(flag(slow, "together"), 0.0, beyond)


def _costly(parts: list[pd.DataFrame], most: int) -> pd.DataFrame:
    """Return those that were slow with all of their batch, and the `most` costliest others."""
    rows = pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)
    keep = flag(rows, "together").copy()
    alone = np.flatnonzero(~keep)
    keep[alone[np.argsort(-_beyond(rows)[alone], kind="stable")[:most]]] = True
    return rows[keep].reset_index(drop=True)


def _mostly_slow(
    scope: Scope, judge: _Judge, slow_ones: pd.DataFrame, ordinary: bool
) -> tuple[Bools, Ints]:
    """Return which samples are slow in most of the fetches that count, and how many those are (m,).

    A sample without an index cannot be recognised in another epoch: it was fetched once.
    `ordinary`: batches that were slow as a whole count as others do.
    """
    sample, duration = int_column(slow_ones, "sample"), float_column(slow_ones, "duration_ns")
    wanted = np.unique(sample[sample >= 0])
    if not wanted.size:
        return np.ones(len(sample), np.bool_), np.ones(len(sample), np.int64)
    slow, fetches = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    longest = np.zeros(len(wanted))
    np.maximum.at(longest, np.searchsorted(wanted, sample[sample >= 0]), duration[sample >= 0])
    for samples in scope.fetched.times():
        index = int_column(samples, "sample")
        mine = np.isin(index, wanted)
        if not mine.any():
            continue
        judged = judge.slow(samples[mine])
        place = np.searchsorted(wanted, index[mine])
        took = float_column(judged, "duration_ns")
        measured = (int_column(judged, "row") >= 0) & ~np.isnan(took)
        least = np.maximum(
            AGAIN_TIMES * float_column(judged, "typical_ns"), _AGAIN_PART * longest[place]
        )
        again = measured & (took > least)
        # A first batch, or one that was slow as a whole, says nothing about slow samples in it.
        telling = measured & ~(again & ~flag(judged, "usable"))
        if not ordinary:
            telling &= ~flag(judged, "together")
        fetches += np.bincount(place[telling], minlength=len(wanted))
        slow += np.bincount(place[telling & again], minlength=len(wanted))
    at = np.minimum(np.searchsorted(wanted, sample), len(wanted) - 1)
    known = (sample >= 0) & (fetches[at] > 0)
    return ~known | (slow[at] > 0.5 * fetches[at]), np.where(known, fetches[at], 1)


def costliest(outliers: Outliers, slow: Bools) -> Ints:
    """Return rows of those slow samples that make up most of what they cost beyond the typical."""
    samples = outliers.samples
    beyond = float_column(samples, "duration_ns") - float_column(samples, "typical_ns")
    excess = np.where(slow, beyond, 0.0)
    by_excess = np.argsort(-excess, kind="stable")
    most = np.searchsorted(np.cumsum(excess[by_excess]), _MOST_OF_EXCESS * excess.sum())
    return np.asarray(by_excess[: most + 1], np.int64)


def regular_distance(parts: Iterable[pd.DataFrame], chosen: pd.DataFrame) -> int:
    """Return the distance from one of these samples to the next in its worker's order, if regular.

    As where every so many samples another file is opened. 0 if it differs, or with too few. `parts`
    are all samples. Between two of them, others may be missing that are as regular.
    """
    starts = {name: np.sort(start) for name, start in _starts(chosen)}
    between = {name: np.zeros(len(each) + 1, np.int64) for name, each in starts.items()}
    for samples in parts:
        for name, start in _starts(samples):
            if name in starts:
                place = np.searchsorted(starts[name], start, side="right")
                between[name] += np.bincount(place, minlength=len(between[name]))
    # The number of samples that begin from one of them up to the next.
    steps = np.concatenate([np.zeros(0), *(counts[1:-1] for counts in between.values())])
    if len(steps) < _LEAST_DISTANCES:
        return 0
    usual = float(np.median(steps))
    if not usual > 1:
        return 0
    # By chance, too many multiples of a short distance occur.
    most = 1 + _MOST_LEFT_OUT if usual * _IRREGULAR >= 1 else 1
    times = np.clip(np.round(steps / usual), 1, most)
    regular = np.abs(steps - times * usual) <= _IRREGULAR * usual
    return int(usual) if regular.all() else 0


def _starts(samples: pd.DataFrame) -> Iterator[tuple[object, Floats]]:
    """Yield rank, epoch and worker, and when its samples began."""
    names = ["rank", "epoch", "worker"]
    keys = pd.DataFrame({name: int_column(samples, name) for name in names})
    start = float_column(samples, "start_ns")
    for name, rows in keys.groupby(names, sort=False).indices.items():
        yield name, start[rows]


def outlier_parts(split: Components, scope: Scope, outliers: Outliers) -> tuple[Ints, list[Floats]]:
    """Return batches (r,) with outliers, and the time of each kind beyond the typical (r, c).

    By component. Kinds: alone, by chance, together. Samples and operations are read again once, for
    all kinds.
    """
    kinds = (outliers.alone, outliers.by_chance, outliers.together)
    slow = outliers.samples
    affected = np.unique(int_column(slow, "row"))
    shape = (len(affected), split.parts.shape[1])
    excess = [np.zeros(shape) for _ in kinds]
    if not len(slow):
        return affected, excess
    which = pd.DataFrame(
        {
            "row": np.searchsorted(affected, int_column(slow, "row")),
            "position": int_column(slow, "position"),
            "share": 1.0 - float_column(slow, "typical_ns") / float_column(slow, "duration_ns"),
            "kind": np.argmax(kinds, axis=0),
        }
    )
    batches = scope.batches.iloc[affected]
    places = BatchPlaces(batches)
    column = {name: index for index, name in enumerate(split.operations.names)}

    def add(frame: pd.DataFrame, code: Ints, took: Floats) -> None:
        """Add how much these times exceed the typical."""
        row, position = places.rows(frame), int_column(frame, "position")
        near = (row >= 0) & (position >= 0)
        their = pd.DataFrame(
            {
                "row": row[near],
                "position": position[near],
                "code": code[near],
                "took": took[near],
            }
        ).merge(which, on=["row", "position"])
        for kind, mine in their.groupby("kind"):
            place = mine["row"].to_numpy() * shape[1] + mine["code"].to_numpy()
            beyond = (mine["took"] * mine["share"]).to_numpy()
            sums = np.bincount(place, beyond, shape[0] * shape[1]).reshape(shape)
            excess[int(str(kind))] += sums

    for part in scope.fetched.contents.of_batches(batches):
        own = np.full(len(part.samples), split.own, np.int64)
        add(part.samples, own, own_time(part.samples))
        if len(part.ops):
            inside = part.ops[~flag(part.ops, "nested")]
            code = inside["operation"].astype(str).map(column).fillna(-1)
            add(inside, np.asarray(code, np.int64), float_column(inside, "duration_ns"))
    return affected, [np.minimum(part, split.parts[affected]) for part in excess]

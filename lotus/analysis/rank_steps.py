"""What each rank of a job did in each step, and who arrived last at the synchronisation.

The numbers, by rank r and step k; all else about ranks is made of them:

  step k    the k-th synchronisation of gradients that the ranks' processes took part in together
  own time  from the end of synchronisation k - 1 on this rank until its own gradients of step k are
            computed (`Run.syncs`: ready_ns - end_ns of the row before); of a process's first step
            from its first `next`
  wait      the part of it in `next` of the loaders that feed the steps, those that gave a batch to
            at least half of them (a loader for validation does not)
  step      own time less wait: the model, the optimiser and all else
  sync      exposed_ns of `Run.syncs`: synchronisation that nothing overlaps
  arrival   ready_ns
  lateness  arrival less the median arrival of the other ranks that took part; negative: early
  last      the rank that arrived latest of at least two, where it did so by more than the error of
            the clocks between it and every other rank (none on one host, the sum of both hosts'
            error_ns between two); else the step is undecided. So are all where in most steps
            ranks had their averages before others had arrived: they do not average with each other
  lead      of the last: its arrival less the second latest, and its lateness

Without synchronisations a step is a batch of the loader that gave the most, by epoch and position;
its wait is wait_ns and its step step_ns of `Run.waits`, in which synchronisation hides; nothing is
known of arrivals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lotus.analysis.columns import Bools, Floats, Ints, flag, integer, number
from lotus.analysis.scope import RunLike, table

Cells = npt.NDArray[np.float32]  # (ranks, steps), nanoseconds

UNDECIDED, ALONE = -1, -2  # instead of who was last: the clocks cannot tell; below two ranks
MOST_CELLS = 1 << 24
_BLOCK = 1 << 20  # cells at once
_FEEDS = 0.5  # of the steps
_APART = 0.5  # of the steps


@dataclass(frozen=True)
class RankSteps:
    """Ranks by steps. NaN: the rank took no part in the step, or it was not measured."""

    synced: bool  # from synchronisations: sync, late, last and leads are known
    ranks: Ints  # (R,) those that took steps, ascending
    hosts: list[str]  # (R,)
    world_size: int  # -1: not told
    loaders: list[int]  # that feed the steps
    thinned: int  # 1: every step; 3: every third
    warm: Bools  # (K,) not the first of its processes: that one has start-ups in it
    wait: Cells
    step: Cells
    sync: Cells
    late: Cells
    last: Ints  # (K,) a row, or UNDECIDED or ALONE
    lead_second: Floats  # (K,) nanoseconds, NaN where nobody is last
    lead_median: Floats
    together: bool  # the ranks average with each other
    clock_error_ns: Floats  # (R,) of the rank's host; infinite where hosts' clocks are not aligned
    size: Floats  # (R,) samples a step, NaN: not recorded

    @property
    def present(self) -> Bools:
        """(R, K): the rank took part in the step."""
        return ~np.isnan(self.sync if self.synced else self.step)


def rank_steps(run: RunLike, most_cells: int = MOST_CELLS) -> RankSteps | None:
    """The steps of a job of several ranks; None where one process was alone, or took no step.

    With more than `most_cells` of ranks by steps, every n-th step.
    """
    waits = _waits(run)
    syncs = table(run, "syncs")
    synced = len(syncs) > 0
    rows = _synced(syncs, waits, _partial(run)) if synced else _unsynced(waits)
    if not len(rows.frame):
        return None
    ranks, place = np.unique(integer(rows.frame, "rank"), return_inverse=True)
    world = integer(syncs if synced else waits, "world_size", 1).max()
    if len(ranks) < 2 and world < 2:
        return None
    made = _matrices(rows.frame, place.reshape(-1), len(ranks), most_cells)
    hosts = _hosts(rows.frame, place.reshape(-1), len(ranks))
    errors = clock_errors(run.manifest, hosts)
    together = synced and _together(made, errors)
    arrivals = _arrivals(made.ready, errors, hosts) if together else _unknown(made.ready)
    return RankSteps(
        synced=synced,
        ranks=ranks,
        hosts=hosts,
        world_size=int(world),
        loaders=rows.loaders,
        thinned=made.thinned,
        warm=made.warm,
        wait=made.wait,
        step=made.step,
        sync=made.sync,
        late=arrivals.late,
        last=arrivals.last,
        lead_second=arrivals.second,
        lead_median=arrivals.median,
        together=together,
        clock_error_ns=errors,
        size=_sizes(run, rows, ranks, place.reshape(-1)),
    )


def long_table(steps: RankSteps) -> pd.DataFrame:
    """One row per rank and step: rank host step wait_ns step_ns sync_ns late_ns last (bool)."""
    row, step = np.nonzero(steps.present)
    return pd.DataFrame(
        {
            "rank": steps.ranks[row],
            "host": pd.Categorical.from_codes(*_codes(steps.hosts, row)),
            "step": step * steps.thinned,
            "wait_ns": steps.wait[row, step].astype(np.float64),
            "step_ns": steps.step[row, step].astype(np.float64),
            "sync_ns": steps.sync[row, step].astype(np.float64),
            "late_ns": steps.late[row, step].astype(np.float64),
            "last": steps.last[step] == row,
        }
    )


def _codes(hosts: list[str], row: Ints) -> tuple[Any, Any]:
    names, codes = np.unique(np.array(hosts, dtype=object), return_inverse=True)
    return codes.reshape(-1)[row], pd.Index(names, dtype=object)


def entries(manifest: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """What there are of `hosts` or `ranks` in a manifest that anybody may have written."""
    found = manifest.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def clock_errors(manifest: Mapping[str, Any], hosts: list[str]) -> Floats:
    """Bound on the error of each rank's clock against the run's, nanoseconds.

    0 where all ranks are on one host; infinite for a host that the manifest has no bound of.
    """
    if len(set(hosts)) < 2:
        return np.zeros(len(hosts))
    known: dict[str, float] = {}
    for one in entries(manifest, "hosts"):
        error = one.get("error_ns")
        if isinstance(error, (int, float)) and error >= 0:  # also not NaN
            known[str(one.get("host"))] = float(error)
    return np.array([known.get(host, np.inf) for host in hosts])


@dataclass(frozen=True)
class Binned:
    """A matrix in fewer cells: the mean over neighbouring steps, the largest of neighbouring ranks.

    Row i is of the ranks at ranks_each * i and after, column j of so many steps.
    """

    cells: Cells
    ranks_each: int
    steps_each: int


def binned(values: Cells, most_rows: int = 200, most_columns: int = 500) -> Binned:
    """`values` (ranks, steps) in at most so many cells; NaN where nothing was measured."""
    ranks, steps = values.shape
    high, wide = -(-ranks // most_rows) or 1, -(-steps // most_columns) or 1
    if high == wide == 1:
        return Binned(values, 1, 1)
    edges = np.arange(0, steps, wide)
    known = ~np.isnan(values)
    sums = np.add.reduceat(np.where(known, values, 0), edges, axis=1, dtype=np.float64)
    counts = np.add.reduceat(known, edges, axis=1, dtype=np.int64)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return Binned(
        np.fmax.reduceat(means, np.arange(0, ranks, high), axis=0).astype(np.float32), high, wide
    )


# -- rows: one of each rank and step ---------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """frame: rank host step warm wait step_ns sync ready (0: not known), one row each."""

    frame: pd.DataFrame
    loaders: list[int]


def _partial(run: RunLike) -> bool:
    return bool(run.manifest.get("batches")) or (run.manifest.get("every") or 1) != 1


def _waits(run: RunLike) -> pd.DataFrame:
    """The outermost waits of main processes, by rank, process and time.

    rank pid host world_size loader epoch batch start end step_ns; int64 nanoseconds but for
    step_ns. Of a process whose main thread waited, that thread's only.
    """
    found = table(run, "waits")
    columns = {name: integer(found, name) for name in ("rank", "pid", "loader", "epoch", "batch")}
    start = integer(found, "start_ns")
    frame = pd.DataFrame(
        {
            **columns,
            "host": _texts(found, "host"),
            "world_size": integer(found, "world_size", 1),
            "start": start,
            "end": start + integer(found, "wait_ns", 0),
            "step_ns": number(found, "step_ns"),
            "main": integer(found, "tid") == columns["pid"],
        }
    )[~flag(found, "failed")]
    workers = table(run, "workers")
    if len(workers):  # they may iterate loaders of their own
        made = _pairs(integer(workers, "rank"), integer(workers, "pid"))
        frame = frame[~np.isin(_pairs(frame["rank"].to_numpy(), frame["pid"].to_numpy()), made)]
    whose = [frame["rank"], frame["pid"]]
    frame = frame[frame["main"] | ~frame["main"].groupby(whose).transform("any")]
    order = np.lexsort((-frame["end"], frame["start"], frame["pid"], frame["rank"]))
    frame = frame.iloc[order].reset_index(drop=True)
    # A wait that ends in an earlier one is of a loader inside of a loader.
    before = frame.groupby(["rank", "pid"])["end"].cummax().groupby([frame["rank"], frame["pid"]])
    outer = frame["end"] > before.shift(1, fill_value=-1)
    return frame[outer].reset_index(drop=True)


def _pairs(rank: Ints, pid: Ints) -> Ints:
    return np.asarray((rank << 32) + pid)


def _places(first: Ints, then: Ints) -> Ints:
    """The place of each pair among all distinct ones, sorted."""
    a, b = (pd.factorize(one, sort=True)[0].astype(np.int64) for one in (first, then))
    joint = a * (int(b.max(initial=0)) + 1) + b
    return np.asarray(pd.factorize(joint, sort=True)[0], np.int64)


def _texts(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame:
        return pd.Series([""] * len(frame), dtype="category")
    return frame[name].astype("category")


def _synced(syncs: pd.DataFrame, waits: pd.DataFrame, partial: bool) -> _Rows:
    frame = pd.DataFrame(
        {
            **{name: integer(syncs, name) for name in ("rank", "pid", "step")},
            "host": _texts(syncs, "host"),
            "begin": integer(syncs, "start_ns"),
            "ready": integer(syncs, "ready_ns"),
            "end": integer(syncs, "end_ns"),
            "sync": number(syncs, "exposed_ns"),
        }
    )
    frame = frame[(frame["step"] >= 0) & (frame["ready"] > 0)]
    frame = frame.sort_values(["rank", "pid", "step"], kind="stable")
    frame = frame.drop_duplicates(["rank", "pid", "step"]).reset_index(drop=True)
    frame = _generations(frame)
    whose = frame.groupby(["rank", "pid"], sort=False)
    previous = whose["end"].shift(1, fill_value=-1).to_numpy(np.int64)
    follows = whose["step"].shift(1, fill_value=-2).to_numpy(np.int64) + 1 == frame["step"]
    previous = np.where(follows, previous, -1)
    fed = _fed(frame, waits, previous)
    own = np.where(fed.since >= 0, frame["ready"].to_numpy() - fed.since, np.nan)
    wait = np.where(fed.waited, np.clip(fed.wait, 0, np.fmax(own, 0)), np.nan)
    if partial:  # a batch that was not recorded had its wait all the same
        wait = np.where(fed.count > 0, wait, np.nan)
        own = np.where(fed.waited & (fed.count == 0), np.nan, own)
    frame["wait"] = np.where(np.isnan(own), np.nan, wait)
    frame["step_ns"] = own - np.nan_to_num(wait)
    frame["samples_of"] = np.where(fed.count > 0, fed.count, 0)
    return _Rows(frame, fed.loaders)


def _generations(frame: pd.DataFrame) -> pd.DataFrame:
    """With `step` counted on over processes that replaced each other, and `warm`.

    Processes of one generation (of an elastic job) overlap in time, those of the next begin when
    all of them are over. Of a rank with two processes in one, that with more steps counts.
    """
    each = frame.groupby(["rank", "pid"], as_index=False).agg(
        first=("begin", "min"), over=("end", "max"), low=("step", "min"), rows=("step", "size")
    )
    each = each.sort_values("first", ignore_index=True)
    begins = each["first"] >= each["over"].cummax().shift(1, fill_value=-1)
    # Only a process that counts from 0 can begin a generation: a late joiner does not.
    each["generation"] = (begins & (each["low"] == 0)).cumsum() - 1
    each = each.sort_values("rows", ascending=False, kind="stable")
    each = each.drop_duplicates(["rank", "generation"])
    frame = frame.merge(each[["rank", "pid", "generation"]], on=["rank", "pid"])
    frame["step"] = _places(frame["generation"].to_numpy(), frame["step"].to_numpy())
    frame = frame.sort_values(["rank", "step"], ignore_index=True)
    frame["warm"] = frame.groupby(["rank", "pid"]).cumcount() > 0
    return frame


@dataclass(frozen=True)
class _Fed:
    since: Ints  # when the rank's own time began, -1: not known
    wait: Ints
    count: Ints  # batches taken
    waited: Bools  # the process has waits at all
    loaders: list[int]


def _fed(frame: pd.DataFrame, waits: pd.DataFrame, previous: Ints) -> _Fed:
    """What of `waits` belongs to which row: those that ended between the backward pass before and
    this one."""
    row = _next_row(frame, waits)
    known = row >= 0
    waits, row = waits[known], row[known]
    loader = waits["loader"].to_numpy(np.int64)
    # How many windows each loader gave a batch to.
    windows = pd.DataFrame({"loader": loader, "row": row}).drop_duplicates()
    fed = windows.groupby("loader").size()
    whole = np.count_nonzero(np.bincount(row))
    loaders = sorted(int(one) for one in fed.index[fed >= _FEEDS * whole]) or [
        int(one) for one in fed.sort_values().index[-1:]
    ]
    mine = np.isin(loader, loaders)
    waits, row = waits[mine], row[mine]
    size = len(frame)
    start, end = waits["start"].to_numpy(), waits["end"].to_numpy()
    # The process's own beginning stands in where no synchronisation went before.
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, row, start)
    since = np.where(previous >= 0, previous, np.where(first < np.iinfo(np.int64).max, first, -1))
    inside = np.maximum(end - np.maximum(start, since[row]), 0)
    wait = np.bincount(row, weights=inside, minlength=size).astype(np.int64)
    count = np.bincount(row, minlength=size)
    process = frame.groupby(["rank", "pid"], sort=False).ngroup().to_numpy()
    has = np.bincount(process, weights=count, minlength=int(process.max(initial=0)) + 1) > 0
    return _Fed(since, wait, count, has[process], loaders)


def _next_row(frame: pd.DataFrame, waits: pd.DataFrame) -> Ints:
    """For each wait the row of the backward pass that begins next after it; -1: none does."""
    found = np.full(len(waits), -1, np.int64)
    rows_of: Mapping[Any, Any] = frame.groupby(["rank", "pid"], sort=False).indices
    for key, mine in waits.groupby(["rank", "pid"], sort=False).indices.items():
        rows = rows_of.get(key)
        if rows is None:
            continue
        begins = frame["begin"].to_numpy()[rows]
        order = np.argsort(begins, kind="stable")
        at = np.searchsorted(begins[order], waits["end"].to_numpy()[mine])
        found[mine] = np.where(at < len(rows), rows[order][np.minimum(at, len(rows) - 1)], -1)
    return found


def _unsynced(waits: pd.DataFrame) -> _Rows:
    if not len(waits):
        return _Rows(waits, [])
    loader = int(waits["loader"].value_counts().index[0])
    frame = waits[waits["loader"] == loader]
    frame = frame.drop_duplicates(["rank", "epoch", "batch"], keep="last")
    first = frame.groupby("epoch")["batch"].transform("min")
    made = frame.assign(
        step=_places(frame["epoch"].to_numpy(), frame["batch"].to_numpy()),
        warm=frame["batch"] > first,
        wait=(frame["end"] - frame["start"]).astype(np.float64),
        sync=np.nan,
        ready=0,
        samples_of=1,
    )
    return _Rows(made.reset_index(drop=True), [loader])


# -- matrices --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Made:
    thinned: int
    warm: Bools
    wait: Cells
    step: Cells
    sync: Cells
    ready: Ints  # 0: took no part
    ends: Ints  # (K,) the earliest end of a rank's


def _matrices(frame: pd.DataFrame, place: Ints, ranks: int, most_cells: int) -> _Made:
    step = frame["step"].to_numpy(np.int64)
    steps = int(step.max()) + 1
    thinned = max(1, -(-ranks * steps // most_cells))
    keep = step % thinned == 0
    row, column = place[keep], step[keep] // thinned
    shape = (ranks, -(-steps // thinned))

    def spread(name: str) -> Cells:
        cells = np.full(shape, np.nan, np.float32)
        cells[row, column] = frame[name].to_numpy(np.float64)[keep]
        return cells

    ready = np.zeros(shape, np.int64)
    ready[row, column] = frame["ready"].to_numpy(np.int64)[keep]
    warm = np.ones(shape[1], np.bool_)
    np.logical_and.at(warm, column, frame["warm"].to_numpy(np.bool_)[keep])
    ends = np.full(shape[1], np.iinfo(np.int64).max)
    if "end" in frame:
        np.minimum.at(ends, column, frame["end"].to_numpy(np.int64)[keep])
    return _Made(thinned, warm, spread("wait"), spread("step_ns"), spread("sync"), ready, ends)


def _hosts(frame: pd.DataFrame, place: Ints, ranks: int) -> list[str]:
    """Of each rank the host of its last row: a restarted rank may have moved."""
    where = np.full(ranks, -1, np.int64)
    where[place] = np.arange(len(frame))
    return ["" if pd.isna(host) else str(host) for host in frame["host"].iloc[where]]


def _sizes(run: RunLike, rows: _Rows, ranks: Ints, place: Ints) -> Floats:
    """Samples that each rank takes for a step, on average: its batches' size times their number."""
    batches = table(run, "batches")
    mine = np.isin(integer(batches, "loader"), rows.loaders)
    size, rank = number(batches, "size")[mine], integer(batches, "rank")[mine]
    known = ~np.isnan(size) & np.isin(rank, ranks)
    at = np.searchsorted(ranks, rank[known])
    count = np.bincount(at, minlength=len(ranks))
    whole = np.bincount(at, weights=size[known], minlength=len(ranks))
    taken = rows.frame["samples_of"].to_numpy(np.float64)
    steps = np.bincount(place, weights=(taken > 0).astype(float), minlength=len(ranks))
    each = np.bincount(place, weights=taken, minlength=len(ranks)) / np.maximum(steps, 1)
    return np.where(count > 0, whole / np.maximum(count, 1) * each, np.nan)


# -- arrivals --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arrivals:
    late: Cells
    last: Ints
    second: Floats
    median: Floats


def _unknown(ready: Ints) -> _Arrivals:
    none = np.full(ready.shape[1], np.nan)
    last = np.where((ready > 0).sum(axis=0) == 1, ALONE, UNDECIDED)
    return _Arrivals(np.full(ready.shape, np.nan, np.float32), last, none, none.copy())


def _together(made: _Made, errors: Floats) -> bool:
    """Nobody has an average of gradients before all have arrived, but for an error of clocks."""
    finite = np.sort(errors[np.isfinite(errors)])[-2:]
    early = made.ready.max(axis=0) - made.ends > float(finite.sum())
    return not np.isfinite(errors).all() or bool(early.mean() <= _APART)


def _arrivals(ready: Ints, errors: Floats, hosts: list[str]) -> _Arrivals:
    """Lateness, and who was last, of arrivals (R, K) in nanoseconds; 0: took no part."""
    made = _unknown(ready)
    known, codes = np.unique(np.array(hosts), return_inverse=True)
    codes = codes.reshape(-1)
    elsewhere = codes[:, None] != codes[None, :]
    bound = np.where(elsewhere, errors[:, None] + errors[None, :], 0.0)
    wide = max(1, _BLOCK // max(len(ready), 1))
    for first in range(0, ready.shape[1], wide):
        block = slice(first, min(first + wide, ready.shape[1]))
        part = ready[:, block]
        there = part > 0
        count = there.sum(axis=0)
        earliest = np.where(there, part, np.iinfo(np.int64).max).min(axis=0)
        time = np.where(there, part - earliest, np.nan).astype(np.float64)
        late = time - _others_median(time, count)
        made.late[:, block] = np.where(there & (count < 2), 0.0, late)
        who = np.where(there, time, -1.0).argmax(axis=0)
        steps = np.arange(part.shape[1])
        gaps = time[who, steps] - time
        gaps[who, steps] = np.nan
        lead = np.fmin.reduce(gaps, axis=0)
        # Of each pair the later is known only beyond what the two clocks may be apart.
        margin = np.fmin.reduce(gaps - bound[who].T, axis=0) if len(known) > 1 else lead
        decided = (count >= 2) & (margin > 0)
        made.last[block] = np.where(decided, who, np.where(count < 2, ALONE, UNDECIDED))
        made.second[block] = np.where(decided, lead, np.nan)
        made.median[block] = np.where(decided, late[who, steps], np.nan)
    return made


def _others_median(time: Floats, count: Ints) -> Floats:
    """For each cell (R, K) the median of its column without it; NaN below two values."""
    ordered = np.sort(time, axis=0)  # NaN last
    steps = np.arange(time.shape[1])

    def without(index: Ints) -> Floats:
        """Value `index` of the ordered column from which the cell is taken out."""
        index = np.clip(index, 0, max(len(time) - 2, 0))
        here, after = ordered[index, steps], ordered[np.minimum(index + 1, len(time) - 1), steps]
        return np.where(time > here, here, after)

    low, high = (count - 2) // 2, (count - 1) // 2
    return np.asarray(np.where(count >= 2, (without(low) + without(high)) / 2, np.nan))

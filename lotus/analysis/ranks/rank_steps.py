"""The steps of each rank of a job, and who arrived last at the synchronisation.

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

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import RunLike, table
from lotus.analysis.ranks.rank_rows import (
    RankRows,
    is_partial,
    outer_waits,
    synced_rows,
    unsynced_rows,
)
from lotus.common.numbers.array_types import Bools, Floats, Ints

Cells = npt.NDArray[np.float32]  # (ranks, steps), nanoseconds

UNDECIDED, ALONE = -1, -2  # instead of who was last: the clocks cannot tell; below two ranks
MOST_CELLS = 1 << 24
_BLOCK = 1 << 20  # cells at once
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
        """The steps in which a rank took part, (R, K)."""
        return ~np.isnan(self.sync if self.synced else self.step)


def rank_steps(run: RunLike, most_cells: int = MOST_CELLS) -> RankSteps | None:
    """Return the steps of a job of several ranks; None if there is one process, or no step.

    With more than `most_cells` of ranks by steps, every n-th step.
    """
    syncs = table(run, "syncs")
    synced = len(syncs) > 0
    if not _several(syncs, table(run, "waits")):
        return None
    waits = outer_waits(run)
    rows = synced_rows(syncs, waits, is_partial(run)) if synced else unsynced_rows(waits)
    if not len(rows.frame):
        return None
    ranks, place = np.unique(int_column(rows.frame, "rank"), return_inverse=True)
    world = int_column(syncs if synced else waits, "world_size", 1).max()
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


def _several(*tables: pd.DataFrame) -> bool:
    """Return True if these tables have more than one rank."""
    known = [each for each in tables if len(each)]
    ranks = {int(rank) for each in known for rank in np.unique(int_column(each, "rank"))}
    return len(ranks) > 1 or any(int_column(each, "world_size", 1).max() > 1 for each in known)


def long_table(steps: RankSteps) -> pd.DataFrame:
    """Return one row per rank and step: rank host step wait_ns step_ns sync_ns late_ns last."""
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
    """Return the entries of `hosts` or `ranks` in a manifest that anybody may have written."""
    listed = manifest.get(name)
    return (
        [entry for entry in listed if isinstance(entry, Mapping)]
        if isinstance(listed, list)
        else []
    )


def clock_errors(manifest: Mapping[str, Any], hosts: list[str]) -> Floats:
    """Return bounds on the error of each rank's clock against the run's, nanoseconds.

    0 where all ranks are on one host; infinite for a host that the manifest has no bound of.
    """
    if len(set(hosts)) < 2:
        return np.zeros(len(hosts))
    known: dict[str, float] = {}
    for entry in entries(manifest, "hosts"):
        error = entry.get("error_ns")
        if isinstance(error, (int, float)) and error >= 0:  # also not NaN
            known[str(entry.get("host"))] = float(error)
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
    """Return `values` (ranks, steps) in at most so many cells; NaN: nothing was measured."""
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
    """Return the host of each rank's last row: a restarted rank may have moved."""
    where = np.full(ranks, -1, np.int64)
    where[place] = np.arange(len(frame))
    return ["" if pd.isna(host) else str(host) for host in frame["host"].iloc[where]]


def _sizes(run: RunLike, rows: RankRows, ranks: Ints, place: Ints) -> Floats:
    """Return the samples that each rank takes for a step, on average: batch size times batches."""
    batches = table(run, "batches")
    mine = np.isin(int_column(batches, "loader"), rows.loaders)
    size, rank = float_column(batches, "size")[mine], int_column(batches, "rank")[mine]
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
    """Return True if no rank has its averages before all have arrived.

    An error of the clocks is allowed for.
    """
    finite = np.sort(errors[np.isfinite(errors)])[-2:]
    early = made.ready.max(axis=0) - made.ends > float(finite.sum())
    return not np.isfinite(errors).all() or bool(early.mean() <= _APART)


def _arrivals(ready: Ints, errors: Floats, hosts: list[str]) -> _Arrivals:
    """Return lateness, and who was last, of arrivals (R, K) in nanoseconds; 0: took no part."""
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
        # The later one of a pair is known only if it is later by more than the two clocks may
        # differ.
        margin = np.fmin.reduce(gaps - bound[who].T, axis=0) if len(known) > 1 else lead
        decided = (count >= 2) & (margin > 0)
        made.last[block] = np.where(decided, who, np.where(count < 2, ALONE, UNDECIDED))
        made.second[block] = np.where(decided, lead, np.nan)
        made.median[block] = np.where(decided, late[who, steps], np.nan)
    return made


def _others_median(time: Floats, count: Ints) -> Floats:
    """Return for each cell (R, K) the median of its column without it; NaN below two values."""
    ordered = np.sort(time, axis=0)  # NaN last
    steps = np.arange(time.shape[1])

    def without(index: Ints) -> Floats:
        """Return value `index` of the ordered column without the cell."""
        index = np.clip(index, 0, max(len(time) - 2, 0))
        here, after = ordered[index, steps], ordered[np.minimum(index + 1, len(time) - 1), steps]
        return np.where(time > here, here, after)

    low, high = (count - 2) // 2, (count - 1) // 2
    return np.asarray(np.where(count >= 2, (without(low) + without(high)) / 2, np.nan))

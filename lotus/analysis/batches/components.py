"""The parts of each batch's time, and the unusual part of each.

All matrices have one row per batch and one column per component: the top-level operations, then
the data set's own code, collate, the rest of the fetch and the worker's snapshot after it. Values
are nanoseconds >= 0 and a row adds up to the making of its batch.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import (
    blocks,
    busy_within,
    float_column,
    int_column,
    median,
    process_keys,
    process_rows,
)
from lotus.analysis.common.loader_operations import InBatches, LoaderOperations
from lotus.analysis.common.loader_samples import LoaderSamples
from lotus.analysis.common.operation_sums import storage_ns
from lotus.common.numbers.array_types import Bools, Floats

OWN, COLLATE, REST, SNAPSHOT = "own code", "collate", "rest of fetch", "snapshot of the state"
# A worker is slow if its typical batch takes this much longer than the other workers' typical one.
WORKER_TIMES = 1.5
_MOSTLY = 0.75  # of the pairs of a batch of a slow worker and one of another worker
# The first batch of a process is start-up where it takes this much longer than later ones.
FIRST_TIMES = 1.5
# At least so many batches that read nothing show what a batch waits for besides storage.
LEAST_WITHOUT = 3
# A process whose other threads use less than this share of its CPU time computes in one thread.
LEAST_HELPERS = 0.2
# The longest that one switch keeps a thread off its core: a period of Linux's CPU quota.
CORE_TAKEN_NS = 100e6


@dataclass(frozen=True)
class Components:
    """`parts[k, c]`: nanoseconds of component `names[c]` in the making of batch k."""

    names: list[str]
    kinds: list[str]  # "operation", "dataset", "collate", "fetch", "snapshot"
    parts: Floats
    fetch: Floats  # (n,), 0 where no fetch was recorded
    operations: InBatches  # in the first columns, of which `took` is the matrix

    @property
    def own(self) -> int:
        """The column of the data set's own code."""
        return len(self.names) - 4

    @property
    def snapshot(self) -> int:
        """The column of snapshots of the loader's state."""
        return len(self.names) - 1

    @property
    def making(self) -> Floats:
        """The time that each batch kept its worker (n,), 0 where no fetch was recorded."""
        making: Floats = self.fetch + self.parts[:, self.snapshot]
        return making


def components(
    batches: pd.DataFrame, fetched: LoaderSamples, calls: LoaderOperations
) -> Components:
    """Split the fetch of each batch. At a level without operations or samples those are 0."""
    fetch = np.nan_to_num(float_column(batches, "fetch_ns"))
    operations = calls.in_batches(batches, beside=4)
    names = operations.names
    width = len(names)
    parts = operations.took  # a matrix as large as the table of batches: there is no second one
    parts[:, width] = fetched.in_batches(batches, "own_ns")
    parts[:, width + 1] = np.nan_to_num(float_column(batches, "collate_ns"))
    np.maximum(parts, 0.0, out=parts)
    # Operations on several threads at once can add up to more than the fetch.
    made = parts.sum(axis=1)
    parts *= np.where(made > fetch, fetch / np.where(made > 0, made, 1.0), 1.0)[:, None]
    parts[:, width + 2] = np.maximum(fetch - parts.sum(axis=1), 0.0)
    parts[:, width + 3] = np.where(
        fetch > 0, np.nan_to_num(float_column(batches, "snapshot_ns")), 0.0
    )
    return Components(
        names=[*names, OWN, COLLATE, REST, SNAPSHOT],
        kinds=["operation"] * width + ["dataset", "collate", "fetch", "snapshot"],
        parts=parts,
        fetch=fetch,
        operations=operations,
    )


def first_of_process(batches: pd.DataFrame, workers: pd.DataFrame) -> Bools:
    """Return which batches are the first that their process made for this loader (n,)."""
    process = process_rows(workers, batches)
    frame = pd.DataFrame(
        {
            "rank": int_column(batches, "rank"),
            "pid": np.where(process >= 0, -1 - process, int_column(batches, "pid")),
            "loader": int_column(batches, "loader"),
            "start": float_column(batches, "fetch_start_ns"),
        }
    )
    earliest = frame.groupby(["rank", "pid", "loader"])["start"].transform("min")
    return (frame["start"] == earliest).to_numpy(dtype=np.bool_)


def usual_of_worker(batches: pd.DataFrame, took: Floats, first: Bools) -> Floats:
    """Return what is typical of each batch's worker without first batches (n,); NaN: none."""
    frame = pd.DataFrame(
        {
            "rank": int_column(batches, "rank"),
            "worker": int_column(batches, "worker"),
            "took": np.where(first | ~(took > 0), np.nan, took),
        }
    )
    own = frame.groupby(["rank", "worker"])["took"]
    several = own.transform("count") >= 2
    usual = own.transform("median").where(several, median(frame["took"].to_numpy()))
    return usual.to_numpy(np.float64)


def first_excess(batches: pd.DataFrame, took: Floats, first: Bools) -> Floats:
    """Return how much longer first batches of processes took than later ones (n,), ns."""
    usual = usual_of_worker(batches, took, first)
    slow = first & (took > FIRST_TIMES * usual)
    return np.where(slow, took - usual, 0.0)


def slow_workers(batches: pd.DataFrame, fetch: Floats, first: Bools) -> pd.DataFrame:
    """Return the typical ns per sample of each worker beside the others' typical ones.

    Time without a core does not count, where it is known: it is not the worker that is slow.

    Columns rank worker own_ns others_ns times slow; `slow` for at most half of a rank's workers,
    with at least two batches each after their first.
    """
    size = float_column(batches, "size")
    per_sample = (fetch - without_core(batches, fetch)) / np.where(size > 0, size, np.nan)
    frame = pd.DataFrame(
        {
            "rank": int_column(batches, "rank"),
            "worker": int_column(batches, "worker"),
            "own": np.where(first | (fetch <= 0), np.nan, per_sample),
        }
    )
    frame = frame[(frame["worker"] >= 0) & frame["own"].notna()]
    table = frame.groupby(["rank", "worker"], as_index=False)["own"].agg(["median", "count"])
    table = table[table["count"] >= 2].reset_index(drop=True)
    own = table["median"].to_numpy(np.float64)
    rank = table["rank"].to_numpy()
    others = np.full(len(table), np.nan)
    for name in np.unique(rank):
        mine = np.flatnonzero(rank == name)
        for row in mine:
            others[row] = median(own[mine[mine != row]])
    # All of the others' time may have been without a core.
    times = own / np.where(others > 0, others, np.nan)
    slow = times >= WORKER_TIMES
    for row in np.flatnonzero(slow):
        of_rank = int_column(frame, "rank") == rank[row]
        mine = int_column(frame, "worker") == int(table["worker"].iloc[row])
        took = frame["own"].to_numpy(np.float64)
        slow[row] = mostly_above(took[of_rank & mine], took[of_rank & ~mine])
    for name in np.unique(rank):
        mine = rank == name
        if slow[mine].sum() > mine.sum() / 2:
            slow[mine] = False
    return pd.DataFrame(
        {
            "rank": rank,
            "worker": table["worker"].to_numpy(),
            "own_ns": own,
            "others_ns": others,
            "times": times,
            "slow": slow,
        }
    )


def mostly_above(own: Floats, others: Floats) -> bool:
    """Return True if most of a worker's values exceed most of the others'.

    Comparing medians is not enough: where some batches cost far more than the rest, they differ by
    chance.
    """
    place = pd.Series(np.concatenate([own, others])).rank().to_numpy(np.float64)
    # Pairs in which this worker's is larger.
    above = place[: len(own)].sum() - len(own) * (len(own) + 1) / 2
    return bool(above >= _MOSTLY * len(own) * len(others))


def interpreter_held(batches: pd.DataFrame, fetch: Floats) -> Floats:
    """Return how long each fetch was blocked by its worker's feeder thread pickling (n,), ns.

    Pickling Python objects holds the interpreter: the part of a fetch that overlaps its own
    process's pickling, as far as the fetch had no CPU time meanwhile.
    """
    start = float_column(batches, "fetch_start_ns")
    group = process_keys(batches)
    overlap = busy_within(
        group,
        start,
        start + fetch,
        group,
        float_column(batches, "send_start_ns"),
        float_column(batches, "pickle_ns"),
    )
    return np.minimum(overlap, off_cpu(batches, fetch))


def off_cpu(batches: pd.DataFrame, fetch: Floats) -> Floats:
    """Return how long each fetch waited off the CPU (n,), ns; 0 where CPU time was not recorded.

    Waiting for a core is not included: see `core_taken`.
    """
    return _in_blocks(
        lambda some, took: _all_off_cpu(some, took) - _core_taken(some, took), batches, fetch
    )


def without_core(batches: pd.DataFrame, fetch: Floats) -> Floats:
    """Return how long each fetch was ready without a core (n,), ns; 0 if not measured."""
    return np.minimum(np.nan_to_num(float_column(batches, "run_delay_ns")), fetch)


def held_up(batches: pd.DataFrame, fetch: Floats) -> Floats:
    """Return how long missing cores delayed each fetch (n,), ns; 0 where that was not measured.

    Helper threads lack a core for about as long as their own thread, which waits for them or spins.
    """
    own, everything = (float_column(batches, name) for name in ("cpu_ns", "process_cpu_ns"))
    helped = (everything > own) & (everything - own >= LEAST_HELPERS * everything)
    return np.minimum(without_core(batches, fetch) * np.where(helped, 2.0, 1.0), fetch)


def core_taken(batches: pd.DataFrame, fetch: Floats) -> Floats:
    """Return how long each fetch was ready to run, but had no core (n,), ns.

    As the kernel counted it, else an estimate: only the numbers of switches are known then, so the
    time off the CPU is split in proportion to them. A thread that never gave up its core by itself
    waited for nothing but a core.
    """
    return _in_blocks(_core_taken, batches, fetch)


def _in_blocks(
    compute: Callable[[pd.DataFrame, Floats], Floats], batches: pd.DataFrame, fetch: Floats
) -> Floats:
    """Return what `compute` returns for each batch (n,); few rows are in memory at a time."""
    result = np.empty(len(batches))
    for some in blocks(len(batches)):
        result[some] = compute(batches.iloc[some], fetch[some])
    return result


def _core_taken(batches: pd.DataFrame, fetch: Floats) -> Floats:
    off = _all_off_cpu(batches, fetch)
    measured = float_column(batches, "run_delay_ns")
    gave = float_column(batches, "voluntary_switches")
    lost = np.nan_to_num(float_column(batches, "involuntary_switches"))
    part = lost / np.where(gave + lost > 0, gave + lost, 1.0)
    taken = np.minimum(off * part, lost * CORE_TAKEN_NS)
    estimated = np.where(gave == 0, off, np.where(np.isnan(gave), 0.0, taken))
    return np.where(np.isnan(measured), estimated, np.minimum(measured, off))


def _all_off_cpu(batches: pd.DataFrame, fetch: Floats) -> Floats:
    cpu = float_column(batches, "cpu_ns")
    return np.where(np.isnan(cpu), 0.0, np.maximum(fetch - cpu, 0.0))


def _files_share(possible: Floats, first: Bools, later: Bools) -> Floats:
    """Return the part of what each batch read that can be files of its data set (n,), 0 to 1.

    A process's first batch pages in its libraries: no more of its reading counts as files than
    later batches read on average.
    """
    usual = float(possible[later].mean()) if later.any() else 0.0
    return np.where(first & (possible > usual), usual / np.where(possible > 0, possible, 1.0), 1.0)


def _otherwise(waited: Floats, possible: Floats, later: Bools) -> float:
    """Return the typical wait of batches that read nothing; 0 if there are hardly any."""
    without = waited[(possible == 0) & later]
    return median(without) if without.size >= LEAST_WITHOUT else 0.0


def storage_parts(
    split: Components,
    batches: pd.DataFrame,
    loaders: set[str],
    held: Floats,
    first: Bools,
) -> Floats | None:
    """Return how long each component waited for local storage (n, c), at most what that can take.

    None: nothing did. Per operation where its CPU time was recorded. Otherwise it is the batch's
    waiting, given first to operations that load files (names in `loaders`), then to all others
    alike. `first`: which batches are the first of their process.
    """
    waited = np.maximum(off_cpu(batches, split.fetch) - held, 0.0)
    possible = storage_ns(
        float_column(batches, "read_bytes"), float_column(batches, "major_faults")
    )
    later = ~first & (split.fetch > 0)
    own = np.maximum(waited - _otherwise(waited, possible, later), 0.0)
    left = np.minimum(own, possible * _files_share(possible, first, later))
    if not left.any():
        return None
    result = np.zeros(split.parts.shape)
    stalled = split.operations.stalled
    if stalled is not None:
        result[:, : stalled.shape[1]] = stalled
        there = result.sum(axis=1)
        result *= np.where(there > left, left / np.where(there > 0, there, 1.0), 1.0)[:, None]
        result[:, split.own] = np.maximum(left - result.sum(axis=1), 0.0)
    else:
        samples = range(split.own + 1)
        loading = [place for place in samples[:-1] if split.names[place] in loaders]
        for chosen in (loading, [place for place in samples if place not in loading]):
            there = split.parts[:, chosen].sum(axis=1)
            take = np.minimum(left, there)
            share = take / np.where(there > 0, there, 1.0)
            for place in chosen:
                result[:, place] += split.parts[:, place] * share
            left = left - take
    return np.minimum(result, split.parts, out=result)

"""The loop over time: each batch and the throughput, thinned without hiding extremes."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import batch_rows, float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.memory_readings import memory_readings
from lotus.common.numbers.array_types import Floats, Ints

MEASURES = ("wait", "step", "delay")
_MOST_OF_EPOCHS = 0.2  # of the rows of a thinned series
_LEAST_OF_BIN = 0.05  # a rate over less time says nothing
_BATCHES_A_BIN = 4  # on average: with fewer, a rate shows single batches


def batch_series(scope: Scope) -> pd.DataFrame:
    """Return one row per batch taken, by rank and time.

    Columns: rank epoch batch size time_ns wait_ns step_ns delay_ns. time_ns: `next` returned it,
    from the first `iter()` of the rank on; NaN where not measured.
    """
    waits, batches = scope.waits, scope.batches
    end = float_column(waits, "start_ns") + float_column(waits, "wait_ns")
    row = batch_rows(batches, waits)
    known = row >= 0

    def of_batch(name: str) -> Floats:
        values = float_column(batches, name)
        return np.where(known, values[np.maximum(row, 0)], np.nan) if len(batches) else end * np.nan

    failed = waits["failed"].to_numpy(bool) if "failed" in waits else np.zeros(len(waits), bool)
    table = pd.DataFrame(
        {
            "rank": int_column(waits, "rank"),
            "epoch": int_column(waits, "epoch"),
            "batch": int_column(waits, "batch"),
            "size": of_batch("size"),
            "time_ns": end - _begin_of_rank(scope, int_column(waits, "rank")),
            "wait_ns": float_column(waits, "wait_ns"),
            "step_ns": float_column(waits, "step_ns"),
            "delay_ns": of_batch("delay_ns"),
        }
    )
    return table[~failed].sort_values(["rank", "time_ns"], kind="stable").reset_index(drop=True)


def _begin_of_rank(scope: Scope, rank: Ints) -> Floats:
    """Return when each row's rank first called `iter()`, or `next` if that was not recorded."""
    begun = pd.concat(
        [
            pd.DataFrame(
                {"rank": int_column(frame, "rank"), "start": float_column(frame, "start_ns")}
            )
            for frame in (scope.epochs, scope.waits)
        ]
    )
    first = begun[begun["start"] > 0].groupby("rank")["start"].min()
    return first.reindex(rank).to_numpy(np.float64)


def thinned(series: pd.DataFrame, most: int = 1500) -> pd.DataFrame:
    """Return at most about `most` rows of a `batch_series`, each of several batches.

    Columns: rank epoch time_ns batches, and of every measure wait_ns (mean), wait_max_ns, and so
    on. `batches` is how many stand behind a row: neighbours of one rank, equally many in each. They
    are of one epoch, unless there are so many that a row would have few; `epoch` is that of the
    first.
    """
    keys = ["rank", "epoch"]
    if len(series[keys].drop_duplicates()) > most * _MOST_OF_EPOCHS:
        keys = ["rank"]
    within = series.groupby(keys).cumcount()
    each = max(-(-len(series) // most), 1)
    grouped = series.assign(part=within // each).groupby([*keys, "part"], sort=True)
    columns = {"time_ns": ("time_ns", "mean"), "batches": ("time_ns", "size")}
    if "epoch" not in keys:
        columns["epoch"] = ("epoch", "first")
    for name in MEASURES:
        columns[f"{name}_ns"] = (f"{name}_ns", "mean")
        columns[f"{name}_max_ns"] = (f"{name}_ns", "max")
    return grouped.agg(**columns).reset_index().drop(columns="part")


def loops(scopes: Sequence[Scope], rank: int) -> pd.DataFrame:
    """Return the loops of one rank over these loaders, by time: loader title start_ns end_ns.

    Times are from the first `iter()` of the first loader on. A loop that was broken off ends with
    its last step.
    """
    rows = []
    for scope in scopes:
        loop = loop_times(scope.epochs, scope.waits)
        mine = loop[int_column(loop, "rank") == rank]
        begin = _begin_of_rank(scopes[0], int_column(mine, "rank"))
        end = float_column(mine, "end_ns")
        rows.append(
            pd.DataFrame(
                {
                    "loader": scope.loader,
                    "title": scope.title,
                    "start_ns": np.fmin(
                        float_column(mine, "start_ns"), float_column(mine, "begin_ns")
                    )
                    - begin,
                    "end_ns": np.where(np.isnan(end), float_column(mine, "last_ns"), end) - begin,
                }
            )
        )
    return pd.concat(rows, ignore_index=True).dropna().sort_values("start_ns", kind="stable")


def throughput(
    series: pd.DataFrame, most: int = 200, loops: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return samples a second over time, of a `batch_series`.

    Columns: rank start_ns end_ns samples samples_per_s. Bins of equal length, at most `most`, of
    four batches or more on average. The bins' samples add up to those of the series; a batch whose
    size was not recorded counts as large as the others. With the `loops` of this loader,
    samples_per_s is of the time that they took of a bin; NaN in a bin between them.
    """
    size = float_column(series, "size")
    usual = np.nanmean(size) if (~np.isnan(size)).any() else np.nan
    size = np.where(np.isnan(size), usual, size)
    rows = []
    for rank in np.unique(int_column(series, "rank")):
        mine = int_column(series, "rank") == rank
        time = float_column(series, "time_ns")[mine]
        good = ~np.isnan(time) & ~np.isnan(size[mine])
        if not good.any():
            continue
        time, sizes = time[good], size[mine][good]
        bins = int(np.clip(len(time) // _BATCHES_A_BIN, 1, most))
        edges = np.linspace(0.0, max(float(time.max()), 1.0), bins + 1)
        samples, _ = np.histogram(time, edges, weights=sizes)
        rows.append(
            pd.DataFrame(
                {
                    "rank": rank,
                    "start_ns": edges[:-1],
                    "end_ns": edges[1:],
                    "samples": samples,
                    "samples_per_s": samples / _time_in(loops, edges) * 1e9,
                }
            )
        )
    columns = ["rank", "start_ns", "end_ns", "samples", "samples_per_s"]
    return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)


def _time_in(loops: pd.DataFrame | None, edges: Floats) -> Floats:
    """Return nanoseconds of each bin that lie in loops; NaN where next to nothing does."""
    width = np.diff(edges)
    if loops is None or not len(loops):
        return width
    start, end = float_column(loops, "start_ns"), float_column(loops, "end_ns")
    ticks = np.concatenate([[0.0], np.stack([start, end], axis=1).ravel()])
    passed = np.concatenate([[0.0], np.cumsum(np.stack([0 * start, end - start], axis=1).ravel())])
    inside = np.diff(np.interp(edges, np.maximum.accumulate(ticks), passed))
    return np.where(inside >= _LEAST_OF_BIN * width, inside, np.nan)


def memory(scope: Scope, most: int = 300) -> pd.DataFrame:
    """Return the memory of each process over time: rank worker (-1: main) pid time_ns pss_bytes.

    time_ns as in `batch_series`. Of a process with more than `most` readings the largest of
    neighbours is kept.
    """
    names = ["rank", "worker", "pid", "time_ns", "pss"]
    table = memory_readings(scope)[names].rename(columns={"pss": "pss_bytes"})
    table["time_ns"] -= _begin_of_rank(scope, table["rank"].to_numpy())
    table = table.sort_values(["rank", "worker", "pid", "time_ns"])
    keys = ["rank", "worker", "pid"]
    place = table.groupby(keys).cumcount()
    each = -(-table.groupby(keys)["pid"].transform("size") // most)
    largest = table.groupby([*keys, place // each])["pss_bytes"].idxmax()
    return table.loc[largest].sort_values([*keys, "time_ns"]).reset_index(drop=True)

"""The processes of a watched program: what each used, and the rows of the table that is shown."""

import math

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.common.columns import float_column, ratio

_MOST_ROWS = 24
_SHARES = ("computing_share", "ready_share", "blocked_share")
_COLUMNS = ("pid", "worker", "rank", "threads", "ended", "cores_used", *_SHARES, "read_bytes")


def processes(evidence: AttachEvidence, looks: pd.DataFrame) -> pd.DataFrame:
    """Return what each process used.

    Columns: pid, worker, rank, threads, ended, cores_used, computing_share, ready_share,
    blocked_share, read_bytes. Shares are of the time for which a process was there, cores of all
    the time that was watched.
    """
    rows = []
    for process in evidence.processes.to_dict("records"):
        mine = looks[looks["pid"] == process["pid"]]
        wall = float(mine["wall_ns"].sum())
        on, ready = float(mine["cpu_ns"].sum()), float(mine["delay_ns"].sum())
        used = process["cpu_ns"] / evidence.elapsed_ns if process["cpu_ns"] >= 0 else math.nan
        rows.append(
            {
                **{name: process[name] for name in ("pid", "worker", "rank", "threads", "ended")},
                "cores_used": used,
                "computing_share": ratio(on, wall),
                "ready_share": ratio(ready, wall),
                "blocked_share": ratio(max(wall - on - ready, 0.0), wall),
                "read_bytes": process["read_bytes"] if process["read_bytes"] >= 0 else math.nan,
            }
        )
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def grouped(table: pd.DataFrame, evidence: AttachEvidence, workers: int) -> pd.DataFrame:
    """Return the table in few rows; `count` is the number of processes of a row.

    `table` as `processes`; `workers`: how many a main process has at a time, 0 if that is not
    known. Workers that ended and were followed by others, as after each epoch, share one row, and
    so do all processes beyond the first ones; the row has the sum of their cores and bytes, and the
    medians of their shares. `worker` becomes the place among those of one epoch, where it is known
    which of them ended; in a row of several it is -1 unless all are workers. `ended` is 1 there if
    all of them ended.
    """
    table = table.assign(count=1)
    if workers:
        placed = (table["worker"] >= 0) & (table["ended"] >= 0)
        place = (table["worker"] % workers).where(placed, table["worker"])
        table = table.assign(worker=place)
    gone = table["pid"].isin(_followed(evidence)) & (table["ended"] == 1)
    there = _numbered(table[~gone], evidence)
    rows = [there.head(_MOST_ROWS)]
    rows += [_one_row(part) for part in (there.iloc[_MOST_ROWS:], table[gone]) if len(part)]
    return pd.concat(rows, ignore_index=True)


def _numbered(table: pd.DataFrame, evidence: AttachEvidence) -> pd.DataFrame:
    """Return the table with other numbers for workers if two of a main process have one number.

    That happens if several loaders have workers at a time.
    """
    main_of = evidence.processes.set_index("pid")["main"]
    workers = table[table["worker"] >= 0]
    groups = workers.groupby(workers["pid"].map(main_of))["worker"]
    twice = groups.transform(lambda numbers: bool(numbers.duplicated().any())).astype(bool)
    numbers = workers["worker"].mask(twice, groups.cumcount())
    return table.assign(worker=numbers.reindex(table.index, fill_value=-1))


def _followed(evidence: AttachEvidence) -> list[int]:
    """Return workers that were last seen before another worker of the same process was first seen.

    Those that had ended before a look are among them.
    """
    processes = evidence.processes[evidence.processes["worker"] >= 0]
    times = evidence.looks.groupby("pid")["time_ns"]
    first, last = processes["pid"].map(times.min()), processes["pid"].map(times.max())
    followed = last < first.groupby(processes["main"]).transform("max")
    return processes.loc[followed | last.isna(), "pid"].tolist()


def _one_row(table: pd.DataFrame) -> pd.DataFrame:
    if len(table) == 1:
        return table
    row = {name: table[name].iloc[0] for name in table.columns}
    row |= {"worker": table["worker"].min(), "ended": int((table["ended"] == 1).all())}
    for name in ("cores_used", "read_bytes"):
        values = float_column(table, name)
        known = values[np.isfinite(values)]
        row[name] = float(known.sum()) if known.size else math.nan
    for name in _SHARES:
        values = float_column(table, name)
        row[name] = float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan
    return pd.DataFrame([row | {"count": len(table)}])

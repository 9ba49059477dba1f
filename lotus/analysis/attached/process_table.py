"""The processes of a watched program: what each used, and the rows of the table that is shown."""

import math

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import AttachEvidence
from lotus.analysis.common.columns import number, ratio

_MOST_ROWS = 24
_SHARES = ("computing_share", "ready_share", "blocked_share")


def processes(evidence: AttachEvidence, looks: pd.DataFrame) -> pd.DataFrame:
    """What each process used.

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
    return pd.DataFrame(rows)


def grouped(table: pd.DataFrame, workers: int) -> pd.DataFrame:
    """The same in few rows, with `count`: how many processes a row stands for.

    `table` as `processes`; `workers`: how many a main process has at a time. Workers that ended,
    as they do after each epoch, share one row, and so do all beyond the first ones; the row has the
    sum of their cores and bytes, and the medians of their shares. `worker` becomes the place among
    those of one epoch.
    """
    table = table.assign(count=1)
    of_workers = table["worker"] >= 0
    place = table["worker"].where(~of_workers, table["worker"] % max(workers, 1))
    table = table.assign(worker=place)
    gone = of_workers & (table["ended"] == 1)
    there = table[~gone]
    rows = [there.head(_MOST_ROWS)]
    rows += [_one_row(part) for part in (there.iloc[_MOST_ROWS:], table[gone]) if len(part)]
    return pd.concat(rows, ignore_index=True)


def _one_row(table: pd.DataFrame) -> pd.DataFrame:
    if len(table) == 1:
        return table
    row = {name: table[name].iloc[0] for name in table.columns}
    for name in ("cores_used", "read_bytes"):
        values = number(table, name)
        known = values[np.isfinite(values)]
        row[name] = float(known.sum()) if known.size else math.nan
    for name in _SHARES:
        values = number(table, name)
        row[name] = float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan
    return pd.DataFrame([row | {"count": len(table)}])

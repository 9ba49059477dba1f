"""Finds when stacks were sampled, as exactly as py-spy's file allows.

The file has the changes of stacks only. But py-spy samples all threads of a program at a time: a
change of one thread's stack is the time of a sample of all the others. The times between two
changes are not known, and such samples are left out.
"""

import numpy as np
import pandas as pd

COLUMNS = ["time_ns", "pid", "tid", "label"]
_ROUND_NS = 1_000_000  # py-spy writes one sample of all threads within that time


def moments(samples: pd.DataFrame) -> pd.DataFrame:
    """Return time_ns, pid, tid, label: what each thread did at the times that are known.

    `samples` (time_ns, weight_ns, exact, pid, tid, label; label -1: not known) are those of one
    py-spy. Sorted by time.
    """
    exact = np.unique(samples.loc[samples["exact"], "time_ns"].to_numpy(np.int64))
    if not len(exact):
        return pd.DataFrame({name: pd.Series(dtype="int64") for name in COLUMNS})
    begins = np.flatnonzero(np.diff(exact, prepend=exact[0] - 2 * _ROUND_NS) > _ROUND_NS)
    first = exact[begins]
    last = exact[np.append(begins[1:], len(exact)) - 1]
    tables = []
    for (pid, tid), mine in samples.groupby(["pid", "tid"]):
        rows = mine.sort_values("time_ns", kind="stable")
        start = rows["time_ns"].to_numpy(np.int64)
        end = start + rows["weight_ns"].to_numpy(np.int64)
        row = np.searchsorted(start, last, side="right") - 1
        there = (row >= 0) & (end[row] >= first)
        row, time = row[there], first[there]
        own = rows["exact"].to_numpy()[row] & (start[row] >= time)
        tables.append(
            pd.DataFrame(
                {
                    "time_ns": np.where(own, start[row], time),
                    "pid": pid,
                    "tid": tid,
                    "label": rows["label"].to_numpy(np.int64)[row],
                }
            )
        )
    table = pd.concat(tables, ignore_index=True)
    table = table[table["label"] >= 0].sort_values("time_ns", kind="stable", ignore_index=True)
    return table.astype("int64")

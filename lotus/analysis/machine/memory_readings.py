"""Readings of the memory of each process: the launcher's and its own."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.memory_growth import touched_bytes
from lotus.common.numbers.array_types import Ints

READ_ONCE = "its memory was read once"
# As where one reading is of its start, before other workers shared the same pages.
NOT_ALIKE = "no two readings of its memory can be compared"
NEVER_READ = "its memory was not read"
_KEYS = ["rank", "worker", "pid"]


def memory_readings(scope: Scope) -> pd.DataFrame:
    """Return a row a reading, by time: rank worker (-1: main) pid time_ns pss, and in those of the
    launcher private and anonymous, bytes.

    In a process's own, these are NaN, and `sharers` says how many workers of its rank were ready.
    """
    tables = [_table(scope.resources), _table(scope.memory.assign(rank=_ranks(scope)))]
    table = pd.concat([each for each in tables if len(each)] or tables[:1], ignore_index=True)
    return table[table["pss"] > 0].sort_values("time_ns", kind="stable", ignore_index=True)


def memory_of_workers(scope: Scope) -> pd.DataFrame:
    """Return one row per rank and worker (-1: the main process), all its processes together.

    Columns: rank worker pss_bytes (largest) growth_bytes (largest; NaN: not known) growth_reason
    (why that is not known, "" where it is).
    """
    table = memory_readings(scope)
    ready = pd.Series(float_column(scope.workers, "ready_ns"), int_column(scope.workers, "pid"))
    # As it starts, a worker shares its pages with fewer processes than later.
    begin = table["pid"].map(ready[~ready.index.duplicated()])
    settled = table["pss"].where(~(table["time_ns"] < begin))
    each = table.assign(settled=settled).groupby(_KEYS).agg(
        settled=("settled", "max"), largest=("pss", "max"), readings=("pss", "size")
    )  # fmt: skip
    each["largest"] = each["settled"].fillna(each["largest"])
    each["growth"] = _growth_outside(scope, table).reindex(each.index)
    each["growth"] = each["growth"].fillna(_growth_alike(table).reindex(each.index))
    result = each.groupby(["rank", "worker"], as_index=False).agg(
        pss_bytes=("largest", "max"), growth_bytes=("growth", "max"), most=("readings", "max")
    )
    why = np.where(result.pop("most") > 1, NOT_ALIKE, READ_ONCE)
    return result.assign(growth_reason=np.where(result["growth_bytes"].notna(), "", why))


def _ranks(scope: Scope) -> Ints:
    """Return the rank of each of the launcher's readings."""
    pids = int_column(scope.memory, "pid")
    if not pids.size:
        return pids
    known = [
        pd.Series(int_column(frame, "rank")).groupby(int_column(frame, "pid")).first()
        for frame in (scope.batches, scope.waits)
    ]
    ranks = pd.concat(known)
    ranks = ranks[~ranks.index.duplicated()].reindex(pids, fill_value=-1)
    return np.asarray(ranks, np.int64)


def _table(readings: pd.DataFrame) -> pd.DataFrame:
    names = ("time_ns", "pss", "private", "anonymous", "sharers")
    return pd.DataFrame(
        {name: int_column(readings, name) for name in _KEYS}
        | {name: float_column(readings, name) for name in names}
    )


def _growth_outside(scope: Scope, table: pd.DataFrame) -> pd.Series:
    """Return by how many bytes each process grew that the launcher read twice, by `_KEYS`."""
    outside = table[table["anonymous"].notna()].groupby(_KEYS)[["anonymous", "private"]]
    change = (outside.last() - outside.first())[outside.size() > 1]
    allocated, copied = change["anonymous"], change["private"] - change["anonymous"]
    if scope.num_workers == 1:
        # What the main process writes to becomes the only worker's own, untouched by it.
        touched = pd.Series(touched_bytes(scope), dtype=np.float64)
        pids = change.index.get_level_values("pid")
        copied = copied.clip(upper=touched.reindex(pids).fillna(0.0).to_numpy())
    # What a main process shares depends on how many workers there are.
    is_main = change.index.get_level_values("worker") < 0
    return allocated + np.where(is_main, 0.0, copied)


def _growth_alike(table: pd.DataFrame) -> pd.Series:
    """Return the change of each process's PSS while as many workers shared it, by `_KEYS`."""
    own = table[table["anonymous"].isna()].groupby([*_KEYS, "sharers"])["pss"]
    change = (own.last() - own.first())[own.size() > 1]
    longest = own.size()[own.size() > 1].sort_values(kind="stable").index
    change = change.reindex(longest).droplevel("sharers")
    return change[~change.index.duplicated(keep="last")]

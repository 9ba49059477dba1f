"""When each iteration of a loader began and ended, by the clock of the run."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column

_EPOCH = ["pid", "loader", "epoch"]


def loop_spans(epochs: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Return pid, loader, start_ns and end_ns of each iteration, sorted by start_ns.

    `waits` and `epochs`: of any loaders, as `Run` has them. An iteration that was left ends with
    its last batch: how long the program used that is not known. One of no batch is left out.
    """
    taken = pd.DataFrame({name: int_column(waits, name) for name in _EPOCH})
    taken["last_ns"] = float_column(waits, "start_ns") + float_column(waits, "wait_ns")
    begun = pd.DataFrame({name: int_column(epochs, name) for name in _EPOCH})
    begun = begun.assign(
        start_ns=float_column(epochs, "start_ns"),
        ended_ns=np.where(flag(epochs, "exhausted"), float_column(epochs, "end_ns"), np.nan),
    )
    spans = begun.merge(taken.groupby(_EPOCH, as_index=False).max(), how="left", on=_EPOCH)
    spans["end_ns"] = spans["ended_ns"].fillna(spans["last_ns"])
    kept = spans[spans["end_ns"] > spans["start_ns"]]
    columns = ["pid", "loader", "start_ns", "end_ns"]
    return kept[columns].sort_values("start_ns", kind="stable", ignore_index=True)

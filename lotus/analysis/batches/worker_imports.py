"""How long a loop waited while workers that were spawned imported the program."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import covered, float_column, int_column
from lotus.common.numbers.array_types import Floats


def waited_imports(workers: pd.DataFrame, epochs: pd.DataFrame) -> float:
    """Return this time, ns, of ranks with a single epoch; `epochs`: as `loop_times` returns them.

    While `iter()` starts one worker after another, it waits for an import only if what is pickled
    for that worker is more than a pipe holds: then it starts the next one after it. Otherwise it
    pickles for the next one meanwhile.
    """
    if "rank" not in epochs:  # of a program that was sampled
        return 0.0
    result = 0.0
    ranks, of_workers = int_column(epochs, "rank"), int_column(workers, "rank")
    begun, took = float_column(workers, "start_ns"), float_column(workers, "import_ns")
    ends = float_column(epochs, "start_ns") + float_column(epochs, "iter_ns")
    for rank, count in zip(*np.unique(ranks, return_counts=True), strict=True):
        mine = (of_workers == rank) & (begun + took > 0)
        if count == 1 and mine.any():
            result += _waited(begun[mine], took[mine], float(ends[ranks == rank][0]))
    return result


def _waited(begun: Floats, took: Floats, iter_end: float) -> float:
    order = np.argsort(begun)
    begun, end = begun[order], (begun + took)[order]
    after = np.append(begun[1:], iter_end)
    return covered(np.where(after >= end, begun, np.maximum(begun, iter_end)), end)

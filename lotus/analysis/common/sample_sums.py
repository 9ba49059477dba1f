"""Sums of a run's samples per batch, from one pass over them."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import KEYS, float_column, short, starts_of_runs, stored
from lotus.common.numbers.array_types import Floats

# `own_ns` is the time outside operations, or all of it where none were recorded.
SUMS = ("samples", "duration_ns", "own_ns", "self_ns", "known_self_ns")
_KEYS = [*KEYS, "worker"]


def sample_sums(samples: pd.DataFrame, piece: int = 0) -> pd.DataFrame:
    """Return a row per run of samples of one batch: KEYS, worker, SUMS, number of the piece.

    Most batches have one row; a table of all pieces, one after the other, is the sum of them.
    """
    if not len(samples):
        return pd.DataFrame(columns=[*_KEYS, *SUMS, "piece"])
    columns = [stored(samples, name) for name in _KEYS]
    first = starts_of_runs(columns)
    took, alone = float_column(samples, "duration_ns"), float_column(samples, "self_ns")
    known = ~np.isnan(alone)
    values: dict[str, np.ndarray] = {
        "samples": np.ones(len(samples), np.int32),
        "duration_ns": np.nan_to_num(took),
        "own_ns": own_time(samples),
        "self_ns": np.nan_to_num(alone),
        "known_self_ns": known.astype(np.int32),
    }
    sums = {name: np.add.reduceat(each, first) for name, each in values.items()}
    keys = {name: short(column[first]) for name, column in zip(_KEYS, columns, strict=True)}
    return pd.DataFrame({**keys, **sums, "piece": np.full(len(first), piece, np.int32)})


def own_time(samples: pd.DataFrame) -> Floats:
    """Return the time of each sample outside its operations, ns; all of it if it has none."""
    own = float_column(samples, "self_ns")
    return np.nan_to_num(np.where(np.isnan(own), float_column(samples, "duration_ns"), own))

"""How sure the rates of steps and of making batches are, from how batches vary."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.common.numbers import bootstrap

_LEAST_BATCHES = 10  # fewer do not show how they vary
_MOST_BATCHES = 20_000  # of more, the first: their mean is exact enough
_SEED = 0  # reports of the same run do not differ
_OUTSIDE = (2.5, 97.5)  # percentiles


def rate_spread(scope: Scope, table: str, name: str) -> tuple[float, float]:
    """Return factors (low, high) of the rate at which batches take `name` of a scope's `table`.

    A 95 % interval by a block bootstrap of the times, as neighbouring batches are alike; (1, 1)
    where there are too few batches to tell. Ranks that differ do not make it wider.
    """
    frame = getattr(scope, table)
    times = float_column(frame, name)
    known = np.flatnonzero(np.isfinite(times) & (times > 0))[:_MOST_BATCHES]
    if len(known) < _LEAST_BATCHES:
        return 1.0, 1.0
    of_ranks = pd.Series(times[known]).groupby(int_column(frame, "rank")[known])
    times = times[known] / of_ranks.transform("mean").to_numpy()
    generator = np.random.default_rng(_SEED)
    deviations = bootstrap.mean_deviations(times, bootstrap.REPLICATES, generator)
    low, high = np.percentile(1.0 + deviations, _OUTSIDE)
    return float(1.0 / high), float(1.0 / max(low, 1e-9))

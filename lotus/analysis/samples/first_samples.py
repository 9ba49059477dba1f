"""The first samples of a loader, for analyses that do not need all."""

import pandas as pd

from lotus.analysis.common.scope import Scope

_MOST = 65_536  # once there are so many, no further part is read


def first_samples(scope: Scope) -> pd.DataFrame:
    """Return the first samples and their times, the columns of `scope.fetched.times()`, if any.

    They are read only once.
    """
    return scope.fetched.once("first samples", lambda: _read(scope))


def _read(scope: Scope) -> pd.DataFrame:
    parts, count = [], 0
    for samples in scope.fetched.times():
        parts.append(samples)
        count += len(samples)
        if count >= _MOST:
            break
    return pd.concat(parts, ignore_index=True)[:_MOST] if parts else pd.DataFrame()

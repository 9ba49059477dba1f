"""Converts times of tables and logs to integers that can be added without overflow."""

from typing import Any

import numpy as np

from lotus.common.numbers.array_types import Ints

LATEST = 1 << 62  # ns; what is later is damaged


def whole(times: Any, missing: int = 0) -> Ints:
    """Return nanoseconds as int64, limited to ±LATEST; NaN becomes `missing`."""
    values = np.asarray(times)
    if values.dtype.kind == "u":
        values = values.astype(np.int64)  # a negative number that was stored as it is
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, nan=missing)
    return np.clip(values, -LATEST, LATEST - 1024).astype(np.int64)  # type: ignore[no-any-return]


def rounded(times: Any) -> Ints:
    """Round a float64 column to integers; exact up to 2**53 ns, 104 days."""
    return whole(whole(times).astype(np.float64))

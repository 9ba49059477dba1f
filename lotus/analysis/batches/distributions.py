"""How long each operation takes: quantiles, for figures that show more than a mean."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, number
from lotus.analysis.common.scope import Scope

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
NAMES = tuple(f"p{round(100 * one)}_ns" for one in QUANTILES)
OF_BATCHES = (("collate", "collate_ns"), ("send", "send_ns"))


def quantiles(scope: Scope) -> pd.DataFrame:
    """One row per operation, and for collate and send of a batch, the largest total first.

    Columns: name kind ("operation", "batch") nested count total_ns min_ns p1_ns p5_ns p25_ns p50_ns
    p75_ns p95_ns p99_ns max_ns. Times are of one call, or of one batch.
    """
    rows = []
    ops = scope.ops
    if len(ops):
        category = ops["operation"].astype("category")
        codes = category.cat.codes.to_numpy(np.int64)
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(category.cat.categories) + 1))
        duration, nested = number(ops, "duration_ns"), flag(ops, "nested")
        for code, name in enumerate(category.cat.categories):
            mine = order[edges[code] : edges[code + 1]]
            if mine.size:
                rows.append(_row(str(name), "operation", bool(nested[mine].all()), duration[mine]))
    for name, column in OF_BATCHES:
        values = number(scope.batches, column)
        if (values > 0).any():
            rows.append(_row(name, "batch", False, values[~np.isnan(values)]))
    columns = ["name", "kind", "nested", "count", "total_ns", "min_ns", *NAMES, "max_ns"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("total_ns", ascending=False, kind="stable").reset_index(drop=True)


def _row(name: str, kind: str, nested: bool, values: np.ndarray) -> dict[str, object]:
    cuts = np.quantile(values, QUANTILES)
    return {
        "name": name,
        "kind": kind,
        "nested": nested,
        "count": len(values),
        "total_ns": float(values.sum()),
        "min_ns": float(values.min()),
        **dict(zip(NAMES, cuts.tolist(), strict=True)),
        "max_ns": float(values.max()),
    }

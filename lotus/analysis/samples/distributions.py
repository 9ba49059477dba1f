"""The durations of each operation: quantiles, for figures that show more than a mean."""

import pandas as pd

from lotus.analysis.common.columns import float_column
from lotus.analysis.common.durations import Durations
from lotus.analysis.common.scope import Scope

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
NAMES = tuple(f"p{round(100 * quantile)}_ns" for quantile in QUANTILES)
OF_BATCHES = (("collate", "collate_ns"), ("send", "send_ns"))


def quantiles(scope: Scope) -> pd.DataFrame:
    """Return one row per operation, and for collate and send of a batch, the largest total first.

    Columns: name kind ("operation", "batch") nested count total_ns min_ns p1_ns p5_ns p25_ns p50_ns
    p75_ns p95_ns p99_ns max_ns. Times are of one call, or of one batch.
    """
    rows = []
    nested = scope.calls.cells.groupby("operation", sort=False)["nested"].all()
    for name in scope.calls.names:
        took = scope.calls.durations(name)
        rows.append(_row(name, "operation", bool(nested[name]), took))
    for name, column in OF_BATCHES:
        values = float_column(scope.batches, column)
        if (values > 0).any():
            rows.append(_row(name, "batch", False, Durations.of(values)))
    columns = ["name", "kind", "nested", "count", "total_ns", "min_ns", *NAMES, "max_ns"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values("total_ns", ascending=False, kind="stable").reset_index(drop=True)


def _row(name: str, kind: str, nested: bool, took: Durations) -> dict[str, object]:
    return {
        "name": name,
        "kind": kind,
        "nested": nested,
        "count": took.count,
        "total_ns": took.total,
        "min_ns": took.least,
        **dict(zip(NAMES, took.quantiles(QUANTILES), strict=True)),
        "max_ns": took.most,
    }

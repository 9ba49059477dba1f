"""Compares joined and mapped counts with the exact ones.

The exact counts are taken as the truth. `joined` comes from the samples alone, `joined_calibrated`
from the samples and each thread's exact total (never the operation's own count: see
`count_estimates.calibration`), `mapped` from a profile without times, by a mapping from functions
to operations. Compare only intervals that were both counted and sampled: pass
`count_estimates.operations(tally[tally["counted"]], ...)`.
"""

import numpy as np
import pandas as pd

from native_map.estimate.count_estimates import Floats, Groups
from native_map.estimate.interval_join import Index

ENOUGH = 1000  # samples from which an operation is judged
NEAR = 0.05  # largest relative error of a good estimate
WIDE = 0.10  # relative half width from which an interval is too wide
FITTED = 0.9  # share of the exact total from which calibration would be a fit

UNKNOWN = ("", "[unknown]")  # library in profiles that do not record it
_ERRORS = {
    "err_joined": "joined", "err_calibrated": "joined_calibrated", "err_mapped": "mapped"
}  # fmt: skip
_LEAST_SHARE = 0.01  # of an operation that a joined function must have for `precision_recall`


def exact_totals(
    index: Index,
    intervals: pd.DataFrame,
    own: dict[str, Floats],
    counted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> pd.DataFrame:
    """Return kind, operation, event, exact: sums of the own counts (`own_counts`, by event)."""
    groups = Groups.of(index, intervals)
    parts = []
    for event, counts in own.items():
        good = counted & np.isfinite(counts)
        size = len(groups.kind)
        known = np.bincount(groups.code[good], minlength=size) > 0
        total = np.bincount(groups.code[good], weights=counts[good], minlength=size)
        table = {"kind": groups.kind, "operation": groups.operation, "event": event, "exact": total}
        parts.append(pd.DataFrame(table)[known])
    if not parts:
        return pd.DataFrame(columns=["kind", "operation", "event", "exact"])
    return pd.concat(parts, ignore_index=True)


def validate(exact: pd.DataFrame, joined: pd.DataFrame) -> pd.DataFrame:
    """Return one row per counted operation and event.

    `exact` (kind, operation, event, exact) is from `exact_totals`, `joined` from
    `count_estimates.operations`. Columns: kind, operation, event, samples, exact, joined, low,
    high, joined_calibrated, calibrated_low, calibrated_high, mapped (NaN, see `with_mapping`);
    err_joined, err_calibrated, err_mapped (relative, signed, NaN: nothing to compare); width,
    width_calibrated (half the interval over the count); within_ci, calibrated_within_ci; fitted
    (the operation is nearly all that was counted, so that calibration is no prediction); judged
    (ENOUGH samples) and good: within NEAR or its own interval, and that not WIDE.
    """
    keys = ["kind", "operation", "event"]
    mine = joined[joined["helper_of"] == ""].drop(columns="helper_of")
    mine = mine.rename(columns={"count": "joined", "calibrated": "joined_calibrated"})
    table = exact.astype(dict.fromkeys(keys, str)).merge(mine, on=keys, how="left")
    table["samples"] = table["samples"].fillna(0).astype(np.int64)
    for name in ("joined_calibrated", "calibrated_low", "calibrated_high"):
        if name not in table:
            table[name] = np.nan
    table["mapped"] = np.nan
    for name, of in _ERRORS.items():
        table[name] = _error(table, of)
    table["width"] = (table["high"] - table["low"]) / 2 / table["joined"]
    span = table["calibrated_high"] - table["calibrated_low"]
    table["width_calibrated"] = span / 2 / table["joined_calibrated"]
    table["within_ci"] = table["exact"].between(table["low"], table["high"])
    table["calibrated_within_ci"] = table["exact"].between(
        table["calibrated_low"], table["calibrated_high"]
    )
    event_total = table.groupby("event")["exact"].transform("sum")
    table["fitted"] = table["exact"] > FITTED * event_total
    table["judged"] = table["samples"] >= ENOUGH
    near = (table["err_joined"].abs() <= NEAR) | table["within_ci"]
    table["good"] = near & (table["width"] <= WIDE)
    order = [*keys, "samples", "exact", "joined", "low", "high", "joined_calibrated"]
    order += ["calibrated_low", "calibrated_high", "mapped"]
    remaining = [name for name in table.columns if name not in order]
    return table[[*order, *remaining]].sort_values(
        ["event", "exact"], ascending=[True, False], ignore_index=True
    )


def with_mapping(table: pd.DataFrame, counts: pd.DataFrame) -> pd.DataFrame:
    """Return `validate`'s table with the counts of a mapping: operation, event, mapped."""
    keys = ["operation", "event"]
    merged = table[keys].merge(counts.astype(dict.fromkeys(keys, str)), on=keys, how="left")
    made = table.assign(mapped=merged["mapped"].to_numpy(np.float64))
    return made.assign(err_mapped=_error(made, "mapped"))


def _error(table: pd.DataFrame, of: str) -> pd.Series:
    return table[of] / table["exact"].where(table["exact"] > 0) - 1


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per event of `validate`'s table.

    operations, judged, good (of the judged), within_ci, calibrated_within_ci (of the judged),
    and the median and largest relative error of the judged, unsigned, of each way of counting:
    joined_median, joined_worst, calibrated_..., mapped_.... NaN if there is none.
    """
    rows = []
    for event, of in table.groupby("event"):
        judged = of[of["judged"]]
        row: dict[str, object] = {"event": event, "operations": len(of), "judged": len(judged)}
        for name in ("good", "within_ci", "calibrated_within_ci"):
            row[name] = int(judged[name].sum())
        for name in ("joined", "calibrated", "mapped"):
            error = judged[f"err_{name}"].abs()
            row[f"{name}_median"], row[f"{name}_worst"] = error.median(), error.max()
        rows.append(row)
    return pd.DataFrame(rows)


def precision_recall(mapping: pd.DataFrame, functions: pd.DataFrame, event: str) -> pd.DataFrame:
    """Compare the functions that a mapping assigns to each operation with those of the join.

    `mapping` has operation, library, function and optionally weight (its evidence, else 1 each);
    `functions` is the table of `count_estimates.functions`. A function without a library in the
    mapping matches in any.

    One row per operation of either: mapped, joined and both (numbers of pairs; of the join, those
    with at least 1 % of the operation), precision (share of the mapped pairs that the join has),
    precision_weighted (by the mapping's weight), recall (share of the joined pairs that were
    mapped), recall_count (share of the operation's counts in functions that were mapped, rare ones
    included). NaN if there is nothing to divide by.
    """
    of = functions[(functions["event"] == event) & (functions["kind"] == "operation")]
    of = of[of["helper_of"] == ""]
    rows = []
    names = dict.fromkeys([*mapping["operation"].astype(str), *of["operation"].astype(str)])
    for operation in names:
        theirs = mapping[mapping["operation"].astype(str) == operation]
        seen = of[of["operation"].astype(str) == operation]
        pairs = list(
            zip(theirs["library"].astype(str), theirs["function"].astype(str), strict=True)
        )
        joined = list(zip(seen["library"].astype(str), seen["function"].astype(str), strict=True))
        loose = {function for library, function in pairs if library in UNKNOWN}
        exactly, seen_pairs = set(pairs), set(joined)
        seen_functions = {function for _, function in joined}
        right = np.array(
            [
                function in seen_functions
                if library in UNKNOWN
                else (library, function) in seen_pairs
                for library, function in pairs
            ],
            dtype=bool,
        )
        agreeing = np.array([pair in exactly or pair[1] in loose for pair in joined], dtype=bool)
        large = seen["share"].to_numpy(np.float64) >= _LEAST_SHARE
        count = seen["count"].to_numpy(np.float64)
        weight = np.ones(len(pairs))
        if "weight" in theirs:
            weight = theirs["weight"].to_numpy(np.float64)
        rows.append(
            {
                "operation": operation,
                "mapped": len(pairs),
                "joined": int(large.sum()),
                "both": int((agreeing & large).sum()),
                "precision": _share(right, np.ones(len(pairs))),
                "precision_weighted": _share(right, weight),
                "recall": _share(agreeing[large], np.ones(int(large.sum()))),
                "recall_count": _share(agreeing, count),
            }
        )
    return pd.DataFrame(rows)


def _share(which: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], weight: Floats) -> float:
    total = float(weight.sum())
    return float(weight[which].sum()) / total if total > 0 else float("nan")

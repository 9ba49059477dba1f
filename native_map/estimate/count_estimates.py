"""Counts per operation and function from samples, with confidence intervals, and calibrated.

A sample represents the `period` of its event, so a count is the sum of the periods. Its variance is
that of systematic sampling, `phi` times Poisson's (`sampling_variance.scan`); the intervals are
score intervals (Wilson's form), which remain valid for few samples. `phi` does not cover bias:
samples lost to throttling, or an inaccurate clock. Exact counts reveal bias, and `calibration`
removes it per thread.

The order of use: `Tally` adds up joined samples; `own_counts` and `counted_rows` return what is
known exactly; then `scan`, `calibration`, `operations`, `functions`.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.estimate.interval_join import Index
from native_map.estimate.sampling_variance import Floats as Floats
from native_map.estimate.sampling_variance import Groups as Groups
from native_map.estimate.sampling_variance import scan as scan
from native_map.estimate.tally import Tally as Tally

Z = 1.96  # 95 %
# Relative standard deviation of sampling errors that the spread does not show (late timers, an
# extra sample after a preemption). tools/bench/accuracy/joined_counts.py on a busy VM: cpu-clock
# gave the operation with the most preemptions 0.4 to 0.9 % too much.
SYSTEMATIC = 0.005


def counted_rows(
    intervals: pd.DataFrame, exact: pd.DataFrame, covered_ns: tuple[int, int], events: list[str]
) -> npt.NDArray[np.bool_]:
    """Return which interval rows have known counts of all `events` and were fully sampled.

    `exact` has row (of `intervals`) and a column per event; `covered_ns` is the time in which
    samples were taken: intervals outside have counts but no samples.
    """
    row = exact["row"].to_numpy(np.int64)
    known = np.zeros(len(intervals), bool)
    known[row] = exact[events].notna().all(axis=1).to_numpy()
    inside = intervals["start_ns"].to_numpy() >= covered_ns[0]
    inside &= intervals["end_ns"].to_numpy() <= covered_ns[1]
    return np.asarray(known & inside)


def own_counts(index: Index, exact: pd.DataFrame, event: str, rows: int) -> Floats:
    """Return the exact counts of `rows` less those of nested intervals; NaN if unknown.

    Samples belong to the innermost interval, so this is the count to compare them with. A nested
    interval without a count, such as a span of the user, leaves the outer one without a count.
    """
    inclusive = np.full(rows, np.nan)
    inclusive[exact["row"].to_numpy(np.int64)] = exact[event].to_numpy(np.float64)
    placed = inclusive[index.rows]
    inner = np.flatnonzero(index.parent >= 0)
    within = np.bincount(index.parent[inner], weights=placed[inner], minlength=len(placed))
    own = np.full(rows, np.nan)
    own[index.rows] = np.maximum(placed - within, 0)
    return own


def score_interval(samples: Floats, phi: Floats) -> tuple[Floats, Floats]:
    """Return the range of means that is compatible with a number of hits, of variance phi x mean.

    For phi 1 that is the score interval of a Poisson count; 0 hits give [0, Z² phi].
    """
    half = Z * Z * phi / 2
    reach = np.sqrt(half * (half + 2 * samples))
    return np.maximum(samples + half - reach, 0.0), samples + half + reach


def wilson(hits: Floats, trials: Floats, z: float = Z) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a share."""
    trials = np.maximum(trials, 1e-9)
    share = hits / trials
    middle = share + z * z / (2 * trials)
    reach = z * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    # Rounding must not exclude the share itself.
    low = np.minimum(np.maximum((middle - reach) / scale, 0.0), share)
    return low, np.maximum(np.minimum((middle + reach) / scale, 1.0), share)


def calibration(
    tally: pd.DataFrame,
    index: Index,
    own: dict[str, Floats],
    counted: npt.NDArray[np.bool_],
    scans: dict[str, pd.DataFrame],
    throttled: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return, per thread and event, the exact count of counted intervals over the sampled one.

    pid, tid, event, exact, sampled, samples, factor, error (one standard deviation, relative),
    throttled_ns (from `throttled_times`, else 0). Throttled time is included: a kernel that
    throttles does so all the time, and the factor corrects for it.
    The factor is independent of single operations: applied to one, it is a prediction, not a fit.
    `own` and `scans` are by event, from `own_counts` and `scan`.
    """
    rows = []
    thread = np.repeat(np.arange(len(index.keys)), np.diff(index.bounds))
    usable = counted[index.rows]
    inside = tally[tally["counted"] & tally["attributed"]]
    for event, counts in own.items():
        placed = counts[index.rows]
        good = usable & np.isfinite(placed)
        exact = np.bincount(thread[good], weights=placed[good], minlength=len(index.keys))
        of = inside[inside["event"] == event]
        # The operations' errors largely cancel in their sum: at most the largest phi remains.
        phi = scans[event].groupby(["pid", "tid"])["phi"].max() if event in scans else None
        for number, key in enumerate(index.keys.tolist()):
            pid, tid = key >> 32, key & 0xFFFFFFFF
            mine = of[(of["pid"] == pid) & (of["tid"] == tid)]
            sampled, samples = float(mine["count"].sum()), int(mine["samples"].sum())
            if exact[number] <= 0 or samples == 0:
                continue
            spread = 1.0 if phi is None else float(phi.get((pid, tid), 1.0))
            error = float(np.sqrt(spread * mine["squares"].sum())) / sampled
            factor = float(exact[number]) / sampled
            rows.append((pid, tid, event, exact[number], sampled, samples, factor, error))
    columns = ["pid", "tid", "event", "exact", "sampled", "samples", "factor", "error"]
    table = pd.DataFrame(rows, columns=columns)
    if throttled is None:
        return table.assign(throttled_ns=0)
    table = table.merge(throttled, on=["pid", "tid", "event"], how="left")
    table["throttled_ns"] = table["throttled_ns"].fillna(0).astype(np.int64)
    return table


def throttled_times(throttles: pd.DataFrame, events: list[str], until_ns: int) -> pd.DataFrame:
    """Return pid, tid, event, throttled_ns: how long the kernel took no samples of a thread.

    `throttles` (time_ns, pid, tid, event, throttle: begins or ends) comes from a recording; a
    period without an end record ends at `until_ns`.
    """
    order = ["pid", "tid", "event", "time_ns"]
    rows = throttles[[*order, "throttle"]].sort_values(order, kind="stable")
    by = rows.groupby(["pid", "tid", "event"])
    begins = rows["throttle"].astype(bool)
    # A period lasts from its begin to the next record; a second begin continues the first.
    ends = by["time_ns"].shift(-1).fillna(until_ns)
    rows["throttled_ns"] = (ends - rows["time_ns"]).clip(lower=0).where(begins, 0)
    rows["throttled_ns"] = rows["throttled_ns"].astype(np.int64)
    by = rows.groupby(["pid", "tid", "event"])
    table: pd.DataFrame = by["throttled_ns"].sum().reset_index()
    named = [events[at] if 0 <= at < len(events) else "" for at in table["event"].tolist()]
    table["event"] = pd.Series(named, index=table.index, dtype=object)
    return table


def operations(
    tally: pd.DataFrame,
    scans: dict[str, pd.DataFrame],
    factors: pd.DataFrame | None = None,
    systematic: float = SYSTEMATIC,
) -> pd.DataFrame:
    """Return one row per kind, operation, helper_of and event, over all threads.

    samples, count, low, high (95 %); with the factors of `calibration` also calibrated,
    calibrated_low, calibrated_high: the count by each thread's factor. A thread without a factor
    uses that of all threads together; if no thread has one, the three are NaN.
    """
    keys = ["kind", "operation", "helper_of", "event"]
    threads = ["pid", "tid", *keys]
    sums = tally.groupby(threads, as_index=False, observed=True)[["samples", "count", "squares"]]
    rows = sums.sum()
    parts = [scan.assign(event=event) for event, scan in scans.items() if len(scan)]
    on = ["pid", "tid", "kind", "operation", "event"]
    phi = pd.concat(parts) if parts else pd.DataFrame(columns=[*on, "phi", "phi_share"])
    text = dict.fromkeys(("kind", "operation", "helper_of", "event"), str)
    rows = rows.astype(text).merge(phi.astype(dict.fromkeys(on[2:], str)), on=on, how="left")
    rows[["phi", "phi_share"]] = rows[["phi", "phi_share"]].astype(float).fillna(1.0)
    rows["variance"] = rows["phi"] * rows["squares"]
    rows["factor"], spread = np.nan, rows["phi"]
    if factors is not None and len(factors):
        own = factors[["pid", "tid", "event", "factor"]]
        rows = rows.drop(columns="factor").merge(own, on=["pid", "tid", "event"], how="left")
        # If the thread's total is unknown, errors of other operations do not cancel this one's.
        spread = rows["phi_share"].where(rows["factor"].notna(), rows["phi"])
        total = factors.groupby("event")[["exact", "sampled"]].sum()
        pooled = rows["event"].map(total["exact"] / total["sampled"])
        rows["factor"] = rows["factor"].fillna(pooled)
    rows["calibrated"] = rows["count"] * rows["factor"]
    rows["calibrated_variance"] = spread * rows["squares"] * rows["factor"] ** 2
    added = ["samples", "count", "squares", "variance", "calibrated", "calibrated_variance"]
    table = rows.groupby(keys, as_index=False)[added].sum(min_count=1)
    sampled = table["count"].to_numpy(np.float64)
    sampled = np.where(sampled > 0, sampled, np.nan)  # periods of 0: no estimate is possible
    unit = table["squares"].to_numpy() / sampled
    for name, variance in (("count", "variance"), ("calibrated", "calibrated_variance")):
        count = table[name].to_numpy(np.float64)
        scale = unit * count / sampled
        of = table[variance].to_numpy(np.float64) / (count * scale)
        low, high = score_interval(count / scale, of)
        prefix, systematic_error = "" if name == "count" else "calibrated_", Z * systematic * count
        table[f"{prefix}low"] = np.maximum(
            count - np.hypot(count - low * scale, systematic_error), 0
        )
        table[f"{prefix}high"] = count + np.hypot(high * scale - count, systematic_error)
    table = table.drop(columns=["squares", "variance", "calibrated_variance"])
    return table if factors is not None else table.drop(columns=[
        "calibrated", "calibrated_low", "calibrated_high"])  # fmt: skip


def functions(
    tally: pd.DataFrame, totals: pd.DataFrame, exact: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return a row per operation, kind, helper_of, library, function and event, largest first.

    samples, share (of the operation's samples of this event, by count), count, low, high. `totals`
    is the table of `operations`: its calibrated counts if there are any, else its sampled ones, are
    distributed. `exact` (kind, operation, event, exact) has the totals that are known exactly.
    """
    keys = ["kind", "operation", "helper_of", "event"]
    names = [*keys, "library", "function"]
    rows = tally.astype(dict.fromkeys(names, str)).groupby(names, as_index=False)
    table = rows[["samples", "count"]].sum().rename(columns={"count": "sampled"})
    by_operation = totals[[*keys, "samples", "count"]].copy()
    by_operation["low"], by_operation["high"] = totals["low"], totals["high"]
    if "calibrated" in totals:
        good = totals["calibrated"].notna()
        for name, better in (("low", "calibrated_low"), ("high", "calibrated_high")):
            by_operation[name] = totals[better].where(good, totals[name])
        by_operation["total"] = totals["calibrated"].where(good, totals["count"])
    else:
        by_operation["total"] = totals["count"]
    if exact is not None and len(exact):
        exact_total = by_operation.merge(exact, on=["kind", "operation", "event"], how="left")[
            "exact"
        ]
        exact_total = exact_total.where((by_operation["helper_of"] == "").to_numpy())
        for name in ("total", "low", "high"):
            by_operation[name] = exact_total.fillna(by_operation[name])
    table = table.merge(
        by_operation.rename(
            columns={"samples": "of", "count": "all", "low": "least", "high": "most"}
        ),
        on=keys,
    )
    share = (table["sampled"] / table["all"]).to_numpy()
    trials = table["of"].to_numpy(np.float64)
    least, most = wilson(share * trials, trials)
    total = table["total"].to_numpy()
    # The errors of the share and of the total, each side by itself (MOVER, Zou and Donner 2008).
    below = np.hypot((share - least) * total, share * (total - table["least"].to_numpy()))
    above = np.hypot((most - share) * total, share * (table["most"].to_numpy() - total))
    table["share"], table["count"] = share, share * total
    table["low"], table["high"] = np.maximum(share * total - below, 0), share * total + above
    table = table[[*names, "samples", "share", "count", "low", "high"]]
    return table.sort_values([*keys, "count"], ascending=[True] * 4 + [False], ignore_index=True)

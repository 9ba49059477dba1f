"""Counts per operation and function from samples, with confidence intervals, and calibrated.

A sample stands for the `period` of its event, so a count is the sum of the periods. Its error is
that of systematic sampling: a thread is hit once every `period` counts, so an operation longer than
that is hit a sure number of times and one more or less, while of many short ones each is hit or
not. Poisson's variance (as many as the samples) is right only for the latter, and far too wide
for the former. `scan` therefore asks of the run itself: it lays the same comb of samples over the
thread's intervals at 32 other phases and takes how far each operation's hits spread around what
the intervals hold. The ratio to Poisson's variance, `phi`, is about 1 - share for short operations
and falls towards 0 for long ones. The intervals then are score intervals (Wilson's form), which
stay sensible for few samples.

What `phi` does not know is bias: samples lost to throttling, or a clock that is off. Exact counts
show it, and `calibration` takes it out, per thread.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.join import Index, Ints, thread_keys

Floats = npt.NDArray[np.float64]

Z = 1.96  # 95 %
PHASES = 32
SCANNED = 200_000  # segments of a thread that are scanned, in blocks over the whole run
BLOCKS = 20
STRETCH, STRETCHES = 50.0, 400  # periods in a stretch, at least; stretches of a thread, at most
MERGE_ROWS = 2_000_000  # of partial sums kept before they are added up

FLAGS = ["attributed", "counted"]
KEYS = ["pid", "tid", "kind", "operation", "helper_of", *FLAGS, "event", "library", "function"]


class Tally:
    """Sums over samples, chunk by chunk, per thread, operation and function.

    `counted` tells of each interval row whether its exact counts are known (`counted_rows`).
    Memory grows with the number of different (thread, operation, function), not with the samples.
    """

    def __init__(
        self,
        index: Index,
        intervals: pd.DataFrame,
        events: list[str],
        counted: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        operation = intervals["operation"].astype("category").cat
        self._operations = _Names([""])
        names = self._operations.codes([str(name) for name in operation.categories])
        codes = operation.codes.to_numpy()
        self._operation = np.where(codes >= 0, np.append(names, 0)[codes], 0)
        self._counted = np.zeros(len(intervals), bool) if counted is None else counted
        self._events, self._kinds = list(events), _Names(list(index.kinds))
        self._libraries, self._functions = _Names(), _Names()
        self._parts: list[pd.DataFrame] = []

    def add(
        self,
        samples: pd.DataFrame,
        attributed: pd.DataFrame,
        functions: pd.DataFrame | None = None,
    ) -> None:
        """Add a chunk: samples (pid, tid, event, period), what Index.attribute made of them, and
        the parallel table of library and function, if known."""
        if not len(samples):
            return
        row, helper = (attributed[name].to_numpy() for name in ("interval", "helper_of"))
        key = thread_keys(samples)
        none = np.zeros(len(samples), np.int64)
        columns = {
            "thread": pd.factorize(key)[0].astype(np.int64),
            "kind": self._kinds.of(attributed["kind"]),
            "operation": _at(self._operation, row, 0),
            "helper_of": _at(self._operation, helper, 0),
            "attributed": (row >= 0).astype(np.int64),
            "counted": _at(self._counted, row, 0),
            "event": samples["event"].to_numpy(np.int64),
            "library": none if functions is None else self._libraries.of(functions["library"]),
            "function": none if functions is None else self._functions.of(functions["function"]),
        }
        group = _combined(list(columns.values()))
        period = samples["period"].to_numpy().astype(np.float64)
        first = np.empty(group.max() + 1, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]
        part = pd.DataFrame({name: values[first] for name, values in columns.items()})
        part["pid"], part["tid"] = key[first] >> 32, samples["tid"].to_numpy(np.int64)[first]
        part["samples"] = np.bincount(group)
        part["count"] = np.bincount(group, weights=period)
        part["squares"] = np.bincount(group, weights=period * period)
        self._parts.append(part[[*KEYS, "samples", "count", "squares"]])
        if sum(map(len, self._parts)) > MERGE_ROWS:
            self._parts = [self._merged()]

    def _merged(self) -> pd.DataFrame:
        if not self._parts:
            return pd.DataFrame(columns=[*KEYS, "samples", "count", "squares"], dtype=np.int64)
        return pd.concat(self._parts, ignore_index=True).groupby(KEYS, as_index=False).sum()

    def table(self) -> pd.DataFrame:
        """KEYS, samples, count (sum of periods) and squares (sum of their squares).

        helper_of is the operation helped; attributed: within an interval; counted: see Tally.
        """
        merged = self._merged()
        named = {
            "kind": self._kinds.list(),
            "operation": self._operations.list(),
            "helper_of": self._operations.list(),
            "event": self._events,
            "library": self._libraries.list() or [""],
            "function": self._functions.list() or [""],
        }
        for name, categories in named.items():
            codes = merged[name].to_numpy(np.int64)
            merged[name] = pd.Categorical.from_codes(codes, categories=pd.Index(categories))
        return merged.astype(dict.fromkeys(FLAGS, bool))


def counted_rows(
    intervals: pd.DataFrame, exact: pd.DataFrame, covered_ns: tuple[int, int], events: list[str]
) -> npt.NDArray[np.bool_]:
    """Of each interval row: is its count of all `events` known, and was it sampled from end to end?

    `exact` has row (of `intervals`) and a column per event; `covered_ns` is when samples were
    taken: what ran outside has counts but no samples.
    """
    row = exact["row"].to_numpy(np.int64)
    known = np.zeros(len(intervals), bool)
    known[row] = exact[events].notna().all(axis=1).to_numpy()
    inside = intervals["start_ns"].to_numpy() >= covered_ns[0]
    inside &= intervals["end_ns"].to_numpy() <= covered_ns[1]
    return np.asarray(known & inside)


def own_counts(index: Index, exact: pd.DataFrame, event: str, rows: int) -> Floats:
    """Of each of the `rows` intervals, its exact count less those within it; NaN if not known.

    Samples go to the innermost interval, so this is what they are to be compared with. One within
    that has no count of its own, as a span of the user's, leaves the outer without one too.
    """
    whole = np.full(rows, np.nan)
    whole[exact["row"].to_numpy(np.int64)] = exact[event].to_numpy(np.float64)
    placed = whole[index.rows]
    inner = np.flatnonzero(index.parent >= 0)
    within = np.bincount(index.parent[inner], weights=placed[inner], minlength=len(placed))
    own = np.full(rows, np.nan)
    own[index.rows] = np.maximum(placed - within, 0)
    return own


@dataclass(frozen=True)
class Groups:
    """Interval rows by (kind, operation)."""

    code: Ints  # of each row
    kind: list[str]  # of each code
    operation: list[str]

    @classmethod
    def of(cls, index: Index, intervals: pd.DataFrame) -> "Groups":
        operation = intervals["operation"].astype("category").cat
        names = [*(str(name) for name in operation.categories), ""]
        codes = operation.codes.to_numpy().astype(np.int64)
        both = index.kind.astype(np.int64) * len(names) + np.where(codes < 0, len(names) - 1, codes)
        present, code = np.unique(both, return_inverse=True)
        kinds = [index.kinds[one // len(names)] for one in present]
        return cls(code.astype(np.int64), kinds, [names[one % len(names)] for one in present])


def scan(
    index: Index, groups: Groups, tally: pd.DataFrame, own: Floats | None = None
) -> pd.DataFrame:
    """How far the hits of each group spread when the comb of samples is shifted.

    `tally` is of one event; `own` its exact counts of each interval (`own_counts`), where known.
    Without them an interval is taken to hold counts in proportion to its time. A row per (pid, tid,
    kind, operation) that has intervals: phi (variance of its hits over their number) and phi_share
    (the same, where the thread's total is known).
    """
    rows = []
    by_thread = dict(tuple(tally.groupby(["pid", "tid"])))
    for thread, key in enumerate(index.keys.tolist()):
        pid, tid = key >> 32, key & 0xFFFFFFFF
        mine = by_thread.get((pid, tid))
        phi, phi_share, present = _scan_thread(index, groups, thread, mine, own)
        for group in present.tolist():
            names = groups.kind[group], groups.operation[group]
            rows.append((pid, tid, *names, phi[group], phi_share[group]))
    return pd.DataFrame(rows, columns=["pid", "tid", "kind", "operation", "phi", "phi_share"])


def _scan_thread(
    index: Index, groups: Groups, thread: int, tally: pd.DataFrame | None, own: Floats | None
) -> tuple[Floats, Floats, Ints]:
    """phi and phi_share of each group and, at last, of the time between intervals; who is here."""
    size = len(groups.kind) + 1
    low, high = index.bounds[thread], index.bounds[thread + 1]
    times = np.unique(np.concatenate((index.start_ns[low:high], index.end_ns[low:high])))
    position = index.within(thread, times[:-1])
    row = np.where(position >= 0, index.rows[position], -1)
    group = np.where(position >= 0, groups.code[row], size - 1)
    present = np.unique(groups.code[index.rows[low:high]])
    flat = np.ones(size)
    if tally is None or tally["count"].sum() <= 0:
        return flat, flat, present
    took = np.diff(times).astype(np.float64)
    period = tally["count"].sum() / tally["samples"].sum()
    # Of the period's own variation, squared and relative: 0 where it is fixed.
    varies = max(float(tally["squares"].sum() / tally["count"].sum() / period) - 1, 0.0)
    # Counts per ns: of a group by its samples, of an interval by its exact count.
    spent = np.bincount(group, weights=took, minlength=size)
    sampled = np.zeros(size)
    names = {pair: at for at, pair in enumerate(zip(groups.kind, groups.operation, strict=True))}
    inside = tally[tally["attributed"]]
    for kind, operation, count in zip(
        inside["kind"], inside["operation"], inside["count"], strict=True
    ):
        sampled[names[kind, operation]] += count
    between = tally[~tally["attributed"] & (tally["kind"] == "other")]
    sampled[-1] = between["count"].sum()
    rate = np.divide(sampled, spent, out=np.zeros(size), where=spent > 0)
    length = took * rate[group]
    if own is not None:
        known = (row >= 0) & np.isfinite(own[row])
        length = np.where(known, _exact_lengths(row, took, own, length, known), length)
    chosen = _blocks(len(length))
    edges = np.concatenate(([0.0], np.cumsum(length))) / period
    begin, end, group = edges[:-1][chosen], edges[1:][chosen], group[chosen]
    # Stretch by stretch, as over the whole run the phases give only a few independent numbers.
    stretch = (begin / max(STRETCH, edges[-1] / STRETCHES)).astype(np.int64)
    stretch -= stretch.min(initial=0)
    shape = (int(stretch.max(initial=0)) + 1, size)
    cell = stretch * size + group
    holds = np.bincount(cell, weights=end - begin, minlength=shape[0] * size).reshape(shape)
    whole = holds[:, :-1].sum(axis=1, keepdims=True)
    share = np.divide(holds, whole, out=np.zeros(shape), where=whole > 0)
    expected, spread, spread_share = holds.sum(axis=0), np.zeros(size), np.zeros(size)
    comb = _Comb(varies, float(edges[-1]))
    for number in range(PHASES):
        hits = comb.before(end, number) - comb.before(begin, number)
        off = np.bincount(cell, weights=hits, minlength=holds.size).reshape(shape) - holds
        spread += (off**2).sum(axis=0) / PHASES
        off -= share * off[:, :-1].sum(axis=1, keepdims=True)
        spread_share += (off**2).sum(axis=0) / PHASES
    some, unit = expected > 0, expected * (1 + varies)
    phi = np.divide(spread, unit, out=flat.copy(), where=some)
    return phi, np.divide(spread_share, unit, out=flat.copy(), where=some), present


class _Comb:
    """Samples a period apart on a line of `length` mean periods, at PHASES phases.

    Where the period varies (the kernel's frequency mode) the teeth are drawn, by a fixed seed, with
    the same relative variance `varies`; a sample then stands for the step before it.
    """

    def __init__(self, varies: float, length: float) -> None:
        self._teeth = None
        self._shift = 0.0
        if varies > 1e-4:
            sd = np.sqrt(np.log1p(varies))
            self._shift = 7.0  # far enough to be another part of the comb for each phase
            many = int(length + self._shift * PHASES)
            rng = np.random.default_rng(0)
            steps = rng.lognormal(-sd * sd / 2, sd, many + 10 * int(np.sqrt(many) * (1 + sd)) + 10)
            self._teeth = np.concatenate(([0.0], np.cumsum(steps)))

    def before(self, at: Floats, number: int) -> Floats:
        """What the samples before each place stand for, at one of the phases."""
        moved = at + self._shift * number + (number + 0.5) / PHASES
        if self._teeth is None:
            return np.asarray(np.floor(moved))
        return self._teeth[np.searchsorted(self._teeth, moved, side="right") - 1]


def _exact_lengths(
    row: Ints, took: Floats, own: Floats, length: Floats, known: npt.NDArray[np.bool_]
) -> Floats:
    """Exact counts spread over the segments of each interval, scaled to what was sampled."""
    spent = np.bincount(row[known], weights=took[known], minlength=len(own))
    exact = np.zeros(len(row))
    exact[known] = own[row[known]] * took[known] / spent[row[known]]
    total = exact.sum()
    return np.asarray(exact * (length[known].sum() / total if total > 0 else 0.0))


def _blocks(segments: int) -> Ints:
    """Which segments to scan: all, or SCANNED of them in BLOCKS runs over the whole length."""
    if segments <= SCANNED:
        return np.arange(segments)
    first = np.linspace(0, segments - SCANNED // BLOCKS, BLOCKS).astype(np.int64)
    return (first[:, None] + np.arange(SCANNED // BLOCKS)).ravel()


def score_interval(samples: Floats, phi: Floats, z: float = Z) -> tuple[Floats, Floats]:
    """The means that a number of hits of variance phi x mean does not rule out.

    For phi 1 that is the score interval of a Poisson count; 0 hits give [0, z² phi].
    """
    half = z * z * phi / 2
    reach = np.sqrt(half * (half + 2 * samples))
    return np.maximum(samples + half - reach, 0.0), samples + half + reach


def wilson(hits: Floats, trials: Floats, z: float = Z) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share."""
    trials = np.maximum(trials, 1e-9)
    share = hits / trials
    middle = share + z * z / (2 * trials)
    reach = z * np.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return np.maximum((middle - reach) / scale, 0.0), np.minimum((middle + reach) / scale, 1.0)


def calibration(
    tally: pd.DataFrame,
    index: Index,
    own: dict[str, Floats],
    counted: npt.NDArray[np.bool_],
    scans: dict[str, pd.DataFrame],
) -> pd.DataFrame:
    """Per thread and event: exact over sampled count of the thread's counted intervals, together.

    pid, tid, event, exact, sampled, samples, factor, error (one standard deviation, relative).
    It knows nothing of single operations: what it does to one of them is a prediction, not a fit.
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
    return pd.DataFrame(rows, columns=columns)


def operations(
    tally: pd.DataFrame, scans: dict[str, pd.DataFrame], factors: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per kind, operation, helper_of and event, over all threads.

    samples, count, low, high (95 %); with the factors of `calibration` also calibrated,
    calibrated_low, calibrated_high: the count by each thread's factor. A thread without one takes
    that of all threads together; where no thread has one the three are NaN.
    """
    keys = ["kind", "operation", "helper_of", "event"]
    threads = ["pid", "tid", *keys]
    sums = tally.groupby(threads, as_index=False, observed=True)[["samples", "count", "squares"]]
    rows = sums.sum()
    parts = [one.assign(event=event) for event, one in scans.items() if len(one)]
    on = ["pid", "tid", "kind", "operation", "event"]
    phi = pd.concat(parts) if parts else pd.DataFrame(columns=[*on, "phi", "phi_share"])
    text = dict.fromkeys(("kind", "operation", "helper_of", "event"), str)
    rows = rows.astype(text).merge(phi.astype(dict.fromkeys(on[2:], str)), on=on, how="left")
    rows[["phi", "phi_share"]] = rows[["phi", "phi_share"]].astype(float).fillna(1.0)
    rows["variance"] = rows["phi"] * rows["squares"]
    rows["factor"], rows["factor_error"] = np.nan, 0.0
    if factors is not None and len(factors):
        rows = rows.drop(columns=["factor", "factor_error"]).merge(
            factors.rename(columns={"error": "factor_error"})[
                ["pid", "tid", "event", "factor", "factor_error"]
            ],
            on=["pid", "tid", "event"],
            how="left",
        )
        total = factors.groupby("event")[["exact", "sampled"]].sum()
        pooled = rows["event"].map(total["exact"] / total["sampled"])
        rows["factor"] = rows["factor"].fillna(pooled)
    rows["calibrated"] = rows["count"] * rows["factor"]
    rows["calibrated_variance"] = rows["phi_share"] * rows["squares"] * rows["factor"] ** 2
    added = ["samples", "count", "squares", "variance", "calibrated", "calibrated_variance"]
    table = rows.groupby(keys, as_index=False)[added].sum(min_count=1)
    unit = table["squares"].to_numpy() / table["count"].to_numpy()
    for name, variance in (("count", "variance"), ("calibrated", "calibrated_variance")):
        count = table[name].to_numpy(np.float64)
        scale = unit * count / table["count"].to_numpy()
        of = table[variance].to_numpy(np.float64) / (count * scale)
        low, high = score_interval(count / scale, of)
        prefix = "" if name == "count" else "calibrated_"
        table[f"{prefix}low"], table[f"{prefix}high"] = low * scale, high * scale
    table = table.drop(columns=["squares", "variance", "calibrated_variance"])
    return table if factors is not None else table.drop(columns=[
        "calibrated", "calibrated_low", "calibrated_high"])  # fmt: skip


def functions(
    tally: pd.DataFrame, totals: pd.DataFrame, exact: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One row per operation, kind, helper_of, library, function and event, the largest first.

    samples, share (of the operation's samples of this event, by count), count, low, high. `totals`
    is the table of `operations`: its calibrated counts where it has them, else its sampled ones are
    shared out. `exact` (kind, operation, event, exact) gives the totals that are known exactly.
    """
    keys = ["kind", "operation", "helper_of", "event"]
    names = [*keys, "library", "function"]
    rows = tally.astype(dict.fromkeys(names, str)).groupby(names, as_index=False)
    table = rows[["samples", "count"]].sum().rename(columns={"count": "sampled"})
    whole = totals[[*keys, "samples", "count"]].copy()
    whole["low"], whole["high"] = totals["low"], totals["high"]
    if "calibrated" in totals:
        good = totals["calibrated"].notna()
        for name, better in (("low", "calibrated_low"), ("high", "calibrated_high")):
            whole[name] = totals[better].where(good, totals[name])
        whole["total"] = totals["calibrated"].where(good, totals["count"])
    else:
        whole["total"] = totals["count"]
    if exact is not None and len(exact):
        known = whole.merge(exact, on=["kind", "operation", "event"], how="left")["exact"]
        known = known.where((whole["helper_of"] == "").to_numpy())
        for name in ("total", "low", "high"):
            whole[name] = known.fillna(whole[name])
    table = table.merge(
        whole.rename(columns={"samples": "of", "count": "all", "low": "least", "high": "most"}),
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


class _Names:
    """Numbers for names that come as the categories of one chunk after another."""

    def __init__(self, names: list[str] | None = None) -> None:
        self._number = {name: at for at, name in enumerate(names or [])}

    def codes(self, names: list[str]) -> Ints:
        number = self._number
        return np.array([number.setdefault(name, len(number)) for name in names], np.int64)

    def of(self, column: pd.Series) -> Ints:
        values = column.astype("category").cat
        codes = values.codes.to_numpy()
        names = [str(name) for name in values.categories]
        if (codes < 0).any():
            names.append("[unknown]")
        return self.codes(names)[codes]

    def list(self) -> list[str]:
        return list(self._number)


def _at(values: npt.NDArray[np.generic], row: Ints, none: int) -> Ints:
    """The value of each row, `none` for row -1."""
    if not len(values):
        return np.full(len(row), none, np.int64)
    return np.where(row >= 0, values[row], none).astype(np.int64)


def _combined(columns: list[Ints]) -> Ints:
    """Numbers from 0, one for each combination of values of the columns."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        many = int(column.max()) + 1
        if size * many >= 1 << 62:
            key = pd.factorize(key)[0].astype(np.int64)
            size = int(key.max()) + 1
        key, size = key * many + column, size * many
    return pd.factorize(key)[0].astype(np.int64)

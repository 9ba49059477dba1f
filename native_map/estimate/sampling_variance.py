"""Estimates the variance of the sampled counts of operations from the run itself.

A thread is sampled once every `period` counts. So the number of samples in an operation longer than
that is certain to within one, while each of many short ones is hit or missed. Poisson's variance
(the number of samples) is right only for the short ones, and far too wide for the long ones. `scan`
places the same comb of samples over the thread's intervals at 32 other phases, stretch by stretch,
and measures how far each operation's hits deviate from what the intervals hold. The ratio to
Poisson's variance, `phi`, is about 1 - share for short operations and approaches 0 for long ones.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.estimate.interval_join import GC, INTERPRETER, OTHER, Index, Ints

Floats = npt.NDArray[np.float64]

PHASES = 32
SCANNED = 200_000  # segments of a thread that are scanned, in blocks over the whole run
BLOCKS = 20
STRETCH, STRETCHES = 50.0, 400  # periods in a stretch, at least; stretches of a thread, at most


@dataclass(frozen=True)
class Groups:
    """Interval rows by (kind, operation)."""

    code: Ints  # of each row
    kind: list[str]  # of each code
    operation: list[str]

    @classmethod
    def of(cls, index: Index, intervals: pd.DataFrame) -> "Groups":
        """Return each interval's group by kind and operation."""
        operation = intervals["operation"].astype("category").cat
        names = [*(str(name) for name in operation.categories), ""]
        codes = operation.codes.to_numpy().astype(np.int64)
        codes_of_pairs = index.kind.astype(np.int64) * len(names) + np.where(
            codes < 0, len(names) - 1, codes
        )
        present, code = np.unique(codes_of_pairs, return_inverse=True)
        kinds = [index.kinds[pair // len(names)] for pair in present]
        return cls(code.astype(np.int64), kinds, [names[pair % len(names)] for pair in present])


def scan(
    index: Index, groups: Groups, tally: pd.DataFrame, own: Floats | None = None
) -> pd.DataFrame:
    """Return how much the hits of each group vary when the comb of samples is shifted.

    `tally` is of one event; `own` has its exact counts of each interval (`own_counts`), if known.
    Without them, counts are assumed to be proportional to time. One row per (pid, tid, kind,
    operation) that has intervals: phi (variance of its hits over their number) and phi_share (the
    same if the thread's total is known).
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
    """Return phi and phi_share of each group and, last, of the rest of the time; the groups."""
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
    durations = np.diff(times).astype(np.float64)
    period = tally["count"].sum() / tally["samples"].sum()
    # The squared relative variation of the period: 0 if it is fixed.
    varies = max(float(tally["squares"].sum() / tally["count"].sum() / period) - 1, 0.0)
    # Counts per ns: of a group by its samples, of an interval by its exact count.
    spent = np.bincount(group, weights=durations, minlength=size)
    sampled = np.zeros(size)
    names = {pair: at for at, pair in enumerate(zip(groups.kind, groups.operation, strict=True))}
    keys = ["kind", "operation"]
    inside = tally[tally["attributed"]].groupby(keys, observed=True, as_index=False)["count"].sum()
    for kind, operation, count in inside.itertuples(index=False, name=None):
        sampled[names[kind, operation]] = count
    between = tally[~tally["attributed"] & tally["kind"].isin((OTHER, GC, INTERPRETER))]
    sampled[-1] = between["count"].sum()
    rate = np.divide(sampled, spent, out=np.zeros(size), where=spent > 0)
    length = durations * rate[group]
    if own is not None:
        counted = (row >= 0) & np.isfinite(own[row])
        length = np.where(counted, _exact_lengths(row, durations, own, length, counted), length)
    chosen = _blocks(len(length))
    edges = np.concatenate(([0.0], np.cumsum(length))) / period
    begin, end, group = edges[:-1][chosen], edges[1:][chosen], group[chosen]
    # By stretches, because over the whole run the phases give few independent numbers.
    stretch = (begin / max(STRETCH, edges[-1] / STRETCHES)).astype(np.int64)
    stretch -= stretch.min(initial=0)
    shape = (int(stretch.max(initial=0)) + 1, size)
    cell = stretch * size + group
    in_cells = np.bincount(cell, weights=end - begin, minlength=shape[0] * size).reshape(shape)
    of_all_groups = in_cells[:, :-1].sum(axis=1, keepdims=True)
    share = np.divide(in_cells, of_all_groups, out=np.zeros(shape), where=of_all_groups > 0)
    expected, spread, spread_share = in_cells.sum(axis=0), np.zeros(size), np.zeros(size)
    comb = _Comb(varies, float(edges[-1]))
    for number in range(PHASES):
        hits = comb.before(end, number) - comb.before(begin, number)
        off = np.bincount(cell, weights=hits, minlength=in_cells.size).reshape(shape) - in_cells
        spread += (off**2).sum(axis=0) / PHASES
        off -= share * off[:, :-1].sum(axis=1, keepdims=True)
        spread_share += (off**2).sum(axis=0) / PHASES
    some, unit = expected > 0, expected * (1 + varies)
    phi = np.divide(spread, unit, out=flat.copy(), where=some)
    return phi, np.divide(spread_share, unit, out=flat.copy(), where=some), present


class _Comb:
    """Samples a period apart on a line of `length` mean periods, at PHASES phases.

    If the period varies (the kernel's frequency mode), the teeth are drawn with the same relative
    variance `varies`, from a fixed seed; a sample then represents the step before it.
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
        """Return the counts that the samples before each place represent, at one of the phases."""
        moved = at + self._shift * number + (number + 0.5) / PHASES
        if self._teeth is None:
            return np.asarray(np.floor(moved))
        return self._teeth[np.searchsorted(self._teeth, moved, side="right") - 1]


def _exact_lengths(
    row: Ints, durations: Floats, own: Floats, length: Floats, counted: npt.NDArray[np.bool_]
) -> Floats:
    """Return exact counts spread over each interval's segments, scaled to what was sampled."""
    spent = np.bincount(row[counted], weights=durations[counted], minlength=len(own))
    exact = np.zeros(len(row))
    exact[counted] = own[row[counted]] * durations[counted] / spent[row[counted]]
    total = exact.sum()
    return np.asarray(exact * (length[counted].sum() / total if total > 0 else 0.0))


def _blocks(segments: int) -> Ints:
    """Return the segments to scan: all, or SCANNED of them in BLOCKS runs over the whole length."""
    if segments <= SCANNED:
        return np.arange(segments)
    first = np.linspace(0, segments - SCANNED // BLOCKS, BLOCKS).astype(np.int64)
    return (first[:, None] + np.arange(SCANNED // BLOCKS)).ravel()

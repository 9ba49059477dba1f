"""Totals of a run's batches with bootstrap replicates, for comparisons.

Each rank's batches form two series: in the order in which they were taken, and in the order in
which they were made. Replicates of all sums of both series are drawn together (`bootstrap`), so
that any ratio of sums has replicates. Starts of epochs and the first batches of processes differ
from the rest and are drawn separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import first_of_process
from lotus.analysis.batches.waits import PHASES, loop_times, wait_phases
from lotus.analysis.common.columns import BatchPlaces, batch_rows, flag, float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.counters.counter_metrics import COLLATE as COUNTED_COLLATE
from lotus.analysis.counters.counter_metrics import REST as COUNTED_REST
from lotus.analysis.counters.counter_metrics import events_of
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Floats, Ints

_TAKEN = ["wait_ns", "step_ns", "samples", "batches", "steady_ns", "steady_samples", *PHASES]
_EPOCHS = ["epochs", "iter_ns", "tail_ns", "startup_ns", "startups", "shutdown_ns"]
# Columns of a batch in the order of making: name -> column of Run.batches.
MADE = {
    "fetch": "fetch_ns",
    "fetch_cpu": "cpu_ns",
    "collate": "collate_ns",
    "rest": "self_ns",
    "idle": "idle_in_loop_ns",
    "send": "send_ns",
    "pickle": "pickle_ns",
    "lock": "lock_ns",
    "write": "write_ns",
    "pin": "pin_ns",
    "delay": "delay_ns",
    "send_bytes": "send_bytes",
    "read_bytes": "read_bytes",
    "major_faults": "major_faults",
    "minor_faults": "minor_faults",
    "involuntary_switches": "involuntary_switches",
}
Operation = tuple[str, str]  # parent, name
Interval = tuple[str, str]  # kind, operation: what was counted


@dataclass(frozen=True)
class Wanted:
    """The operations and counters that have columns, the same for all runs.

    `turned` are the events of groups that took turns by batch. Their counts are scaled to all
    batches by the weight of those in which they were counted, which has a column too.
    """

    operations: Sequence[Operation] = ()
    counted: Sequence[Interval] = ()
    events: Sequence[str] = ()
    turned: Sequence[str] = ()
    columns: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        names = [*_TAKEN, *_EPOCHS, "loop_ns", "longest_ns", "made", "own", "own:made"]
        for name in MADE:
            names += [name, f"{name}:made"]
        for index in range(len(self.operations)):
            names += [f"operation:{index}", f"cpu:{index}", f"calls:{index}"]
        names += ["operations:made", "cpu:made", "counted:made"]
        for index in range(len(self.counted)):
            names += [f"event:{index}:{event}" for event in self.events]
            names += [f"seen:{index}:{event}" for event in self.turned]
            names += [f"weight:{index}"] if self.turned else []
        object.__setattr__(self, "columns", {name: index for index, name in enumerate(names)})


@dataclass(frozen=True)
class Totals:
    """Sums of one or more runs: `table` (1 + REPLICATES, columns), with measured sums in row 0.

    `blocks` and `epochs` are how many pieces the replicates of batches and of starts were drawn
    from. `alone` is the part of each sum in starts that have no other to draw from.
    """

    wanted: Wanted
    table: Floats
    blocks: int
    epochs: int
    alone: Floats

    def __call__(self, name: str) -> Floats:
        return np.asarray(self.table[:, self.wanted.columns[name]], np.float64)

    def count(self, index: int, event: str) -> Floats:
        """Return the sum of an event in a counted interval, and its replicates.

        A replicate may contain more or fewer of the batches in which the event had its turn; it is
        scaled accordingly.
        """
        counts = self(f"event:{index}:{event}")
        if event not in self.wanted.turned:
            return counts
        seen, weight = self(f"seen:{index}:{event}"), self(f"weight:{index}")
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = weight / seen
            return np.where(seen > 0, counts * scale / scale[0], np.nan)

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            self.wanted,
            self.table + other.table,
            self.blocks + other.blocks,
            self.epochs + other.epochs,
            self.alone + other.alone,
        )

    def measured(self) -> "Totals":
        """Return the totals without replicates."""
        return Totals(self.wanted, self.table[:1].copy(), self.blocks, self.epochs, self.alone)


def operation_times(scope: Scope) -> pd.Series:
    """Return nanoseconds of all operations in batches by (parent, operation), largest first."""
    cells = scope.calls.cells
    inside = cells[flag(cells, "in_batch")]
    if not len(inside):
        return pd.Series(dtype=np.float64)
    sums = inside.groupby(["parent", "operation"], sort=False)["duration_ns"].sum()
    return sums.sort_values(ascending=False, kind="stable")


def totals(
    scope: Scope, counters: pd.DataFrame, wanted: Wanted, seed: Sequence[int] = (0,)
) -> Totals:
    """Return sums and replicates of one loader of a run; `counters` are `Run.counters` of it."""
    generator = np.random.default_rng(list(seed))
    drawn = _Drawn(generator)
    table = np.zeros((1 + bootstrap.REPLICATES, len(wanted.columns)))
    alone = np.zeros(len(wanted.columns))
    loops: list[Floats] = []
    pieces = starts = 0
    loop = loop_times(scope.epochs, scope.waits)
    ranks = sorted({*int_column(scope.waits, "rank").tolist(), *int_column(loop, "rank").tolist()})
    for series in (_Taken(scope, loop, wanted), _MadeBatches(scope, counters, wanted, ranks)):
        parts = [series.of(rank) for rank in ranks]
        # All ranks share block length and drawing, because they are correlated.
        length = max((bootstrap.block_length(part.residuals) for part in parts), default=1)
        for part in parts:
            sums = np.zeros_like(table)
            sums[0] = part.rows.sum(axis=0) + part.edges.sum(axis=0)
            sums[1:] = drawn.edges(part.edges)
            if len(part.edges) == 1:
                alone += part.edges[0]
            if len(part.rows):
                used = max(1, min(length, len(part.rows) // bootstrap.LEAST_BLOCKS))
                sums[1:] += bootstrap.replicated(part.rows, used, drawn.of(len(part.rows), used))
                if isinstance(series, _Taken):
                    pieces += bootstrap.blocks(len(part.rows), used)
            if isinstance(series, _Taken):
                starts += len(part.edges)
                names = ("iter_ns", "wait_ns", "step_ns", "tail_ns")
                loops.append(sum((sums[:, wanted.columns[name]] for name in names), np.zeros(1)))
            table += sums
    if loops:
        table[:, wanted.columns["loop_ns"]] = np.sum(loops, axis=0)
        table[:, wanted.columns["longest_ns"]] = np.max(loops, axis=0)
    pieces, starts = (number // max(len(ranks), 1) for number in (pieces, starts))
    return Totals(wanted, table, pieces, starts, alone)


class _Drawn:
    """Bootstrap drawings, which are the same for series of the same lengths."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.known: dict[tuple[int, int], Floats] = {}

    def of(self, count: int, length: int) -> Floats:
        if (count, length) not in self.known:
            self.known[count, length] = bootstrap.draw(count, length, self.generator)
        return self.known[count, length]

    def edges(self, rows: Floats) -> Floats:
        """Return replicated sums of edges; those with no other to draw from are kept."""
        if len(rows) < 2:
            return np.asarray(rows.sum(axis=0)[None], np.float64)
        return bootstrap.replicated(rows, 1, self.of(len(rows), 1))


@dataclass(frozen=True)
class _Part:
    """One rank: rows (n, columns) in order, edges that are drawn separately, residuals (n, c)."""

    rows: Floats
    edges: Floats
    residuals: Floats


class _BinnedRows:
    """Assigns the rows of a table to bins of successive rows, or of edges."""

    def __init__(self, order: Ints, edge: np.ndarray, columns: int) -> None:
        edges, inner = order[edge[order]], order[~edge[order]]
        self.edges = min(len(edges), bootstrap.MOST_BINS)
        self.count = self.edges + min(len(inner), bootstrap.MOST_BINS)
        self.place = np.full(len(edge), -1, np.int64)
        for selected, offset, most in (
            (edges, 0, self.edges),
            (inner, self.edges, self.count - self.edges),
        ):
            if len(selected):
                self.place[selected] = offset + np.arange(len(selected)) * most // len(selected)
        self.table = np.zeros((self.count, columns))

    def add(self, column: int, values: Floats) -> None:
        """Add a value for each row."""
        known = self.place >= 0
        sums = np.bincount(self.place[known], np.nan_to_num(values[known]), self.count)
        self.table[:, column] += sums

    def part(self, column: int, weight: int, more: Sequence[int] = ()) -> _Part:
        """Return the part; block lengths are chosen by `column` and `more`, per `weight`."""
        rows = self.table[self.edges :]
        sums = rows.sum(axis=0)
        per = sums / sums[weight] if sums[weight] > 0 else np.zeros_like(sums)
        chosen = [column, *more]
        residuals = rows[:, chosen] - rows[:, [weight]] * per[chosen]
        return _Part(rows, self.table[: self.edges], residuals)


class _Taken:
    """Batches in the order in which they were taken; the edges are starts of epochs."""

    def __init__(self, scope: Scope, loop: pd.DataFrame, wanted: Wanted) -> None:
        self.loop, self.columns = loop, wanted.columns
        waits = scope.waits[int_column(scope.waits, "loader") >= 0]
        self.waits = waits.sort_values("start_ns", kind="stable").reset_index(drop=True)
        self.batch = batch_rows(scope.batches, self.waits)
        self.phases = wait_phases(scope.batches, scope.workers)
        size = float_column(scope.batches, "size")
        usual = float(np.nanmean(size)) if (~np.isnan(size)).any() else 0.0
        # As in `workers.rank_table`: a failed `next` returns nothing.
        mine = size[self.batch] if len(size) else np.zeros(len(self.batch))
        known = (self.batch >= 0) & ~flag(self.waits, "failed")
        self.size = np.where(known, np.where(np.isnan(mine), usual, mine), 0.0)
        keys = pd.DataFrame({name: int_column(self.waits, name) for name in ("rank", "epoch")})
        self.first = (~keys.duplicated()).to_numpy()

    def of(self, rank: int) -> _Part:
        columns, waits = self.columns, self.waits
        epochs = self.loop[int_column(self.loop, "rank") == rank]
        mine = int_column(waits, "rank") == rank
        rows = _BinnedRows(np.flatnonzero(mine), self.first, len(columns))
        wait, step = float_column(waits, "wait_ns"), np.nan_to_num(float_column(waits, "step_ns"))
        steady = np.where(self.first, 0.0, 1.0)
        rows.add(columns["wait_ns"], wait)
        rows.add(columns["step_ns"], step)
        rows.add(columns["samples"], self.size)
        rows.add(columns["batches"], np.ones(len(waits)))
        rows.add(columns["steady_ns"], (wait + step) * steady)
        rows.add(columns["steady_samples"], self.size * steady)
        for name in PHASES:
            phase = self.phases[name].to_numpy(np.float64)
            values = phase[self.batch] if len(phase) else np.zeros(len(waits))
            missing = wait if name == "unseen" else np.zeros(len(waits))
            rows.add(columns[name], np.where(self.batch >= 0, values, missing))
        # An epoch without a taken batch has no first row, so it is a separate edge.
        lone = np.zeros((max(len(epochs) - rows.edges, 0), len(columns)))
        table = np.concatenate((rows.table[: rows.edges], lone, rows.table[rows.edges :]))
        rows.table, rows.edges = table, rows.edges + len(lone)
        order = np.argsort(float_column(epochs, "begin_ns"), kind="stable")
        for name in _EPOCHS:
            if name == "epochs":
                values = np.ones(len(epochs))
            elif name == "startups":
                values = (~np.isnan(float_column(epochs, "startup_ns"))).astype(np.float64)
            else:
                values = np.nan_to_num(float_column(epochs, name))
            if len(epochs):
                bins = np.arange(len(epochs)) * rows.edges // len(epochs)
                np.add.at(rows.table[:, columns[name]], bins, values[order])
        return rows.part(columns["steady_ns"], columns["steady_samples"])


class _MadeBatches:
    """Batches in the order in which they were made; the edges are first batches of processes."""

    def __init__(
        self, scope: Scope, counters: pd.DataFrame, wanted: Wanted, ranks: Sequence[int]
    ) -> None:
        self.wanted = wanted
        batches = scope.batches
        has_fetch = ~np.isnan(float_column(batches, "fetch_ns"))
        batches = batches[has_fetch & (np.nan_to_num(float_column(batches, "size")) > 0)]
        batches = batches.sort_values(["rank", "epoch", "batch"]).reset_index(drop=True)
        self.batches, self.size = batches, float_column(batches, "size")
        self.first = first_of_process(batches, scope.workers)
        self.sampled = scope.fetched.in_batches(batches, "samples") > 0
        self.own = scope.fetched.in_batches(batches, "own_ns")
        self._add_up_operations(scope, ranks)
        self._find_counts(counters)

    def _rows(self, rank: int) -> _BinnedRows:
        mine = np.flatnonzero(int_column(self.batches, "rank") == rank)
        return _BinnedRows(mine, self.first, len(self.wanted.columns))

    def _add_up_operations(self, scope: Scope, ranks: Sequence[int]) -> None:
        """Add operations to the bins of all ranks, piece by piece to limit memory."""
        count, self.bins_before, bins = len(self.batches), {}, 0
        bin_of = np.full(count, -1, np.int64)
        for rank in ranks:
            rows = self._rows(rank)
            self.bins_before[rank] = bins
            bin_of[rows.place >= 0] = bins + rows.place[rows.place >= 0]
            bins += rows.count
        self.operations = np.zeros((bins, 3 * len(self.wanted.operations)))
        self.with_ops = self.with_cpu = np.zeros(count)
        if not self.wanted.operations or not scope.calls.count:
            return
        places, recorded = BatchPlaces(self.batches), self.sampled.copy()
        missing = np.zeros(count, np.bool_)
        for ops in scope.calls.parts():
            inside = _in_batches(ops)
            row = places.rows(inside)
            seen = row >= 0
            inside, row = (inside, row) if seen.all() else (inside[seen], row[seen])
            recorded[row] = True
            missing[row[np.isnan(float_column(inside, "cpu_ns"))]] = True
            self._add_operations(inside, bin_of[row])
        self.with_ops = np.where(recorded, self.size, 0.0)
        self.with_cpu = np.where(missing, 0.0, self.with_ops)

    def _add_operations(self, ops: pd.DataFrame, bins: Ints) -> None:
        """Add the time, CPU time and number of some operations to their bins (-1: none)."""
        width, code = len(self.wanted.operations), self._codes(ops)
        known = (bins >= 0) & (code >= 0)
        if not known.any():
            return
        first, last = int(bins[known].min()), int(bins[known].max()) + 1
        key = (bins[known] - first) * width + code[known]
        for index, values in enumerate(
            (
                float_column(ops, "duration_ns"),
                np.nan_to_num(float_column(ops, "cpu_ns")),
                np.ones(len(ops)),
            )
        ):
            sums = np.bincount(key, values[known], (last - first) * width)
            self.operations[first:last, index::3] += sums.reshape(last - first, width)

    def _codes(self, ops: pd.DataFrame) -> Ints:
        """Return the column of each operation; -1 if it has none."""
        if not len(ops):
            return np.zeros(0, np.int64)
        codes = {operation: index for index, operation in enumerate(self.wanted.operations)}
        parents, operations = (
            _text(ops, column).astype("category") for column in ("parent", "operation")
        )
        width = len(operations.cat.categories)
        pair = np.asarray(parents.cat.codes, np.int64) * width
        pair += np.asarray(operations.cat.codes, np.int64)
        values, inverse = np.unique(pair, return_inverse=True)
        names = [[str(name) for name in side.cat.categories] for side in (parents, operations)]
        known = [
            codes.get((names[0][value // width], names[1][value % width]), -1)
            for value in values.tolist()
        ]
        return np.asarray(known, np.int64)[inverse.reshape(-1)]

    def _find_counts(self, counters: pd.DataFrame) -> None:
        """Compute sums per batch, (n, counted x events); the rest of the fetch is exclusive."""
        wanted, count = self.wanted, len(self.batches)
        events = [event for event in wanted.events if event in events_of(counters)]
        self.with_counts = np.zeros(count)
        self.counts = np.zeros((count, 0))
        self.seen: dict[str, Floats] = {}  # by event that took turns
        self.weight: Floats = np.zeros((count, 0))
        if not len(counters) or not wanted.counted or len(events) < len(wanted.events):
            return
        row = batch_rows(self.batches, counters)
        kind = counters["kind"].astype(str).to_numpy(object)
        name = np.where(kind == "operation", counters["operation"].astype(str), COUNTED_COLLATE)
        name = np.where(kind == "fetch", COUNTED_REST, name)
        places = {key: index for index, key in enumerate(wanted.counted)}
        pair, known = pd.factorize(pd.MultiIndex.from_arrays([kind, name]))
        code = np.array([places.get(tuple(key), -1) for key in known], np.int64)[pair]
        values = counters[events].to_numpy(np.float64)
        unknown = np.isnan(values)
        nothing = unknown.all(axis=1)
        turns = unknown[~nothing].any(axis=0)  # groups of events take turns by batch
        bad = (nothing | unknown[:, ~turns].any(axis=1)) & (row >= 0)
        good = np.bincount(row[(row >= 0) & (kind == "fetch")], minlength=count) > 0
        good &= np.bincount(row[bad], minlength=count) == 0
        self.with_counts = np.where(good, self.size, 0.0)
        usable = (row >= 0) & good[np.maximum(row, 0)] if count else np.zeros(len(row), np.bool_)
        width = len(wanted.counted)
        self.counts = np.zeros((count, width * len(events)))
        inner = usable & (kind != "fetch") & ~flag(counters, "nested")
        rest = places.get(("fetch", COUNTED_REST), -1)
        for index in range(len(events)):
            mine = usable & (code >= 0)
            known = np.nan_to_num(values[:, index])
            sums = np.bincount(row[mine] * width + code[mine], known[mine], count * width)
            sums = sums.reshape(count, width)
            if rest >= 0:
                sums[:, rest] -= np.bincount(row[inner], known[inner], count)
            self.counts[:, index :: len(events)] = sums
        self._scale_turns(events, turns, good, [row[(row >= 0) & rows] for rows in unknown.T])

    def _scale_turns(
        self, events: Sequence[str], turns: np.ndarray, good: np.ndarray, unknown: Sequence[Ints]
    ) -> None:
        """Scale counts of some batches to all, as `counter_metrics.counter_table` does.

        The scale is by the cycles of each operation if they were counted in every batch, else by
        samples. `unknown`: for each event, the batches in which it was not counted.
        """
        size = np.broadcast_to(self.size[:, None], (len(good), len(self.wanted.counted)))
        weight = size * good[:, None]
        if "cycles" in events and not turns[events.index("cycles")]:
            weight = self.counts[:, events.index("cycles") :: len(events)] * good[:, None]
        for index in np.flatnonzero(turns).tolist():
            seen = good.copy()
            seen[unknown[index]] = False
            whole, covered = weight.sum(axis=0), weight[seen].sum(axis=0)
            scale = np.where(covered > 0, whole / np.where(covered > 0, covered, 1.0), 0.0)
            self.counts[:, index :: len(events)] *= seen[:, None] * scale
            self.seen[events[index]] = weight * seen[:, None]
        self.weight = weight

    def of(self, rank: int) -> _Part:
        columns, batches, wanted = self.wanted.columns, self.batches, self.wanted
        rows = self._rows(rank)
        rows.add(columns["made"], self.size)
        for name, column in MADE.items():
            values = float_column(batches, column)
            rows.add(columns[name], values)
            rows.add(columns[f"{name}:made"], np.where(np.isnan(values), 0.0, self.size))
        rows.add(columns["own"], self.own)
        rows.add(columns["own:made"], np.where(self.sampled, self.size, 0.0))
        rows.add(columns["operations:made"], self.with_ops)
        rows.add(columns["cpu:made"], self.with_cpu)
        if wanted.operations:
            before, first = self.bins_before[rank], columns["operation:0"]
            sums = self.operations[before : before + rows.count]
            rows.table[:, first : first + sums.shape[1]] += sums
        rows.add(columns["counted:made"], self.with_counts)
        for at in range(self.counts.shape[1]):
            index, event = divmod(at, len(wanted.events))
            rows.add(columns[f"event:{index}:{wanted.events[event]}"], self.counts[:, at])
        if wanted.turned and self.counts.shape[1]:
            for index in range(len(wanted.counted)):
                rows.add(columns[f"weight:{index}"], self.weight[:, index])
                for name in wanted.turned:
                    seen = self.seen.get(name, self.weight)
                    rows.add(columns[f"seen:{index}:{name}"], seen[:, index])
        further = [columns[f"operation:{index}"] for index in range(min(len(wanted.operations), 4))]
        return rows.part(columns["fetch"], columns["made"], further)


def _in_batches(ops: pd.DataFrame) -> pd.DataFrame:
    inside = int_column(ops, "batch") >= 0
    return ops if inside.all() else ops[inside]  # without a copy of ten million rows


def _text(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame.columns:
        return pd.Series("", index=frame.index)
    return frame[name].astype("category")

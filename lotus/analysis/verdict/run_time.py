"""The wall time of a run, divided into the loops over its loaders and what lies outside of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import covered, float_column, int_column, ratio, total
from lotus.analysis.common.scope import RunLike, table
from lotus.analysis.common.warm_up import WARM_UP, without_warm_up
from lotus.common.numbers.array_types import Floats, Ints

IMPORTS, SETUP, BETWEEN, AFTER = "imports", "set-up", "between", "after"
CALLBACK = "callback"
STARTUP, WAIT, STEP, SHUTDOWN = "start-up", "wait", "step", "shut-down"
FIRST_STEP = "first-step"
OUTSIDE = (IMPORTS, SETUP, BETWEEN, AFTER)
MOST_PARTS = 8  # of a short chart
_LEAST_SHARE = 0.01  # of the wall time, of a part of it


@dataclass(frozen=True)
class RunPart:
    """A part of the wall time. `kind`: imports (until torch's loaders were imported), set-up (until
    the first loop), between (two loops), after (the last loop), callback (lotus's own, between or
    after loops), or of a `loader`'s loops (-1: none) start-up (`iter()` to the first batch), wait,
    first-step (what that took beyond a usual one, where that was far more), step, shut-down.
    """

    kind: str
    loader: int
    ns: float


@dataclass(frozen=True)
class RunTime:
    """The parts of a run, which add up to `wall_ns`: from the program's start to its end.

    `pauses`: how many times the program was between two loops. `delay_before_ns`: of the imports
    and the set-up, how long their thread was ready to run, without a core; NaN: not known.
    """

    wall_ns: float
    parts: tuple[RunPart, ...]
    pauses: int
    delay_before_ns: float = math.nan

    def of(self, *kinds: str) -> float:
        """Return the nanoseconds of all parts of these kinds."""
        return sum(part.ns for part in self.parts if part.kind in kinds)

    def share(self, *kinds: str) -> float:
        """Return their share of the wall time, 0 to 1."""
        return ratio(self.of(*kinds), self.wall_ns)

    def share_of_loops(self, loader: int) -> float:
        """Return the share of the wall time that a loader's loops took, 0 to 1."""
        its = sum(part.ns for part in self.parts if part.loader == loader)
        return ratio(its, self.wall_ns)

    def gain_of_loops(self, loader: int, gain: float) -> float:
        """Return how many times as fast all loops are if those of one loader are `gain` times."""
        whole = sum(part.ns for part in self.parts if part.loader >= 0)
        its = sum(part.ns for part in self.parts if part.loader == loader)
        return ratio(whole, whole - its + its / gain)


def run_time(run: RunLike) -> RunTime | None:
    """Divide the wall time of a run's main process.

    None if start or end are not known, or if several processes other than workers were iterating
    loaders. In a job, this is the main process of the lowest rank. Where loops overlap (a
    validation inside the training step, two loaders side by side), a time is charged once: to the
    shorter loop.
    """
    start, end = (run.manifest.get(name) for name in ("start_ns", "end_ns"))
    if not isinstance(start, int) or not isinstance(end, int) or end <= start:
        return None
    epochs, waits = _of_main(run)
    parts_of_waits = [
        without_warm_up(rows) for _, rows in waits.groupby(int_column(waits, "loader"))
    ]
    loop = loop_times(epochs, pd.concat(parts_of_waits) if parts_of_waits else waits)
    began = np.fmin(float_column(loop, "start_ns"), float_column(loop, "begin_ns"))
    ended = np.where(loop["exhausted"], float_column(loop, "end_ns"), float_column(loop, "last_ns"))
    ended = np.fmin(np.fmax(ended, began), end)
    known = np.isfinite(began) & (began >= start) & (began < end)
    if not known.any():
        return None
    loop, spans = loop[known], np.stack([began[known], ended[known]], axis=1)
    gaps = _gaps(spans)
    left, of_left = _left_shutdowns(loop, end)
    spans = np.concatenate([spans, left])
    first, last = float(spans[:, 0].min()), float(spans[:, 1].max())
    imported = _imported(run, int_column(loop, "pid"), start, first)
    in_loops = covered(*spans.T)
    parts = [RunPart(IMPORTS, -1, imported - start), RunPart(SETUP, -1, first - imported)]
    parts += _of_loops(loop, spans, np.append(int_column(loop, "loader"), of_left))
    over = sum(part.ns for part in parts[2:]) - in_loops
    if over > 0:  # two loops side by side: the steps of one hold waits of the other
        parts = _without(parts, over)
    # lotus's own callback is no time of the program. It runs after an epoch: between two loops, or
    # after the last one.
    of_callback = np.nan_to_num(float_column(loop, "callback_ns"))
    is_last = began[known] == began[known].max()
    between, after = last - first - in_loops, end - last
    own_between = min(float(of_callback[~is_last].sum()), between)
    own_after = min(float(of_callback[is_last].sum()), after)
    parts += [RunPart(BETWEEN, -1, between - own_between), RunPart(AFTER, -1, after - own_after)]
    parts.append(RunPart(CALLBACK, -1, own_between + own_after))
    kept = tuple(part for part in parts if part.ns > 0)
    return RunTime(
        wall_ns=float(end - start),
        parts=kept,
        pauses=gaps,
        delay_before_ns=_delay_before(run, int_column(loop, "pid")),
    )


def _delay_before(run: RunLike, pids: Ints) -> float:
    """Return how long the process with the loops had no core before them, ns; NaN: not known."""
    readings = table(run, "children")
    mine = (int_column(readings, "worker") < 0) & np.isin(int_column(readings, "pid"), pids)
    delays = float_column(readings, "delay_before_ns")[mine]
    return total(delays) if (delays >= 0).any() else math.nan


def _left_shutdowns(loop: pd.DataFrame, end: float) -> tuple[Floats, Ints]:
    """Return when workers of loops that were left before their end were shut down, from and to
    (n, 2), and the loaders of these loops (n,).

    That is when the program drops the iterator, which may be long after the last batch. The end of
    such a loop is noted then, or earlier if the next one begins first.
    """
    took, last = float_column(loop, "shutdown_ns"), float_column(loop, "last_ns")
    mine = ~loop["exhausted"].to_numpy(np.bool_) & (took > 0) & (last < end)
    begun = np.fmax(float_column(loop, "end_ns") - took, last)[mine]
    spans = np.stack([begun, np.fmin(begun + took[mine], end)], axis=1)
    return spans, int_column(loop, "loader")[mine]


def _of_main(run: RunLike) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the epochs and waits of the main process of the lowest rank.

    Workers, which may have loaders of their own, do not count.
    """
    epochs, waits = table(run, "epochs"), table(run, "waits")
    if not len(epochs):
        return epochs, waits.iloc[:0]
    lowest = int_column(epochs, "rank") == int_column(epochs, "rank").min()
    workers = np.unique(int_column(table(run, "workers"), "pid"))
    pids = int_column(epochs, "pid")[lowest & ~np.isin(int_column(epochs, "pid"), workers)]
    if not pids.size:
        return epochs.iloc[:0], waits.iloc[:0]
    if len(set(pids.tolist())) > 1:
        return epochs.iloc[:0], waits.iloc[:0]  # several programs: none stands for the run
    main = pids[0]
    return epochs[int_column(epochs, "pid") == main], waits[int_column(waits, "pid") == main]


def _imported(run: RunLike, pids: Sequence[int] | np.ndarray, start: float, first: float) -> float:
    """Return when the main process had imported torch's loaders; `start` if that is not known."""
    processes = table(run, "processes")
    mine = np.isin(int_column(processes, "pid"), pids)
    times = float_column(processes, "torch_ns")[mine]
    times = times[np.isfinite(times) & (times >= start) & (times <= first)]
    return float(times.min()) if times.size else start


def _gaps(spans: Floats) -> int:
    """Return the number of gaps in the union of spans (n, 2)."""
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    return int((ordered[1:, 0] > np.maximum.accumulate(ordered[:, 1])[:-1]).sum())


def _of_loops(loop: pd.DataFrame, spans: Floats, of: Ints) -> list[RunPart]:
    """Return the parts of each loader's loops, without what a shorter loop has taken.

    `of`: the loaders that `spans` are of.
    """
    loaders = int_column(loop, "loader")
    lengths = pd.Series(spans[:, 1] - spans[:, 0]).groupby(of).sum().sort_values()
    parts, before = [], 0.0
    for index, loader in enumerate(lengths.index):
        mine = loaders == loader
        reached = covered(*spans[np.isin(of, lengths.index[: index + 1])].T)
        own, before = reached - before, reached
        first, wait, begun, tail, warm = (
            float(float_column(loop, name)[mine & np.isfinite(float_column(loop, name))].sum())
            for name in ("first_ns", "wait_ns", "iter_ns", "tail_ns", WARM_UP)
        )
        owned = {STARTUP: begun + first, WAIT: wait - first, FIRST_STEP: warm, SHUTDOWN: tail}
        step = max(own - sum(owned.values()), 0.0)
        parts += [RunPart(kind, int(loader), ns) for kind, ns in (owned | {STEP: step}).items()]
    return parts


def _without(parts: list[RunPart], over: float) -> list[RunPart]:
    """Take `over` nanoseconds from the steps, each by its share, and what is left from the others.

    Something is left where two threads waited at the same time.
    """
    steps = sum(part.ns for part in parts if part.kind == STEP)
    others = sum(part.ns for part in parts if part.loader >= 0) - steps
    of_step = max(1.0 - ratio(over, steps), 0.0) if steps > 0 else 0.0
    of_others = max(1.0 - ratio(max(over - steps, 0.0), others), 0.0)

    def kept(part: RunPart) -> float:
        if part.loader < 0:
            return 1.0
        return of_step if part.kind == STEP else of_others

    return [RunPart(part.kind, part.loader, part.ns * kept(part)) for part in parts]


START, EDGES, REST = "start", "edges", "rest"
# Of a verdict, the part of the run that holds its causes.
OF_VERDICT = {"input-bound": WAIT, "start-up-bound": EDGES, "consumer-bound": STEP}


def condensed(
    time: RunTime, most: int = MOST_PARTS, kept_part: tuple[str, int] | None = None
) -> list[RunPart]:
    """Return the parts for a short chart, in the order of a run; they add up to its wall time.

    `start` is imports and set-up, `edges` start-up and shut-down of a loader's loops. What is less
    than 1 % of the wall time, or beyond `most` parts, is `rest`; `kept_part` (kind, loader) is not.
    """
    merged = {IMPORTS: START, SETUP: START, STARTUP: EDGES, SHUTDOWN: EDGES}
    sums: dict[tuple[str, int], float] = {}
    for part in time.parts:
        key = (merged.get(part.kind, part.kind), part.loader)
        sums[key] = sums.get(key, 0.0) + part.ns
    largest = sorted(sums, key=lambda key: (key != kept_part, -sums[key]))[: most - 1]
    least = _LEAST_SHARE * time.wall_ns
    kept = {key for key in largest if key == kept_part or sums[key] >= least}
    parts = [RunPart(*key, ns=ns) for key, ns in sums.items() if key in kept]
    rest = sum(ns for key, ns in sums.items() if key not in kept)
    return [*parts, *([RunPart(REST, -1, rest)] if rest > 0 else [])]

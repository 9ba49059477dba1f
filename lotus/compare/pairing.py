"""Matches loaders and operations of two sides, and finds those that only one side has."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.analysis.counters.counter_metrics import counter_table, events_of
from lotus.compare import measures
from lotus.compare.totals import Operation, Wanted, operation_times

MOST_OPERATIONS = 200  # operations with intervals, by time; all others have only values
_MOST_COUNTED, _MOST_NAMED = 60, 4

# ── loaders ──────────────────────────────────────────────────────────────────────────────────

_Pair = tuple[list[Scope], list[Scope]]


@dataclass(frozen=True)
class Unpaired:
    """Loaders of one name that only one side has, "a" or "b", and how many they are."""

    side: str
    title: str
    count: int = 1

    def words(self, letter: str) -> str:
        """Return a sentence; `letter` is the side's."""
        if self.count == 1:
            return f"Only {letter} has the loader {self.title}."
        return f"Only {letter} has {self.count} loaders {self.title}."


def pairs_of(
    a: Sequence[list[Scope]], b: Sequence[list[Scope]]
) -> tuple[list[_Pair], list[Unpaired]]:
    """Pair each loader of a's first run with those of all other runs; also return those of the
    first runs that have no pair.
    """
    matches = [_matched(a[0], loops) for loops in (*a, *b)]
    pairs: list[_Pair] = []
    unmatched: list[tuple[str, str]] = []
    for index, loop in enumerate(a[0]):
        matched = [match.get(index) for match in matches]
        if None in matched:
            unmatched.append(("a", loop.title))
            continue
        likes = [like for like in matched if like is not None]
        pairs.append((likes[: len(a)], likes[len(a) :]))
    used = {id(loop) for loop in matches[len(a)].values()}
    unmatched += [("b", loop.title) for loop in b[0] if id(loop) not in used]
    return pairs, unpaired(unmatched)


def unpaired(loaders: Iterable[tuple[str, str]]) -> list[Unpaired]:
    """Count the loaders, each of which is ("a" or "b", its title), by name."""
    return [Unpaired(*loader, count) for loader, count in Counter(loaders).items()]


def _matched(first: Sequence[Scope], loops: Sequence[Scope]) -> dict[int, Scope]:
    """Map indices of `known` to the matching loops, by data set, sampler and call site."""
    matched: dict[int, Scope] = {}
    unmatched = list(loops)
    keys = (_named, _standing, _name, _iterated, _file, _class, _data, _sampler)
    if len(first) == len(loops) == 1:
        return {0: loops[0]}
    for key in keys:
        for index, scope in enumerate(first):
            if index in matched:
                continue
            like = next((loop for loop in unmatched if key(loop) == key(scope)), None)
            if like is not None:
                matched[index] = like
                unmatched = [loop for loop in unmatched if loop is not like]
    return matched


def _named(scope: Scope) -> tuple[Any, ...]:
    """Return a key that distinguishes several loaders created by one line."""
    return (*_standing(scope), scope.settings.get("name"))


def _name(scope: Scope) -> tuple[Any, ...]:
    name = scope.settings.get("name")
    return (*_class(scope), name) if name else (id(scope),)


def _iterated(scope: Scope) -> tuple[Any, ...]:
    """Return a key by place of iteration, which older runs have as their only call_site."""
    place = scope.settings.get("iterated_at") or scope.settings.get("call_site")
    return (*_class(scope), place)


def _standing(scope: Scope) -> tuple[Any, ...]:
    return (*_class(scope), scope.settings.get("call_site"))


def _file(scope: Scope) -> tuple[Any, ...]:
    """Return a key without the line, because a program may change between two runs."""
    return (*_class(scope), str(scope.settings.get("call_site") or "").rpartition(":")[0])


def _class(scope: Scope) -> tuple[Any, ...]:
    return tuple(scope.settings.get(name) for name in ("dataset", "sampler"))


def _data(scope: Scope) -> tuple[Any, ...]:
    return (scope.settings.get("dataset"),)


def _sampler(scope: Scope) -> tuple[Any, ...]:
    return (scope.settings.get("call_site"), scope.settings.get("sampler"))


# ── operations and counters of both sides ────────────────────────────────────────────────────


def counter_rows(runs: Sequence[RunLike], loops: Sequence[Scope]) -> list[pd.DataFrame]:
    """Return `Run.counters` of each run's loop."""
    frames = []
    for run, scope in zip(runs, loops, strict=True):
        counters = table(run, "counters")
        frames.append(counters[int_column(counters, "loader") == scope.loader])
    return frames


@dataclass(frozen=True)
class SideOperations:
    """The operations of one side with their nanoseconds, counted intervals and events."""

    operations: pd.Series
    counted: list[tuple[str, str]]
    events: list[str]
    turned: list[str] = field(default_factory=list)  # of groups that took turns by batch
    recorded: bool = True  # the level of a run has operations

    @staticmethod
    def of(loops: Sequence[Scope], runs: Sequence[RunLike]) -> "SideOperations":
        times = [operation_times(loop) for loop in loops]
        level = any(str(run.manifest.get("level", "op")).startswith("op") for run in runs)
        operations = times[0]
        for other in times[1:]:
            operations = operations.add(other, fill_value=0.0)
        counted: list[tuple[str, str]] = []
        events: list[str] = []
        partial: set[str] = set()
        for index, rows in enumerate(counter_rows(runs, loops)):
            if not len(rows):
                return SideOperations(operations, [], [], recorded=level)
            sums = counter_table(rows, "generic")
            mine = list(zip(sums["kind"].astype(str), sums["operation"].astype(str), strict=True))
            # If groups took turns, an operation may have no batch with one of them.
            names = [event for event in events_of(rows) if sums[event].notna().mean() > 0.5]
            counts = rows.loc[rows[names].notna().any(axis=1), names]
            partial |= {name for name in names if counts[name].isna().any()}
            complete = sums[names].notna().all(axis=1).tolist()
            mine = [pair for pair, whole in zip(mine, complete, strict=True) if whole]
            of_run = set(mine)  # thousands, where a run has as many operations
            counted = mine if index == 0 else [pair for pair in counted if pair in of_run]
            events = names if index == 0 else [event for event in events if event in names]
        some = [event for event in events if event in partial]
        largest_first = operations.sort_values(ascending=False)
        return SideOperations(largest_first, counted, events, some, level)


class PairedOperations:
    """Pairs of operations: by parent and name, then by name if it is unique on both sides."""

    def __init__(
        self, a: SideOperations, b: SideOperations, letters: Sequence[str], notes: list[str]
    ) -> None:
        left_ns, right_ns = (_nanoseconds(side.operations) for side in (a, b))
        pairs: list[tuple[Operation, Operation]] = [
            (key, key) for key in left_ns if key in right_ns
        ]
        left, right = (
            [key for key in side if key not in against]
            for side, against in ((left_ns, right_ns), (right_ns, left_ns))
        )
        pairs += self._by_name(left, right)
        weight = [left_ns[mine] + right_ns[theirs] for mine, theirs in pairs]
        order = np.argsort(-np.asarray(weight, np.float64), kind="stable")
        self.pairs = [pairs[place] for place in order]
        self.a, self.b = left_ns, right_ns
        if bool(len(left_ns)) != bool(len(right_ns)):
            letter, side = (letters[1], b) if len(left_ns) else (letters[0], a)
            notes.append(
                f"the data set of {letter} has no operations that lotus records"
                if side.recorded
                else f"no operations were recorded in {letter}: see its --level"
            )
        events = [name for name in a.events if name in b.events]
        known = set(b.counted)
        counted = [name for name in a.counted if name in known][:_MOST_COUNTED]
        if bool(a.events) != bool(b.events):
            letter = letters[0] if a.events else letters[1]
            notes.append(f"only {letter} was recorded with --counters: they are not compared")
        elif set(a.events) != set(b.events):
            different = sorted(set(a.events) ^ set(b.events))
            suffix = f" and {len(different) - _MOST_NAMED} more" if different[_MOST_NAMED:] else ""
            some = ", ".join(different[:_MOST_NAMED]) + suffix
            notes.append(f"events that one side only counted have no lines: {some}")
        counted = counted if a.events and b.events else []
        top = self.pairs[:MOST_OPERATIONS]
        self.wanted = [
            Wanted(
                [pair[index] for pair in top],
                counted,
                side.events if counted else [],
                side.turned if counted else [],
            )
            for index, side in enumerate((a, b))
        ]
        names = [mine[1] for mine, _ in top]
        self.labels = measures.Labels(
            [name if names.count(name) == 1 else f"{parent}/{name}" for (parent, name), _ in top],
            [name for _, name in counted],
            events,
        )

    @staticmethod
    def _by_name(
        left: Sequence[Operation], right: Sequence[Operation]
    ) -> list[tuple[Operation, Operation]]:
        def unique(keys: Sequence[Operation]) -> dict[str, Operation]:
            counts = Counter(name for _, name in keys)
            return {name: (parent, name) for parent, name in keys if counts[name] == 1}

        mine, theirs = unique(left), unique(right)
        return [(key, theirs[name]) for name, key in mine.items() if name in theirs]

    def tables(
        self, per_sample: Sequence[float]
    ) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Return others, added, removed, in nanoseconds per sample."""
        base, new = (max(time_ns, 1.0) for time_ns in per_sample)
        below_limit = self.pairs[MOST_OPERATIONS:]
        a = np.array([self.a[mine] for mine, _ in below_limit], np.float64) / base
        b = np.array([self.b[theirs] for _, theirs in below_limit], np.float64) / new
        others = pd.DataFrame(
            {
                "parent": as_texts(parent for (parent, _), _ in below_limit),
                "operation": as_texts(name for (_, name), _ in below_limit),
                "a": a,
                "b": b,
                "difference": b / np.where(a > 0, a, np.nan) - 1,
            }
        )
        paired = [{pair[place] for pair in self.pairs} for place in range(2)]
        removed, added = (
            _only(side, known, per)
            for side, known, per in ((self.a, paired[0], base), (self.b, paired[1], new))
        )
        return others, added, removed


def _nanoseconds(operations: pd.Series) -> dict[Operation, float]:
    keys = [(str(key[0]), str(key[1])) for key in operations.index.tolist()]
    return dict(zip(keys, operations.astype(np.float64).tolist(), strict=True))


def _only(
    side: Mapping[Operation, float], known: Collection[Operation], per: float
) -> pd.DataFrame:
    rows = [(*key, value / per) for key, value in side.items() if key not in known]
    return pd.DataFrame(
        {
            "parent": as_texts(row[0] for row in rows),
            "operation": as_texts(row[1] for row in rows),
            "ns": np.array([row[2] for row in rows], np.float64),
        }
    )


def as_texts(names: Iterable[str]) -> pd.Series:
    """Return the names as objects: pandas would infer a text type that cannot hold every name."""
    return pd.Series(list(names), dtype=object)

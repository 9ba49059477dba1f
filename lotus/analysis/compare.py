"""Two sides held against each other, each one run or several of one program: B against A.

Every line has its value on both sides, their difference and its 95 % interval (`bootstrap`). As
there are many lines, one counts as different only where its p-value stands the correction of
Benjamini and Hochberg; the throughput of the loop, which the verdict is about, is one question and
stands for itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis import bootstrap, compare_lines
from lotus.analysis.causes import account, core_shared
from lotus.analysis.columns import integer, number
from lotus.analysis.compare_facts import Fact, loader_facts, other_machine, run_facts
from lotus.analysis.compare_lines import Line
from lotus.analysis.compare_totals import Operation, Totals, Wanted, operation_times, totals
from lotus.analysis.counters import counter_table, events_of
from lotus.analysis.functions import known_events
from lotus.analysis.scope import RunLike, Scope, iterated, scopes, table

ONE_RUN = (
    "one run a side: the intervals know how much batches vary within these two runs, not how much "
    "one run differs from the next, which is often more. So equal programs can look different; "
    "alternate three or more runs of each and compare them as: lotus compare A1,A2,A3 B1,B2,B3"
)
MOST_LOADERS = 8
MOST_OPERATIONS = 200  # with intervals: those of most time; all others have their values
_MOST_COUNTED = 60
_POINTS = 200  # of throughput over batches
_MOST_FOR_CAUSES = 2000  # operations: beyond them a table of batches times operations is too much


@dataclass(frozen=True)
class Side:
    """One side: runs of one program under the same conditions. `name`: as the user gave it."""

    name: str
    runs: Sequence[RunLike]
    letter: str  # that it is spoken of by


@dataclass(frozen=True)
class Verdict:
    """kind: "faster", "slower", "no difference", "same run", "unknown" (no interval is known) or
    "not comparable"; of b."""

    kind: str
    text: str


@dataclass(frozen=True)
class LoaderComparison:
    """One loader on both sides.

    lines    what is compared, Line.id unique; `different` after the correction
    others   operations beyond MOST_OPERATIONS: parent, operation, a, b (ns a sample), difference
    added, removed   operations of one side only: parent, operation, ns (a sample)
    causes   what the loop's time is owed to: kind, name, a, b (shares of it), of the first runs
    paces    throughput over batches: side, run, batch, samples_per_s
    """

    title: str
    numbers: tuple[int, int]
    verdict: Verdict
    facts: list[Fact]
    lines: list[Line]
    others: pd.DataFrame
    added: pd.DataFrame
    removed: pd.DataFrame
    causes: pd.DataFrame
    paces: pd.DataFrame
    notes: list[str]

    def line(self, name: str) -> Line | None:
        """The line of that id."""
        return next((one for one in self.lines if one.id == name), None)


@dataclass(frozen=True)
class Comparison:
    """b against a; the verdict is that of the loader with the most samples.

    setting: of a sweep, "" otherwise. lines: what is known of whole runs only.
    """

    a: Side
    b: Side
    setting: str
    verdict: Verdict
    facts: list[Fact]
    lines: list[Line]
    loaders: list[LoaderComparison]
    unmatched: list[tuple[str, str]]  # "a" or "b", and the loader that only it has
    notes: list[str] = field(default_factory=list)

    @property
    def other_machine(self) -> bool:
        """Whether the sides ran on different machines, or on different cores of one."""
        return other_machine(self.facts)

    def line(self, name: str) -> Line | None:
        """The line of that id, of the first loader or of whole runs."""
        found = self.loaders[0].line(name) if self.loaders else None
        return found or next((one for one in self.lines if one.id == name), None)


def compare(a: Side, b: Side, setting: str = "", seed: int = 0) -> Comparison:
    """Hold b against a. The same seed gives the same intervals."""
    facts = run_facts(a.runs, b.runs)
    notes = [*_lost(a), *_lost(b)]
    loops = [[_loops(run) for run in side.runs] for side in (a, b)]
    for side, found in ((a, loops[0]), (b, loops[1])):
        for run, loop in zip(side.runs, found, strict=True):
            if not loop:
                where = str(getattr(run, "path", side.name))
                why = "not comparable: no batch was taken from a DataLoader in "
                why += f"{side.letter} ({where})"
                lines = compare_lines.of_runs(a.runs, b.runs)
                return Comparison(
                    a, b, setting, Verdict("not comparable", why), facts, lines, [], [], notes
                )
    same = _same(a, b)
    pairs, unmatched = _pairs(loops[0], loops[1])
    loaders = [_loader(a, b, *pair, same, seed) for pair in pairs[:MOST_LOADERS]]
    if len(pairs) > MOST_LOADERS:
        notes.append(f"{len(pairs) - MOST_LOADERS} smaller loaders were left out")
    if loaders:
        verdict = loaders[0].verdict
    else:
        verdict = Verdict(
            "not comparable", "not comparable: the two sides have no loader in common"
        )
    lines = compare_lines.of_runs(a.runs, b.runs)
    return Comparison(a, b, setting, verdict, facts, lines, loaders, unmatched, notes)


def _loops(run: RunLike) -> list[Scope]:
    """The loaders that batches were taken from, the one with the most samples first."""
    waits = table(run, "waits")
    taken = set(integer(waits, "loader").tolist())
    return scopes(run, [one for one in iterated(run) if one in taken][: 4 * MOST_LOADERS])


def _lost(side: Side) -> list[str]:
    notes = []
    for run in side.runs:
        lost = table(run, "lost")
        count = int(integer(lost, "count", 0).sum())
        if count:
            where = str(getattr(run, "path", side.name))
            notes.append(
                f"{side.letter} ({where}) lost {count:,} records, or they cannot be read: what is "
                "shown of it is of the rest; see: lotus report"
            )
        if run.manifest.get("state") != "ended" or run.manifest.get("exit_code"):
            where = str(getattr(run, "path", side.name))
            notes.append(
                f"the program of {side.letter} ({where}) did not end well, or has not ended"
            )
    return notes


def _same(a: Side, b: Side) -> bool:
    """Whether both sides are the same recordings."""

    def marks(side: Side) -> list[str]:
        keys = ("boot_id", "host", "start_ns", "start_wall_ns", "command")
        return sorted(repr([run.manifest.get(key) for key in keys]) for run in side.runs)

    return marks(a) == marks(b) and all("boot_id" in run.manifest for run in a.runs)


# ── loaders ──────────────────────────────────────────────────────────────────────────────────

_Pair = tuple[list[Scope], list[Scope]]


def _pairs(
    a: Sequence[list[Scope]], b: Sequence[list[Scope]]
) -> tuple[list[_Pair], list[tuple[str, str]]]:
    """Each loader of the first run of a, with its likes in all other runs."""
    matches = [_matched(a[0], loops) for loops in (*a, *b)]
    pairs: list[_Pair] = []
    unmatched: list[tuple[str, str]] = []
    for place, loop in enumerate(a[0]):
        found = [match.get(place) for match in matches]
        if None in found:
            unmatched.append(("a", loop.title))
            continue
        likes = [one for one in found if one is not None]
        pairs.append((likes[: len(a)], likes[len(a) :]))
    used = {id(one) for one in matches[len(a)].values()}
    unmatched += [("b", loop.title) for loop in b[0] if id(loop) not in used]
    return pairs, unmatched


def _matched(known: Sequence[Scope], loops: Sequence[Scope]) -> dict[int, Scope]:
    """Place in `known` -> the loop that is it: by data set, sampler and where it stands."""
    found: dict[int, Scope] = {}
    left = list(loops)
    keys = (_standing, _file, _class, _data, _sampler)
    if len(known) == len(loops) == 1:
        return {0: loops[0]}
    for key in keys:
        for place, one in enumerate(known):
            if place in found:
                continue
            like = next((loop for loop in left if key(loop) == key(one)), None)
            if like is not None:
                found[place] = like
                left = [loop for loop in left if loop is not like]
    return found


def _standing(scope: Scope) -> tuple[Any, ...]:
    return (*_class(scope), scope.settings.get("call_site"))


def _file(scope: Scope) -> tuple[Any, ...]:
    """Without the line: a program is changed between two runs."""
    return (*_class(scope), str(scope.settings.get("call_site") or "").rpartition(":")[0])


def _class(scope: Scope) -> tuple[Any, ...]:
    return tuple(scope.settings.get(name) for name in ("dataset", "sampler"))


def _data(scope: Scope) -> tuple[Any, ...]:
    return (scope.settings.get("dataset"),)


def _sampler(scope: Scope) -> tuple[Any, ...]:
    return (scope.settings.get("call_site"), scope.settings.get("sampler"))


def _loader(
    a: Side, b: Side, mine: list[Scope], theirs: list[Scope], same: bool, seed: int
) -> LoaderComparison:
    facts = loader_facts(mine, theirs)
    notes: list[str] = []
    epochs = [len(np.unique(integer(one.waits, "epoch"))) for one in (*mine, *theirs)]
    if min(epochs) < max(epochs):
        least = min(epochs)
        which = "the first epoch is" if least == 1 else f"the first {least} epochs are"
        notes.append(
            f"the runs have {min(epochs)} to {max(epochs)} epochs: {which} compared, which may pay "
            "for a cold page cache and for imports"
        )
        mine, theirs = ([_limited(one, least) for one in side] for side in (mine, theirs))
    notes += _shared(a, mine) + _shared(b, theirs)
    known = [_Known.of(side, runs.runs) for side, runs in ((mine, a), (theirs, b))]
    chosen = _Chosen(known[0], known[1], (a.letter, b.letter), notes)
    counters = [_counters(runs.runs, side) for runs, side in ((a, mine), (b, theirs))]
    sums: list[Totals] = []
    each: list[list[Totals]] = []
    for number_, (side, counted) in enumerate(zip((mine, theirs), counters, strict=True)):
        whole, parts = None, []
        for place, (scope, rows) in enumerate(zip(side, counted, strict=True)):
            # The same recording on both sides is drawn alike: its difference is nothing at all.
            seeds = (seed, place) if same else (seed, number_, place)
            found = totals(scope, rows, chosen.wanted[number_], seeds)
            parts.append(found.measured())
            whole = found if whole is None else whole + found
        assert whole is not None
        sums.append(whole)
        each.append(parts)
    cpu = [_cpu(one.runs[0]) for one in (a, b)]
    lines = compare_lines.of_loader(
        compare_lines.Sums(sums[0], each[0]),
        compare_lines.Sums(sums[1], each[1]),
        chosen.labels,
        cpu[0] if cpu[0] == cpu[1] else None,
    )
    lines = _corrected(lines)
    verdict = _verdict(lines, a, b, same, notes)
    per_sample = [float(one("operations:made")[0]) for one in sums]
    others, added, removed = chosen.tables(per_sample)
    return LoaderComparison(
        title=mine[0].title,
        numbers=(mine[0].loader, theirs[0].loader),
        verdict=verdict,
        facts=facts,
        lines=lines,
        others=others,
        added=added,
        removed=removed,
        causes=_causes(a.runs[0], b.runs[0], mine[0], theirs[0], known),
        paces=_paces(mine, theirs),
        notes=notes,
    )


def _shared(side: Side, loops: Sequence[Scope]) -> list[str]:
    shares = [core_shared(one) for one in loops]
    if not any(shares):
        return []
    return [
        f"others had the cores while {side.letter} was recorded (up to {max(shares):.0%} of its "
        "waiting): its times depend on them"
    ]


def _limited(scope: Scope, epochs: int) -> Scope:
    """The loader's first epochs only."""
    kept = np.unique(integer(scope.waits, "epoch"))[:epochs]

    def rows(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[np.isin(integer(frame, "epoch"), kept)].reset_index(drop=True)

    names = ("ops", "samples", "batches", "waits", "epochs")
    return Scope(**{**vars(scope), **{name: rows(getattr(scope, name)) for name in names}})


def _cpu(run: RunLike) -> tuple[str, Any]:
    name = str(run.manifest.get("uarch") or "generic")
    return name, known_events(run.manifest, name)


def _counters(runs: Sequence[RunLike], loops: Sequence[Scope]) -> list[pd.DataFrame]:
    found = []
    for run, scope in zip(runs, loops, strict=True):
        counters = table(run, "counters")
        found.append(counters[integer(counters, "loader") == scope.loader])
    return found


# ── operations and counters that both have ───────────────────────────────────────────────────


@dataclass(frozen=True)
class _Known:
    """What one side has: operations with their nanoseconds, counted intervals, events."""

    operations: pd.Series
    counted: list[tuple[str, str]]
    events: list[str]

    @staticmethod
    def of(loops: Sequence[Scope], runs: Sequence[RunLike]) -> "_Known":
        times = [operation_times(one) for one in loops]
        operations = times[0]
        for other in times[1:]:
            operations = operations.add(other, fill_value=0.0)
        counted: list[tuple[str, str]] = []
        events: list[str] = []
        for place, rows in enumerate(_counters(runs, loops)):
            if not len(rows):
                return _Known(operations, [], [])
            sums = counter_table(rows, "generic")
            mine = list(zip(sums["kind"].astype(str), sums["operation"].astype(str), strict=True))
            counted = mine if place == 0 else [one for one in counted if one in mine]
            names = events_of(rows)
            events = names if place == 0 else [one for one in events if one in names]
        return _Known(operations.sort_values(ascending=False), counted, events)


class _Chosen:
    """Operations paired: by parent and name, then by name where that is one on both sides."""

    def __init__(self, a: _Known, b: _Known, letters: Sequence[str], notes: list[str]) -> None:
        one, other = (_nanoseconds(side.operations) for side in (a, b))
        pairs: list[tuple[Operation, Operation]] = [(key, key) for key in one if key in other]
        left, right = (
            [key for key in side if key not in against]
            for side, against in ((one, other), (other, one))
        )
        pairs += self._by_name(left, right)
        weight = [one[mine] + other[theirs] for mine, theirs in pairs]
        order = np.argsort(-np.asarray(weight, np.float64), kind="stable")
        self.pairs = [pairs[place] for place in order]
        self.a, self.b = one, other
        if bool(len(one)) != bool(len(other)):
            letter = letters[1] if len(one) else letters[0]
            notes.append(f"no operations were recorded in {letter}: see its --level")
        events = [name for name in a.events if name in b.events]
        counted = [name for name in a.counted if name in b.counted][:_MOST_COUNTED]
        if bool(a.events) != bool(b.events):
            letter = letters[0] if a.events else letters[1]
            notes.append(f"only {letter} was recorded with --counters: they are not compared")
        elif set(a.events) != set(b.events):
            different = ", ".join(sorted(set(a.events) ^ set(b.events)))
            notes.append(f"events that one side only counted are not compared: {different}")
        counted = counted if events else []
        top = self.pairs[:MOST_OPERATIONS]
        self.wanted = [Wanted([pair[place] for pair in top], counted, events) for place in range(2)]
        names = [mine[1] for mine, _ in top]
        self.labels = compare_lines.Labels(
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
        """others, added, removed: nanoseconds a sample."""
        base, new = (max(one, 1.0) for one in per_sample)
        rest = self.pairs[MOST_OPERATIONS:]
        a = np.array([self.a[mine] for mine, _ in rest], np.float64) / base
        b = np.array([self.b[theirs] for _, theirs in rest], np.float64) / new
        others = pd.DataFrame(
            {
                "parent": _texts(parent for (parent, _), _ in rest),
                "operation": _texts(name for (_, name), _ in rest),
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
            "parent": _texts(row[0] for row in rows),
            "operation": _texts(row[1] for row in rows),
            "ns": np.array([row[2] for row in rows], np.float64),
        }
    )


def _texts(names: Iterable[str]) -> pd.Series:
    """As objects: what pandas takes for text otherwise cannot hold every name."""
    return pd.Series(list(names), dtype=object)


# ── words and pictures ───────────────────────────────────────────────────────────────────────


def _corrected(lines: list[Line]) -> list[Line]:
    """Mark lines as different: the throughput by its interval, all others corrected."""
    many = [one for one in lines if one.id != compare_lines.THROUGHPUT]
    adjusted = bootstrap.adjusted([one.difference.p for one in many])
    judged = {one.id: one.judged(float(value)) for one, value in zip(many, adjusted, strict=True)}
    return [judged.get(one.id) or one.judged(one.difference.p) for one in lines]


def _verdict(lines: Sequence[Line], a: Side, b: Side, same: bool, notes: list[str]) -> Verdict:
    line = next((one for one in lines if one.id == compare_lines.THROUGHPUT), None)
    if same:
        text = f"no difference: {a.letter} and {b.letter} are the same recording"
        return Verdict("same run", text)
    if line is None or not (line.a > 0 and line.b > 0):
        text = "not comparable: a loop took no time, or its batches have no samples"
        return Verdict("not comparable", text)
    found = line.difference
    elsewhere = other_machine(run_facts(a.runs, b.runs))
    prefix = "on another machine, " if elsewhere else ""
    # Near 1 with another digit, so that it does not read as nothing.
    digits = 3 if abs(found.difference) < 0.1 else 2
    times, low, high = (
        f"{1 + part:.{digits}f}" for part in (found.difference, found.low, found.high)
    )
    lone = len(a.runs) == len(b.runs) == 1
    prefix += "in these two runs " if lone else ""
    head = f"{prefix}{b.letter} {'was' if lone else 'is'} {times} times as fast as {a.letter}"
    head = head[0].upper() + head[1:]
    if not found.known:
        text = f"{head}, but too few batches were taken to say how sure that is"
        return Verdict("unknown", text)
    if lone:
        notes.append(ONE_RUN)
    elif min(len(a.runs), len(b.runs)) == 1:
        notes.append("the side of one run is taken to vary from run to run as the other one does")
    if found.low <= 0 <= found.high:
        interval = f"{found.difference:+.1%} ({found.low:+.1%} to {found.high:+.1%})"
        between = ", though they ran on different machines" if elsewhere else ""
        return Verdict("no difference", f"no difference seen: {interval}{between}")
    kind = "faster" if found.difference > 0 else "slower"
    return Verdict(kind, f"{head} ({low} to {high})")


def _causes(
    a: RunLike, b: RunLike, mine: Scope, theirs: Scope, known: Sequence[_Known]
) -> pd.DataFrame:
    columns = ["kind", "name", "a", "b"]
    if max(len(one.operations) for one in known) > _MOST_FOR_CAUSES:
        return pd.DataFrame(columns=columns)
    shares: list[dict[tuple[str, str], float]] = []
    for scope in (mine, theirs):
        books = account(scope)
        found: dict[tuple[str, str], float] = {}
        for charge in books.charges:
            key = (charge.kind, charge.name)
            found[key] = found.get(key, 0.0) + charge.ns / max(books.loop_ns, 1.0)
        shares.append(found)
    keys = list(dict.fromkeys([*shares[0], *shares[1]]))
    keys.sort(key=lambda key: -max(side.get(key, 0.0) for side in shares))
    values = ([side.get(key, 0.0) for key in keys] for side in shares)
    texts = (_texts(key[place] for key in keys) for place in range(2))
    return pd.DataFrame(dict(zip(columns, (*texts, *values), strict=True)))


def _paces(mine: Sequence[Scope], theirs: Sequence[Scope]) -> pd.DataFrame:
    """Throughput over batches, of every run; several batches a point where there are many."""
    frames = []
    for side, loops in (("a", mine), ("b", theirs)):
        for place, scope in enumerate(loops):
            batches = scope.batches[~np.isnan(number(scope.batches, "wait_ns"))]
            batches = batches.sort_values("wait_start_ns", kind="stable")
            took = number(batches, "wait_ns") + np.nan_to_num(number(batches, "step_ns"))
            size = np.nan_to_num(number(batches, "size"))
            count = len(batches)
            if not count:
                continue
            # Workers deliver in bursts: single batches would show these.
            points = max(1, min(count // max(4, 2 * scope.num_workers), _POINTS))
            edges = np.arange(points) * count // points
            taken, samples = (np.add.reduceat(one, edges) for one in (took, size))
            per_s = samples / np.where(taken > 0, taken, np.nan) * 1e9 * max(len(scope.ranks), 1)
            frames.append(
                pd.DataFrame(
                    {
                        "side": side,
                        "run": place,
                        "batch": edges // max(len(scope.ranks), 1),
                        "samples_per_s": per_s,
                    }
                )
            )
    columns = ["side", "run", "batch", "samples_per_s"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)

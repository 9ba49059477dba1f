"""Compares two sides, B with A, each of which is one or more runs of a program.

Every line has a value for each side, their difference and its 95 % interval (`uncertainty`). As
there are many lines, a difference counts only if its p-value passes the correction of Benjamini and
Hochberg. The throughput of the loop, which decides the verdict, is a single question and is not
corrected.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.remade_loaders import merged
from lotus.analysis.common.run_contents import Partials, one_process
from lotus.analysis.common.scope import RunLike, Scope, iterated, scopes, table
from lotus.analysis.counters.function_profile import known_events
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.loop_time.batch_making import core_shared
from lotus.common.terminal.progress import Advance
from lotus.compare import measures, next_step, uncertainty
from lotus.compare.cpu_pair import CpuPair, cpu_pair
from lotus.compare.differences import (
    Fact,
    loader_facts,
    of_other_programs,
    other_machine,
    run_facts,
)
from lotus.compare.measures import MeasureLine
from lotus.compare.pairing import (
    PairedOperations,
    SideOperations,
    Unpaired,
    as_texts,
    counter_rows,
    pairs_of,
)
from lotus.compare.run_spread import UNDISTURBED, run_spread
from lotus.compare.totals import Totals, totals
from lotus.reading import missing_data
from lotus.reading.missing_data import SEND_TIMES

ONE_RUN = (
    "each side has one run: how much runs differ is not measured, but taken to be "
    f"{UNDISTURBED:.0%}, and more where other programs had the cores. For a surer answer, "
    "alternate three or more runs of each and compare them as: lotus compare A1,A2,A3 B1,B2,B3"
)
MOST_LOADERS = 8
NOT_COMPARABLE = "not comparable"  # kind of a verdict
PartialsOf = Callable[[Any], Partials]  # of a run: reads its pieces
_POINTS = 200  # points of throughput over batches
_MOST_FOR_CAUSES = 2000  # operations, as a table of batches x operations must fit in memory


@dataclass(frozen=True)
class Side:
    """One side: runs of one program under the same conditions. `name` is the user's text."""

    name: str
    runs: Sequence[RunLike]
    letter: str  # its short name in texts


@dataclass(frozen=True)
class ComparisonVerdict:
    """The verdict on b.

    `kind` is "faster", "slower", "no difference", "same run", "unknown" (no interval, or one too
    wide to judge) or "not comparable". `commands` are shell lines that record enough runs.
    """

    kind: str
    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoaderComparison:
    """One loader on both sides.

    lines    compared measures with unique ids; `different` is after the correction
    others   operations without lines: parent, operation, a, b (ns per sample), difference
    added, removed   operations of one side only: parent, operation, ns (per sample)
    causes   causes of the loop's time: kind, name, a, b (shares of it), from the first runs
    paces    throughput over batches: side, run, batch, samples_per_s
    cpus     the operations side by side, where the sides ran on different CPUs
    """

    title: str
    numbers: tuple[int, int]
    verdict: ComparisonVerdict
    facts: list[Fact]
    lines: list[MeasureLine]
    others: pd.DataFrame
    added: pd.DataFrame
    removed: pd.DataFrame
    causes: pd.DataFrame
    paces: pd.DataFrame
    cpus: CpuPair | None
    notes: list[str]

    def line(self, name: str) -> MeasureLine | None:
        """Return the line with this id."""
        return next((line for line in self.lines if line.id == name), None)


@dataclass(frozen=True)
class Comparison:
    """The comparison of b with a; the verdict is that of the loader with the most samples.

    `setting` is that of a sweep, or "". `lines` are measures of whole runs.
    """

    a: Side
    b: Side
    setting: str
    verdict: ComparisonVerdict
    facts: list[Fact]
    lines: list[MeasureLine]
    loaders: list[LoaderComparison]
    unmatched: list[Unpaired]
    notes: list[str] = field(default_factory=list)

    @property
    def other_machine(self) -> bool:
        """True if the sides ran on different machines, or on different cores of one machine."""
        return other_machine(self.facts)

    def line(self, name: str) -> MeasureLine | None:
        """Return the line with this id, of the first loader or of whole runs."""
        line = self.loaders[0].line(name) if self.loaders else None
        return line or next((line for line in self.lines if line.id == name), None)


def compare(
    a: Side,
    b: Side,
    setting: str = "",
    seed: int = 0,
    partials: PartialsOf = lambda run: one_process,
    advance: Advance = lambda done, whole: None,
) -> Comparison:
    """Compare b with a. The same seed gives the same intervals.

    `partials` reads the pieces of a run; `advance` is called with the number read and the total.
    """
    # Loaders that a program creates anew for each epoch are one, as in a report.
    a, b = (replace(side, runs=[merged(run) for run in side.runs]) for side in (a, b))
    facts = run_facts(a.runs, b.runs)
    notes = [*_lost(a), *_lost(b)]
    loops = [[_loops(run, partials, advance) for run in side.runs] for side in (a, b)]
    for side, loops_of_side in ((a, loops[0]), (b, loops[1])):
        for run, loop in zip(side.runs, loops_of_side, strict=True):
            if not loop:
                where = str(getattr(run, "path", side.name))
                why = "not comparable: no batch was taken from a DataLoader in "
                why += f"{side.letter} ({where})"
                lines = measures.of_runs(a.runs, b.runs)
                return Comparison(
                    a,
                    b,
                    setting,
                    ComparisonVerdict(NOT_COMPARABLE, why),
                    facts,
                    lines,
                    [],
                    [],
                    notes,
                )
    same = are_same(a, b)
    pairs, unmatched = pairs_of(loops[0], loops[1])
    loaders = [_loader(a, b, *pair, same, seed, setting) for pair in pairs[:MOST_LOADERS]]
    if len(pairs) > MOST_LOADERS:
        unshown = len(pairs) - MOST_LOADERS
        notes.append(f"{unshown} smaller loader{'s were' if unshown > 1 else ' was'} left out")
    if loaders:
        verdict = loaders[0].verdict
    else:
        verdict = ComparisonVerdict(
            NOT_COMPARABLE, "not comparable: the two sides have no loader in common"
        )
    lines = measures.of_runs(a.runs, b.runs)
    return Comparison(a, b, setting, verdict, facts, lines, loaders, unmatched, notes)


def _loops(run: RunLike, partials: PartialsOf, advance: Advance) -> list[Scope]:
    """Return the loaders from which batches were taken, most samples first."""
    waits = table(run, "waits")
    taken_from = set(int_column(waits, "loader").tolist())
    chosen = [loader for loader in iterated(run) if loader in taken_from][: 4 * MOST_LOADERS]
    return scopes(run, chosen, advance, partials(run))


def _lost(side: Side) -> list[str]:
    notes = []
    for run in side.runs:
        where = str(getattr(run, "path", side.name))
        lost, counts = table(run, "lost"), int_column(table(run, "lost"), "count", 0)
        slight = np.array(lost["what"].astype(str) == SEND_TIMES, np.bool_)
        if unsent := int(counts[slight].sum()):
            notes.append(f"{side.letter} ({where}): {missing_data.loss(SEND_TIMES, unsent)}")
        if count := int(counts[~slight].sum()):
            notes.append(
                f"{side.letter} ({where}) lost {count:,} records, or they cannot be read: its "
                f"numbers cover the rest only; see: lotus report {shlex.quote(where)}"
            )
        if run.manifest.get("state") != "ended" or run.manifest.get("exit_code"):
            notes.append(
                f"the program of {side.letter} ({where}) did not end well, or has not ended"
            )
    return notes


def have_one_run(a: Side, b: Side) -> bool:
    """Return True if no side has several runs, so that it is not known how much runs differ."""
    return len(a.runs) == len(b.runs) == 1


def are_same(a: Side, b: Side) -> bool:
    """Return True if both sides are the same recordings."""

    def marks(side: Side) -> list[str]:
        keys = ("boot_id", "host", "start_ns", "start_wall_ns", "command")
        return sorted(repr([run.manifest.get(key) for key in keys]) for run in side.runs)

    return marks(a) == marks(b) and all("boot_id" in run.manifest for run in a.runs)


# ── a loader ─────────────────────────────────────────────────────────────────────────────────


def _loader(
    a: Side, b: Side, mine: list[Scope], theirs: list[Scope], same: bool, seed: int, setting: str
) -> LoaderComparison:
    facts = loader_facts(mine, theirs)
    notes: list[str] = []
    epochs = [len(np.unique(int_column(scope.waits, "epoch"))) for scope in (*mine, *theirs)]
    if min(epochs) < max(epochs):
        least = min(epochs)
        which = "the first epoch is" if least == 1 else f"the first {least} are"
        notes.append(
            f"the runs have {min(epochs)} to {max(epochs)} epochs: only {which} compared, whose "
            "times may include a cold page cache and imports"
        )
        mine, theirs = ([_limited(scope, least) for scope in side] for side in (mine, theirs))
    notes += _shared(a, mine) + _shared(b, theirs)
    known = [SideOperations.of(side, runs.runs) for side, runs in ((mine, a), (theirs, b))]
    chosen = PairedOperations(known[0], known[1], (a.letter, b.letter), notes)
    counters = [counter_rows(runs.runs, side) for runs, side in ((a, mine), (b, theirs))]
    sums: list[Totals] = []
    totals_of_sides: list[list[Totals]] = []
    for number_, (side, counted) in enumerate(zip((mine, theirs), counters, strict=True)):
        side_total, parts = None, []
        for index, (scope, rows) in enumerate(zip(side, counted, strict=True)):
            # The same recording on both sides gets the same replicates, so the difference is 0.
            seeds = (seed, index) if same else (seed, number_, index)
            sums_of_run = totals(scope, rows, chosen.wanted[number_], seeds)
            parts.append(sums_of_run.measured())
            side_total = sums_of_run if side_total is None else side_total + sums_of_run
        assert side_total is not None
        sums.append(side_total)
        totals_of_sides.append(parts)
    cpus = [_cpu(side.runs[0]) for side in (a, b)]
    spread = have_one_run(a, b) and not same
    spreads = [run_spread(side[0]) if spread else 0.0 for side in (mine, theirs)]
    lines = measures.of_loader(
        measures.Sums(sums[0], totals_of_sides[0], spreads[0]),
        measures.Sums(sums[1], totals_of_sides[1], spreads[1]),
        chosen.labels,
        cpus,
    )
    verdict = _verdict(lines, a, b, same, notes, setting, facts)
    if verdict.kind != NOT_COMPARABLE:  # else no line is better or worse
        lines = _corrected(lines)
    per_sample = [float(side_totals("operations:made")[0]) for side_totals in sums]
    unlisted, added, removed = chosen.tables(per_sample)
    return LoaderComparison(
        title=mine[0].title,
        numbers=(mine[0].loader, theirs[0].loader),
        verdict=verdict,
        facts=facts,
        lines=lines,
        others=unlisted,
        added=added,
        removed=removed,
        causes=_causes(mine[0], theirs[0], known),
        paces=_paces(mine, theirs),
        cpus=cpu_pair(
            (a.runs, b.runs),
            cpus,
            [operations.events for operations in known],
            lines,
            (a.letter, b.letter),
        ),
        notes=notes,
    )


def _shared(side: Side, loops: Sequence[Scope]) -> list[str]:
    shares = [core_shared(scope, core_use(scope)) for scope in loops]
    if not any(shares):
        return []
    return [
        f"other programs had the cores while {side.letter} was recorded (for up "
        f"to {max(shares):.0%} of the time that workers did not run), which affects its times"
    ]


def _limited(scope: Scope, epochs: int) -> Scope:
    """Restrict a loader to its first epochs."""
    kept_epochs = np.unique(int_column(scope.waits, "epoch"))[:epochs]

    def rows(frame: pd.DataFrame) -> pd.DataFrame:
        return frame[np.isin(int_column(frame, "epoch"), kept_epochs)].reset_index(drop=True)

    contents = scope.calls.contents.of_epochs(kept_epochs)
    calls = scope.calls.of_epochs(kept_epochs, contents)
    fetched = scope.fetched.of_epochs(kept_epochs, contents)
    return replace(
        scope,
        batches=rows(scope.batches),
        waits=rows(scope.waits),
        epochs=rows(scope.epochs),
        calls=calls,
        fetched=fetched,
    )


def _cpu(run: RunLike) -> tuple[str, Any]:
    name = str(run.manifest.get("uarch") or "generic")
    return name, known_events(run.manifest, name)


# ── verdicts and charts ──────────────────────────────────────────────────────────────────────


def _corrected(lines: list[MeasureLine]) -> list[MeasureLine]:
    """Mark lines that differ: throughput by its interval, all others after correction."""
    many = [line for line in lines if line.id != measures.THROUGHPUT]
    adjusted = uncertainty.adjusted([line.difference.p for line in many])
    judged = {
        line.id: line.judged(float(value)) for line, value in zip(many, adjusted, strict=True)
    }
    return [judged.get(line.id) or line.judged(line.difference.p) for line in lines]


def _verdict(
    lines: Sequence[MeasureLine],
    a: Side,
    b: Side,
    same: bool,
    notes: list[str],
    setting: str,
    facts: Sequence[Fact],
) -> ComparisonVerdict:
    line = next((line for line in lines if line.id == measures.THROUGHPUT), None)
    if same:
        text = f"no difference: {a.letter} and {b.letter} are the same recording"
        return ComparisonVerdict("same run", text)
    if line is None or not (line.a > 0 and line.b > 0):
        text = "not comparable: a loop took no time, or its batches have no samples"
        return ComparisonVerdict(NOT_COMPARABLE, text)
    gap = line.difference
    if of_other_programs(a.runs, b.runs, facts):
        text = f"{a.letter} and {b.letter} run different commands; their speeds are not comparable"
        return ComparisonVerdict(NOT_COMPARABLE, text)
    elsewhere = other_machine(run_facts(a.runs, b.runs))
    lone = have_one_run(a, b)
    if lone:
        notes.append(ONE_RUN)
    if not gap.has_interval or next_step.unclear(gap):
        return _unknown(gap, a, b, elsewhere, setting)
    if not lone and min(len(a.runs), len(b.runs)) == 1:
        notes.append("the side of one run is taken to vary from run to run as the other one does")
    if gap.low <= 0 <= gap.high:
        interval = f"{gap.difference:+.1%} ({gap.low:+.1%} to {gap.high:+.1%})"
        between = ", though they ran on different machines" if elsewhere else ""
        return ComparisonVerdict("no difference", f"no difference seen: {interval}{between}")
    prefix = "on another machine, " if elsewhere else ""
    prefix += "in these two runs " if lone else ""
    # One more digit near 1, so that it does not read as no change.
    digits = 3 if abs(gap.difference) < 0.1 else 2
    times, low, high = (f"{1 + part:.{digits}f}" for part in (gap.difference, gap.low, gap.high))
    head = f"{prefix}{b.letter} {'was' if lone else 'is'} {times} times as fast as {a.letter}"
    kind = "faster" if gap.difference > 0 else "slower"
    return ComparisonVerdict(kind, f"{head[0].upper()}{head[1:]} ({low} to {high})")


def _unknown(
    gap: uncertainty.Difference, a: Side, b: Side, elsewhere: bool, setting: str
) -> ComparisonVerdict:
    """Return the verdict if it is unclear which side is faster, and how to find out."""
    if gap.has_interval:
        why = f"the interval, {next_step.span(gap)}, is too wide to judge"
    else:
        why = "too few batches were taken to say how sure that is"
    number = next_step.runs_needed(a.runs, b.runs)
    amount = "three" if number == next_step.ENOUGH else str(number)
    do = f"record {amount} runs of each"
    if setting:
        do = f"sweep both again with --repeat {number}"
    text = f"cannot tell: {next_step.looks(b.letter, a.letter, gap)}"
    text += " (on another machine)" if elsewhere else ""
    letters = (a.letter, b.letter)
    commands = () if setting else next_step.commands(a.runs, b.runs, letters)
    return ComparisonVerdict(
        "unknown", f"{text}, but {why}; {do}{':' if commands else ''}", commands
    )


def _causes(mine: Scope, theirs: Scope, known: Sequence[SideOperations]) -> pd.DataFrame:
    columns = ["kind", "name", "a", "b"]
    if max(len(side.operations) for side in known) > _MOST_FOR_CAUSES:
        return pd.DataFrame(columns=columns)
    shares: list[dict[tuple[str, str], float]] = []
    for scope in (mine, theirs):
        loop_account = account(scope)
        owed: dict[tuple[str, str], float] = {}
        for charge in loop_account.charges:
            key = (charge.kind, charge.name)
            owed[key] = owed.get(key, 0.0) + charge.ns / max(loop_account.loop_ns, 1.0)
        shares.append(owed)
    keys = list(dict.fromkeys([*shares[0], *shares[1]]))
    keys.sort(key=lambda key: -max(side.get(key, 0.0) for side in shares))
    values = ([side.get(key, 0.0) for key in keys] for side in shares)
    texts = (as_texts(key[place] for key in keys) for place in range(2))
    return pd.DataFrame(dict(zip(columns, (*texts, *values), strict=True)))


def _paces(mine: Sequence[Scope], theirs: Sequence[Scope]) -> pd.DataFrame:
    """Return throughput over batches of every run; if there are many, a point covers several."""
    frames = []
    for side, loops in (("a", mine), ("b", theirs)):
        for index, scope in enumerate(loops):
            batches = scope.batches[~np.isnan(float_column(scope.batches, "wait_ns"))]
            batches = batches.sort_values("wait_start_ns", kind="stable")
            batch_ns = float_column(batches, "wait_ns") + np.nan_to_num(
                float_column(batches, "step_ns")
            )
            size = np.nan_to_num(float_column(batches, "size"))
            count = len(batches)
            if not count:
                continue
            # Workers deliver in bursts, which single batches would show.
            points = max(1, min(count // max(4, 2 * scope.num_workers), _POINTS))
            edges = np.arange(points) * count // points
            batch_sums, samples = (np.add.reduceat(column, edges) for column in (batch_ns, size))
            per_s = (
                samples
                / np.where(batch_sums > 0, batch_sums, np.nan)
                * 1e9
                * max(len(scope.ranks), 1)
            )
            frames.append(
                pd.DataFrame(
                    {
                        "side": side,
                        "run": index,
                        "batch": edges // max(len(scope.ranks), 1),
                        "samples_per_s": per_s,
                    }
                )
            )
    columns = ["side", "run", "batch", "samples_per_s"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)

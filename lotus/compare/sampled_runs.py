"""Compares runs of `lotus attach`: shares of time only, as they count no batches."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, LoopSummary, summarise
from lotus.analysis.attached.verdict.share_replicates import ShareReplicates, share_replicates
from lotus.attach.files import attached_run
from lotus.common.errors import LotusError
from lotus.compare import measures, uncertainty
from lotus.compare.comparison import (
    Comparison,
    ComparisonVerdict,
    LoaderComparison,
    Side,
    have_one_run,
)
from lotus.compare.differences import SETTINGS, Fact, run_facts
from lotus.compare.measures import MeasureLine
from lotus.compare.next_step import unclear
from lotus.compare.pairing import unpaired
from lotus.compare.uncertainty import ReplicatedValue
from lotus.reading.logs import run_json

_OF_MACHINE = ("host", "cpu", "memory_bytes", "kernel", "lotus", "command")
_OF_RECORDING = ("boot_id", "start_ns", "start_wall_ns")
_ONE_LOOK = (
    "each side has one run: the intervals cover how much the program varied while lotus watched "
    "it, not how much runs differ; for that, attach to three or more runs of each side: lotus "
    "compare A1,A2,A3 B1,B2,B3"
)
_SHARES_ONLY = (
    "throughput, times of a sample, sizes and settings need every batch: lotus trace -- COMMAND"
)
_NO_SPEED = "sampled runs count no batches, so they do not show which side is faster"


@dataclass(frozen=True)
class SampledRun:
    """A run directory of `lotus attach`, with the facts of its machine."""

    path: Path
    manifest: Mapping[str, Any]
    summary: AttachedSummary

    @property
    def loaders(self) -> pd.DataFrame:
        """None: loaders are not seen, loops over them are."""
        return pd.DataFrame()


def load(path: str) -> SampledRun:
    """Load a run. Raises LotusError, also if it has no loop to compare."""
    kept = run_json.read(Path(path))
    names = (*_OF_MACHINE, *_OF_RECORDING)  # the rest is of lotus attach, not of the program
    manifest = {name: kept[name] for name in names if name in kept}
    summary = summarise(attached_run.load(path), path)
    if not summary.loops:
        why = (
            "no Python stack of it was read"
            if not summary.stacks
            else "it met no loop over a loader"
        )
        raise LotusError(f"{path} has no shares to compare, as {why}; see: lotus report {path}")
    return SampledRun(Path(path), manifest, summary)


def compare(a: Side, b: Side, same: bool, seed: int = 0) -> Comparison:
    """Compare the shares of b with those of a; the runs of both are `SampledRun`s."""
    first, second = ([run for run in side.runs if isinstance(run, SampledRun)] for side in (a, b))
    matches = [_matched(first[0], run) for run in (*first, *second)]
    loaders, unmatched = [], []
    for index, loop in enumerate(first[0].summary.loops):
        likes = [match.get(index) for match in matches]
        found = [like for like in likes if like is not None]
        if len(found) < len(likes):
            unmatched.append(("a", loop.title))
            continue
        pair = (found[: len(first)], found[len(first) :])
        loaders.append(_loop(a, b, (first, second), pair, same, seed))
    used = {id(loop) for loop in matches[len(first)].values()}
    unmatched += [("b", loop.title) for loop in second[0].summary.loops if id(loop) not in used]
    verdict = ComparisonVerdict("not comparable", "not comparable: the two sides share no loop")
    if loaders:
        verdict = loaders[0].verdict
    facts = run_facts(a.runs, b.runs)
    only = unpaired(unmatched)
    return Comparison(a, b, "", verdict, facts, [], loaders, only, [_SHARES_ONLY])


def _matched(first: SampledRun, run: SampledRun) -> dict[int, LoopSummary]:
    """Map each loop of the first run to its loop in `run`, by line, function or file."""
    unmatched = list(run.summary.loops)
    if len(first.summary.loops) == len(unmatched) == 1:
        return {0: unmatched[0]}
    matched: dict[int, LoopSummary] = {}
    for parts in (4, 3, 2):
        for index, loop in enumerate(first.summary.loops):
            like = next(
                (
                    other
                    for other in unmatched
                    if _key(run, other)[:parts] == _key(first, loop)[:parts]
                ),
                None,
            )
            if index not in matched and like is not None:
                matched[index] = like
                unmatched = [other for other in unmatched if other is not like]
    return matched


def _key(run: SampledRun, loop: LoopSummary) -> tuple[Any, ...]:
    row = run.summary.evidence.loops.iloc[loop.loop]
    file = str(row["file"])
    return os.path.basename(file), row["function"], row["head"], file


def _loop(
    a: Side,
    b: Side,
    runs: tuple[list[SampledRun], list[SampledRun]],
    loops: tuple[list[LoopSummary], list[LoopSummary]],
    same: bool,
    seed: int,
) -> LoaderComparison:
    sides = [
        # The same recording on both sides gets the same replicates, so the difference is 0.
        [
            share_replicates(
                run.summary.evidence, loop, (seed, index) if same else (seed, number, index)
            )
            for index, (run, loop) in enumerate(zip(of_side, its, strict=True))
        ]
        for number, (of_side, its) in enumerate(zip(runs, loops, strict=True))
    ]
    lines = _lines(sides[0], sides[1])
    workers = [sorted({loop.workers for loop in side}) for side in loops]
    facts = [Fact(SETTINGS, "workers seen", *workers)] if workers[0] != workers[1] else []
    notes = [_ONE_LOOK] if have_one_run(a, b) and not same else []
    # Nothing else is known of an operation that one side lacks.
    names = [{key for replicates in side for key in replicates.made} for side in sides]
    empty = pd.DataFrame(columns=["parent", "operation", "a", "b", "difference"])
    return LoaderComparison(
        title=loops[0][0].title,
        numbers=(loops[0][0].loop, loops[1][0].loop),
        verdict=_verdict(lines, a, b, same),
        facts=facts,
        lines=lines,
        others=empty,
        added=_only(names[1] - names[0]),
        removed=_only(names[0] - names[1]),
        causes=_causes(loops[0][0], loops[1][0]),
        paces=pd.DataFrame(columns=["side", "run", "batch", "samples_per_s"]),
        cpus=None,
        notes=notes,
    )


def _lines(a: Sequence[ShareReplicates], b: Sequence[ShareReplicates]) -> list[MeasureLine]:
    lines = []

    def add(name: str, group: str, label: str, better: int, sides: list[ReplicatedValue]) -> None:
        gap = uncertainty.difference(sides[0], sides[1], relative=False)
        values = (sides[0].value, sides[1].value)
        lines.append(MeasureLine(name, group, label, "share", "", better, *values, gap))

    shares = [[(replicates.wait, replicates.blocks) for replicates in side] for side in (a, b)]
    add("wait_share", measures.LOOP, "waiting, of the loop", -1, [*map(_mean, shares)])
    shares = [[(replicates.step, replicates.blocks) for replicates in side] for side in (a, b)]
    add("step_share", measures.LOOP, "training step, of the loop", 0, [*map(_mean, shares)])
    for key in _shared_components(a, b):
        shares = [
            [(replicates.made[key], replicates.blocks) for replicates in side] for side in (a, b)
        ]
        label = shown_name(key)
        add(f"operation:{label}", measures.OPERATIONS, label, 0, [*map(_mean, shares)])
    adjusted = uncertainty.adjusted([line.difference.p for line in lines])
    return [line.judged(float(p)) for line, p in zip(lines, adjusted, strict=True)]


def _shared_components(
    a: Sequence[ShareReplicates], b: Sequence[ShareReplicates]
) -> Iterator[tuple[str, str]]:
    for key in a[0].made:
        if all(key in replicates.made for replicates in (*a, *b)):
            yield key


def _mean(shares: Sequence[tuple[tuple[float, Any], float]]) -> ReplicatedValue:
    """Return the mean over the runs of a side, with equal weights."""
    values = np.array([value for (value, _), _ in shares])
    replicates = np.mean([drawn for (_, drawn), _ in shares], axis=0)
    blocks = sum(count for _, count in shares)
    return ReplicatedValue(float(values.mean()), replicates, blocks, values)


def shown_name(component: tuple[str, str]) -> str:
    """Return the display name of a component that makes batches."""
    phase, name = component
    if phase == phases.OPERATION:
        return name
    return "data set's own code" if phase == phases.DATASET else phase


def _only(components: set[tuple[str, str]]) -> pd.DataFrame:
    rows = [("", name, math.nan) for name in sorted(map(shown_name, components))]
    return pd.DataFrame(rows, columns=["parent", "operation", "ns"])


def _causes(a: LoopSummary, b: LoopSummary) -> pd.DataFrame:
    sides = [
        {(cause.kind, cause.title): cause.share for cause in loop.verdict.causes} for loop in (a, b)
    ]
    keys = sorted(
        {*sides[0], *sides[1]}, key=lambda key: -max(side.get(key, 0.0) for side in sides)
    )
    rows = [(*key, *(side.get(key, 0.0) for side in sides)) for key in keys]
    return pd.DataFrame(rows, columns=["kind", "name", "a", "b"])


def _verdict(lines: Sequence[MeasureLine], a: Side, b: Side, same: bool) -> ComparisonVerdict:
    if same:
        text = f"no difference: {a.letter} and {b.letter} are the same recording"
        return ComparisonVerdict("same run", text)
    gap = lines[0].difference
    if not gap.has_interval:
        text = "cannot tell: too little was seen for an interval of the share of waiting; record "
        return ComparisonVerdict("unknown", f"{text}longer: lotus attach --seconds 60")
    ends = f"({gap.low * 100:+.1f} to {gap.high * 100:+.1f} points)"
    if unclear(gap, "share"):
        text = f"not clear on which side the loop waits more for data {ends}"
    elif gap.low <= 0 <= gap.high:
        text = f"no difference seen in the loop's share of waits {ends}"
    else:
        points = f"{abs(gap.difference) * 100:.1f} points"
        word = "more" if gap.difference > 0 else "less"
        text = f"{b.letter} waits for data {points} {word} of its time than {a.letter} {ends}"
    return ComparisonVerdict("unknown", f"{text}; {_NO_SPEED}")

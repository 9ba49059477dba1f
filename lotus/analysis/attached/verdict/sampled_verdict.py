"""Everything that is shown of a program that was watched from outside, computed once."""

import math
import os
import re
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.attached.charges.loader_settings import LoaderSettings, settings_of
from lotus.analysis.attached.charges.sampled_charges import charged, threads_of
from lotus.analysis.attached.charges.sampled_stacks import lines_between_loops
from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.shares.loop_shares import (
    LoopShares,
    Sampled,
    added,
    idle_share,
    loop_shares,
    loops_of,
    sampled,
)
from lotus.analysis.attached.standstill.standstill import judged_still, standstill
from lotus.analysis.attached.tables.counted_threads import CounterSummary, summarise_counters
from lotus.analysis.attached.tables.process_table import grouped, processes
from lotus.analysis.attached.tables.sampled_functions import FunctionSummary, summarise_functions
from lotus.analysis.attached.verdict.limited_verdict import limited_verdict
from lotus.analysis.attached.verdict.no_verdict import no_verdict
from lotus.analysis.common.columns import ratio
from lotus.analysis.ranks.awaited_rank import LEAST_BLOCKED, LEAST_MORE, which_rank_is_judged
from lotus.analysis.verdict.causes.cause_row import STEP as STEP_PART
from lotus.analysis.verdict.causes.making.outliers import SLOW_WORKER
from lotus.analysis.verdict.causes.repetition import STARVED
from lotus.analysis.verdict.parts_of_loop import MODERATE
from lotus.analysis.verdict.run_time import (
    AFTER,
    BETWEEN,
    IMPORTS,
    SETUP,
    SHUTDOWN,
    STARTUP,
    STEP,
    WAIT,
    RunPart,
    RunTime,
)  # fmt: skip
from lotus.analysis.verdict.time_outside import with_outside
from lotus.analysis.verdict.verdict import STANDSTILL, Verdict, judge
from lotus.common.errors import LotusError
from lotus.common.numbers.statistics import wilson, z_quantile
from lotus.common.text.formatting import duration, share

_CLEARLY = 1.5  # times as much waiting puts a loop before the one with the most time
_FEW, _LEAST = 100, 20  # samples of the thread that iterates: the verdict is rough, there is none
_LEAST_NS, _LEAST_WITHOUT_STEP_NS = 2e9, 5e9  # of a loop that ended: for less there is no verdict
_MOST_LOOPS = 8
_UNEVEN, _IDLE = 0.5, 0.2  # of the waits, and of the workers' time: batches of unequal cost
_LEAST_BLOCKED, _LEAST_BLOCKED_AS_IDLE = 0.1, 0.5  # of the looks at an operation
_Z = z_quantile()
_CELL = re.compile(r"/ipykernel_\d+/\d+\.py$")
_OF_LIGHTNING = re.compile(r"lightning/(?:pytorch/)?loops/(?:\w+/)*(\w+)_loop\.py$")


@dataclass(frozen=True)
class LoopSummary:
    """One loop over a loader, all ranks. `operations`: phase name made_ns share waiting_share
    computing_share; `wait_ns` and the like are of the time that was watched.
    """

    loop: int
    title: str
    name: str  # shorter
    verdict: Verdict
    workers: int
    loop_ns: float
    wait_ns: float
    step_ns: float
    idle_share: float
    ceiling: float  # times as fast as now, if no batch were waited for; NaN: not known
    operations: pd.DataFrame
    worker_rows: pd.DataFrame
    rank_rows: pd.DataFrame
    samples: int
    started_ns: float  # waits that are part of the start-up
    left_out_ns: float  # a start-up that was met once
    alone_share: float  # of the waits for workers: one of several made a batch, others were idle
    settings: LoaderSettings
    held_up_by: int = 0  # process of the rank for which the others wait, if all else is of it; or 0
    places: pd.DataFrame | None = None  # places of threads, as Standstill, if nothing moves


@dataclass(frozen=True)
class AttachedSummary:
    """A watched program. If `verdict` is None, `no_verdict` says why."""

    path: str
    evidence: AttachEvidence
    loops: list[LoopSummary]
    time: RunTime | None
    verdict: Verdict | None
    processes: pd.DataFrame  # as process_table.processes
    process_rows: pd.DataFrame  # the same in few rows, as process_table.grouped
    stacks: int  # samples that could be read
    remarks: tuple[str, ...]
    functions: FunctionSummary | None = None  # what perf sampled
    counters: CounterSummary | None = None  # of its threads
    no_verdict: str = ""  # the reason for which there is none, and the next step


def summarise(evidence: AttachEvidence, path: str = "") -> AttachedSummary:
    """Compute everything that is shown."""
    seen = sampled(evidence)
    numbers = loops_of(seen)[:_MOST_LOOPS]
    loops = [_loop(seen, number, len(numbers) == 1) for number in numbers]
    loops = _by_waiting(loops)
    time = _time(seen, loops)
    judged = None
    if loops and not _ended_early(evidence, loops[0]):
        judged = loops[0].verdict
        if judged.kind != STANDSTILL:
            watched = int(evidence.processes["main"].iloc[0])
            lines = lines_between_loops(seen, loops[0].held_up_by or watched)
            judged = with_outside(judged, _within(time), f"--pid {watched}", lines)
    elif not loops and not len(evidence.samples):
        judged = limited_verdict(evidence)
    table = processes(evidence, seen.looks)
    return AttachedSummary(
        path=path,
        evidence=evidence,
        loops=loops,
        time=time,
        verdict=judged,
        processes=table,
        process_rows=grouped(table, evidence, max((loop.workers for loop in loops), default=0)),
        stacks=len(evidence.samples),
        remarks=tuple(_remarks(seen, loops)),
        functions=summarise_functions(evidence),
        counters=summarise_counters(evidence),
        no_verdict="" if judged else no_verdict(seen, bool(loops)),
    )


def _ended_early(evidence: AttachEvidence, loop: LoopSummary) -> bool:
    """Return whether a program ended before enough of its loop was sampled for a verdict."""
    if evidence.facts["state"] != "ended" or loop.verdict.kind == STANDSTILL:
        return False
    least = _LEAST_NS if loop.step_ns > 0 else _LEAST_WITHOUT_STEP_NS
    return loop.loop_ns < least or loop.samples < _LEAST or loop.verdict.kind == "unknown"


def with_verdict(summary: AttachedSummary) -> AttachedSummary:
    """Return the summary. Raises LotusError, one line with the next step, without a verdict."""
    if summary.verdict is None:
        raise LotusError(summary.no_verdict)
    return summary


def _loop(seen: Sampled, number: int, only: bool) -> LoopSummary:
    parts = {main: loop_shares(seen, number, main) for main in seen.evidence.mains}
    parts = {main: part for main, part in parts.items() if part.loop_ns > 0}
    last = _held_up_by(seen, parts)
    whole = added([parts[last]] if last else list(parts.values()))
    settings = settings_of(seen, number, only)
    ranks = _rank_rows(seen, parts)
    still = standstill(seen, whole)
    judged_part = (seen, whole) if still is None else (still.seen, still.shares)
    account = charged(*judged_part, settings)
    judged = _cautious(
        _with_intervals(judge(account.account, account.circumstances), judged_part[1])
    )
    if still is not None:
        judged = judged_still(judged, still, seen.evidence.facts)
    elif whole.begun:
        judged = _only_begun(judged, whole)
    if last:
        judged = replace(judged, flaws=(_held_up(ranks, last), *judged.flaws))
    row = seen.evidence.loops.iloc[number]
    title, name = _names(str(row["file"]), int(row["head"]))
    step = whole.of(phases.STEP)
    return LoopSummary(
        loop=number,
        title=title,
        name=name,
        verdict=judged,
        workers=whole.workers,
        loop_ns=whole.loop_ns,
        wait_ns=whole.wait_ns,
        step_ns=step,
        idle_share=idle_share(whole),
        ceiling=ratio(whole.loop_ns, step) if step > 0 else math.nan,
        operations=_operations(seen, whole),
        worker_rows=_worker_rows(whole),
        rank_rows=ranks,
        samples=len(whole.rows),
        started_ns=whole.startup_ns,
        left_out_ns=whole.left_out_ns,
        alone_share=ratio(whole.alone_ns, sum(whole.by_worker.values())),
        settings=settings,
        held_up_by=last,
        places=None if still is None else still.places,
    )


def _names(file: str, head: int) -> tuple[str, str]:
    """Return a loop's title and short name: its place, or which of Lightning's loops it is."""
    place = f"{os.path.basename(file)}:{head}"
    kind = _OF_LIGHTNING.search(file)
    if kind is None:
        cell = " (a notebook's cell)" if _CELL.search(file) else ""
        return f"the loop at {place}{cell}", place
    name = kind[1].removesuffix("_epoch")
    return f"Lightning's {name} loop ({place})", name


def _held_up_by(seen: Sampled, parts: dict[int, LoopShares]) -> int:
    """Return the process of the rank for which the others wait in their steps; 0 if not clear.

    This rank waits for data, while another rank, which does not, is blocked in its step.
    """
    if len(parts) < 2:
        return 0
    waits = {main: ratio(part.wait_ns, part.loop_ns) for main, part in parts.items()}
    last, first = max(waits, key=lambda pid: waits[pid]), min(waits, key=lambda pid: waits[pid])
    if waits[last] - waits[first] < LEAST_MORE:
        return 0
    looks = seen.looks
    steps = looks[(looks["pid"] == first) & (looks["phase"] == phases.STEP)]
    return last if threads_of(steps).blocked_share >= LEAST_BLOCKED else 0


def _held_up(ranks: pd.DataFrame, last: int) -> str:
    """Return a sentence that says which rank the others wait for, and what shows it."""
    rows = {row["pid"]: row for row in ranks.to_dict("records")}
    first = min(rows.values(), key=lambda row: row["wait_share"])
    names = [
        f"rank {row['rank']} (process {row['pid']})"
        if row["rank"] >= 0
        else f"process {row['pid']}"
        for row in (rows[last], first)
    ]
    return which_rank_is_judged(
        (names[0], rows[last]["wait_share"]),
        (names[1], first["wait_share"], first["step_blocked_share"]),
    )


def _with_intervals(judged: Verdict, shares: LoopShares) -> Verdict:
    """Return the verdict with the 95 % interval of each cause's share of the loop, if known.

    These are Wilson's, with the number of independent samples that the interval of waits implies.
    """
    part, spread = judged.input_share, (judged.input_high - judged.input_low) / 2 / _Z
    if not spread > 0 or not 0 < part < 1:
        return judged
    trials = min(part * (1 - part) / spread**2, float(len(shares.rows)))
    ends = [wilson(min(cause.share, 1.0), trials) for cause in judged.causes]
    causes = [
        replace(cause, low=low, high=high)
        for cause, (low, high) in zip(judged.causes, ends, strict=True)
    ]
    return replace(judged, causes=causes)


def _cautious(judged: Verdict) -> Verdict:
    """Return the verdict, or NOT INPUT-BOUND if the samples do not rule that out."""
    if judged.degree != "moderately" or judged.kind != "input-bound":
        return judged
    if not judged.input_low < MODERATE:
        return judged
    summary = (
        f"The loop waits for data {share(judged.input_share)} ({share(judged.input_low)} to "
        f"{share(judged.input_high)}) of its time: it is not shown that this is more than "
        f"{share(MODERATE)}. The training step takes {share(judged.step_share)}."
    )
    causes = sorted(judged.causes, key=lambda cause: cause.part != STEP_PART)
    return replace(judged, kind="consumer-bound", degree="not", summary=summary, causes=causes)


def _only_begun(judged: Verdict, shares: LoopShares) -> Verdict:
    """Return NO VERDICT: which part of an epoch is start-up is only known at its end."""
    startup = duration(judged.startup_share * shares.loop_ns)
    summary = (
        f"The loop began while it was watched: its start-up took {startup}, and too little of the "
        "rest was seen to judge it. Watch again."
    )
    return replace(judged, kind="unknown", degree="", summary=summary, causes=[], ruled_out=())


def _by_waiting(loops: list[LoopSummary]) -> list[LoopSummary]:
    """Put the loop with the longest waits first, if they are a relevant share of all time."""
    if len(loops) < 2:
        return loops
    whole = sum(loop.loop_ns for loop in loops)
    most = max(loops, key=lambda loop: loop.wait_ns)
    much = most.wait_ns > MODERATE * whole and most.wait_ns >= _CLEARLY * loops[0].wait_ns
    return [most, *(loop for loop in loops if loop is not most)] if much else loops


def _operations(seen: Sampled, shares: LoopShares) -> pd.DataFrame:
    rows = []
    looks = seen.looks
    idle = looks.loc[looks["phase"] == phases.IDLE, "reason"].mode()
    idles_in = str(idle.iloc[0]) if len(idle) else ""
    for (phase, name), ns in sorted(shares.made.items(), key=lambda item: -item[1]):
        mine = looks[(looks["phase"] == phase) & (looks["name"] == name)]
        wall = float(mine["wall_ns"].sum())
        rows.append(
            {
                "phase": phase,
                "name": name,
                "made_ns": ns,
                "share": ratio(ns, shares.made_ns),
                "computing_share": ratio(float(mine["cpu_ns"].sum()), wall),
                "ready_share": ratio(float(mine["delay_ns"].sum()), wall),
                "waited_ns": shares.making.get((phase, name), 0.0),
                "reason": _reason(mine, idles_in),
            }
        )
    columns = ["phase", "name", "made_ns", "share", "computing_share", "ready_share", "waited_ns",
               "reason"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _reason(looks: pd.DataFrame, idles_in: str) -> str:
    """Return what a thread was blocked in at most looks that found it blocked; "" if few did.

    `idles_in`: what a worker is blocked in that has nothing to do. Of a short operation some looks
    are of a worker that waits for its next batch, as the clocks of looks and stacks differ.
    """
    blocked = looks.loc[looks["reason"] != "computing", "reason"]
    if not len(blocked):
        return ""
    reason, count = str(blocked.mode().iloc[0]), int(blocked.value_counts().iloc[0])
    least = _LEAST_BLOCKED_AS_IDLE if reason == idles_in else _LEAST_BLOCKED
    enough = count if reason == idles_in else len(blocked)
    return reason if enough >= least * len(looks) else ""


def _worker_rows(shares: LoopShares) -> pd.DataFrame:
    rows = []
    for place in sorted(shares.idle_by):
        made, idle = shares.made_by.get(place, 0.0), shares.idle_by[place]
        rows.append({"worker": place, "made_ns": made, "idle_share": ratio(idle, made + idle)})
    return pd.DataFrame(rows, columns=["worker", "made_ns", "idle_share"])


def _rank_rows(seen: Sampled, parts: dict[int, LoopShares]) -> pd.DataFrame:
    processes = seen.evidence.processes
    rank_of = dict(zip(processes["pid"].tolist(), processes["rank"].tolist(), strict=True))
    looks = seen.looks[seen.looks["phase"] == phases.STEP]
    rows = [
        {
            "rank": rank_of[main],
            "pid": main,
            "loop_ns": part.loop_ns,
            "wait_share": ratio(part.wait_ns, part.loop_ns),
            "step_share": ratio(part.of(phases.STEP), part.loop_ns),
            "step_blocked_share": threads_of(looks[looks["pid"] == main]).blocked_share,
        }
        for main, part in parts.items()
    ]
    columns = ["rank", "pid", "loop_ns", "wait_share", "step_share", "step_blocked_share"]
    return pd.DataFrame(rows, columns=columns)


def _time(seen: Sampled, loops: list[LoopSummary]) -> RunTime | None:
    """Return where the time of the first main process, or of the one that holds up others, went."""
    if not loops:
        return None
    main = loops[0].held_up_by or seen.evidence.mains[0]
    mine = seen.samples[seen.samples["pid"] == main]
    thread = mine.loc[mine["loop"] >= 0, "tid"]
    if not len(thread):
        return None
    mine = mine[mine["tid"] == thread.mode().iloc[0]].sort_values("time_ns")
    weight, phase = mine["weight_ns"].to_numpy(np.float64), mine["phase"].to_numpy()
    loop = mine["loop"].to_numpy()
    kinds = {phases.STEP: STEP, phases.STARTUP: STARTUP, phases.SHUTDOWN: SHUTDOWN}
    kinds |= dict.fromkeys(phases.IN_NEXT, WAIT)
    parts: dict[tuple[str, int], float] = {}
    in_loop = np.flatnonzero(loop >= 0)
    first, last = int(in_loop[0]), int(in_loop[-1])
    for index, (its, number, ns) in enumerate(zip(phase, loop, weight, strict=True)):
        if its == phases.IMPORTS:
            key = (IMPORTS, -1)
        elif its in kinds and number >= 0:
            key = (kinds[its], int(number))
        else:
            key = (SETUP if index < first else AFTER if index > last else BETWEEN, -1)
        parts[key] = parts.get(key, 0.0) + float(ns)
    for each in loops:  # of all ranks: its share serves for this one
        waited = parts.get((WAIT, each.loop), 0.0)
        started = waited * min(ratio(each.started_ns, each.wait_ns), 1.0)
        if started > 0:
            parts[WAIT, each.loop] = waited - started
            parts[STARTUP, each.loop] = parts.get((STARTUP, each.loop), 0.0) + started
    outside = np.asarray(loop < 0) & (np.arange(len(loop)) > first) & (np.arange(len(loop)) < last)
    pauses = int((outside[1:] & ~outside[:-1]).sum())
    rows = tuple(RunPart(kind, number, ns) for (kind, number), ns in parts.items())
    return RunTime(wall_ns=float(weight.sum()), parts=rows, pauses=pauses)


def _is_uneven(loop: LoopSummary) -> bool:
    """Return whether some batches are waited for while the other workers are idle."""
    of_workers = (SLOW_WORKER.kind, STARVED.kind)
    if loop.workers < 2 or loop.verdict.kind != "input-bound":
        return False
    if any(cause.kind in of_workers for cause in loop.verdict.causes):
        return False
    return loop.alone_share >= _UNEVEN and loop.idle_share >= _IDLE


def _within(time: RunTime | None) -> RunTime | None:
    """Return the time between the first and the last loop, as the rest was seen only in part."""
    if time is None:
        return None
    parts = tuple(part for part in time.parts if part.kind not in (IMPORTS, SETUP, AFTER))
    return replace(time, wall_ns=sum(part.ns for part in parts), parts=parts)


def _other_thread(seen: Sampled, loop: LoopSummary) -> str:
    """Return the name of the thread that runs a loop; "" if it is a main thread."""
    mine = seen.samples[seen.samples["pid"].isin(seen.evidence.mains)]
    mine = mine[mine["loop"] == loop.loop]
    sums = mine.groupby("tid")["weight_ns"].sum()
    if not len(sums) or (mine["tid"] == mine["pid"]).any():
        return ""
    threads = seen.evidence.threads
    names = threads.loc[threads["tid"] == sums.idxmax(), "name"]
    return str(names.iloc[0]) if len(names) and names.iloc[0] else "without a name"


def _remarks(seen: Sampled, loops: list[LoopSummary]) -> list[str]:
    result = []
    if seen.evidence.facts["state"] == "ended":
        took = duration(seen.evidence.elapsed_ns)
        result.append(f"The program ended after {took}: this is what was seen until then.")
    if loops and loops[0].samples < _FEW:
        result.append(
            f"Only {loops[0].samples} samples of the loop: the verdict is rough; watch longer "
            "(--seconds)."
        )
    if loops and loops[0].left_out_ns > 0:
        took = duration(loops[0].left_out_ns)
        result.append(f"The loop began while it was watched: its start-up of {took} is left out.")
    if loops and (thread := _other_thread(seen, loops[0])):
        result.append(
            f"This loop runs in a thread beside the main thread ({thread}). Where it hands batches "
            "to another loop, its waits are not those of the training: the part of them that the "
            "training overlaps is not known."
        )
    if loops and len(seen.evidence.mains) == 1:
        alone = loops[0].rank_rows.iloc[0]
        if alone["rank"] >= 0 and alone["step_blocked_share"] >= LEAST_BLOCKED:
            result.append(
                f"This is one rank of a job, blocked in {share(alone['step_blocked_share'])} of "
                "its step: it may wait there for another one. The process of torchrun stands for "
                "all ranks."
            )
    if loops and _is_uneven(loops[0]):
        result.append(
            f"In {share(loops[0].alone_share)} of the waits for workers a single one made a batch, "
            "and others had nothing to do: batches are of unequal cost. Which samples are slow, "
            "lotus trace tells."
        )
    torn, errors = seen.evidence.facts["torn"], seen.evidence.facts["errors"]
    if torn + errors > 0.1 * (len(seen.samples) + torn + errors):
        result.append(f"{torn + errors} stacks could not be read, as the program ran on meanwhile.")
    return result

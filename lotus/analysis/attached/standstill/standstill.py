"""Detects programs in which nothing moves, and finds where each thread stands."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.shares.loop_shares import LoopShares, Sampled, added, loop_shares
from lotus.analysis.attached.standstill.still_part import still_part, without_end
from lotus.analysis.observations.looks import COMPUTING, LOCK, SHARED_LOCK
from lotus.analysis.observations.own_code import HotFunction, of_program
from lotus.analysis.verdict.advice.remedy import NOTHING
from lotus.analysis.verdict.causes.run.edges import REST
from lotus.analysis.verdict.verdict import STANDSTILL, Verdict
from lotus.common.text.formatting import duration

_ALL, _LEAST_NS = 0.98, 2_000_000_000  # of a loop that stands still, and looked at, each process
_MOST_READY = 0.1  # of a process that waits for no core
_LEAST_THREAD = 0.5  # of the time that was watched, at one stack: a thread that stands there
_AT = {
    phases.WAIT: "waits for the next batch",
    phases.IDLE: "has nothing to do",
    phases.STARTUP: "starts",
}
_QUIET = (phases.FEEDER_IDLE, phases.PIN, phases.HELPER_IDLE)  # threads that wait for others


@dataclass(frozen=True)
class Standstill:
    """`words`: what was seen. `places`: pid, worker, rank, thread, at, reason of each thread.

    `thread` is "" for a main thread. `seen`, `shares`: of the time in which nothing moved.
    """

    words: str
    places: pd.DataFrame
    seen: Sampled
    shares: LoopShares


def standstill(seen: Sampled, shares: LoopShares) -> Standstill | None:
    """Return what is known of a loop in which nothing moves; None if it moves.

    Nothing moved all the time, or from some moment on until the loop was left, by force or at the
    end of the watch.
    """
    loop, whole = shares.loop, without_end(seen)
    if whole is not seen:
        shares = _shares(whole, loop)
    if words := _words(whole, shares):
        begins = f"Nothing moved in the {duration(whole.evidence.elapsed_ns)} that it was watched:"
        return Standstill(f"{begins} {words}", places_of(whole), whole, shares)
    part = still_part(whole, loop)
    if part is None:
        return None
    shares = _shares(part, loop)
    if not (words := _words(part, shares)):
        return None
    begins = f"Nothing moved in the last {duration(part.evidence.elapsed_ns)} of the loop:"
    return Standstill(f"{begins} {words}", places_of(part), part, shares)


def _shares(seen: Sampled, loop: int) -> LoopShares:
    mains = [main for main in seen.evidence.mains if (seen.samples["pid"] == main).any()]
    return added([loop_shares(seen, loop, main) for main in mains]) if mains else LoopShares(loop)


def _words(seen: Sampled, shares: LoopShares) -> str:
    evidence = seen.evidence
    if not shares.loop_ns:
        return ""
    if shares.of(phases.STEP) >= _ALL * shares.loop_ns:
        if not _used_no_core(seen, evidence.mains):
            return ""
        return (
            "the thread in the training step used no core at all. It hangs, or a single step "
            "takes longer than that."
        )
    if shares.loop_ns - shares.of(phases.STEP) < _ALL * shares.loop_ns:
        return ""
    workers = evidence.processes[evidence.processes["worker"] >= 0]
    if len(workers) and bool((workers["ended"] == 1).all()) and evidence.facts["state"] != "ended":
        met = seen.samples["pid"].isin(workers["pid"])
        if not met.any() and shares.of(phases.WAIT) >= _ALL * shares.loop_ns:
            return (
                f"the loop waits for workers that have ended, all {len(workers)} of them. They "
                "were killed, as for want of memory (see: dmesg), or ended by themselves."
            )
        return ""
    if not _used_no_core(seen, _makers(seen, workers["pid"].tolist()) or evidence.mains):
        return ""
    return (
        "what makes batches used no core at all. It hangs, or a single sample takes longer than "
        "that."
    )


def _makers(seen: Sampled, workers: list[int]) -> list[int]:
    """Return the workers without those that have nothing to do, which wake now and then."""
    main = seen.samples[seen.samples["pid"] == seen.samples["tid"]]
    idle = (main["phase"] == phases.IDLE) * main["weight_ns"]
    whole = main.groupby("pid")["weight_ns"].sum()
    shares = idle.groupby(main["pid"]).sum() / whole
    return [pid for pid in workers if shares.get(pid, 0.0) < _ALL]


def _used_no_core(seen: Sampled, pids: list[int]) -> bool:
    """Return whether all these processes, as far as they exist, stood still.

    The main thread has to have used nothing, and all others together next to nothing: some wake now
    and then, as monitors do. Looks are at main threads, so where a loop runs in another thread,
    that one is known to have stood still only if the whole process used nothing. A main process
    that waits wakes now and then to see whether its workers are alive.
    """
    samples, looks = seen.samples, seen.looks[seen.looks["pid"].isin(pids)]
    elsewhere = samples.loc[(samples["loop"] >= 0) & (samples["tid"] != samples["pid"]), "pid"]
    # It waits for a core where it is said to compute.
    times = looks.assign(ready_ns=looks["wall_ns"].where(looks["reason"] == COMPUTING, 0))
    each = times.groupby("pid")[["cpu_ns", "process_ns", "wall_ns", "ready_ns"]].sum()
    most = (1.0 - _ALL) * each["wall_ns"]
    still = (
        (each["cpu_ns"] == 0)
        & (each["process_ns"] <= most.where(~each.index.isin(elsewhere), 0.0))
        & (each["ready_ns"] <= _MOST_READY * each["wall_ns"])
        & (each["wall_ns"] >= _LEAST_NS)
    )
    return bool(len(each)) and bool(still.all())


def idle_outside(seen: Sampled) -> str:
    """Return where a main process stands that never ran, outside of loops; "" if it ran."""
    seen = without_end(seen)
    mains = seen.evidence.mains
    if not _used_no_core(seen, mains):
        return ""
    places = places_of(seen)
    mine = places[(places["pid"] == mains[0]) & (places["thread"] == "")]
    return str(mine["at"].iloc[0]) if len(mine) else ""


def longest_outside(seen: Sampled) -> tuple[str, float]:
    """Return (place, share of stacks) where the first main process was longest; ("", 0.0)."""
    mains = seen.evidence.mains[:1]
    own = seen.samples[seen.samples["pid"].isin(mains) & seen.samples["tid"].isin(mains)]
    weights = own.groupby("label")["weight_ns"].sum()
    places: dict[str, float] = {}
    for label, weight in weights.items():
        at = _at(seen.evidence, int(str(label)))
        places[at] = places.get(at, 0.0) + float(weight)
    places.pop("", None)
    if not places:
        return "", 0.0
    at = max(places, key=places.__getitem__)
    return at, places[at] / float(weights.sum())


def at_words(at: str) -> str:
    """Return the predicate of a place, such as `stands at f (train.py:8)`."""
    return at if at.startswith(tuple(_AT.values())) else f"stands at {at}"


def places_of(seen: Sampled) -> pd.DataFrame:
    """Return where main threads stand, and other threads in the program's own code."""
    evidence = seen.evidence
    process_of = {row["pid"]: row for row in evidence.processes.to_dict("records")}
    columns_of = (evidence.threads[name].tolist() for name in ("pid", "tid", "name"))
    names = {(pid, tid): name for pid, tid, name in zip(*columns_of, strict=True)}
    least = _LEAST_THREAD * evidence.elapsed_ns
    sums = seen.samples.groupby(["pid", "tid", "label"])[["weight_ns"]].sum().reset_index()
    longest = sums.sort_values("weight_ns").drop_duplicates(["pid", "tid"], keep="last")
    longest = longest[longest["weight_ns"] >= least]
    rows = []
    for pid, tid, label in longest[["pid", "tid", "label"]].to_numpy(np.int64).tolist():
        own, at = tid == pid, _at(evidence, label)
        quiet = evidence.labels["phase"].iloc[label] in _QUIET or not at
        if pid not in process_of or (quiet and not own):
            continue
        reasons = seen.looks.loc[(seen.looks["pid"] == pid) & own, "reason"].value_counts()
        rows.append(
            {
                **{name: process_of[pid][name] for name in ("pid", "worker", "rank")},
                "thread": "" if own else names.get((pid, tid)) or "without a name",
                "at": at,
                "reason": str(reasons.index[0]) if len(reasons) else "",
            }
        )
    columns = ["pid", "worker", "rank", "thread", "at", "reason"]
    return pd.DataFrame(rows, columns=columns).sort_values(
        ["rank", "worker", "pid", "thread"], ignore_index=True
    )


def _at(evidence: AttachEvidence, label: int) -> str:
    """Return the innermost function of the program in a label, else its phase."""
    chain = evidence.chains[evidence.chains["label"] == label].sort_values("depth")
    frames = [
        HotFunction(str(row["function"]), str(row["file"]), int(row["line"]), 1.0)
        for row in chain.to_dict("records")
    ]
    if frames:
        return str(of_program(frames))
    row = evidence.labels.iloc[label]
    phase, loop = str(row["phase"]), int(row["loop"])
    if phase != phases.WAIT or loop < 0:
        return _AT.get(phase, "")
    at = evidence.loops.iloc[loop]
    return f"{_AT[phase]} ({os.path.basename(str(at['file']))}:{at['head']})"


def judged_still(judged: Verdict, still: Standstill, facts: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a loop in which nothing moves: where it stands, how to see more."""
    reasons = set(still.places["reason"])
    advice = "Find what it waits for: where each thread stands is below."
    if reasons & {LOCK, SHARED_LOCK}:
        advice = (
            "Find who holds the lock: where each thread stands is below. Its holder may wait for "
            "another one, may have ended, or held it when the workers were forked."
        )
    if facts["state"] == "ended":
        advice += " If it hangs again, all stacks, with those in C: py-spy dump --native --pid PID"
    else:
        advice += f" All stacks, with those in C: py-spy dump --native --pid {facts['pid']}"
    causes = [replace(cause, advice=advice, remedy=NOTHING) for cause in judged.causes[:1]]
    if not causes or causes[0].kind == REST.kind:  # nothing was being made
        causes = []
    return replace(
        judged,
        kind=STANDSTILL,
        degree="",
        summary=still.words,
        causes=causes,
        doubt="",
        ruled_out=(),
        as_large="",
    )

"""Programs in which nothing moves: by what that is seen, and where each thread stands."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.attached import phases
from lotus.analysis.attached.evidence import AttachEvidence
from lotus.analysis.attached.loop_shares import LoopShares, Sampled
from lotus.analysis.observations.looks import LOCK, SHARED_LOCK
from lotus.analysis.observations.own_code import HotFunction, of_program
from lotus.analysis.verdict.causes.edges import REST
from lotus.analysis.verdict.verdict import STANDSTILL, Verdict
from lotus.common.formatting import duration

_ALL, _LEAST_LOOKS = 0.98, 100  # of a loop that stands still, and looks at each process
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

    `thread` is "" for a main thread.
    """

    words: str
    places: pd.DataFrame


def standstill(seen: Sampled, shares: LoopShares) -> Standstill | None:
    """What is known of a loop in which nothing moved all the time; None: it moves."""
    words = _words(seen, shares)
    return Standstill(words, places_of(seen)) if words else None


def _words(seen: Sampled, shares: LoopShares) -> str:
    evidence = seen.evidence
    took = duration(evidence.elapsed_ns)
    begins = f"Nothing moved in the {took} that it was watched:"
    if shares.of(phases.STEP) >= _ALL * shares.loop_ns:
        if not _used_no_core(seen, evidence.mains):
            return ""
        return (
            f"{begins} the thread in the training step used no core at all. It hangs, or a single "
            "step takes longer than that."
        )
    if shares.loop_ns - shares.of(phases.STEP) < _ALL * shares.loop_ns:
        return ""
    workers = evidence.processes[evidence.processes["worker"] >= 0]
    if len(workers) and bool((workers["ended"] == 1).all()) and evidence.facts["state"] != "ended":
        met = seen.samples["pid"].isin(workers["pid"])
        if not met.any() and shares.of(phases.WAIT) >= _ALL * shares.loop_ns:
            return (
                f"{begins} the loop waits for workers that have ended, all {len(workers)} of them. "
                "They were killed, as for want of memory (see: dmesg), or ended by themselves."
            )
        return ""
    if not _used_no_core(seen, _makers(seen, workers["pid"].tolist()) or evidence.mains):
        return ""
    return (
        f"{begins} what makes batches used no core at all. It hangs, or a single sample takes "
        "longer than that."
    )


def _makers(seen: Sampled, workers: list[int]) -> list[int]:
    """The workers, without those that have nothing to do: these wake now and then."""
    main = seen.samples[seen.samples["pid"] == seen.samples["tid"]]
    idle = (main["phase"] == phases.IDLE) * main["weight_ns"]
    whole = main.groupby("pid")["weight_ns"].sum()
    shares = idle.groupby(main["pid"]).sum() / whole
    return [pid for pid in workers if shares.get(pid, 0.0) < _ALL]


def _used_no_core(seen: Sampled, pids: list[int]) -> bool:
    """Whether all these processes stood still, as far as they are there.

    The main thread has to have used nothing, and all others together next to nothing: some wake now
    and then, as monitors do. Looks are at main threads, so where a loop runs in another thread,
    that one is known to have stood still only if the whole process used nothing. A main process
    that waits wakes now and then to see whether its workers are alive.
    """
    samples, looks = seen.samples, seen.looks[seen.looks["pid"].isin(pids)]
    elsewhere = samples.loc[(samples["loop"] >= 0) & (samples["tid"] != samples["pid"]), "pid"]
    each = looks.groupby("pid")[["cpu_ns", "process_ns", "wall_ns"]].sum()
    most = (1.0 - _ALL) * each["wall_ns"]
    still = (each["cpu_ns"] == 0) & (
        each["process_ns"] <= most.where(~each.index.isin(elsewhere), 0.0)
    )
    return bool(len(each)) and bool((still & (looks.groupby("pid").size() >= _LEAST_LOOKS)).all())


def idle_outside(seen: Sampled) -> str:
    """Where a main process stands that did not run at all, outside of all loops; "": it ran."""
    mains = seen.evidence.mains
    if not _used_no_core(seen, mains):
        return ""
    places = places_of(seen)
    mine = places[(places["pid"] == mains[0]) & (places["thread"] == "")]
    return str(mine["at"].iloc[0]) if len(mine) else ""


def longest_outside(seen: Sampled) -> tuple[str, float]:
    """Where the first main process was longest, and for which share of its stacks; ("", 0.0)."""
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
    """The predicate of a place, as `stands at f (train.py:8)`."""
    return at if at in _AT.values() else f"stands at {at}"


def places_of(seen: Sampled) -> pd.DataFrame:
    """Where each thread stands: main threads, and others that are in the program's own code."""
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
    """The innermost function of the program in a label, else what its phase is."""
    chain = evidence.chains[evidence.chains["label"] == label].sort_values("depth")
    frames = [
        HotFunction(str(row["function"]), str(row["file"]), int(row["line"]), 1.0)
        for row in chain.to_dict("records")
    ]
    if frames:
        return str(of_program(frames))
    return _AT.get(str(evidence.labels["phase"].iloc[label]), "")


def judged_still(judged: Verdict, still: Standstill, pid: int) -> Verdict:
    """The verdict on a loop in which nothing moves: what it stands at, and how to see more."""
    reasons = set(still.places["reason"])
    advice = "Find what it waits for: where each thread stands is below."
    if reasons & {LOCK, SHARED_LOCK}:
        advice = (
            "Find who holds the lock: where each thread stands is below. Its holder may wait for "
            "another one, may have ended, or held it when the workers were forked."
        )
    advice += f" All stacks, with those in C: py-spy dump --native --pid {pid}"
    causes = [replace(cause, advice=advice) for cause in judged.causes[:1]]
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

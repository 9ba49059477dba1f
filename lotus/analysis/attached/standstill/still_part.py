"""The last part of a watch, in which a loop stood still.

A loop that hangs was often seen to move before, and is often ended by force, which takes time on a
core again: both are left out.
"""

from dataclasses import replace

import numpy as np

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.loop_shares import Sampled

_LEAST_NS = 5_000_000_000
_LONGER = 3  # times as long as any stay before it at the same phase
_EXIT_NS = 1_000_000_000  # of a process that has ended: its last looks are of its end


def still_part(seen: Sampled, loop: int) -> Sampled | None:
    """Return what was seen while this loop stood still; None if that was too short to say so.

    In that time all main processes were last in this loop, at one phase each, and nothing of it
    ran.
    """
    evidence = seen.evidence
    stays = [_last_stay(seen, loop, main) for main in evidence.mains]
    if not stays or None in stays:
        return None
    known = [stay for stay in stays if stay is not None]
    begin, end = max(stay[0] for stay in known), min(stay[1] for stay in known)
    part = _between(seen, begin, end)
    makers = part.looks["pid"].isin(_makers(part) or evidence.mains)
    runs = part.looks[makers & (part.looks["cpu_ns"] > 0)]
    if len(runs):
        begin = int(runs["time_ns"].max())
    if end - begin < max(_LEAST_NS, _LONGER * max(stay[2] for stay in known)):
        return None
    part = _between(seen, begin, end)
    return part if set(evidence.mains) <= set(part.samples["pid"]) else None


def without_end(seen: Sampled) -> Sampled:
    """Leave out the last second of a program that has ended, in which it may be killed."""
    facts = seen.evidence.facts
    if facts["state"] != "ended":
        return seen
    return _between(seen, int(facts["start_ns"]), int(facts["end_ns"]) - _EXIT_NS)


def _last_stay(seen: Sampled, loop: int, main: int) -> tuple[int, int, int] | None:
    """Return (begin, end, longest before, nanoseconds) of a main process's last stay at a phase.

    The phase is one of a loop; None: it was not in the loop, or went on elsewhere in between.
    """
    mine = seen.samples[(seen.samples["pid"] == main) & (seen.samples["loop"] == loop)]
    if not len(mine):
        return None
    mine = mine[mine["tid"] == mine["tid"].mode().iloc[0]].sort_values("time_ns", kind="stable")
    mine = mine[mine["phase"] != phases.SHUTDOWN]
    time, ends = (
        mine["time_ns"].to_numpy(np.int64),
        (mine["time_ns"] + mine["weight_ns"]).to_numpy(),
    )
    phase = mine["phase"].to_numpy()
    if not len(phase):
        return None
    begins = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    lengths = ends[np.append(begins[1:] - 1, len(phase) - 1)] - time[begins]
    same = lengths[:-1][phase[begins[:-1]] == phase[-1]]
    return int(time[begins[-1]]), int(ends[-1]), int(same.max()) if len(same) else 0


def _makers(part: Sampled) -> list[int]:
    """Return the workers that had something to do at last."""
    own = part.samples[part.samples["pid"] == part.samples["tid"]]
    last = own[~own["pid"].isin(part.evidence.mains)].drop_duplicates("pid", keep="last")
    in_step = part.samples["phase"][part.samples["pid"].isin(part.evidence.mains)].iloc[-1:]
    if (in_step == phases.STEP).any():
        return []
    return [int(pid) for pid in last.loc[last["phase"] != phases.IDLE, "pid"]]


def _between(seen: Sampled, begin: int, end: int) -> Sampled:
    """Return what was seen between two times; stacks may be read late by `bound_ns`."""
    evidence, samples, looks = seen.evidence, seen.samples, seen.looks
    late = begin + int(evidence.facts["bound_ns"])
    samples = samples[(samples["time_ns"] >= late) & (samples["time_ns"] < end)]
    looks = looks[(looks["time_ns"] - looks["wall_ns"] >= begin) & (looks["time_ns"] <= end)]
    there = set(samples["pid"]) | set(evidence.mains)
    if there == set(evidence.mains):  # all workers may have ended
        there = set(evidence.processes["pid"])
    within = replace(
        evidence,
        facts={**evidence.facts, "start_ns": begin, "end_ns": max(end, begin + 1)},
        samples=evidence.samples[evidence.samples["time_ns"].between(late, end - 1)],
        looks=evidence.looks[evidence.looks["time_ns"].between(begin, end)],
        processes=evidence.processes[evidence.processes["pid"].isin(there)],
    )
    return replace(seen, evidence=within, samples=samples, looks=looks)

"""What a batch cost, part by part: time on a core, and waiting for something of its own.

CPU time and waiting are told apart by the thread's CPU clock, which is recorded per batch at every
level and per operation at level op+cpu.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Bools, Floats, Ints, batch_rows, flag, integer, number

# What a batch costs besides operations.
COLLATE, OWN = "collate", "data set"
# A part of less of all the time tells too little of how crowded the cores were.
ENOUGH = 0.05


def costs(
    ops: pd.DataFrame, batches: pd.DataFrame, level: str, notes: list[str]
) -> tuple[tuple[str, ...], Floats, Floats, dict[str, Floats]]:
    """(parts, wall and CPU time per batch and part, nested operations), ns."""
    fetch, fetch_cpu = number(batches, "fetch_ns"), number(batches, "cpu_ns")
    collate = np.nan_to_num(number(batches, "collate_ns"))
    row = batch_rows(batches, ops, ("loader", "epoch", "batch"))
    count = len(batches)
    inside = (row >= 0) & (integer(ops, "position", 0) >= 0)
    top = inside & ~flag(ops, "nested")
    names, codes = _names(ops)

    def sums(which: Bools, values: Floats) -> Floats:
        place = row[which] * len(names) + codes[which]
        weights = np.nan_to_num(values[which])
        sizes = (count, len(names))
        return np.bincount(place, weights, count * len(names)).astype(np.float64).reshape(sizes)

    took = number(ops, "duration_ns")
    wall = sums(top, took)
    inner = sums(inside & ~top, took)
    nested = {name: inner[:, place] for place, name in enumerate(names) if inner[:, place].any()}
    # Operations on other threads of the process may run beside the fetch.
    excess = np.maximum(wall.sum(axis=1) / np.maximum(fetch - collate, 1.0), 1.0)
    wall /= excess[:, None]
    used = [place for place in range(len(names)) if wall[:, place].any()]
    parts = (*(names[place] for place in used), OWN, COLLATE)
    rest = np.maximum(fetch - collate - wall.sum(axis=1), 0.0)
    walls = np.column_stack((wall[:, used], rest, collate))
    if np.isnan(fetch_cpu).any() or not fetch_cpu.any():
        notes.append("the run has no CPU times: all is taken as computing")
        return parts, walls, walls.copy(), nested
    fetch_cpu = np.minimum(fetch_cpu, fetch)
    cpu_of_ops = number(ops, "cpu_ns")
    if len(ops) and not np.isnan(cpu_of_ops[top]).any():
        cpu = np.minimum((sums(top, cpu_of_ops) / excess[:, None])[:, used], wall[:, used])
        left = np.maximum(fetch_cpu - cpu.sum(axis=1), 0.0)
        # Collate computes; what the data set's own code does is what is left.
        of_collate = np.minimum(collate, left)
        of_rest = np.minimum(left - of_collate, rest)
        return parts, walls, np.column_stack((cpu, of_rest, of_collate)), nested
    if used:
        notes.append(
            "operations' CPU times were not recorded (that takes --level op+cpu): each is taken to "
            "wait as much as its batch"
        )
        return parts, walls, walls * (fetch_cpu / np.maximum(fetch, 1.0))[:, None], nested
    of_collate = np.minimum(collate, fetch_cpu)
    of_rest = np.minimum(fetch_cpu - of_collate, rest)
    return parts, walls, np.column_stack((of_rest, of_collate)), nested


def _names(ops: pd.DataFrame) -> tuple[list[str], Ints]:
    """Operations' names and their codes; two of one name are one part."""
    if "operation" not in ops.columns or not len(ops):
        return [], np.zeros(len(ops), np.int64)
    column = ops["operation"].astype("category")
    codes = column.cat.codes.to_numpy().astype(np.int64)
    return [str(name) for name in column.cat.categories], codes


def own_waiting(wall: Floats, cpu: Floats, batches: pd.DataFrame) -> float | None:
    """How much of all time off the cores the fetches waited for something of their own.

    A thread that waits gives its core up, one that is pushed off does not: each batch has counts of
    both, and least squares tells how long one of either kind took. None where they are not known.
    """
    off = np.maximum(wall.sum(axis=1) - cpu.sum(axis=1), 0.0)
    gave = number(batches, "voluntary_switches")
    pushed = number(batches, "involuntary_switches")
    if np.isnan(gave).any() or np.isnan(pushed).any():
        return None
    everything = float(off.sum())
    if not pushed.any():
        return everything
    if not gave.any():
        return 0.0
    voluntary, involuntary = (float(counts @ off) for counts in (gave, pushed))
    gg, gp, pp = (float(one @ two) for one, two in ((gave, gave), (gave, pushed), (pushed, pushed)))
    free = gg * pp - gp * gp
    if free <= 1e-9 * gg * pp:  # always in the same proportion
        return everything * float(gave.sum()) / float((gave + pushed).sum())
    each = (involuntary * gg - voluntary * gp) / free
    if (voluntary * pp - involuntary * gp) / free < 0:
        each = involuntary / pp
    return max(everything - max(each, 0.0) * float(pushed.sum()), 0.0)


def least_crowding(wall: Floats, cpu: Floats, demand: float, cores: float) -> float:
    """How much longer computing took than its CPU time, where nothing tells pushed off from
    waiting.

    The part that waited least per CPU time tells, within what so many processes on so many cores
    can do to each other.
    """
    walls, cpus = wall.sum(axis=0), cpu.sum(axis=0)
    enough = cpus > ENOUGH * max(float(cpus.sum()), 1.0)
    if not enough.any():
        return 1.0
    least = float((walls[enough] / cpus[enough]).min())
    return min(max(least, 1.0), max(demand / cores, 1.0))


def waiting(wall: Floats, cpu: Floats, crowding: float) -> Floats:
    """Waiting per batch and part: what computing, so much longer than its CPU time, leaves over."""
    own = max(float(wall.sum() - crowding * cpu.sum()), 0.0)
    over = np.maximum(wall - crowding * cpu, 0.0)
    # By parts first: what was pushed off the cores here and there evens out over the batches.
    sums = np.maximum((wall - crowding * cpu).sum(axis=0), 0.0)
    if not sums.any():
        return np.zeros_like(wall)
    kept: Floats = over * (sums / np.maximum(over.sum(axis=0), 1e-9)) * (own / sums.sum())
    return kept

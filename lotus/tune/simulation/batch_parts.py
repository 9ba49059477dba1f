"""Splits the cost of each batch into parts: CPU time and waiting of each operation.

The thread's CPU clock separates computing from waiting. It is recorded per batch at every level,
and per operation at level op+cpu.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import batch_rows, flag, float_column, int_column
from lotus.common.numbers.array_types import Bools, Floats, Ints

# The parts of a batch that are not operations.
COLLATE, OWN = "collate", "data set"
# Share of all the time from which a part says something about contention for the cores.
ENOUGH = 0.05


def costs(
    ops: pd.DataFrame, batches: pd.DataFrame, notes: list[str]
) -> tuple[tuple[str, ...], Floats, Floats, dict[str, Floats]]:
    """Return (names of parts, wall time, CPU time, time in nested operations by name), all in ns.

    Wall and CPU time have a row per batch and a column per part. Notes on what is assumed are
    appended to `notes`.
    """
    fetch, fetch_cpu = float_column(batches, "fetch_ns"), float_column(batches, "cpu_ns")
    collate = np.nan_to_num(float_column(batches, "collate_ns"))
    row = batch_rows(batches, ops, ("loader", "epoch", "batch"))
    count = len(batches)
    inside = (row >= 0) & (int_column(ops, "position", 0) >= 0)
    top = inside & ~flag(ops, "nested")
    names, codes = _names(ops)

    def sums(which: Bools, values: Floats) -> Floats:
        place = row[which] * len(names) + codes[which]
        weights = np.nan_to_num(values[which])
        sizes = (count, len(names))
        return np.bincount(place, weights, count * len(names)).astype(np.float64).reshape(sizes)

    took = float_column(ops, "duration_ns")
    wall = sums(top, took)
    inner = sums(inside & ~top, took)
    nested = {name: inner[:, place] for place, name in enumerate(names) if inner[:, place].any()}
    # Operations on other threads of the process may overlap the fetch.
    excess = np.maximum(wall.sum(axis=1) / np.maximum(fetch - collate, 1.0), 1.0)
    wall /= excess[:, None]
    used = [place for place in range(len(names)) if wall[:, place].any()]
    parts = (*(names[place] for place in used), OWN, COLLATE)
    rest = np.maximum(fetch - collate - wall.sum(axis=1), 0.0)
    walls = np.column_stack((wall[:, used], rest, collate))
    if np.isnan(fetch_cpu).any() or not fetch_cpu.any():
        notes.append("the run has no CPU times: all time is counted as computing")
        return parts, walls, walls.copy(), nested
    fetch_cpu = np.minimum(fetch_cpu, fetch)
    cpu_of_ops = float_column(ops, "cpu_ns")
    if len(ops) and not np.isnan(cpu_of_ops[top]).any():
        cpu = np.minimum((sums(top, cpu_of_ops) / excess[:, None])[:, used], wall[:, used])
        left = np.maximum(fetch_cpu - cpu.sum(axis=1), 0.0)
        # Collate only computes; the rest of the CPU time is the data set's own code.
        of_collate = np.minimum(collate, left)
        of_rest = np.minimum(left - of_collate, rest)
        return parts, walls, np.column_stack((cpu, of_rest, of_collate)), nested
    if used:
        notes.append(
            "CPU times of operations were not recorded (--level op+cpu does that): each operation "
            "is assumed to wait for the same share of its time as its batch"
        )
        return parts, walls, walls * (fetch_cpu / np.maximum(fetch, 1.0))[:, None], nested
    of_collate = np.minimum(collate, fetch_cpu)
    of_rest = np.minimum(fetch_cpu - of_collate, rest)
    return parts, walls, np.column_stack((of_rest, of_collate)), nested


def _names(ops: pd.DataFrame) -> tuple[list[str], Ints]:
    """Return names of operations and their codes; operations of the same name are one part."""
    if "operation" not in ops.columns or not len(ops):
        return [], np.zeros(len(ops), np.int64)
    column = ops["operation"].astype("category")
    codes = column.cat.codes.to_numpy().astype(np.int64)
    return [str(name) for name in column.cat.categories], codes


def own_waiting(wall: Floats, cpu: Floats, batches: pd.DataFrame) -> float | None:
    """Time in ns that fetches waited for something other than a core; None if not known.

    The kernel counts how long they were ready to run without a core. Where it did not: a thread
    that waits gives up its core voluntarily; a preempted thread does not. Each batch has counts of
    both kinds of context switch, and least squares gives the mean time off the core per switch of
    each kind.
    """
    off = np.maximum(wall.sum(axis=1) - cpu.sum(axis=1), 0.0)
    ready = float_column(batches, "run_delay_ns")
    if not np.isnan(ready).any():
        return float(np.maximum(off - ready, 0.0).sum())
    gave = float_column(batches, "voluntary_switches")
    pushed = float_column(batches, "involuntary_switches")
    if np.isnan(gave).any() or np.isnan(pushed).any():
        return None
    everything = float(off.sum())
    if not pushed.any():
        return everything
    if not gave.any():
        return 0.0
    voluntary, involuntary = (float(counts @ off) for counts in (gave, pushed))
    gg, gp, pp = (
        float(first @ second) for first, second in ((gave, gave), (gave, pushed), (pushed, pushed))
    )
    free = gg * pp - gp * gp
    if free <= 1e-9 * gg * pp:  # always in the same proportion
        return everything * float(gave.sum()) / float((gave + pushed).sum())
    each = (involuntary * gg - voluntary * gp) / free
    if (voluntary * pp - involuntary * gp) / free < 0:
        each = involuntary / pp
    return max(everything - max(each, 0.0) * float(pushed.sum()), 0.0)


def least_crowding(wall: Floats, cpu: Floats, demand: float, cores: float) -> float:
    """Return the wall time of computing per CPU time, if context switches were not counted.

    It is the ratio of the part with the least waiting, but no more than `demand` processes on so
    many cores can slow each other down.
    """
    walls, cpus = wall.sum(axis=0), cpu.sum(axis=0)
    enough = cpus > ENOUGH * max(float(cpus.sum()), 1.0)
    if not enough.any():
        return 1.0
    least = float((walls[enough] / cpus[enough]).min())
    return min(max(least, 1.0), max(demand / cores, 1.0))


def waiting(wall: Floats, cpu: Floats, crowding: float) -> Floats:
    """Return the waiting per batch and part, ns: wall less CPU time stretched by `crowding`."""
    own = max(float(wall.sum() - crowding * cpu.sum()), 0.0)
    over = np.maximum(wall - crowding * cpu, 0.0)
    # By parts first: preemption of single batches evens out over all of them.
    sums = np.maximum((wall - crowding * cpu).sum(axis=0), 0.0)
    if not sums.any():
        return np.zeros_like(wall)
    kept: Floats = over * (sums / np.maximum(over.sum(axis=0), 1e-9)) * (own / sums.sum())
    return kept

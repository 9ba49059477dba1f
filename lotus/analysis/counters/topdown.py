"""The nodes of top-down level 2 that an operation is bound by, and their meaning."""

from typing import NamedTuple

import pandas as pd

from lotus.analysis.common.columns import records
from native_map.events import pmu
from native_map.events.metrics import LEVEL_2

# Shares of slots from which on a node is relevant. AMD gives none; these are Intel's for the same
# nodes: MetricThreshold of tma_* in Linux tools/perf/pmu-events, newer cores. That of microcode is
# tma_heavy_operations', which need no threshold of retiring.
THRESHOLDS = {
    "frontend_bound": 0.15,
    "backend_bound": 0.20,
    "bad_speculation": 0.15,
    "retiring": 0.70,
    "frontend_latency": 0.10,
    "frontend_bandwidth": 0.20,
    "backend_memory": 0.20,
    "backend_core": 0.10,
    "mispredicted_branches": 0.10,
    "pipeline_restarts": 0.10,
    "microcode": 0.10,
    "heavy_operations": 0.10,
    "smt_contention": 0.10,  # no vendor gives one: the smallest of the others
}
_UNEVEN = 0.02  # sums of level 1 that differ from 1 by more are mentioned
SMT = "smt_contention"  # of level 1, without nodes below it: a row of its own
MEANING = {
    "frontend_latency": "instructions come too late: much code runs once, as in Python and in "
    "library calls for small data; make fewer, larger calls",
    "frontend_bandwidth": "too few instructions come per cycle: the code has many branches or a "
    "poor layout; use vectorised routines",
    "backend_memory": "data comes too late from caches or memory; use smaller types (uint8 instead "
    "of float32), fewer passes and operations in place",
    "backend_core": "arithmetic waits for earlier results or for busy units; use a vectorised "
    "library or a cheaper method",
    "mispredicted_branches": "branches depend on the data, as in decoding compressed pictures or "
    "text; use a faster decoder or smaller inputs",
    "pipeline_restarts": "the pipeline restarts, for example because memory was read too early",
    "microcode": "instructions that the CPU runs as small programs, such as divisions, copies by "
    "rep movs and operations on denormal numbers",
    "heavy_operations": "instructions of several micro-operations each, such as divisions, "
    "gathers, copies by rep movs and operations on denormal numbers",
    SMT: "the core's other thread had the slots, often another worker's; with one worker per core "
    "each is faster, and lotus tune shows whether all together are",
}
# Files of lotus/inside/alternatives/ that spare what a node stands for, for `lotus advise`.
ADVICE = {
    "frontend_latency": ("batched_normalize", "uint8_tensors"),
    "frontend_bandwidth": ("uint8_resize", "uint8_tensors"),
    "backend_memory": ("in_place_normalize", "late_float", "early_crop"),
    "backend_core": ("reducing_resize", "draft_decode"),
    "mispredicted_branches": ("draft_decode", "torchvision_decode"),
}


class Nodes(NamedTuple):
    """`rows`: operation, node, parent, share (of slots), binding; largest share first within an
    operation, then contention with the core's other thread, which has no parent ("") and is never
    binding. `unbound`: operations of which no node of level 2 crosses its threshold."""

    rows: pd.DataFrame
    unbound: list[str]


COLUMNS = ["operation", "node", "parent", "share", "binding"]


def nodes(operations: pd.DataFrame) -> Nodes:
    """Return the nodes of level 2 that cross their thresholds, of a table of `counter_table`.

    Their parents must cross theirs too (retiring need not). Without level 2 there are none, and
    nothing is unbound.
    """
    present = [node for group in LEVEL_2.values() for node in group]
    level_2 = any(node in operations.columns for node in present)
    if not level_2 and SMT not in operations.columns:
        return Nodes(pd.DataFrame(columns=COLUMNS), [])
    rows: list[dict[str, object]] = []
    unbound = []
    for row in records(operations):
        crossing = [
            (row[node], node, parent)
            for parent, group in LEVEL_2.items()
            for node in group
            if (parent == "retiring" or _crosses(row, parent)) and _crosses(row, node)
        ]
        crossing.sort(reverse=True)
        for index, (share, node, parent) in enumerate(crossing):
            cells = (row["operation"], node, parent, share, index == 0)
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        if _crosses(row, SMT):
            cells = (row["operation"], SMT, "", row[SMT], False)
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        known = any(row.get(node) == row.get(node) for node in present if node in row)
        if level_2 and known and not crossing and row.get("counted"):
            unbound.append(str(row["operation"]))
    return Nodes(pd.DataFrame(rows, columns=COLUMNS), unbound)


def meaning(node: str) -> str:
    """Return what a node means, what usually helps, and what `lotus advise` measures against it."""
    *some, last = ADVICE.get(node, ("",))
    names = " and ".join([", ".join(some), last] if some else [last])
    return f"{MEANING[node]} (lotus advise measures {names})" if names else MEANING[node]


def remarks(operations: pd.DataFrame, cpu: str) -> list[str]:
    """Return sentences on level 1, if it was counted: why level 2 was not, how far it is from 1.

    The shares of level 1 sum to 1 only if one of them is computed from the others.
    """
    if not {*LEVEL_2} <= {*operations.columns}:
        return []
    table, said = pmu.table(cpu), []
    below = {node for group in LEVEL_2.values() for node in group}
    if below.isdisjoint(operations.columns):
        if "topdown2" in table.sets:
            said.append("Level 2 of top-down: lotus trace --counters=topdown2")
        else:
            said.append(f"lotus has no level 2 of top-down for this CPU ({table.text})")
    parts = [*LEVEL_2, *([SMT] if SMT in operations else [])]
    sums = operations[parts].sum(axis=1, skipna=False).dropna()
    off = sums[(sums - 1).abs() > _UNEVEN]
    if len(off) and table.formula == "amd":
        ends = dict.fromkeys(f"{edge:.0%}" for edge in (off.min(), off.max()))
        said.append(
            f"The shares of level 1, each counted separately, sum to {' to '.join(ends)} of the "
            f"slots in {len(off)} of {len(sums)} rows"
        )
        if SMT not in operations and off.max() < 1:
            said[-1] += "; no share includes slots that the core's other thread had"
    return said


def _crosses(row: dict[str, object], name: str) -> bool:
    value = row.get(name)
    return isinstance(value, float) and value >= THRESHOLDS[name]

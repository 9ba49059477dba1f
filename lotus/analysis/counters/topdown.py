"""Which nodes of top-down level 2 an operation is bound by, and what each means."""

from typing import NamedTuple

import pandas as pd

from lotus.analysis.common.columns import records
from native_map.events.metrics import LEVEL_2

# Shares of slots from which on a node is worth a look. AMD names none; these are Intel's for the
# same nodes: MetricThreshold of tma_* in Linux tools/perf/pmu-events, newer cores. That of
# microcode is tma_heavy_operations'.
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
    "smt_contention": 0.10,  # no vendor names one: as the smallest of the others
}
SMT = "smt_contention"  # of level 1, without nodes below it: a row of its own
MEANING = {
    "frontend_latency": "instructions come too late: much code runs once, as in Python and in "
    "library calls for small data; fewer, larger calls help",
    "frontend_bandwidth": "instructions come, but too few a cycle: branchy or badly laid out code; "
    "vectorised routines help",
    "backend_memory": "data comes too late from caches or memory: smaller types (uint8 instead of "
    "float32), one pass instead of several, and work in place help",
    "backend_core": "arithmetic waits for itself or for busy units: a vectorised library or a "
    "cheaper method helps",
    "mispredicted_branches": "branches depend on the data, as in decoding compressed pictures or "
    "text; a faster decoder or smaller inputs help",
    "pipeline_restarts": "the pipeline starts anew, as after memory was read too early",
    "microcode": "instructions that the CPU runs as small programs, as divisions, copies by rep "
    "movs and denormal numbers",
    SMT: "the core's other thread had the slots, often another worker: with a worker a core each "
    "is faster; whether all together are, lotus tune tells",
}


class Nodes(NamedTuple):
    """`rows`: operation, node, parent, share (of slots), binding; largest share first within an
    operation, then contention with the core's other thread, which has no parent ("") and is never
    binding. `unbound`: operations of which no node of level 2 crosses its threshold."""

    rows: pd.DataFrame
    unbound: list[str]


COLUMNS = ["operation", "node", "parent", "share", "binding"]


def nodes(operations: pd.DataFrame) -> Nodes:
    """Of a table of operations (see `counter_table`) the nodes of level 2 that cross their
    thresholds, as their parents do; without level 2 there are none, and nothing is unbound."""
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
            if _crosses(row, parent) and _crosses(row, node)
        ]
        crossing.sort(reverse=True)
        for place, (share, node, parent) in enumerate(crossing):
            cells = (row["operation"], node, parent, share, place == 0)
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        if _crosses(row, SMT):
            cells = (row["operation"], SMT, "", row[SMT], False)
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
        if level_2 and not crossing and row.get("counted"):
            unbound.append(str(row["operation"]))
    return Nodes(pd.DataFrame(rows, columns=COLUMNS), unbound)


def _crosses(row: dict[str, object], name: str) -> bool:
    value = row.get(name)
    return isinstance(value, float) and value >= THRESHOLDS[name]

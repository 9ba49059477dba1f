"""A note on time without a core that was not measured, which no cause shows as missing."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column

_COLUMNS = {  # of a thread's delay, and of CPU time that the same version measures anywhere
    "batches": (("run_delay_ns", "process_cpu_ns"),),
    "waits": (
        ("wait_run_delay_ns", "wait_process_cpu_ns"),
        ("step_run_delay_ns", "step_process_cpu_ns"),
    ),
}
_MOST_RANKS = 8
_OF_KERNEL = (
    "the kernel has no /proc/thread-self/schedstat (CONFIG_SCHED_INFO, which CONFIG_SCHEDSTATS=y "
    "or CONFIG_TASK_DELAY_ACCT=y enables)"
)
_OF_LOTUS = "an older lotus recorded the run; record it again"
_EFFECT = (
    "So too few cores, threads that compete for them and other programs are not named as causes: "
    "in a training step such time counts as its work, and in the making of batches it is estimated "
    "from context switches."
)


def without_core(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return what it means that the time without a core was not measured; "" if it was.

    `tables`: "batches" and "waits" of a run. Without their columns, nothing is said.
    """
    rows = []
    for name, columns in _COLUMNS.items():
        frame = tables[name]
        for delay, cpu in columns:
            if delay in frame:
                known = {"delay": np.isfinite(float_column(frame, delay))}
                known["cpu"] = np.isfinite(float_column(frame, cpu))
                recorded = known["delay"] | known["cpu"]
                if "fetch_ns" in frame:
                    recorded |= np.isfinite(float_column(frame, "fetch_ns"))
                table = pd.DataFrame({"rank": int_column(frame, "rank")} | known)
                rows.append(table[recorded])
    if not rows:
        return ""
    of_ranks = pd.concat(rows).groupby("rank").any()
    lacking = of_ranks[~of_ranks["delay"]]
    if not len(lacking):
        return ""
    why = _OF_KERNEL if lacking["cpu"].any() else _OF_LOTUS
    whose = "" if len(lacking) == len(of_ranks) else _names([int(rank) for rank in lacking.index])
    return f"Time without a core was not measured{whose}: {why}. {_EFFECT}"


def _names(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    return f" in rank{'s' if len(ranks) > 1 else ''} {shown}{more}"

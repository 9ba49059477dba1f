"""From counts to metrics: pure and vectorised, one row in, one row out."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.events.catalogue import METRICS, PER_KILO, PERF_METRICS, RATIOS
from native_map.events.model import Table

Column = npt.NDArray[np.float64]


class _Counts:
    """Columns of a DataFrame as float arrays."""

    def __init__(self, counts: pd.DataFrame) -> None:
        self._counts = counts

    def has(self, *names: str) -> bool:
        return all(name in self._counts.columns for name in names)

    def __getitem__(self, name: str) -> Column:
        return self._counts[name].to_numpy(dtype=np.float64, na_value=np.nan)


def compute(counts: pd.DataFrame, table: Table, old_n2: bool) -> pd.DataFrame:
    """The metrics whose events are among the columns of `counts`; see `native_map.pmu.metrics`."""
    c = _Counts(counts)
    found: dict[str, Column] = {}
    for name, above, below in RATIOS:
        if c.has(above, below):
            found[name] = _ratio(c[above], c[below])
    topdown = _TOPDOWN_FORMULAS.get(table.formula)
    if topdown is not None:
        found.update(topdown(c, table.width, old_n2))
    for name, expression in table.expressions.items():
        if c.has(*expression.names):
            columns = {event: c[event] for event in expression.names}
            found[name] = np.broadcast_to(expression.value(columns), (len(counts),))
    if c.has("instructions"):
        for name, forms in PER_KILO.items():
            for form in forms:
                if c.has(*form):
                    misses = np.sum([c[e] for e in form], axis=0)
                    found[name] = _ratio(1000 * misses, c["instructions"])
                    break
    if c.has("task_clock"):
        found["cpu_ns"] = c["task_clock"]
    return pd.DataFrame({n: found[n] for n in METRICS if n in found}, index=counts.index)


def _ratio(above: Column | float, below: Column) -> Column:
    """Quotient, NaN where the denominator is not above 0."""
    usable = below > 0
    result = np.full(below.shape, np.nan)
    np.divide(above, below, out=result, where=usable)
    return result


def _amd(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    found: dict[str, Column] = {}
    if not c.has("cycles"):
        return found
    slots = width * c["cycles"]
    for name, event in (
        ("frontend_bound", "slots_frontend"),
        ("backend_bound", "slots_backend"),
        ("retiring", "ops_retired"),
        ("smt_contention", "slots_smt"),
    ):
        if c.has(event):
            found[name] = _ratio(c[event], slots)
    if c.has("ops_dispatched", "ops_retired"):
        found["bad_speculation"] = _ratio(c["ops_dispatched"] - c["ops_retired"], slots)
    elif c.has("slots_frontend", "slots_backend", "ops_retired"):
        rest = 1 - found["frontend_bound"] - found["backend_bound"] - found["retiring"]
        if "smt_contention" in found:
            rest = rest - found["smt_contention"]
        found["bad_speculation"] = rest
    return found


def _intel_issue(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    found: dict[str, Column] = {}
    if not c.has("cycles"):
        return found
    slots = width * c["cycles"]
    if c.has("slots_frontend"):
        found["frontend_bound"] = _ratio(c["slots_frontend"], slots)
    if c.has("ops_retired"):
        found["retiring"] = _ratio(c["ops_retired"], slots)
    if c.has("ops_dispatched", "recovery_cycles"):
        used = c["ops_dispatched"] + width * c["recovery_cycles"]
        if "retiring" in found:
            found["bad_speculation"] = _ratio(used - c["ops_retired"], slots)
        if "frontend_bound" in found:
            found["backend_bound"] = 1 - found["frontend_bound"] - _ratio(used, slots)
    return found


def _intel_slots(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    names = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
    if c.has(*PERF_METRICS):
        total = np.sum([c[e] for e in PERF_METRICS], axis=0)
        return {name: _ratio(c[e], total) for name, e in zip(names, PERF_METRICS, strict=True)}
    if c.has("slots_counted"):
        slots = c["slots_counted"]
    elif c.has("slots"):
        slots = c["slots"]
    elif c.has("cycles"):
        slots = width * c["cycles"]
    else:
        return {}
    found = {
        name: _ratio(c[event], slots)
        for name, event in zip(
            names, ("slots_frontend", "slots_backend", "ops_retired"), strict=False
        )
        if c.has(event)
    }
    if len(found) == 3:
        found["bad_speculation"] = 1 - np.sum(list(found.values()), axis=0)
    return found


def _arm(frontend_weight: int, backend_weight: int) -> "_Formula":
    def formula(c: _Counts, width: int, old_n2: bool) -> dict[str, Column]:
        found: dict[str, Column] = {}
        if not c.has("cycles"):
            return found
        cycles = c["cycles"]
        slots = width * cycles
        lost = _ratio(c["branch_misses_spec"], cycles) if c.has("branch_misses_spec") else 0.0
        empty: list[Column] = []
        if c.has("slots_frontend"):
            # N2 before r0p3 counts one slot a cycle too much.
            counted = c["slots_frontend"] - cycles if old_n2 else c["slots_frontend"]
            empty.append(_ratio(counted, slots))
            found["frontend_bound"] = empty[-1] - frontend_weight * lost
        if c.has("slots_backend"):
            empty.append(_ratio(c["slots_backend"], slots))
            found["backend_bound"] = empty[-1] - backend_weight * lost
        if len(empty) == 2 and c.has("ops_retired", "ops_dispatched"):
            good = _ratio(c["ops_retired"], c["ops_dispatched"])
            used = 1 - empty[0] - empty[1]
            found["retiring"] = good * used
            weight = frontend_weight + backend_weight
            found["bad_speculation"] = (1 - good) * used + weight * lost
        return found

    return formula


_Formula = Callable[[_Counts, int, bool], dict[str, Column]]

# Arm: of the 4 slots that a mispredicted branch costs, how many the front-end and back-end events
# count. V1: neoverse-v1/metrics.json; N2 and V2: neoverse-n2-v2/metrics.json.
_TOPDOWN_FORMULAS: dict[str, _Formula] = {
    "amd": _amd,
    "intel_issue": _intel_issue,
    "intel_slots": _intel_slots,
    "arm_v1": _arm(4, 0),
    "arm_n2_v2": _arm(1, 3),
}

"""Computes metrics from counts: pure and vectorised, one row in, one row out."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.events import pmu
from native_map.events.cpu import Cpu
from native_map.events.event_model import EventTable
from native_map.events.metrics import (
    LEVEL_2,
    METRICS,
    PER_KILO,
    PERF_METRICS,
    PERF_METRICS_2,
    RATIOS,
)

Column = npt.NDArray[np.float64]


class _Counts:
    """Columns of a DataFrame as float arrays."""

    def __init__(self, counts: pd.DataFrame) -> None:
        self._counts = counts

    def has(self, *names: str) -> bool:
        return all(name in self._counts.columns for name in names)

    def __getitem__(self, name: str) -> Column:
        return self._counts[name].to_numpy(dtype=np.float64, na_value=np.nan)


def metrics(counts: pd.DataFrame, cpu: Cpu | str, known: EventTable | None = None) -> pd.DataFrame:
    """Return metrics (see metrics.METRICS) of rows of counts, whose columns are events.

    A metric is included only if its events are; it is NaN if a denominator is 0 or a count is NaN.
    If `cpu` is a name, Neoverse N2 is assumed to be r0p3 or later. Other columns of `counts` are
    ignored. `known` replaces the table of the CPU.
    """
    table = known or pmu.table(cpu)
    old_n2 = False
    if isinstance(cpu, Cpu):
        old_n2 = cpu.uarch == "neoverse_n2" and 0 <= cpu.stepping < 0x03
        table = replace(table, width=cpu.slots or table.width)
    return _compute(counts, table, old_n2)


# A share that is computed as the remainder of others has all their errors; it may be this far
# below 0.
NEAR_ZERO = 0.05
_SHOWN = 0.0005  # a smaller share below 0 is shown as 0.0 %


def clip_shares(metrics: pd.DataFrame) -> pd.DataFrame:
    """Replace negative shares: by 0 if they are above -NEAR_ZERO, else by NaN.

    Only rounding, or counts that were not taken at the same time, make a share negative.
    """
    shares = [name for name in metrics if METRICS[str(name)].is_share]
    clipped = metrics[shares].where(~(metrics[shares] < -NEAR_ZERO)).clip(lower=0.0)
    return metrics.assign(**{str(name): clipped[name] for name in shares})


def negative_share_notes(metrics: pd.DataFrame) -> list[str]:
    """Return a sentence about each share that `clip_shares` changes."""
    notes = []
    for name in metrics:
        values = metrics[name][metrics[name] < -_SHOWN]
        if not METRICS[str(name)].is_share or not len(values):
            continue
        near = values[values >= -NEAR_ZERO]
        text = f"{str(name).replace('_', ' ')} is the remainder of other counts: "
        if len(near):
            text += f"in {len(near)} of {len(metrics)} rows it is 0 ±{-near.min():.1%}"
        if len(values) > len(near):
            text += " and " if len(near) else ""
            text += f"in {len(values) - len(near)} of {len(metrics)} rows it is not resolved"
        notes.append(text)
    return notes


def _compute(counts: pd.DataFrame, table: EventTable, old_n2: bool) -> pd.DataFrame:
    c = _Counts(counts)
    metrics: dict[str, Column] = {}
    for name, above, below in RATIOS:
        if c.has(above, below):
            metrics[name] = _ratio(c[above], c[below])
    topdown = _TOPDOWN_FORMULAS.get(table.formula)
    if topdown is not None:
        metrics.update(topdown(c, table.width, old_n2))
    for name, expression in table.expressions.items():
        if c.has(*expression.names):
            columns = {event: c[event] for event in expression.names}
            metrics[name] = np.broadcast_to(expression.value(columns), (len(counts),))
    if c.has("instructions"):
        for name, forms in PER_KILO.items():
            for form in forms:
                if c.has(*form):
                    misses = np.sum([c[e] for e in form], axis=0)
                    metrics[name] = _ratio(1000 * misses, c["instructions"])
                    break
    if c.has("task_clock"):
        metrics["cpu_ns"] = c["task_clock"]
    return pd.DataFrame({n: metrics[n] for n in METRICS if n in metrics}, index=counts.index)


def _ratio(above: Column | float, below: Column) -> Column:
    """Return the quotient, NaN if the denominator is not above 0."""
    usable = below > 0
    result = np.full(below.shape, np.nan)
    np.divide(above, below, out=result, where=usable)
    return result


def _amd(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    shares: dict[str, Column] = {}
    if not c.has("cycles"):
        return shares
    slots = width * c["cycles"]
    for name, event in (
        ("frontend_bound", "slots_frontend"),
        ("backend_bound", "slots_backend"),
        ("retiring", "ops_retired"),
        ("smt_contention", "slots_smt"),
    ):
        if c.has(event):
            shares[name] = _ratio(c[event], slots)
    if c.has("ops_dispatched", "ops_retired"):
        shares["bad_speculation"] = _ratio(c["ops_dispatched"] - c["ops_retired"], slots)
    elif c.has("slots_frontend", "slots_backend", "ops_retired"):
        bad_speculation = (
            1 - shares["frontend_bound"] - shares["backend_bound"] - shares["retiring"]
        )
        if "smt_contention" in shares:
            bad_speculation = bad_speculation - shares["smt_contention"]
        shares["bad_speculation"] = bad_speculation
    shares.update(_amd_level_2(c, shares, slots))
    return shares


_RARE_WAITS = 0.02  # of cycles; below, a few interrupts determine what retirement waited for


def _amd_level_2(c: _Counts, level_1: dict[str, Column], slots: Column) -> dict[str, Column]:
    shares: dict[str, Column] = {}
    cycles = c["cycles"]
    if c.has("frontend_starved"):
        shares["frontend_latency"] = _ratio(c["frontend_starved"], cycles)
        if "frontend_bound" in level_1:
            shares["frontend_bandwidth"] = level_1["frontend_bound"] - shares["frontend_latency"]
    if c.has("retire_waits", "retire_waits_load") and "backend_bound" in level_1:
        memory = _ratio(c["retire_waits_load"], c["retire_waits"])
        memory = np.where(c["retire_waits"] < _RARE_WAITS * cycles, np.nan, memory)
        shares["backend_memory"] = level_1["backend_bound"] * memory
        shares["backend_core"] = level_1["backend_bound"] - shares["backend_memory"]
    if c.has("branch_misses", "resyncs") and "bad_speculation" in level_1:
        branches = _ratio(c["branch_misses"], c["branch_misses"] + c["resyncs"])
        shares["mispredicted_branches"] = level_1["bad_speculation"] * branches
        shares["pipeline_restarts"] = level_1["bad_speculation"] * (1 - branches)
    if c.has("ops_microcode"):
        shares["microcode"] = _ratio(c["ops_microcode"], slots)
    return shares


def _intel_issue(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    shares: dict[str, Column] = {}
    if not c.has("cycles"):
        return shares
    slots = width * c["cycles"]
    if c.has("slots_frontend"):
        shares["frontend_bound"] = _ratio(c["slots_frontend"], slots)
    if c.has("ops_retired"):
        shares["retiring"] = _ratio(c["ops_retired"], slots)
    if c.has("ops_dispatched", "recovery_cycles"):
        used = c["ops_dispatched"] + width * c["recovery_cycles"]
        if "retiring" in shares:
            shares["bad_speculation"] = _ratio(used - c["ops_retired"], slots)
        if "frontend_bound" in shares:
            shares["backend_bound"] = 1 - shares["frontend_bound"] - _ratio(used, slots)
    return shares


def _intel_slots(c: _Counts, width: int, _: bool) -> dict[str, Column]:
    names = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
    if c.has(*PERF_METRICS):
        total = np.sum([c[e] for e in PERF_METRICS], axis=0)
        level_1 = {name: _ratio(c[e], total) for name, e in zip(names, PERF_METRICS, strict=True)}
        return level_1 | _intel_level_2(c, level_1, total)
    if c.has("slots_counted"):
        slots = c["slots_counted"]
    elif c.has("slots"):
        slots = c["slots"]
    elif c.has("cycles"):
        slots = width * c["cycles"]
    else:
        return {}
    shares = {
        name: _ratio(c[event], slots)
        for name, event in zip(
            names, ("slots_frontend", "slots_backend", "ops_retired"), strict=False
        )
        if c.has(event)
    }
    if len(shares) == 3:
        shares["bad_speculation"] = 1 - np.sum(list(shares.values()), axis=0)
    return shares


def _intel_level_2(c: _Counts, level_1: dict[str, Column], total: Column) -> dict[str, Column]:
    shares: dict[str, Column] = {}
    for event, (node, *rest) in PERF_METRICS_2.items():
        if c.has(event):
            shares[node] = _ratio(c[event], total)
            parent = next(name for name, nodes in LEVEL_2.items() if node in nodes)
            shares |= dict.fromkeys(rest, level_1[parent] - shares[node])
    return shares


def _arm(frontend_weight: int, backend_weight: int) -> "_Formula":
    def formula(c: _Counts, width: int, old_n2: bool) -> dict[str, Column]:
        shares: dict[str, Column] = {}
        if not c.has("cycles"):
            return shares
        cycles = c["cycles"]
        slots = width * cycles
        lost = _ratio(c["branch_misses_spec"], cycles) if c.has("branch_misses_spec") else 0.0
        empty: list[Column] = []
        if c.has("slots_frontend"):
            # N2 before r0p3 counts one slot a cycle too much.
            counted = c["slots_frontend"] - cycles if old_n2 else c["slots_frontend"]
            empty.append(_ratio(counted, slots))
            shares["frontend_bound"] = empty[-1] - frontend_weight * lost
        if c.has("slots_backend"):
            empty.append(_ratio(c["slots_backend"], slots))
            shares["backend_bound"] = empty[-1] - backend_weight * lost
        if len(empty) == 2 and c.has("ops_retired", "ops_dispatched"):
            good = _ratio(c["ops_retired"], c["ops_dispatched"])
            used = 1 - empty[0] - empty[1]
            shares["retiring"] = good * used
            weight = frontend_weight + backend_weight
            shares["bad_speculation"] = (1 - good) * used + weight * lost
        return shares

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

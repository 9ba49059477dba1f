"""Summarises counters of a watched program: main processes, workers and their threads."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence.evidence import AttachEvidence, CounterEvidence
from lotus.common.text.formatting import duration
from native_map.events import formulas, perf_list, pmu

FIRST, OTHERS = "first", "others"
MAIN, WORKERS = "main", "workers"
_SOFTWARE = ("task_clock", "page_faults", "context_switches")
_CLOCKS = ["counted_ns", "clock_ns", "before_ns"]
# Two clocks of one time: a change of threads, some microseconds, is in the scheduler's only.
_APART, _LEAST_NS = 0.05, 10e6


@dataclass(frozen=True)
class CounterSummary:
    """Counts of the threads of all main processes, and of all workers.

    uarch      the table of events by which it was counted
    events     their names
    rows       process (MAIN, WORKERS), thread (FIRST of a process, OTHERS), processes, threads
               (of which something was counted), counted_share (of the time of all these on a core,
               that in which the hardware event that was counted least was; NaN: none is known),
               one column per event (NaN: not counted; scaled to all that time where others had the
               counters meanwhile, or the kernel refused them for some threads)
    metrics    those of `native_map.events.formulas`, one row for each of `rows`
    each       rows and metrics of single processes: pid, thread, ...
    clocks     process, counted_ns (task clock of all threads), clock_ns (by the scheduler) of the
               processes that were there at the end; before_ns (of those met late, before that)
    remarks    sentences: where these differ
    notes      what is not counted, and why
    """

    uarch: str
    events: tuple[str, ...]
    rows: pd.DataFrame
    metrics: pd.DataFrame
    each: pd.DataFrame
    clocks: pd.DataFrame
    remarks: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def hardware(self) -> bool:
        """True if a hardware event was counted."""
        return bool(self.rows["counted_share"].gt(0).any())


def summarise_counters(evidence: AttachEvidence) -> CounterSummary | None:
    """Return what was counted; None if counters were not requested."""
    counted = evidence.counters
    if counted is None:
        return None
    workers = set(evidence.processes.loc[evidence.processes["worker"] >= 0, "pid"])
    counts = counted.counts
    counts = counts.assign(
        process=np.where(counts["pid"].isin(workers), WORKERS, MAIN),
        thread=np.where(counts["pid"] == counts["tid"], FIRST, OTHERS),
        name=np.array(counted.events, object)[counts["event"].to_numpy()],
    )
    rows = _rows(counts, ["process", "thread"], counted.events)
    each = _rows(counts, ["pid", "thread"], counted.events)
    clocks = _clocks(counts, counted.clocks, workers)
    return CounterSummary(
        uarch=counted.uarch,
        events=counted.events,
        rows=rows,
        metrics=_metrics(rows, counted),
        each=pd.concat([each, _metrics(each, counted)], axis=1),
        clocks=clocks,
        remarks=tuple(_remarks(clocks, _task_clock(counts, "process"))),
        notes=counted.notes,
    )


def _rows(counts: pd.DataFrame, keys: list[str], events: tuple[str, ...]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for _, part in counts.groupby(keys):
        # A thread's groups run at the same time; of one that was refused there is no row.
        on_core = part.groupby(["pid", "tid", "event"])["enabled_ns"].sum()
        whole = float(on_core.groupby(["pid", "tid"]).max().sum())
        sums = part.groupby("name")[["count", "running_ns"]].sum().reindex(list(events))
        running = sums["running_ns"].fillna(0)
        shares = (running / whole if whole else running * np.nan).drop(
            list(_SOFTWARE), errors="ignore"
        )
        # As perf stat does, so that a thread that never had the counters is not taken for idle.
        values = sums["count"] * (whole / running.where(running > 0)) if whole else sums["count"]
        rows.append(
            {
                **{name: part[name].iloc[0] for name in keys},
                "processes": part["pid"].nunique(),
                "threads": len(part[["pid", "tid"]].drop_duplicates()),
                "counted_share": min(shares, default=np.nan),
                **{name: float(values[name]) for name in events},
            }
        )
    names = [*keys, "processes", "threads", "counted_share", *events]
    return pd.DataFrame(rows, columns=names)


def _metrics(rows: pd.DataFrame, counted: CounterEvidence) -> pd.DataFrame:
    known = perf_list.with_saved_metrics(pmu.table(counted.uarch), counted.metrics)
    result = formulas.metrics(rows[list(counted.events)].astype(float), counted.uarch, known)
    return formulas.clip_shares(result).drop(columns="cpu_ns", errors="ignore")


def _task_clock(counts: pd.DataFrame, key: str) -> pd.Series:
    """Return the time on a core (ns) by the counters; the kernel can always count it."""
    return counts[counts["name"] == "task_clock"].groupby(key)["count"].sum()


def _clocks(counts: pd.DataFrame, clocks: pd.DataFrame, workers: set[int]) -> pd.DataFrame:
    clocks = clocks.assign(
        process=np.where(clocks["pid"].isin(workers), WORKERS, MAIN),
        counted_ns=clocks["pid"].map(_task_clock(counts, "pid")),
    )
    # A process that has ended, or some of whose threads were not counted, has no clock.
    there = (clocks["clock_ns"] >= 0) & clocks["counted_ns"].notna()
    clocks[["counted_ns", "clock_ns"]] = clocks[["counted_ns", "clock_ns"]].where(there)
    table = clocks.groupby("process")[_CLOCKS].sum(min_count=1)
    return table.reset_index().astype(dict.fromkeys(_CLOCKS, float))


def _remarks(clocks: pd.DataFrame, task: pd.Series) -> list[str]:
    """Return remarks; `task`: time on a core (ns) of all processes of a kind, ended ones too."""
    remarks = []
    words = {MAIN: "main processes", WORKERS: "workers"}
    for row in clocks.to_dict("records"):
        who, apart = words[row["process"]], row["counted_ns"] - row["clock_ns"]
        if abs(apart) > max(_APART * row["clock_ns"], _LEAST_NS):
            why = (
                "the counters also count time that interrupts or a hypervisor took"
                if apart > 0
                else "the counters miss what threads did before they were met, and each change "
                "of threads"
            )
            remarks.append(
                f"By the counters, the {who} were on cores for {duration(row['counted_ns'])}, by "
                f"the scheduler for {duration(row['clock_ns'])}: {why}"
            )
        if row["before_ns"] > max(_APART * task.get(row["process"], 0.0), _LEAST_NS):
            remarks.append(
                f"The {who} that were met late had been on cores for {duration(row['before_ns'])} "
                "before, which is not counted"
            )
    return remarks

"""What a run tells of its loader besides the batches: start, hand-over, end, memory."""

from __future__ import annotations

import numpy as np
import pandas as pd

from lotus.analysis.columns import Bools, Ints, integer, median, number
from lotus.tune.simulate import Machine

# Without a run with workers: what starting one, and handing a batch over, take at least on Linux.
_SPAWN_NS, _BOOT_NS, _PICKLE_NS, _GET_NS = 3e6, 10e6, 0.1e6, 0.3e6


def first_of_process(batches: pd.DataFrame) -> Bools:
    """The first batch that each process made."""
    order = np.argsort(number(batches, "fetch_start_ns"), kind="stable")
    first = np.zeros(len(batches), np.bool_)
    _, places = np.unique(integer(batches, "pid")[order], return_index=True)
    first[order[places]] = True
    return first


def first_extra(batches: pd.DataFrame, firsts: Bools) -> float:
    """CPU time that a process's first batch takes more than the others."""
    cpu = number(batches, "cpu_ns")
    extra = median(cpu[firsts]) - median(cpu[~firsts])
    return max(extra, 0.0) if extra == extra else 0.0


def start_and_end(
    epochs: pd.DataFrame, workers: pd.DataFrame, count: int, machine: Machine, notes: list[str]
) -> dict[str, float]:
    """Start and end of the workers."""
    iter_ns, shutdown = number(epochs, "iter_ns"), number(epochs, "shutdown_ns")
    if not count:
        notes.append("the run had no workers: what starting them takes is assumed, not measured")
        begun = max(median(iter_ns), 0.0)
        begun = begun if begun == begun else 0.0
        return {"iter_ns": begun, "spawn_ns": _SPAWN_NS, "boot_ns": _BOOT_NS}
    # Persistent workers are started, and ended, in one epoch only.
    spawn = float(np.nanmax(iter_ns, initial=0.0)) / count
    if len(epochs) > 1 and len(workers) >= count * len(epochs):
        spawn = median(iter_ns) / count
    boot = median(number(workers, "ready_ns") - number(workers, "start_ns"))
    boot = max(boot, 0.0) if boot == boot else _BOOT_NS
    ended = median(shutdown[shutdown > 0]) / count
    return {
        "spawn_ns": spawn * machine.pace(1.0),
        "boot_ns": boot * machine.pace(count),  # all of them start at once
        "shutdown_ns": ended * machine.pace(1.0) if ended == ended else 0.0,
    }


def handover(
    batches: pd.DataFrame, count: int, machine: Machine, notes: list[str]
) -> dict[str, float]:
    """What it takes to send, take and pin a batch."""
    pin = median(number(batches, "pin_ns"))
    pinned = {"pin_ns": pin if pin == pin else 0.0}
    if not count:
        notes.append("handing batches over is assumed to take 0.4 ms each, not measured")
        return {"pickle_ns": _PICKLE_NS, "get_ns": _GET_NS, **pinned}
    pickle = number(batches, "pickle_ns")
    pickle = pickle[~np.isnan(pickle)]
    # The feeder thread also waits for the interpreter that its worker computes with; the quickest
    # show the work itself.
    worked = float(np.quantile(pickle, 0.25)) if len(pickle) else _PICKLE_NS
    begin, pin_start = number(batches, "wait_start_ns"), number(batches, "pin_start_ns")
    sent = number(batches, "send_start_ns") + number(batches, "pickle_ns")
    if pin == pin:
        taking = pin_start - sent
    else:
        taking = number(batches, "arrival_ns") - np.fmax(begin, sent)
    # Those that had been there for long need nothing but to be taken.
    there = (sent < begin) & (taking > 0)
    if pin == pin or there.sum() < 5:
        values = taking[taking > 0]
        get = float(np.quantile(values, 0.25)) if len(values) else _GET_NS
    else:
        get = median(taking[there])
    alone = machine.pace(1.0)
    return {"pickle_ns": worked * alone, "get_ns": get * alone, **pinned}


def memory(resources: pd.DataFrame, waits: pd.DataFrame, batches: pd.DataFrame) -> dict[str, float]:
    """Largest memory of the main process and of a worker; NaN where it was not read."""
    pss = number(resources, "pss")
    pss = np.where(pss > 0, pss, number(resources, "rss"))
    main = np.unique(integer(waits, "pid"))
    workers = np.setdiff1d(integer(batches, "pid"), main)
    largest = pd.Series(pss).groupby(integer(resources, "pid")).max()

    def of(pids: Ints) -> float:
        return median(np.asarray(largest.reindex(pids), dtype=np.float64))

    return {"main_bytes": of(main), "worker_bytes": of(workers)}

"""Reads costs of a loader besides fetching from a run: start-up, hand-over, shutdown, memory."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, median
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.settings.space import Setting
from lotus.tune.simulation.simulation_types import Machine

# Assumed if the run had no workers: least costs on Linux of starting one and of handing over.
_SPAWN_NS, _BOOT_NS, _PICKLE_NS, _GET_NS = 3e6, 10e6, 0.1e6, 0.3e6

# A page of shared memory: its bytes, the time to make it (assumed, and at most), and the share of
# that time that freeing takes. (In a VM, Linux 6.18: 2.5 us including Python's part, and 0.8.)
_PAGE, _TOUCH_NS, _TOUCH_AT_MOST_NS, _FREED = 4096, 2e3, 10e3, 1 / 3
_PRIVATE = 0.6  # cost of a private page, relative to a shared one
_COPIED = 10.0  # bytes per ns that one core copies
_MALLOC_KEEPS = 32 * 2**20  # glibc's DEFAULT_MMAP_THRESHOLD_MAX
_MATTERS = 0.05  # share of a batch's time from which a cost deserves a note
# Batches that a worker holds: one that it makes, and one that it sends.
_HELD = 2


def first_of_process(batches: pd.DataFrame) -> Bools:
    """Return a mask of the batches that are the first of their process."""
    order = np.argsort(float_column(batches, "fetch_start_ns"), kind="stable")
    first = np.zeros(len(batches), np.bool_)
    _, places = np.unique(int_column(batches, "pid")[order], return_index=True)
    first[order[places]] = True
    return first


def first_extra(batches: pd.DataFrame, firsts: Bools) -> float:
    """Return the extra CPU time (ns) of a process's first batch, compared with the others."""
    cpu = float_column(batches, "cpu_ns")
    extra = median(cpu[firsts]) - median(cpu[~firsts])
    return max(extra, 0.0) if extra == extra else 0.0


def start_and_end(
    epochs: pd.DataFrame, workers: pd.DataFrame, count: int, machine: Machine, notes: list[str]
) -> dict[str, float]:
    """Return costs of starting and ending the workers, as fields of `Work`."""
    iter_ns, shutdown = float_column(epochs, "iter_ns"), float_column(epochs, "shutdown_ns")
    if not count:
        notes.append("the run had no workers: the cost of starting them is assumed, not measured")
        begun = max(median(iter_ns), 0.0)
        begun = begun if begun == begun else 0.0
        return {"iter_ns": begun, "spawn_ns": _SPAWN_NS, "boot_ns": _BOOT_NS}
    # Persistent workers start and end in one epoch only.
    spawn = float(np.nanmax(iter_ns, initial=0.0)) / count
    if len(epochs) > 1 and len(workers) >= count * len(epochs):
        spawn = median(iter_ns) / count
    # The fastest start waited least for a core.
    taken = float_column(workers, "ready_ns") - float_column(workers, "start_ns")
    taken = taken[~np.isnan(taken)]
    boot = max(float(taken.min()), 0.0) if len(taken) else _BOOT_NS
    # Workers end in parallel.
    ended = median(shutdown[shutdown > 0])
    return {
        "spawn_ns": spawn * machine.pace(1.0),
        "boot_ns": boot * machine.pace(1.0),
        "shutdown_ns": ended * machine.pace(count) if ended == ended else 0.0,
    }


def handover(
    batches: pd.DataFrame, count: int, machine: Machine, notes: list[str]
) -> dict[str, float]:
    """Return costs of sending, taking and pinning a batch, as fields of `Work`."""
    pin = median(float_column(batches, "pin_ns"))
    pinned = {"pin_ns": pin if pin == pin else 0.0}
    if not count:
        notes.append("handing batches over is assumed to take 0.4 ms each, not measured")
        return {"pickle_ns": _PICKLE_NS, "get_ns": _GET_NS, **pinned}
    pickle = float_column(batches, "pickle_ns")
    pickle = pickle[~np.isnan(pickle)]
    # The feeder thread also waits for the interpreter lock of its worker; the fastest batches show
    # the work alone.
    worked = float(np.quantile(pickle, 0.25)) if len(pickle) else _PICKLE_NS
    begin, pin_start = float_column(batches, "wait_start_ns"), float_column(batches, "pin_start_ns")
    sent = float_column(batches, "send_start_ns") + float_column(batches, "pickle_ns")
    if pin == pin:
        taking = pin_start - sent
    else:
        taking = float_column(batches, "arrival_ns") - np.fmax(begin, sent)
    # Batches that were ready before the wait only had to be taken.
    there = (sent < begin) & (taking > 0)
    values = taking[taking > 0 if pin == pin or there.sum() < 5 else there]
    # The main process may have waited for a core, so take the fastest here too. (In one program
    # with 1 to 4 workers on 2 cores, medians were 1.0 to 3.3 ms, lower quartiles 0.9 to 1.1 ms.)
    get = float(np.quantile(values, 0.25)) if len(values) else _GET_NS
    alone = machine.pace(1.0)
    return {"pickle_ns": worked * alone, "get_ns": get * alone, **pinned}


def shared_memory(
    batches: pd.DataFrame, collate_ns: Floats, count: int, notes: list[str]
) -> dict[str, float]:
    """Return costs of collating into new shared memory, as fields of `Work`.

    Workers make, zero and free its pages for every batch. Without workers, malloc gives the main
    process the memory of the previous batch again, up to the largest block that malloc keeps. As
    malloc keeps twice the largest block ever freed, no pages are made for samples either.
    """
    size = median(np.nan_to_num(float_column(batches, "bytes")))
    sent = float_column(batches, "send_bytes")
    pages = max(size - (median(sent) if count and (sent > 0).any() else 0.0), 0.0) / _PAGE
    if size > _MALLOC_KEEPS:
        return {"shared_ns": 0.0, "free_ns": 0.0}
    if not count:
        made = pages * _TOUCH_NS
        if made > _MATTERS * median(float_column(batches, "cpu_ns")):
            notes.append(
                "workers collate into new shared memory, which is assumed to take "
                f"{made / 1e6:.1f} ms more per batch; this was not measured"
            )
        return {"shared_ns": made, "free_ns": made * _FREED}
    faults = float_column(batches, "minor_faults")
    if np.isnan(faults).all():
        return {"shared_ns": 0.0, "free_ns": 0.0}
    seen = min(pages, median(faults))
    # The time that copying does not explain.
    made = max(median(collate_ns) - size / _COPIED, 0.0)
    made = min(made, seen * _TOUCH_AT_MOST_NS)
    made *= 1.0 + _PRIVATE * max(median(faults) - seen, 0.0) / max(seen, 1.0)
    return {"shared_ns": made, "free_ns": made * _FREED}


def memory(
    resources: pd.DataFrame, batches: pd.DataFrame, setting: Setting, notes: list[str]
) -> dict[str, float]:
    """Return bytes of the main process and of each further worker, without batches; NaN: not known.

    A forked worker starts with the main process's memory. If the main process was not recorded,
    a worker's first resident set (without mapped files such as libraries) is used for it. A
    worker's own memory is the growth of its resident set less the batches that it may hold, or
    what its proportional set size implies if that is more (pss = own + shared / processes): it
    includes pages that were copied on write.
    """
    ours = np.isin(int_column(resources, "pid"), int_column(batches, "pid"))
    ours &= int_column(resources, "worker") >= 0
    pid = int_column(resources, "pid")[ours]
    pss, rss = float_column(resources, "pss"), float_column(resources, "rss")
    of_main = np.where(pss > 0, pss, rss)[int_column(resources, "worker") < 0]
    pss, rss = pss[ours], rss[ours]
    method = setting.start_method or "fork"
    first = np.zeros(len(pid), np.bool_)
    first[np.unique(pid, return_index=True)[1]] = True
    main = float(np.nanmax(of_main)) if len(of_main) else math.nan
    if main != main and method == "fork":
        main = median(rss[first])
    why = ""
    if not len(pid):
        why = "lotus trace reads the memory of workers, and there were none"
    elif main != main:
        why = f"the main process was not read, and workers started by {method} do not share it"
    if why:
        notes.append(f"the total memory is not known: {why}")
    if not len(pid):
        return {"main_bytes": main, "worker_bytes": math.nan}
    if len(pid) == first.sum():
        notes.append("the memory of workers was read only at their start; it grows later")
    if method != "fork":
        return {"main_bytes": main, "worker_bytes": median(_largest(pid, rss))}
    batch = median(np.nan_to_num(float_column(batches, "bytes")))
    grown = _largest(pid, rss) - rss[first]
    processes = setting.num_workers + 1
    read = (pss > 0) & ~first  # by then all of them had started
    own = (processes * pss[read] - rss[read]) / (processes - 1.0)
    held = _HELD * batch
    least = median(_largest(pid[read], own)) if read.any() else 0.0
    return {"main_bytes": main, "worker_bytes": max(median(grown), least, held) - held}


def _largest(pid: Ints, values: Floats) -> Floats:
    """Return the largest value of each process, in the order of process ids."""
    return np.asarray(pd.Series(values).groupby(pid).max(), dtype=np.float64)

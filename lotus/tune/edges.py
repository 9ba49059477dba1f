"""What a run tells of its loader besides the batches: start, hand-over, end, memory."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lotus.analysis.columns import Bools, Floats, integer, median, number
from lotus.tune.simulate import Machine

# Without a run with workers: what starting one, and handing a batch over, take at least on Linux.
_SPAWN_NS, _BOOT_NS, _PICKLE_NS, _GET_NS = 3e6, 10e6, 0.1e6, 0.3e6

# A page of shared memory: its bytes, what making it takes, assumed and at most, and which part of
# that freeing takes. (In a VM, Linux 6.18: 2.5 us with Python's own part, and 0.8.)
_PAGE, _TOUCH_NS, _TOUCH_AT_MOST_NS, _FREED = 4096, 2e3, 10e3, 1 / 3
_COPIED = 10.0  # bytes per ns by one core
_MALLOC_KEEPS = 32 * 2**20  # glibc's DEFAULT_MMAP_THRESHOLD_MAX
_MATTERS = 0.05  # of a batch's time: less is not worth a note
# Batches that a worker holds: the one it makes, and the one that is being sent.
_HELD = 2


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


def shared_memory(
    batches: pd.DataFrame, collate_ns: Floats, count: int, notes: list[str]
) -> dict[str, float]:
    """What it costs that workers collate into new shared memory; `collate_ns`: CPU time.

    Its pages are made, zeroed and freed for every batch. The main process by itself gets the memory
    of the batch before from malloc, with its pages, up to the largest that malloc keeps.
    """
    size = median(np.nan_to_num(number(batches, "bytes")))
    sent = number(batches, "send_bytes")
    pages = max(size - (median(sent) if count and (sent > 0).any() else 0.0), 0.0) / _PAGE
    if size > _MALLOC_KEEPS:
        return {"shared_ns": 0.0, "free_ns": 0.0}
    if not count:
        made = pages * _TOUCH_NS
        if made > _MATTERS * median(number(batches, "cpu_ns")):
            notes.append(
                "workers collate into new shared memory: that is assumed to take "
                f"{made / 1e6:.1f} ms a batch more, not measured"
            )
        return {"shared_ns": made, "free_ns": made * _FREED}
    faults = number(batches, "minor_faults")
    if np.isnan(faults).all():
        return {"shared_ns": 0.0, "free_ns": 0.0}
    seen = min(pages, median(faults))
    # What copying does not explain.
    made = max(median(collate_ns) - size / _COPIED, 0.0)
    made = min(made, seen * _TOUCH_AT_MOST_NS)
    return {"shared_ns": made, "free_ns": made * _FREED}


def memory(
    resources: pd.DataFrame,
    workers: pd.DataFrame,
    batches: pd.DataFrame,
    start_method: str | None,
    notes: list[str],
) -> dict[str, float]:
    """Memory of the main process, and what each worker adds to it, batches apart; NaN: not known.

    What a forked worker has in the beginning it has of the main process: its resident set then is
    taken for the main process's, where that was not recorded. Of its own it has what is left of its
    proportional set size (pss = own + shared / processes) when as many processes as there are
    share, and what its resident set grew by, less the batches that it may hold.
    """
    pid, time = integer(resources, "pid"), number(resources, "time_ns")
    pss, rss = number(resources, "pss"), number(resources, "rss")
    known = np.where(pss > 0, pss, rss)
    ours = np.isin(pid, integer(batches, "pid"))
    of_main = known[integer(resources, "worker") < 0]
    first = np.zeros(len(pid), np.bool_)
    first[np.unique(pid, return_index=True)[1]] = True
    first &= ours & (integer(resources, "worker") >= 0)
    forked = start_method in (None, "fork")
    main = float(np.nanmax(of_main)) if len(of_main) else math.nan
    if main != main and forked:
        main = median(rss[first])
    if not first.any():
        notes.append(
            "memory in all is not known: lotus trace reads that of workers, and none was read"
        )
        return {"main_bytes": main, "worker_bytes": math.nan}
    if main != main:
        notes.append(
            f"memory in all is not known: workers started by {start_method} do not begin with the "
            "main process's, of which lotus trace reads nothing"
        )
    batch = median(np.nan_to_num(number(batches, "bytes")))
    grown = pd.Series(rss[ours]).groupby(pid[ours]).agg(lambda one: one.max() - one.iloc[0])
    growth = max(median(grown.to_numpy(np.float64)) - _HELD * batch, 0.0)
    read = first & (pss > 0)  # the worker has just made a batch
    if not read.any():
        notes.append(
            "the kernel tells no proportional set size: what workers share with the main process "
            "is counted once for each of them"
        )
        return {"main_bytes": main, "worker_bytes": median(rss[first]) + growth}
    if not forked:
        own = max(median(pss[read]) - batch, 0.0)
        return {"main_bytes": main, "worker_bytes": own + growth}
    began = np.sort(number(workers, "start_ns"))
    sharing = 1.0 + np.maximum(np.searchsorted(began, time[read], side="right"), 1.0)
    own = max(_own(pss[read], rss[read], sharing) - batch, 0.0)
    return {"main_bytes": main, "worker_bytes": own + growth}


def _own(pss: Floats, rss: Floats, sharing: Floats) -> float:
    """The part of `pss` that is not shared by so many processes."""
    part = 1.0 / sharing
    if np.ptp(part) > 0:
        own = float(pss.mean() - np.polyfit(part, pss, 1)[0] * part.mean())
    else:
        own = median((sharing * pss - rss) / (sharing - 1.0))
    return min(max(own, 0.0), float(pss.min()))

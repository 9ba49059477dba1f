"""The time that making batches, and training steps, spend in the kernel, and for what.

A page of memory that malloc obtains from the kernel is mapped and cleared where it is first used: a
page fault. malloc keeps what is freed, but for arrays above a threshold (32 MiB at most by default
in glibc), which it maps anew each time.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, mean, ratio, total
from lotus.analysis.common.scope import Scope

_LEAST_CPU_NS = 1e9  # read in clock ticks of 10 ms
_PAGE_BYTES = 4096  # at least, on all machines
_MOSTLY = 0.8  # of a process's CPU time: the rest hardly changes its share
# What reading and writing takes at most. Of a file in the page cache, 0.1 ns a byte and 0.25 us a
# call were measured (a virtual machine, Intel Xeon).
_COPY_NS_PER_BYTE, _NS_PER_COPY = 0.3, 2000.0
# What a page fault takes, with the clearing and the return of its page: at least, where 1.0 to 2.0
# us were measured there, and at most, of a page of 2 MiB, where 250 us were.
_LEAST_NS_PER_FAULT, _MOST_NS_PER_FAULT = 250.0, 400_000.0


@dataclass(frozen=True)
class KernelTime:
    """`share`: the kernel's part of the CPU time of the processes that do some work, 0 to 1.

    `of_copies`: the part of that which reading and writing takes at most, 0 to 1;
    `least_of_faults`, `most_of_faults`: that which page faults take; all three are estimates.
    `faults`: page faults in the making of a batch, without those for the memory in which it is
    sent, or in a training step. NaN: not known.
    """

    share: float = math.nan
    of_copies: float = math.nan
    least_of_faults: float = math.nan
    most_of_faults: float = math.nan
    faults: float = math.nan


def making_kernel_time(scope: Scope) -> KernelTime:
    """Return the kernel's part of the making of a loader's batches."""
    batches = scope.batches
    in_workers = scope.num_workers > 0
    cpu_ns = float_column(batches, "process_cpu_ns")
    kernel = _kernel_time(scope, in_workers, None if in_workers else total(cpu_ns))
    sent = np.nan_to_num(float_column(batches, "bytes")) / _PAGE_BYTES
    faults = mean(np.maximum(float_column(batches, "minor_faults") - sent, 0.0))
    return _with_faults(kernel, faults, mean(cpu_ns))


def step_kernel_time(scope: Scope) -> KernelTime:
    """Return the kernel's part of a loop's training steps."""
    cpu_ns = float_column(scope.waits, "step_process_cpu_ns")
    kernel = _kernel_time(scope, False, total(cpu_ns))
    steps = int((cpu_ns >= 0).sum())
    return _with_faults(kernel, ratio(kernel.faults, steps), ratio(total(cpu_ns), steps))


def _with_faults(kernel: KernelTime, faults: float, cpu_ns: float) -> KernelTime:
    """Return the same with the page faults of a batch or step, which uses so much CPU time."""
    least, most = (
        min(ratio(faults * each, kernel.share * cpu_ns), 1.0)
        for each in (_LEAST_NS_PER_FAULT, _MOST_NS_PER_FAULT)
    )
    return replace(kernel, faults=faults, least_of_faults=least, most_of_faults=most)


def _kernel_time(scope: Scope, in_workers: bool, own_ns: float | None) -> KernelTime:
    """Return that of the workers or main processes, with all of their page faults.

    `own_ns`: CPU time of the work in question, if the processes do something else as well: nothing
    is known then of work that has not nearly all of their time.
    """
    readings = scope.children
    used, system = float_column(readings, "own_cpu_ns"), float_column(readings, "own_system_ns")
    mine = ((int_column(readings, "worker") >= 0) == in_workers) & (used > 0)
    mine &= (system >= 0) & (system <= used)  # a damaged record may say otherwise
    cpu_ns, system_ns = total(used[mine]), total(system[mine])
    if cpu_ns < _LEAST_CPU_NS or (own_ns is not None and not own_ns >= _MOSTLY * cpu_ns):
        return KernelTime()
    faults, copied, copies = (
        float_column(readings, f"own_{name}")[mine]
        for name in ("minor_faults", "copied_bytes", "copies")
    )
    known = (copied >= 0).all() and (copies >= 0).all()
    copying = _COPY_NS_PER_BYTE * total(copied) + _NS_PER_COPY * total(copies)
    return KernelTime(
        share=ratio(system_ns, cpu_ns),
        of_copies=min(ratio(copying, system_ns), 1.0) if known else math.nan,
        faults=total(faults) if (faults >= 0).all() else math.nan,
    )

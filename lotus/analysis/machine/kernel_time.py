"""The time that the processes which make batches spend in the kernel, and for what.

A page of memory that malloc obtains from the kernel is mapped and cleared where it is first used: a
page fault. malloc keeps what is freed, but for arrays above a threshold (32 MiB at most by default
in glibc), which it maps anew each time.
"""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import integer, mean, number, ratio, total
from lotus.analysis.common.scope import Scope

_LEAST_CPU_NS = 1e9  # read in clock ticks of 10 ms
_PAGE_BYTES = 4096  # at least, on all machines
_MOSTLY = 0.8  # of a process's CPU time: the rest hardly changes its share
# What reading and writing takes at most. Of a file in the page cache, 0.1 ns a byte and 0.25 us a
# call were measured (a virtual machine, Intel Xeon).
_COPY_NS_PER_BYTE, _NS_PER_COPY = 0.3, 2000.0


@dataclass(frozen=True)
class KernelTime:
    """`share`: the kernel's part of the CPU time of the processes that make batches, 0 to 1.

    `of_copies`: the part of that which reading and writing takes at most, 0 to 1; an estimate.
    `faults`: page faults a batch, without those for the memory in which it is sent. NaN: not known.
    """

    share: float = math.nan
    of_copies: float = math.nan
    faults: float = math.nan


def kernel_time(scope: Scope) -> KernelTime:
    """Return the kernel's part of the making of a loader's batches."""
    batches, readings = scope.batches, scope.children
    in_worker = integer(readings, "worker") >= 0
    used, system = number(readings, "own_cpu_ns"), number(readings, "own_system_ns")
    mine = (in_worker == (scope.num_workers > 0)) & (used > 0) & (system >= 0)
    cpu_ns, system_ns = total(used[mine]), total(system[mine])
    made_ns = total(number(batches, "process_cpu_ns"))
    if cpu_ns < _LEAST_CPU_NS or (not scope.num_workers and made_ns < _MOSTLY * cpu_ns):
        return KernelTime()
    copied, copies = (number(readings, f"own_{name}")[mine] for name in ("copied_bytes", "copies"))
    known = (copied >= 0).all() and (copies >= 0).all()
    copying = _COPY_NS_PER_BYTE * total(copied) + _NS_PER_COPY * total(copies)
    sent = np.nan_to_num(number(batches, "bytes")) / _PAGE_BYTES
    return KernelTime(
        share=ratio(system_ns, cpu_ns),
        of_copies=min(ratio(copying, system_ns), 1.0) if known else math.nan,
        faults=mean(np.maximum(number(batches, "minor_faults") - sent, 0.0)),
    )

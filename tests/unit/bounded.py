"""Work in a child process that may take only so much memory, and what it took."""

import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CPU_S = 120  # far above what any case takes; a runaway ends


@dataclass(frozen=True)
class Took:
    """What the work returned; CPU seconds and bytes of memory, its children's included."""

    result: Any
    cpu_s: float
    peak: int


def within(work: Callable[[], Any], memory: int = 1 << 30, cpu_s: int = CPU_S) -> Took:
    """Do the work in a fork with `memory` bytes of address space more than it has now.

    What it raises is raised here, as an AssertionError with its traceback.
    """
    source, sink = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _do(work, sink, memory, cpu_s)
    os.close(sink)
    with open(source, "rb") as file:
        packed = file.read()
    _, status, usage = os.wait4(child, 0)
    if not packed:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)}")
    well, result, base = pickle.loads(packed)
    if not well:
        raise AssertionError(result)
    return Took(result, usage.ru_utime + usage.ru_stime, max((usage.ru_maxrss << 10) - base, 0))


def _do(work: Callable[[], Any], sink: int, memory: int, cpu_s: int) -> None:
    code = 1
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        with open("/proc/self/statm") as file:
            size, resident = (
                int(word) * resource.getpagesize() for word in file.read().split()[:2]
            )
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            outcome = (True, work(), resident)
        except BaseException:
            outcome = (False, traceback.format_exc(limit=-6), resident)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        with open(sink, "wb") as file:
            pickle.dump(outcome, file)
        code = 0
    finally:
        os._exit(code)

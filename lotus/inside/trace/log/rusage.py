"""Reads statistics of this thread and process: CPU time, page faults, reads, memory."""

from __future__ import annotations

import ctypes
import os
from threading import get_ident

from ...common.clocks import clock, cpu_clock, process_cpu_clock
from ...common.guard import of_the_program, quiet
from . import log_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource

    Before = tuple[int, int, int, int, resource.struct_rusage, int]
else:
    from .standard_library import resource

_SCHEDSTAT = b"/proc/thread-self/schedstat"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_LONGEST = 80  # bytes of three numbers
_LONG_NS = 2_000_000  # for a reading that takes microseconds
# A thread that was on a core for all but so much of a stretch of time was ready without one for no
# longer. Its delay need not be read again, which takes longer than any other reading.
_SLACK_NS = 20_000
# The latest such reading by `now` or `since`: thread, time and its CPU time before, the delay.
_latest = (0, 0, 0, 0)
_OF_ANOTHER = (log_format.UNMEASURED,) * len(log_format.CPU)
_hold = False  # whether another thread of this process was seen to hold the interpreter
_libc = ctypes.PyDLL(None)  # whose calls keep the interpreter; not loaded after a fork
_libc.open.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
_libc.read.restype = ctypes.c_ssize_t
_libc.close.argtypes = [ctypes.c_int]


def now() -> Before:
    """Return this thread, its run_delay_ns, when that was read, the process's CPU time (ns), this
    thread's resource usage and CPU time (ns), for `since`.

    The delay comes first, and a CPU clock before it: see `reading`.
    """
    global _latest
    me, cpu, time = get_ident(), cpu_clock(), clock()
    ident, then, then_cpu, delay = _latest
    if ident != me or (time - then) - (cpu - then_cpu) > _SLACK_NS:
        delay = run_delay_ns()
        _latest = (me, time, cpu, delay)
        time = clock()
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return me, delay, time, process_cpu_clock(), used, cpu_clock()


def since(before: Before, start: int, end: int) -> tuple[int, ...]:
    """Return the fields of `log_format.CPU`, from `before` to now; UNMEASURED on another thread.

    `start` and `end` are times, after `before` was read and before this was called. Should the
    kernel take the core away between these times and the readings of the delay, that is not counted
    towards it. It is at most what the CPU time leaves of the time between `start` and `end`.
    """
    global _latest
    cpu, process = cpu_clock(), process_cpu_clock()
    ident, delay, read, process_before, then, cpu_before = before
    used = cpu - cpu_before
    if ident != get_ident() or used < 0:  # or of the process that forked this one
        return _OF_ANOTHER
    off = end - start - used
    if delay != log_format.UNMEASURED:
        if off <= _SLACK_NS:
            delay = 0
        else:
            time = clock()  # reading the file takes long, so the CPU clocks were first
            outside = sum([gap for gap in (start - read, time - end) if gap > _SLACK_NS])
            latest = run_delay_ns()
            _latest = (ident, time, cpu, latest)
            if latest == log_format.UNMEASURED:
                delay = latest
            else:
                delay = max(min(latest - delay - outside, off), 0)
    after = resource.getrusage(resource.RUSAGE_THREAD)
    return (
        used,
        after.ru_minflt - then.ru_minflt,
        after.ru_majflt - then.ru_majflt,
        (after.ru_inblock - then.ru_inblock) * 512,
        delay,
        process - process_before,
    )


def reading() -> tuple[int, ...]:
    """Return the values of a batch for `difference`; as `readings` of `_batch.c`.

    They are run_delay_ns, CPU time of the process and of this thread (ns), its minor and major page
    faults, blocks read, voluntary and involuntary context switches.

    The delay comes first, so that it ends where a stretch of time ends that was timed before. Where
    the kernel reads the CPU time of a thread whose time slice is over, the thread loses its core.
    So at the start of a stretch, a CPU clock is read before this: else the delay that follows would
    count towards the stretch, and its time towards what came before.
    """
    delay, process = run_delay_ns(), process_cpu_clock()
    used, cpu = resource.getrusage(resource.RUSAGE_THREAD), cpu_clock()
    return (
        delay, process, cpu, used.ru_minflt, used.ru_majflt, used.ru_inblock,
        used.ru_nvcsw, used.ru_nivcsw,
    )  # fmt: skip


def difference(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fields of a BATCH frame from `cpu_ns` to `process_cpu_ns`, from two readings."""
    delay0, process0, cpu0, minor0, major0, blocks0, voluntary0, involuntary0 = before
    delay, process, cpu, minor, major, blocks, voluntary, involuntary = after
    unknown = delay0 == log_format.UNMEASURED or delay == log_format.UNMEASURED
    return (
        cpu - cpu0, minor - minor0, major - major0, (blocks - blocks0) * 512,
        voluntary - voluntary0, involuntary - involuntary0,
        log_format.UNMEASURED if unknown else delay - delay0, process - process0,
    )  # fmt: skip


def spent(before: tuple[int, ...]) -> tuple[int, ...]:
    """Return the `difference` between an earlier reading and one made now; as `spent` of
    `_batch.c`.
    """
    return difference(before, reading())


def run_delay_ns() -> int:
    """Return how long this thread has been ready to run without a core; UNMEASURED if unknown.

    The file is not kept open: it is specific to a thread, and the program may close any descriptor.

    `os.open` and similar calls release the interpreter, which is returned only after the switch
    interval (5 ms) if another thread of the program computes: three times per reading. Once a
    reading has taken that long, calls that keep the interpreter are used, which cost some 10 us
    more.
    """
    global _hold
    if _hold:
        return _read_and_hold()
    begin = clock()
    try:
        fd = os.open(_SCHEDSTAT, _FLAGS)
        try:
            text = os.read(fd, _LONGEST)
        finally:
            os.close(fd)
        _hold = clock() - begin > _LONG_NS
        return int(text.split()[1])
    except (OSError, ValueError, IndexError) as error:
        if of_the_program(error):
            raise
    return log_format.UNMEASURED


def _read_and_hold() -> int:
    """Return `run_delay_ns` without releasing the interpreter."""
    fd = _libc.open(_SCHEDSTAT, _FLAGS)
    if fd < 0:
        return log_format.UNMEASURED
    text = ctypes.create_string_buffer(_LONGEST)
    size = _libc.read(fd, text, _LONGEST)
    _libc.close(fd)
    with quiet(ValueError, IndexError):
        return int(text.raw[: max(size, 0)].split()[1])
    return log_format.UNMEASURED


def core_times() -> tuple[int, int, int]:
    """Return (CPU time of this thread, its run_delay_ns, CPU time of this process), in ns."""
    return cpu_clock(), run_delay_ns(), process_cpu_clock()


def cpus() -> str:
    """Return the CPUs that this thread may use, in the kernel's form ("0-3,8"); "" if unknown."""
    with quiet(OSError, AttributeError):
        allowed = sorted(os.sched_getaffinity(0))
        starts = [cpu for cpu in allowed if cpu - 1 not in allowed]
        ends = [cpu for cpu in allowed if cpu + 1 not in allowed]
        pairs = zip(starts, ends, strict=True)
        return ",".join(f"{start}-{end}" if end > start else f"{start}" for start, end in pairs)
    return ""


def peak() -> int:
    """Return the peak memory (bytes) of this process; it may include that of its parent."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def pss_and_cost() -> tuple[int, int]:
    """Return (proportional set size in bytes or 0, the cost of reading it in ns)."""
    start = clock()
    pss = 0
    with quiet(OSError), open("/proc/self/smaps_rollup", "rb") as file:  # not on every kernel
        for line in file:
            if line.startswith(b"Pss:"):
                pss = int(line.split()[1]) * 1024
                break
    return pss, clock() - start


def resources(worker: int, pss: int) -> bytes:
    """Return the fixed fields of a RESOURCES frame for this process."""
    rss = descriptors = used = 0
    with quiet(OSError):
        # Not by resident_memory: an import more, in which a signal handler may raise.
        with open("/proc/self/statm", "rb") as file:
            rss = int(file.read().split()[1]) * resource.getpagesize()
        descriptors = len(os.listdir("/proc/self/fd")) - 1
    with quiet(OSError):
        shm = os.statvfs("/dev/shm")
        used = (shm.f_blocks - shm.f_bfree) * shm.f_frsize
    return log_format.FIXED[log_format.RESOURCES].pack(clock(), worker, descriptors, pss, rss, used)

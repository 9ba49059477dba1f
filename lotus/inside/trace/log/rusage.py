"""Reads statistics of this thread and process: CPU time, page faults, reads, memory."""

import ctypes
import os

from ...common.clocks import clock, cpu_clock, process_cpu_clock
from ...common.guard import of_the_program, quiet
from . import log_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
else:
    from .standard_library import resource

_SCHEDSTAT = b"/proc/thread-self/schedstat"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_LONGEST = 80  # bytes of three numbers
_LONG_NS = 2_000_000  # for a reading that takes microseconds
_hold = False  # whether another thread of this process was seen to hold the interpreter
_libc = ctypes.PyDLL(None)  # whose calls keep the interpreter; not loaded after a fork
_libc.open.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
_libc.read.restype = ctypes.c_ssize_t
_libc.close.argtypes = [ctypes.c_int]


def now() -> tuple[resource.struct_rusage, int]:
    """Return the thread's resource usage and CPU time (ns), for `since`."""
    return resource.getrusage(resource.RUSAGE_THREAD), cpu_clock()


def since(before: tuple[resource.struct_rusage, int]) -> tuple[int, int, int, int]:
    """Return CPU time (ns), minor and major page faults and bytes read by this thread since
    `before`.
    """
    cpu = cpu_clock() - before[1]
    after, then = resource.getrusage(resource.RUSAGE_THREAD), before[0]
    return (
        cpu,
        after.ru_minflt - then.ru_minflt,
        after.ru_majflt - then.ru_majflt,
        (after.ru_inblock - then.ru_inblock) * 512,
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
    delay, process, (used, cpu) = run_delay_ns(), process_cpu_clock(), now()
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

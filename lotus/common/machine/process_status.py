"""The status of a process of this machine, from /proc."""

import os
import time
from dataclasses import dataclass

from lotus.inside.common import process_stat
from lotus.inside.common.process_stat import ENDED, TICK_NS
from lotus.inside.common.resident_memory import resident_and_shared_bytes

# A page is made after its process started, which the kernel tells to a tick.
_SLACK_NS = 5 * TICK_NS

# Names of system calls in which a process waits, where the kernel does not name the function.
_CALLS = {
    "x86_64": {
        "0": "read", "1": "write", "7": "poll", "23": "select", "35": "nanosleep", "45": "recvfrom",
        "47": "recvmsg", "61": "wait4", "73": "flock", "202": "futex", "230": "clock_nanosleep",
        "232": "epoll_wait", "270": "pselect6", "271": "ppoll", "281": "epoll_pwait",
    },
    "aarch64": {
        "22": "epoll_pwait", "32": "flock", "63": "read", "64": "write", "72": "pselect6",
        "73": "ppoll", "98": "futex", "101": "nanosleep", "115": "clock_nanosleep",
        "207": "recvfrom", "212": "recvmsg", "260": "wait4",
    },
}  # fmt: skip


@dataclass(frozen=True)
class ProcessStatus:
    """The status of a process by /proc.

    status  its main thread's: R running, S sleeping, D waiting for storage, T stopped, t held by a
            debugger, Z dead
    asleep  the kernel's function or system call in which the main thread waits; "" for none known
    cpu_ns  CPU time of all threads since the start
    rss, shared  resident bytes; those of them that are of files or shared memory
    """

    status: str
    start_ns: int
    cpu_ns: int
    asleep: str = ""
    rss: int = 0
    shared: int = 0


def process_status(pid: int, lived_ns: int) -> ProcessStatus | None:
    """Return the status of the process that had this pid at `lived_ns`; None if it is gone."""
    try:
        stat = process_stat.read(pid)
        resident, shared = resident_and_shared_bytes(pid)
    except (OSError, ValueError, IndexError):
        return None
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    start_ns = stat.start_ticks * TICK_NS - asleep
    if start_ns > lived_ns + _SLACK_NS or stat.state in ENDED:
        return None  # the number was given to another process
    where = _where(pid) if stat.state in ("S", "D") else ""
    cpu_ns = stat.user_ns + stat.system_ns
    return ProcessStatus(stat.state, start_ns, cpu_ns, where, resident, shared)


def _where(pid: int) -> str:
    """Return where the main thread of a process sleeps; "" if the kernel does not tell."""
    for name in ("wchan", "syscall"):
        try:
            with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
                text = file.read(200).strip()
        except OSError:
            continue
        if name == "wchan" and text not in ("", "0"):
            return text.partition(".")[0]  # without what the compiler added
        if name == "syscall" and text[:1].isdigit():
            number = text.split()[0]
            return _CALLS.get(os.uname().machine, {}).get(number, f"system call {number}")
    return ""

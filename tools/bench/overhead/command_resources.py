"""Runs a command and prints the resources that all of its processes took, as a last line of JSON.

    python command_resources.py [--memory] [--limit SECONDS] [--stdout FILE] -- COMMAND ...

Wall time ends when the command itself ends. CPU time is that of all of its descendants: this
process is their subreaper, so it inherits those that outlive their parents, and waits for all. Peak
memory (`--memory`) is the maximum of the sum of their proportional set sizes (PSS: of a page shared
by n processes, each has an n-th), read ten times per second; this disturbs the processes, so the
times of such a run are not used. If the command reaches its limit, if this process gets SIGTERM or
SIGINT, or if its parent dies, the command and its descendants are killed.
"""

import argparse
import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

PARENT_DIES, SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
LATE_S = 20.0  # so long may processes outlive the command


@dataclass
class Taken:
    """The resources that a command used."""

    status: int = 0  # its exit code, or -N for signal N
    wall_s: float = 0.0
    cpu_s: float = 0.0  # user and system, of all processes of the tree
    peak_bytes: int | None = None  # None: not looked at
    late_s: float = 0.0  # how long processes of the tree outlived the command
    killed: str = ""  # why we ended it


def below(root: int) -> list[int]:
    """Return the processes that descend from `root`, without it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_bytes()
            except OSError:
                continue
            parent = int(stat.rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    descendants: list[int] = []
    wave = [root]
    while wave:
        wave = [child for parent in wave for child in children.get(parent, [])]
        descendants += wave
    return descendants


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes, 0 where it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError):
        pass
    return 0


def kill_all() -> None:
    for pid in below(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(command: list[str], limit: float, memory: bool, stdout: str | None) -> Taken:
    usage = Taken()
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(SUBREAPER, 1, 0, 0, 0)
    # Nothing is to go on, and disturb what is measured next, where the benchmark is killed.
    prctl(PARENT_DIES, signal.SIGTERM, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end("the benchmark was ended"))
    over = threading.Event()

    def look() -> None:
        peak = 0
        while not over.wait(0.1):
            peak = max(peak, sum(pss(pid) for pid in below(os.getpid())))
            usage.peak_bytes = peak

    def end(why: str) -> None:
        usage.killed = why
        kill_all()

    out = os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if stdout else None
    watcher = threading.Timer(limit, end, [f"not done after {limit:.0f} s"])
    watcher.daemon = True
    started = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    watcher.start()
    if memory:
        threading.Thread(target=look, daemon=True).start()
    late = threading.Timer(LATE_S, end, [f"processes of it went on for {LATE_S:.0f} s"])
    late.daemon = True
    ended = started

    def wait() -> None:
        nonlocal ended
        while True:
            try:
                pid, status = os.wait()
            except ChildProcessError:
                return
            if pid == child.pid:
                ended = time.perf_counter()
                usage.wall_s = ended - started
                usage.status = child.returncode = os.waitstatus_to_exitcode(status)
                watcher.cancel()
                late.start()

    # Not here: a signal that comes just before the call would not be seen until it returns.
    waiter = threading.Thread(target=wait)
    waiter.start()
    while waiter.is_alive():
        waiter.join(0.5)
    late.cancel()
    usage.late_s = time.perf_counter() - ended
    over.set()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    usage.cpu_s = used.ru_utime + used.ru_stime
    return usage


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--stdout")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    usage = run(args.command, args.limit, args.memory, args.stdout)
    print(json.dumps(asdict(usage)))
    sys.stdout.flush()


if __name__ == "__main__":
    main()

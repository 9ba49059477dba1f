"""A py-spy that is started beside the program for a second or two, and its output.

It does not pause the process that it looks at (--nonblocking), and is started only where it is
installed and the kernel allows it.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lotus.common.machine import py_spy_program
from lotus.common.machine.py_spy_program import ABSENT, FORBIDDEN
from lotus.recording.py_spy_sidecar import forbidden_by_yama
from lotus.recording.stacks import timed_stacks
from lotus.recording.stacks.source_texts import texts_of

_RATE, _SECONDS = 50, 2
_MOST_LINES, _MOST_BYTES, _MOST_TIMES = 200, 4 << 20, 5000
_ENOUGH, _MOST_TRIES = 30, 3  # stacks
_PATIENCE_S = 1.0  # until an interrupted one has written what it has


class PySpyChild:
    """One at a time, and another one where those before saw too little, as in short pauses.

    Each has a subject: enough stacks of one subject, or of a process, are enough. Only those count
    that are `wanted`.

    `stacks` holds lines as py-spy writes them: frames from the outermost, then a count. `texts`
    holds the source of the innermost line of each that is not a library's, by `file:line`. `times`
    has (pid, times by CLOCK_MONOTONIC) of main threads by stack, all wrong by at most `bound_ns`.
    Until it has been read, its output is the file `output`. `refusal`: why there are no stacks, as
    `refusal_here` returns it.
    """

    def __init__(self, output: Path) -> None:
        self.stacks: list[str] = []
        self.texts: dict[str, str] = {}
        self.times: dict[str, list[tuple[int, list[int]]]] = {}
        self.bound_ns = 0
        self.refusal = ""
        self.pid = -1  # the process that is sampled; -1: none now
        self._counts: Counter[str] = Counter()  # samples by stack, of all of them
        self._subject = ""
        self._wanted: Callable[[str], bool] | None = None
        self._enough: set[str | int] = set()  # subjects and processes
        self._tries: Counter[str] = Counter()  # by subject
        self._seen: Counter[str] = Counter()  # samples by subject
        self._output = output
        self._child: subprocess.Popen[bytes] | None = None
        self._is_interrupted = False
        self._start_ns = 0
        self._has_times = True  # False: py-spy is older than these

    def start(
        self, pid: int, subject: str = "", wanted: Callable[[str], bool] | None = None
    ) -> None:
        """Start one, if that is possible and still worth it."""
        if self._child is not None or self._enough & {pid, subject}:
            return
        if self._tries[subject] < _MOST_TRIES:
            self._tries[subject] += 1
            self._child = self._started(pid)
            self._subject, self._wanted = subject, wanted
            self.pid = -1 if self._child is None else pid
            self._is_interrupted = False

    def _started(self, pid: int) -> subprocess.Popen[bytes] | None:
        self.refusal, program = refusal_here(), py_spy_program.find()
        if program is None or self.refusal:
            return None
        words = [program, "record", f"--pid={pid}", "--nonblocking", "--idle", "--full-filenames"]
        words += [f"--rate={_RATE}", f"--duration={_SECONDS}"]
        words += ["--format=chrometrace", "--threads"] if self._has_times else ["--format=raw"]
        self._start_ns = time.monotonic_ns()
        with contextlib.suppress(OSError):
            return subprocess.Popen(
                [*words, f"--output={self._output}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,  # a few lines: it need not be read meanwhile
                start_new_session=True,  # a Ctrl-C is the program's
            )
        return None

    def interrupt(self) -> None:
        """Let it write what it has, and end: SIGTERM would lose that."""
        if self._child is not None and not self._is_interrupted:
            self._is_interrupted = True
            self._child.send_signal(signal.SIGINT)

    def collect(self) -> None:
        """Read what it wrote, if it has ended."""
        if self._child is None or self._child.poll() is None:
            return
        complaint = _complaint(self._child)
        if self._child.returncode and py_spy_program.is_denied(complaint):
            self.refusal = FORBIDDEN
        elif self._child.returncode and "chrometrace" in complaint:
            self._has_times = False
        sampled, self._child = self.pid, None
        with contextlib.suppress(OSError):
            self._add(timed_stacks.read(self._output, sampled, _RATE, self._start_ns, _MOST_BYTES))
        with contextlib.suppress(OSError):
            self._output.unlink()
        self.pid = -1
        most = self._counts.most_common(_MOST_LINES)
        self.stacks = [f"{stack} {count}" for stack, count in most if count]
        self.texts = texts_of(self.stacks)
        if self._seen[self._subject] >= _ENOUGH:
            self._enough |= {self._subject, sampled}

    def _add(self, found: timed_stacks.TimedStacks) -> None:
        self._counts += found.counts
        wanted = [stack for stack in found.counts if self._wanted is None or self._wanted(stack)]
        self._seen[self._subject] += sum(found.counts[stack] for stack in wanted)
        kept = sum(len(times) for rows in self.times.values() for _, times in rows)
        for stack, times in found.times_ns.items():
            kept += len(times)
            if kept <= _MOST_TIMES:
                self.times.setdefault(stack, []).append((self.pid, times))
        self.bound_ns = max(self.bound_ns, found.bound_ns)

    def rows_of_times(self, before: int) -> list[list[int]]:
        """Return [place, pid, *times] of stacks; their places in `stacks`, after `before` others"""
        places = {line.rpartition(" ")[0]: place for place, line in enumerate(self.stacks, before)}
        return [
            [places[stack], pid, *times]
            for stack, rows in self.times.items()
            if stack in places
            for pid, times in rows
        ]

    def finish(self) -> None:
        """End it, with what it has."""
        self.interrupt()
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_PATIENCE_S)
            if self._child.poll() is None:
                self._child.kill()
                self._child.wait()
        self.collect()


def refusal_here() -> str:
    """Return ABSENT or FORBIDDEN if no py-spy can be used; else ""."""
    if py_spy_program.find() is None:
        return ABSENT
    return FORBIDDEN if forbidden_by_yama(os.geteuid()) else ""


def _complaint(child: subprocess.Popen[bytes]) -> str:
    """Return what one that has ended wrote to stderr, without waiting for more."""
    if child.stderr is None:
        return ""
    with child.stderr as file:
        os.set_blocking(file.fileno(), False)
        return (file.read(_MOST_BYTES) or b"").decode("utf-8", "replace")

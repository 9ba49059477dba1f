"""Helper processes that run beside the program, each in its own session."""

import contextlib
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FINISH_S = 60.0  # perf reads its whole file at the end, for the build-ids
IMPATIENT_S = 2.0  # after which a signal to lotus ends the waiting for a recorder's end
_IMPATIENCE = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP}


class Child:
    """A helper process in its own session; its output is kept in memory."""

    def __init__(self, words: Sequence[str], descriptors: Mapping[int, int] | None = None) -> None:
        """Start it; `descriptors` are those it gets, under new numbers. Raises OSError."""
        self._written = _memory_file()
        actions: list[tuple[int, str, int, int] | tuple[int, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),  # type: ignore[list-item]
            (os.POSIX_SPAWN_DUP2, self._written, 1),
            (os.POSIX_SPAWN_DUP2, self._written, 2),
        ]
        for target, source in (descriptors or {}).items():
            actions.append((os.POSIX_SPAWN_DUP2, source, target))
        self.start_ns = time.monotonic_ns()
        self.end_ns: int | None = None
        self.exit_code: int | None = None
        self.signal: int | None = None
        self.cpu_ns: int | None = None
        try:
            self.pid = os.posix_spawnp(
                words[0],
                list(words),
                {**os.environ, "LC_ALL": "C"},  # its messages are parsed
                file_actions=actions,
                setsid=True,
                setsigmask=[],  # lotus blocks what it waits for
                setsigdef=[*_IMPATIENCE, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
        except OSError:
            os.close(self._written)
            raise

    def ended(self) -> bool:
        """Return True if it has ended; never wait."""
        if self.end_ns is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if not pid:
                return False
            self.end_ns = time.monotonic_ns()
            code = os.waitstatus_to_exitcode(status)
            self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)
            self.cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
        return True

    def text(self, most: int = 1 << 16) -> str:
        """Return the last `most` bytes of its output."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._written).st_size
            return os.pread(self._written, most, max(0, size - most)).decode("utf-8", "replace")
        return ""

    def wait(self, seconds: float, impatient: bool = False) -> bool:
        """Wait for its end; returns whether it has ended.

        With `impatient` a blocked signal to lotus ends the waiting.
        """
        began = time.monotonic()
        while not self.ended():
            waited = time.monotonic() - began
            if waited > seconds:
                return False
            if impatient and waited > IMPATIENT_S and signal.sigpending() & _IMPATIENCE:
                return False
            time.sleep(0.002 if waited < 1 else 0.05)
        return True

    def send(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if not self.ended():  # until it is waited for, its process id is not reused
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, and wait a second at most for its end."""
        self.send(signal.SIGKILL)
        self.wait(1.0)  # longer only if it is in a system call that hangs

    def finish(self) -> str | None:
        """Ask it to end and wait; returns a short description of a problem, or None."""
        if self.ended():
            return None
        self.send(signal.SIGINT)
        began = time.monotonic()
        if self.wait(FINISH_S, impatient=True):
            return None
        self.kill()
        return f"it had not ended {time.monotonic() - began:.0f} s after the program and was killed"

    def how(self) -> dict[str, Any]:
        """Return how it ended, for run.json: times in nanoseconds of CLOCK_MONOTONIC."""
        return {
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "cpu_ns": self.cpu_ns,
        }


class Version:
    """Asks a recorder for its version while the program runs."""

    def __init__(self, path: str) -> None:
        self._child: Child | None = None
        with contextlib.suppress(OSError):
            self._child = Child([path, "--version"])

    def text(self) -> str | None:
        """Return the first line of the answer; None where there is none."""
        if self._child is None:
            return None
        if not self._child.wait(5.0):
            self._child.kill()
        lines = (line.strip() for line in self._child.text().splitlines())
        return next((line[:100] for line in lines if line), None)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):  # not in every build of Python
        return high(os.memfd_create("lotus"))
    with tempfile.TemporaryFile() as file:
        return high(os.dup(file.fileno()))


def high(descriptor: int) -> int:
    """Move a descriptor above the standard streams, of which the user may have closed some."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def size_of(path: Path) -> int | None:
    """Return the bytes of a file that a recorder wrote; None if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return None

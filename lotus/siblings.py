"""Recorders beside the traced program: `perf record` and py-spy, started, watched and stopped.

A recorder has a session of its own, so that what the terminal sends is the program's alone, and
follows the program by its process id. It may fail, hang or be killed: the program never notices,
and one line says what is missing. Killing lotus leaves a recorder to end with the program.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from lotus.errors import LotusError
from native_map import record
from native_map.errors import Unusable
from native_map.record import Sampling

ATTACH_S = 10.0  # perf takes 0.1 s; the program is not held longer than this
FINISH_S = 60.0  # perf reads its whole file at the end, for the build-ids
IMPATIENT_S = 2.0  # after which a signal to lotus ends the waiting for a recorder's end
_IMPATIENCE = {signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP}

Say = Callable[[str], None]


class Sibling(Protocol):
    """A recorder; none of its methods raises or waits without end."""

    name: str

    def start(self, pid: int, directory: Path) -> None:
        """Attach to a process that waits to become the program."""

    def released(self) -> None:
        """Take note that the process has become the program."""

    def watch(self) -> float | None:
        """See whether all is well; returns after how many seconds to look again (None: never).

        It is called too whenever a child of lotus has ended.
        """

    def stop(self) -> None:
        """End the recording; the program has ended."""

    def note(self) -> dict[str, Any]:
        """Return what run.json keeps of it; `problem` is a line or None."""


class Child:
    """A process of lotus's own in a session of its own; what it writes is kept in memory."""

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
                {**os.environ, "LC_ALL": "C"},  # its words are read
                file_actions=actions,
                setsid=True,
                setsigmask=[],  # lotus blocks what it waits for
                setsigdef=[*_IMPATIENCE, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD],
            )
        except OSError:
            os.close(self._written)
            raise

    def ended(self) -> bool:
        if self.end_ns is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if not pid:
                return False
            self.end_ns = time.monotonic_ns()
            code = os.waitstatus_to_exitcode(status)
            self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)
            self.cpu_ns = round((usage.ru_utime + usage.ru_stime) * 1e9)
        return True

    def text(self) -> str:
        """Return the last 64 KiB that it wrote."""
        with contextlib.suppress(OSError):
            size = os.fstat(self._written).st_size
            return os.pread(self._written, 1 << 16, max(0, size - (1 << 16))).decode(
                "utf-8", "replace"
            )
        return ""

    def wait(self, seconds: float, impatient: bool = False) -> bool:
        """Wait for its end; returns whether it came.

        With `impatient` a signal to lotus, which it has blocked, cuts the waiting short.
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
        if not self.ended():  # until it is waited for, the process id is its own
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.wait(1.0)  # longer only in the midst of a system call that hangs

    def finish(self) -> str | None:
        """Ask it to end and wait; returns in a few words what was wrong, or None."""
        if self.ended():
            return None
        self.send(signal.SIGINT)
        began = time.monotonic()
        if self.wait(FINISH_S, impatient=True):
            return None
        self.kill()
        return f"it had not ended {time.monotonic() - began:.0f} s after the program and was killed"

    def how(self) -> dict[str, Any]:
        return {
            "start_ns": self.start_ns,
            "end_ns": self.end_ns,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "cpu_ns": self.cpu_ns,
        }


class Perf:
    """`perf record` of a program and of all its children, into perf.data."""

    name = "perf"

    def __init__(
        self, sampling: Sampling, perf: str = "perf", say: Say | None = None, why: str | None = None
    ) -> None:
        """Refuse what would record nothing with a LotusError; `why` is kept in run.json."""
        self._sampling, self._perf, self._say, self._why = sampling, perf, say, why
        try:
            record.command(perf, 0, "", sampling)
        except Unusable as error:
            raise LotusError(str(error)) from None
        self._child: Child | None = None
        self._words: list[str] = []
        self._output = Path("perf.data")
        self._ready_ns: int | None = None
        self._version: str | None = None
        self._stopped = False
        self.problem: str | None = None

    def start(self, pid: int, directory: Path) -> None:
        self._output = directory / "perf.data"
        path = shutil.which(self._perf)
        if path is None:
            self._fail("perf is not installed; apt install linux-perf (or linux-tools-$(uname -r))")
            return
        try:
            self._output.unlink(missing_ok=True)  # perf would keep it as perf.data.old
            self._attach(path, pid)
        except OSError as error:
            self._fail(f"perf cannot be started: {error.strerror}")

    def _attach(self, path: str, pid: int) -> None:
        command_read, command_write = map(_high, os.pipe())
        done_read, done_write = map(_high, os.pipe())
        try:
            # Numbers that no one of lotus's own descriptors has, so that none is overwritten.
            first = max(command_read, done_write) + 1
            # perf fails where its control pipe ends; its own writing end keeps that from happening.
            given = {first: command_read, first + 1: done_write, first + 2: command_write}
            self._words = record.command(
                path, pid, str(self._output), self._sampling, (first, first + 1)
            )
            child = self._child = Child(self._words, given)
            os.close(done_write)
            done_write = -1
            with contextlib.suppress(BrokenPipeError):
                os.write(command_write, b"enable\n")
            # perf answers from its main loop: by then all events are open. Its end closes the pipe.
            answered = select.select([done_read], [], [], ATTACH_S)[0]
            if answered and os.read(done_read, 16):
                self._ready_ns = time.monotonic_ns()
            elif not answered:
                self._hung(child)
            elif child.wait(ATTACH_S) and record.knows_no_control(child.text()):
                self._attach_blindly(path, pid)
            elif child.ended():
                self._fail(record.reason(child.text(), self._sampling.events))
            else:
                self._hung(child)
        finally:
            for descriptor in (command_read, command_write, done_read, done_write):
                if descriptor >= 0:
                    os.close(descriptor)

    def _attach_blindly(self, path: str, pid: int) -> None:
        """With a perf before 5.10: it is ready a moment after its buffers are mapped."""
        self._words = record.command(path, pid, str(self._output), self._sampling)
        child = self._child = Child(self._words)
        until = time.monotonic() + ATTACH_S
        while not child.ended() and not _has_buffers(child.pid):
            if time.monotonic() > until:
                self._hung(child)
                return
            time.sleep(0.005)
        if not child.wait(0.1):
            self._ready_ns = time.monotonic_ns()
        else:
            self._fail(record.reason(child.text(), self._sampling.events))

    def _hung(self, child: Child) -> None:
        child.kill()
        self._fail(f"perf did not attach within {ATTACH_S:.0f} s and was killed")

    def _fail(self, problem: str) -> None:
        self.problem = problem
        if self._say is not None:
            kept = "perf.data ends early" if self._ready_ns else "no perf.data"
            self._say(f"lotus: {kept}: {problem}")

    def released(self) -> None:
        pass

    def watch(self) -> float | None:
        child = self._child
        if child is not None and self.problem is None and child.ended():
            # It ends by itself where the program and all its children have, and that is no problem.
            # After SIGINT it writes all and then dies of that signal.
            text = child.text()
            if record.finished(text):
                pass
            elif child.signal not in (None, signal.SIGINT):
                self._fail(f"perf was ended by {_signal_name(child.signal)}; the program ran on")
            else:
                self._fail(record.reason(text, self._sampling.events))
        return None

    def stop(self) -> None:
        if self._child is None or self._stopped:
            return
        self._stopped = True
        if (problem := self._child.finish()) and self.problem is None:
            self._fail(problem)
        self.watch()
        self._version = _version([self._words[0], "--version"])

    def note(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "command": self._words,
            "version": self._version,
            "events": list(self._sampling.events),
            "frequency": self._sampling.frequency,
            "kernel": self._sampling.kernel,
            "why": self._why,
            "output": self._output.name,
            "ready_ns": self._ready_ns,
            "bytes": _size(self._output),
            "problem": self.problem,
        }
        if self._child is not None:
            found |= self._child.how()
            found |= record.counts(self._child.text())
        return found


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):  # not in every build of Python
        return _high(os.memfd_create("lotus"))
    with tempfile.TemporaryFile() as file:
        return _high(os.dup(file.fileno()))


def _high(descriptor: int) -> int:
    """Move a descriptor above the standard streams, of which the user may have closed some."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _has_buffers(pid: int) -> bool:
    try:
        return "[perf_event]" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def _version(words: Sequence[str]) -> str | None:
    try:
        child = Child(words)
    except OSError:
        return None
    if not child.wait(5.0):
        child.kill()
    return next((line.strip()[:100] for line in child.text().splitlines() if line.strip()), None)

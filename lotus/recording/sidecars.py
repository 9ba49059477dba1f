"""Recorders beside the traced program: `perf record` and py-spy, started, watched and stopped.

A recorder has its own session, so that signals from the terminal reach only the program, and it
follows the program by its process id. It may fail, hang or be killed: the program is not affected,
and a message says what is missing. If lotus is killed, a recorder ends with the program.
"""

import contextlib
import os
import re
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from lotus.common.errors import LotusError
from lotus.recording.child_process import Child, Version, high
from native_map.errors import Unusable
from native_map.recording import perf_command
from native_map.recording.perf_command import Sampling

ATTACH_S = 10.0  # perf takes 0.1 s; the program is not held longer than this
_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
_MAY_NOT_LOOK = (
    "py-spy may not look into the program; sudo sysctl kernel.yama.ptrace_scope=0, or start a "
    "container with --cap-add SYS_PTRACE"
)

Say = Callable[[str], None]


class Sidecar(Protocol):
    """A recorder. None of its methods waits forever; a recorder that raises is ignored."""

    name: str

    def start(self, pid: int, directory: Path) -> None:
        """Attach to a process that waits to become the program."""

    def watch(self) -> float | None:
        """See whether all is well; returns after how many seconds to look again (None: never).

        It is first called when the program has started, and whenever a child of lotus has ended.
        """

    def stop(self) -> None:
        """End the recording; the program has ended."""

    def note(self) -> dict[str, Any]:
        """Return what run.json keeps of it; `problem` is a line or None."""


class Perf:
    """`perf record` of a program and of all its children, into perf.data."""

    name = "perf"

    def __init__(
        self, sampling: Sampling, perf: str = "perf", say: Say | None = None, why: str | None = None
    ) -> None:
        """Refuse what would record nothing with a LotusError; `why` is kept in run.json."""
        self._sampling, self._perf, self._say, self._why = sampling, perf, say, why
        try:
            perf_command.command(perf, 0, "", sampling)
        except Unusable as error:
            raise LotusError(str(error)) from None
        self._child: Child | None = None
        self._words: list[str] = []
        self._output = Path("perf.data")
        self._ready_ns: int | None = None
        self._version: str | None = None
        self._version_query: Version | None = None
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
            self._version_query = Version(path)
        except OSError as error:
            self._fail(f"perf cannot be started: {error.strerror}")

    def _attach(self, path: str, pid: int) -> None:
        command_read, command_write = map(high, os.pipe())
        done_read, done_write = map(high, os.pipe())
        try:
            # Numbers that no one of lotus's own descriptors has, so that none is overwritten.
            first = max(command_read, done_write) + 1
            # perf fails where its control pipe ends; its own writing end keeps that from happening.
            descriptors = {first: command_read, first + 1: done_write, first + 2: command_write}
            self._words = perf_command.command(
                path, pid, str(self._output), self._sampling, (first, first + 1)
            )
            child = self._child = Child(self._words, descriptors)
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
            elif child.wait(ATTACH_S) and perf_command.knows_no_control(child.text()):
                self._attach_blindly(path, pid)
            elif child.ended():
                self._fail(perf_command.reason(child.text(), self._sampling.events))
            else:
                self._hung(child)
        finally:
            for descriptor in (command_read, command_write, done_read, done_write):
                if descriptor >= 0:
                    os.close(descriptor)

    def _attach_blindly(self, path: str, pid: int) -> None:
        """With a perf before 5.10: it is ready a moment after its buffers are mapped."""
        self._words = perf_command.command(path, pid, str(self._output), self._sampling)
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
            self._fail(perf_command.reason(child.text(), self._sampling.events))

    def _hung(self, child: Child) -> None:
        child.kill()
        self._fail(f"perf did not attach within {ATTACH_S:.0f} s and was killed")

    def _fail(self, problem: str) -> None:
        self.problem = problem
        if self._say is not None:
            kept = "perf.data ends early" if self._ready_ns else "no perf.data"
            self._say(f"lotus: {kept}: {problem}")

    def watch(self) -> float | None:
        child = self._child
        if child is not None and self.problem is None and child.ended():
            # It ends by itself where the program and all its children have, and that is no problem.
            # After SIGINT it writes all and then dies of that signal.
            text = child.text()
            if perf_command.finished(text):
                pass
            elif child.signal not in (None, signal.SIGINT):
                self._fail(f"perf was ended by {_signal_name(child.signal)}; the program ran on")
            else:
                self._fail(perf_command.reason(text, self._sampling.events))
        return None

    def stop(self) -> None:
        if self._child is None or self._stopped:
            return
        self._stopped = True
        if (problem := self._child.finish()) and self.problem is None:
            self._fail(problem)
        self.watch()
        self._version = self._version_query.text() if self._version_query else None

    def note(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
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
            facts |= self._child.how()
            facts |= perf_command.counts(self._child.text())
        return facts


class PySpy:
    """py-spy of the program and of its Python children, into py-spy/.

    It keeps all that it samples in memory until its end, so it records in slices: a file each, and
    no more than a slice is lost with it. It can attach only to a Python that has started, which
    under a shell script may come late: so it is tried again.
    """

    name = "py_spy"

    def __init__(
        self, rate: int = 100, py_spy: str = "py-spy", say: Say | None = None, slice_s: int = 60
    ) -> None:
        self._rate, self._py_spy, self._say, self._slice_s = rate, py_spy, say, slice_s
        self._directory = Path()
        self._pid = 0
        self._path: str | None = None
        self._words: list[str] = []
        self._child: Child | None = None
        self._slice: dict[str, Any] = {}
        self._slices: list[dict[str, Any]] = []
        self._next_s = 0.0
        self._pause_s = 0.25
        self._cpu_ns = self._samples = self._errors = 0
        self._refusal = "it was not started"
        self._version: str | None = None
        self._version_query: Version | None = None
        self.problem: str | None = None

    def start(self, pid: int, directory: Path) -> None:
        self._pid, self._directory = pid, directory / "py-spy"
        beside = os.path.dirname(sys.executable)  # where pip installed it
        search = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
        self._path = shutil.which(self._py_spy, path=search)
        try:
            if self._path is None:
                self._fail("py-spy is not installed; pip install py-spy")
                return
            if forbidden_by_yama(os.geteuid()):
                self._fail(_MAY_NOT_LOOK)
                return
            self._version_query = Version(self._path)
            self._directory.mkdir(mode=0o700, exist_ok=True)
            for old in self._directory.glob("*.json"):
                old.unlink()
        except OSError as error:
            self._fail(f"{self._directory} cannot be made: {error.strerror}")

    def _fail(self, problem: str) -> None:
        self.problem = problem
        if self._say is not None:
            self._say(f"lotus: no Python stacks: {problem}")

    def watch(self) -> float | None:
        if self.problem is not None:
            return None
        if self._child is None:
            wait_s = self._next_s - time.monotonic()
            if wait_s > 0:
                return wait_s
            self._begin()
        elif self._child.ended():
            self._end(self._child)
        elif self._slice["seen_ns"] is None and "Sampling process" in self._child.text():
            # What it writes bounds the beginning of its clock, so it is looked for often.
            self._slice["seen_ns"] = time.monotonic_ns()
        else:
            return None if self._slice["seen_ns"] else 0.005
        return 0.005 if self.problem is None else None

    def _begin(self) -> None:
        assert self._path is not None
        file = f"{len(self._slices)}.json"
        self._words = [self._path, "record", f"--pid={self._pid}", "--subprocesses", "--threads"]
        self._words += ["--idle", "--full-filenames", "--format=chrometrace"]
        self._words += [f"--rate={self._rate}", f"--duration={self._slice_s}"]
        self._words += [f"--output={self._directory / file}"]
        try:
            self._child = Child(self._words)
        except OSError as error:
            self._fail(f"py-spy cannot be started: {error.strerror}")
            return
        self._slice = {"file": file, "start_ns": self._child.start_ns, "seen_ns": None}

    def _end(self, child: Child) -> None:
        self._child = None
        text = child.text()
        self._cpu_ns += child.cpu_ns or 0
        # "Stopped sampling" is written with what it had; a kill or a full disk leaves nothing.
        if match := re.search(r"Wrote chrome trace.*Samples: (\d+) Errors: (\d+)", text):
            self._samples += int(match[1])
            self._errors += int(match[2])
            seen_ns = self._slice["seen_ns"] or child.end_ns
            size = _size(self._directory / self._slice["file"])
            self._slices.append(
                {**self._slice, "seen_ns": seen_ns, "end_ns": child.end_ns, "bytes": size}
            )
            self._pause_s, self._next_s = 0.25, 0.0
            return
        self._refusal = _refusal(text)
        if self._slice["seen_ns"] is not None:
            how = f"by {_signal_name(child.signal)}" if child.signal else f"({self._refusal})"
            self._fail(f"py-spy ended early {how}; of its last slice nothing is left")
        elif _hides(self._pid) or re.search(r"permission denied|not permitted", text, re.I):
            self._fail(_MAY_NOT_LOOK)
        else:
            self._next_s = time.monotonic() + self._pause_s
            self._pause_s = min(10.0, self._pause_s * 2)

    def stop(self) -> None:
        if self._child is not None:
            child = self._child
            problem = child.finish()
            if self._slice["seen_ns"] is None and "Sampling process" in child.text():
                self._slice["seen_ns"] = child.end_ns
            if problem is not None and self.problem is None:
                self._fail(problem)
            else:
                self._end(child)
        if not self._slices and self.problem is None:
            self._fail(f"py-spy found no Python that it may look into: {self._refusal}")
        self._version = self._version_query.text() if self._version_query else None

    def note(self) -> dict[str, Any]:
        return {
            "command": self._words,
            "version": self._version,
            "rate": self._rate,
            "output": self._directory.name,
            "slices": self._slices,
            "samples": self._samples,
            "errors": self._errors,
            "cpu_ns": self._cpu_ns,
            "problem": self.problem,
        }


def forbidden_by_yama(user: int, scope: Path = _YAMA) -> bool:
    """Whether the kernel lets a process look into its own children only, and not into others."""
    try:
        level = int(scope.read_text())
    except (OSError, ValueError):  # a kernel without it
        return False
    return level >= 3 or (level >= 1 and user != 0)


def _hides(pid: int) -> bool:
    """Whether a process may not be looked into; py-spy itself would find "no Python" there."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _refusal(text: str) -> str:
    """Return the line of py-spy's words that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith(("Error:", "Reason:"))] or lines[:1]
    return " ".join(chosen)[:200] or "it ended without a word"


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

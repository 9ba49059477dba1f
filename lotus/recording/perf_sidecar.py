"""`perf record` beside the traced program: started, watched and stopped."""

import contextlib
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.text.formatting import signal_name
from lotus.recording.child_process import Child, Version, high, size_of
from lotus.recording.recorders import Say
from native_map.errors import UnusableError
from native_map.recording import perf_command
from native_map.recording.perf_command import Sampling

ATTACH_S = 10.0  # perf takes 0.1 s; the program is not held longer than this


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
        except UnusableError as error:
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
            # Numbers that no descriptor of lotus has, so that none is overwritten.
            first = max(command_read, done_write) + 1
            # perf fails when its control pipe is closed; its own writing end prevents that.
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
            # perf ends by itself when the program and all its children have, which is no problem.
            # After SIGINT it writes everything and then dies of that signal.
            text = child.text()
            if perf_command.finished(text):
                pass
            elif child.signal not in (None, signal.SIGINT):
                self._fail(f"perf was ended by {signal_name(child.signal)}; the program ran on")
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
            "bytes": size_of(self._output),
            "problem": self.problem,
        }
        if self._child is not None:
            facts |= self._child.how()
            facts |= perf_command.counts(self._child.text())
        return facts


def _has_buffers(pid: int) -> bool:
    try:
        return "[perf_event]" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False

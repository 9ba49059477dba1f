"""py-spy beside the traced program: one recording after another, started, watched and stopped."""

import os
import time
from pathlib import Path
from typing import Any

from lotus.common.machine import py_spy_program
from lotus.common.text.formatting import signal_name
from lotus.recording.child_process import Child, Version, size_of
from lotus.recording.recorders import Say

_YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


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
        self._path = py_spy_program.find(self._py_spy)
        try:
            if self._path is None:
                self._fail(py_spy_program.MISSING)
                return
            if forbidden_by_yama(os.geteuid()):
                self._fail(py_spy_program.MAY_NOT_LOOK)
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
            # The time of its output bounds the beginning of its clock, so it is looked for often.
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
        if wrote := py_spy_program.written(text):
            self._samples += wrote[0]
            self._errors += wrote[1]
            seen_ns = self._slice["seen_ns"] or child.end_ns
            size = size_of(self._directory / self._slice["file"])
            self._slices.append(
                {**self._slice, "seen_ns": seen_ns, "end_ns": child.end_ns, "bytes": size}
            )
            self._pause_s, self._next_s = 0.25, 0.0
            return
        self._refusal = py_spy_program.complaint(text)
        if self._slice["seen_ns"] is not None:
            how = f"by {signal_name(child.signal)}" if child.signal else f"({self._refusal})"
            self._fail(f"py-spy ended early {how}; the stacks since its last file are lost")
        elif _hides(self._pid) or py_spy_program.is_denied(text):
            self._fail(py_spy_program.MAY_NOT_LOOK)
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
    """Return True if a process may only inspect its own children, by the kernel's setting."""
    try:
        level = int(scope.read_text())
    except (OSError, ValueError):  # a kernel without it
        return False
    return level >= 3 or (level >= 1 and user != 0)


def _hides(pid: int) -> bool:
    """Return True if a process may not be inspected.

    py-spy itself would say that it found "no Python" there.
    """
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        return True
    except OSError:
        return False
    return False

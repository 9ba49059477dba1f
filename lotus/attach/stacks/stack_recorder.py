"""Runs py-spy beside a program that lotus did not start."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.attach.processes.tied_process import TiedProcess
from lotus.common.machine import py_spy_program
from lotus.recording.child_process import Version
from native_map.errors import UnusableError

if TYPE_CHECKING:
    from native_map.recording.py_spy import PySpyStacks

_OLDEST = (0, 4)  # the first with times in its output
_SAMPLES_PER_S = 400  # of all processes: their stacks are read to the file and from it
_LEAST_RATE, _MOST_RATE = 10, 50


def find() -> tuple[str, str]:
    """Return (path of py-spy, why it cannot be used), one of which is ""."""
    path = py_spy_program.find()
    if path is None:
        return "", f"py-spy is not installed; {py_spy_program.install()}"
    try:
        text = Version(path).text() or ""
    except OSError:
        text = ""
    version = re.search(r"(\d+)\.(\d+)", text)
    if version is None:
        return "", f"py-spy does not start; {py_spy_program.install()}"
    if (int(version[1]), int(version[2])) < _OLDEST:
        return "", f"py-spy {version[0]} is too old; {py_spy_program.install()} --upgrade"
    return path, ""


def rate_of(processes: int) -> int:
    """Return how many times a second the stacks of so many processes are read."""
    return max(_LEAST_RATE, min(_MOST_RATE, _SAMPLES_PER_S // processes))


class StackRecorder:
    """Samples the Python stacks of a process and of all its descendants."""

    def __init__(self, path: str, pid: int, rate: int, seconds: float, output: Path) -> None:
        self._rate, self._output = rate, output
        self._seen_ns: int | None = None
        self._problem = ""
        words = [path, "record", f"--pid={pid}", "--subprocesses", "--threads", "--idle"]
        words += ["--nonblocking", "--full-filenames", "--format=chrometrace", f"--rate={rate}"]
        words += [f"--duration={max(1, round(seconds))}", f"--output={output}"]
        self._child = TiedProcess(words)

    def watch(self) -> bool:
        """Return whether py-spy still samples."""
        if self._seen_ns is None and "Sampling process" in self._child.text():
            self._seen_ns = time.monotonic_ns()
        return not self._child.ended()

    def stop(self) -> None:
        """End the sampling."""
        self._problem = self._child.finish() or ""

    def kill(self) -> None:
        """End py-spy and discard its samples."""
        self._child.kill()
        self._output.unlink(missing_ok=True)

    def stacks(self, ends: Mapping[int, int]) -> tuple["PySpyStacks | None", dict[str, Any]]:
        """Return the samples (None: there are none), and facts with `problem` ("" for none).

        Called after `stop`. ends: nanoseconds at which threads ended, by the kernel's id
        """
        from native_map.recording import py_spy  # pandas: not before the first sample

        problem, text = self._problem, self._child.text()
        facts: dict[str, Any] = {"rate": self._rate, "cpu_ns": self._child.cpu_ns or 0}
        wrote = py_spy_program.written(text)
        facts["stacks"], facts["errors"] = wrote or (0, 0)
        result = None
        try:
            if not problem and wrote and self._child.end_ns is not None:
                seen = self._seen_ns or self._child.end_ns
                period = 1_000_000_000 // self._rate
                start = self._child.exec_ns or self._child.start_ns
                result = py_spy.read(self._output, start, seen, self._child.end_ns, period, ends)
            elif not problem:
                problem = py_spy_program.complaint(text)
        except (OSError, UnusableError) as error:
            problem = str(error).partition(";")[0]
        finally:
            self._output.unlink(missing_ok=True)
        return result, {**facts, "problem": problem}

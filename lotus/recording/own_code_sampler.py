"""Python stacks of a process whose data set's code, sampler or training step takes long: py-spy,
two seconds.

Started from outside, at most once in a run, and only where it is installed and the kernel allows
it. It does not pause the process (--nonblocking).
"""

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from lotus.common import redaction
from lotus.format import stack_frames
from lotus.format.run_directory import OWN_CODE
from lotus.recording.sidecars import forbidden_by_yama

_RATE, _SECONDS = 50, 2
_LEAST_LOOKS = 50
_MOST_LINES, _MOST_BYTES = 200, 512 << 10
# Of lines of the program: so many, so many characters of each, of files of so many bytes at most.
_MOST_TEXTS, _MOST_CHARACTERS, _MOST_SOURCE = 64, 120, 4 << 20


class OwnCodeSampler:
    """`stacks` holds lines as py-spy writes them: frames from the outermost, then a count.

    `texts` holds the source of the innermost line of each that is not a library's, by `file:line`.
    Until it has been read, its output is a file in the run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.stacks: list[str] = []
        self.texts: dict[str, str] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._output = directory / OWN_CODE
        self._done = False

    def consider(self, own: dict[int, int], everything: int, least_share: float) -> None:
        """Start if it is worth it.

        `own`: looks at the program's own code, by process; `everything`: looks at what it is a part
        of, of which `least_share` (0 to 1) makes it worth it.
        """
        if self._done:
            return
        if self._child is not None:
            if self._child.poll() is not None:
                self._collect()
            return
        count = sum(own.values())
        if count >= _LEAST_LOOKS and count >= least_share * everything:
            self._done = True
            self._start(max(own, key=lambda pid: own[pid]))

    def _start(self, pid: int) -> None:
        beside = os.path.dirname(sys.executable)  # where pip installed it
        search = os.pathsep.join([beside, os.environ.get("PATH", os.defpath)])
        program = shutil.which("py-spy", path=search)
        if program is None or forbidden_by_yama(os.geteuid()):
            return
        with contextlib.suppress(OSError):
            words = [
                program,
                "record",
                f"--pid={pid}",
                "--nonblocking",
                "--idle",
                "--full-filenames",
            ]
            words += ["--format=raw", f"--rate={_RATE}", f"--duration={_SECONDS}"]
            self._child = subprocess.Popen(
                [*words, f"--output={self._output}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is the program's
            )
            self._done = False

    def _collect(self) -> None:
        self._done, self._child = True, None
        with contextlib.suppress(OSError):
            text = self._output.read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
            lines = [line for line in text.splitlines() if line]
            self.stacks = sorted(lines, key=_count, reverse=True)[:_MOST_LINES]
            self.texts = _texts(self.stacks)
        with contextlib.suppress(OSError):
            self._output.unlink()

    def finish(self) -> None:
        """End it, with what it has."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(1.0)
            if self._child.poll() is None:
                self._child.kill()
                self._child.wait()
        self._collect()


def _count(line: str) -> int:
    last = line.rpartition(" ")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0


def _texts(stacks: list[str]) -> dict[str, str]:
    """Read now: by the time of a report the file may be another one, or be gone."""
    texts: dict[str, str] = {}
    for stack in stacks:
        frames = map(stack_frames.parsed, stack.rpartition(" ")[0].split(";"))
        own = [found for found in frames if found and not stack_frames.LIBRARY.search(found[1])]
        if own and os.path.isabs(own[-1][1]) and len(texts) < _MOST_TEXTS:
            _, file, line = own[-1]
            texts.setdefault(f"{file}:{line}", _line(file, line))
    return {place: text for place, text in texts.items() if text}


def _line(file: str, number: int) -> str:
    """A line of a source file, without secrets; "" where there is none."""
    with contextlib.suppress(OSError):
        if not os.path.isfile(file) or os.path.getsize(file) > _MOST_SOURCE:
            return ""
        with open(file, encoding="utf-8", errors="replace") as lines:
            text = next(itertools.islice(lines, max(number - 1, 0), None), "").strip()
        text = redaction.text(text)
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    return ""

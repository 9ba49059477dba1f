"""Runs other programs on a file, with limits on time, CPU time, memory and output.

perf, c++filt and similar programs are written in C and read files that somebody else may have made.
This module limits what they can do with such a file, for all callers. Linux man-pages: prlimit(2).
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

PIECE = 1 << 16
LONGEST_LINE = 1 << 16
COMPLAINTS = 16 << 20  # bytes that a program may write to any file, including its stderr


@dataclass(frozen=True)
class ProgramLimits:
    """The limits of a program: seconds of waiting and of CPU time, bytes of memory and output.

    Time that the caller spends between two pieces of output does not count as waiting.
    `memory` is address space (RLIMIT_AS), libraries and mapped files included.
    """

    wait_s: float = 60.0
    cpu_s: int = 30
    memory: int = 1 << 30
    output: int = 64 << 20


@dataclass(frozen=True)
class ProgramOutput:
    """The output of a program until it ended or was stopped; `code` as in subprocess.

    `stopped` is "" if the program ended by itself, else the limit that it exceeded.
    """

    code: int
    out: bytes
    complaint: str
    stopped: str


class LimitedProgram:
    """A program that runs within limits. At the end of a `with` block it has ended.

    Raises OSError if it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: ProgramLimits | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.limits = limits or ProgramLimits()
        self.stopped = ""
        self.written = 0
        self._waited = 0.0
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        try:
            with tempfile.TemporaryFile() as source:
                source.write(stdin)
                source.seek(0)
                self._process = subprocess.Popen(
                    list(command),
                    stdin=source if stdin else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=self._complaints,
                    env=env,
                    start_new_session=True,  # to end its children with it; Ctrl-C is for us
                )
        except BaseException:
            self._complaints.close()
            raise
        # Set from outside: code between fork and exec is not safe with threads.
        for what, limit in (
            (resource.RLIMIT_CPU, self.limits.cpu_s),
            (resource.RLIMIT_AS, self.limits.memory),
            (resource.RLIMIT_FSIZE, COMPLAINTS),
            (resource.RLIMIT_CORE, 0),
        ):
            self._limit(what, limit)

    def _limit(self, what: int, limit: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(self._process.pid, what)
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.prlimit(self._process.pid, what, (limit, limit))

    def __enter__(self) -> "LimitedProgram":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield its output as it arrives, until it ends or exceeds a limit (see `stopped`)."""
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(handle, select.POLLIN | select.POLLHUP)
        while True:
            remaining_s = self.limits.wait_s - self._waited
            began = time.monotonic()
            ready = poll.poll(max(remaining_s, 0.0) * 1000)
            self._waited += time.monotonic() - began
            if not ready:
                self._stop(f"it took more than {self.limits.wait_s:.0f} s")
                return
            piece = os.read(handle, PIECE)
            if not piece:
                return
            room = self.limits.output - self.written
            self.written += len(piece)
            if len(piece) > room:
                yield piece[:room]
                self._stop(f"it wrote more than {self.limits.output >> 20} MiB")
                return
            yield piece

    def lines(self) -> Iterator[bytes]:
        """Yield its output by lines with their ends; lines above LONGEST_LINE in parts."""
        partial = b""
        for piece in self.pieces():
            *complete, partial = (partial + piece).split(b"\n")
            for line in complete:
                yield line + b"\n"
            while len(partial) > LONGEST_LINE:
                yield partial[:LONGEST_LINE]
                partial = partial[LONGEST_LINE:]
        if partial:
            yield partial

    def _stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for its end, within its limit; return its code as in subprocess."""
        try:
            code = self._process.wait(max(self.limits.wait_s - self._waited, 0.1))
        except subprocess.TimeoutExpired:
            self._stop(f"it took more than {self.limits.wait_s:.0f} s")
            code = self._process.wait()
        if code in (-signal.SIGXCPU, -signal.SIGKILL) and not self.stopped:
            # At the hard limit of CPU time, the kernel sends SIGKILL.
            self.stopped = f"it took more than {self.limits.cpu_s} s of CPU time"
        return code

    @property
    def complaint(self) -> str:
        """Return the last line that it wrote to stderr."""
        self._complaints.seek(0)
        lines = self._complaints.read(PIECE).decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """End it if it runs."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._kill()
        self._process.wait()
        self._complaints.close()


def answer(
    command: Sequence[str],
    limits: ProgramLimits | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
) -> ProgramOutput:
    """Run a program until it ends or exceeds a limit, with the bytes `stdin` as standard input.

    Raises OSError if it cannot be started.
    """
    with LimitedProgram(command, limits, stdin, env) as program:
        out = b"".join(program.pieces())
        code = program.end()
        return ProgramOutput(code, out, program.complaint, program.stopped)

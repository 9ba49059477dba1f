"""Writes the event log and the state page of a process of the program.

Nothing is raised into the program: an error in lotus switches recording off with one line, and so
does a log that reaches its size limit.
"""

from __future__ import annotations

import json
import mmap
import os
import sys

from ...common.clocks import clock
from ...common.guard import ask, guarded, quiet
from ..config import LEVELS
from . import log_format, rusage, state_page
from .log_writer import Log, append, append_line, first_fault, identity
from .op_table import Definitions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..config import Config


def _text(thing: object) -> Any:
    return ask(str, thing)


def _write_line(text: str) -> None:
    with quiet(Exception):
        os.write(2, f"lotus: {text}\n".encode("ascii", "backslashreplace"))


class Writer:
    """Log and state page of this process. `on` is False after a fault."""

    def __init__(
        self,
        config: Config,
        stderr: tuple[int, int] | None,
        append: Callable[..., int] = append,
    ) -> None:
        """`stderr` is the (device, inode) of descriptor 2 when the process started, or None."""
        self._append = append  # of log_writer, or as that
        self.config = config
        self.on = True
        self.page = state_page.StatePage()
        self.definitions = Definitions()
        self._stderr = stderr
        # Shared with forked children: the line is written once.
        self._line_written = mmap.mmap(-1, 1)
        self._begin()

    def _begin(self) -> None:
        """Reset the state of a process that has not written anything yet."""
        self.pid = os.getpid()
        self.log = Log(self.config.run, LEVELS[self.config.level], self._append)
        self.definitions.forget_written()
        self._checked_ns = 0
        self._pss_due_ns = 0
        self.worker = -1
        self.has_page = False
        self.broken = 0  # calls that an exception of the program's signal handlers interrupted
        self.iterations = 0  # iterators alive: the log stays open while there are any

    def after_fork(self) -> None:
        """Start anew in a forked child, which must not touch the files of its parent."""
        self.log.leave()
        self.page.detach()
        self._begin()

    def stop(self) -> None:
        """Stop recording."""
        self.on = False

    def fault(self, error: BaseException) -> None:
        """Switch recording off for good and report that once; with `quiet`, only in the run."""
        if not self.on:
            return
        self.stop()
        text = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        # One line is enough: a process stays silent if another one of the run reported an error.
        # So does a process that multiprocessing spawned if nothing can be written, which its parent
        # will notice too.
        silent = any("multiprocessing" in arg for arg in sys.orig_argv)
        with quiet(Exception):
            append_line(self.config.run, {"event": "fault", "error": text})
        with quiet(Exception):
            first = first_fault(self.config.run)
            silent = first != os.getpid() and (silent or first is not None)
        with quiet(Exception):
            self.log.close()
        with quiet(Exception):
            self.page.settle()
        if not (silent or self._line_written[0]) and self._may_say():
            self._line_written[0] = 1  # before it is: a process forked meanwhile says nothing
            _write_line(f"tracing of process {os.getpid()} stopped: {text}")

    def _may_say(self) -> bool:
        """Return whether a line on stderr is wanted and possible."""
        with quiet(Exception):
            # Only if descriptor 2 still is what it was: it may be a file of the program by now.
            return bool(not self.config.quiet and self._stderr and identity(2) == self._stderr)
        return False

    def tell(self, text: str) -> None:
        """Report on stderr and in the run what is not done although it was requested."""
        self.event({"event": "note", "text": text})
        if self._may_say():
            _write_line(text)

    def interrupted(self) -> None:
        """Count an interrupted record, which may be lost, and define all operations again."""
        self.definitions.forget_written()
        self.broken += 1

    def _write(self, data: bytes) -> None:
        self.log.write(data)
        now = clock()
        if now - self._checked_ns > 1_000_000_000:
            self._checked_ns = now
            self._once_a_second()
        if self.iterations == 0 and self.worker < 0:
            self.log.close()  # leave no descriptor open in the program

    def _once_a_second(self) -> None:
        config = self.config
        if config.max_log:
            size = self.log.size_of_run()
            if size >= config.max_log:
                stopped = {"event": "stopped", "why": "max-log", "bytes": size}
                self.log.write(self._event_frame(stopped))
                self.stop()
                self.log.close()
                return
        if self.worker >= 0:
            # For the PSS the kernel walks all pages: 12 ms for a small torch process. It is read
            # once a second if that is cheap, and never for more than 0.1 % of the time.
            pss = 0
            if clock() >= self._pss_due_ns:
                pss, cost = rusage.pss_and_cost()
                self._pss_due_ns = clock() + 1000 * cost
            self.log.write(
                log_format.frame(log_format.RESOURCES, rusage.resources(self.worker, pss))
            )

    def _event_frame(self, event: Mapping[str, object]) -> bytes:
        text = json.dumps(event, default=_text).encode()
        fixed = log_format.FIXED[log_format.EVENT].pack(clock(), len(text))
        return log_format.frame(log_format.EVENT, fixed + text)

    def _definitions(self) -> bytes:
        """Return a frame of the operations that are not yet in the log, or b""."""
        fresh = self.definitions.unwritten()
        if not fresh:
            return b""
        return self._event_frame({"event": "operations", "operations": fresh})

    @guarded
    def define_now(self) -> None:
        """Write new operations at once, so that a hang in the first batch has a name."""
        frame = self._definitions()
        if frame:
            self._write(frame)

    @guarded
    def event(self, event: Mapping[str, object]) -> None:
        """Write one EVENT frame."""
        self._write(self._event_frame(event))

    @guarded
    def open_page(self, worker: int) -> None:
        """Give this process a state page; continue without one if that fails."""
        if self.has_page:
            return
        self.has_page = True
        with quiet(OSError, AttributeError):
            self.page.attach(self.log.file("state", "state"))
        page = self.page.words
        page[state_page.W_PID] = os.getpid()
        page[state_page.W_WORKER] = worker
        page[state_page.W_START] = clock()
        page[state_page.W_LOADER] = page[state_page.W_EPOCH] = page[state_page.W_BATCH] = -1
        page[state_page.W_SAMPLE] = -1
        page[state_page.W_MAGIC] = state_page.MAGIC

"""The two pipes to the agent in a program, and the program behind them."""

import contextlib
import dataclasses
import json
import os
import select
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lotus.common.storage import files
from lotus.inside.tune.candidates.trial_requests import Close, Reply, Request, Train
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError, TrialsForbiddenError, Watched
from lotus.tune.program.remote_program import RemoteProgram

_LONGEST = 64 << 20  # bytes of a message
_LOOK_S = 0.2  # interval of checks whether the program still runs


class ProgramEndedError(Exception):
    """The program, or the agent in it, has ended."""


@dataclass(frozen=True)
class Hints:
    """Suggestions for a program that ended too early, with the options of the verb."""

    ended: str = (
        ": give it more epochs, or lotus a smaller --budget if it fails on more batches than an "
        "epoch has"
    )
    few: str = "; --watch {batches} makes do with these"
    fault: str = "; lotus sweep -- COMMAND tries settings in runs of their own"


HINTS = Hints()
NO_HINTS = Hints("", "", "")  # of a verb that has no --watch


class Pipe:
    """This process's ends of the two pipes."""

    def __init__(self, exchange: Path) -> None:
        self._exchange = exchange
        # Both ends stay open, so that neither pipe breaks when processes of the program end.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        self._tells = os.open(exchange / "tells", flags)
        self._asks = os.open(exchange / "asks", flags)
        self._text = b""
        self._process = -1
        self.over = threading.Event()  # the program has ended

    def close(self) -> None:
        """Close both pipes."""
        for descriptor in (self._tells, self._asks, self._process):
            if descriptor >= 0:
                os.close(descriptor)

    def follow(self, pid: int) -> None:
        """Treat the end of this process as the end of the agent."""
        with contextlib.suppress(OSError, AttributeError):
            self._process = os.pidfd_open(pid)

    def tell(self) -> dict[str, Any]:
        """Return the program's next message. Raises ProgramEndedError if there will be none."""
        while True:
            line, newline, rest = self._text.partition(b"\n")
            if newline:
                self._text = rest
                with contextlib.suppress(ValueError, RecursionError):
                    message = json.loads(line)
                    if isinstance(message, dict):
                        return message
                continue
            ended = self.over.is_set() or self._has_gone()
            select.select([self._tells], [], [], 0 if ended else _LOOK_S)
            try:
                data = os.read(self._tells, 1 << 16)
            except BlockingIOError:
                if ended:
                    raise ProgramEndedError from None
                continue
            self._text += data
            if len(self._text) > _LONGEST:
                raise ProgramEndedError

    def _has_gone(self) -> bool:
        return self._process >= 0 and bool(select.select([self._process], [], [], 0)[0])

    def ask(self, what: Mapping[str, object]) -> None:
        """Send a message to the agent. Raises ProgramEndedError if the agent has gone."""
        data = (json.dumps(what) + "\n").encode()
        while data:
            try:
                data = data[os.write(self._asks, data) :]
            except BlockingIOError:
                if self.over.is_set() or self._has_gone():
                    raise ProgramEndedError from None
                select.select([], [self._asks], [], _LOOK_S)

    def answer(self, what: Mapping[str, object]) -> None:
        """Tell all processes of the program how to go on."""
        # The folder may have been removed; the pipes still work.
        with contextlib.suppress(OSError), files.atomic(self._exchange / "answer") as file:
            file.write(files.json_text(what, indent=None).encode())
        self.ask(what)


class PipedProgram(RemoteProgram):
    """A lotus.tune.program.program.PausedProgram that runs in another process.

    Requests raise KeyboardInterrupt if the program was interrupted or has ended.
    """

    def __init__(
        self, watched: Watched, pipe: Pipe, run: Path | None = None, hints: Hints = HINTS
    ) -> None:
        super().__init__(watched)
        self._hints = hints
        self.run = run  # where its trials are recorded
        self._pipe = pipe
        self.interrupted = False
        self.problem = ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        if isinstance(request, Close) and (self.interrupted or self.problem):
            return cast("Reply", 0.0)  # the agent closes all candidates
        if isinstance(request, Train):
            # Only in this epoch, and for no other loader that the program makes.
            setting = dataclasses.replace(setting, persistent_workers=False)
        return super().perform(setting, request)

    def _send(self, message: dict[str, Any]) -> Any:
        try:
            self._pipe.ask(message)
            while True:
                reply = self._pipe.tell()
                if "did" in reply:
                    return reply["did"]
                if "failed" in reply:
                    kind = TrialsForbiddenError if reply.get("final") else TrialError
                    raise kind(str(reply["failed"]))
                if reply.get("interrupted"):
                    self.interrupted = True
                    raise KeyboardInterrupt
                if reply.get("event") == "fault":
                    error = reply.get("error")
                    self.problem = f"lotus failed inside the program: {error}{self._hints.fault}"
                    raise ProgramEndedError
        except ProgramEndedError:
            ended = f"the program ended while it was measured{self._hints.ended}"
            self.problem = self.problem or ended
            raise KeyboardInterrupt from None  # the search then returns its result so far

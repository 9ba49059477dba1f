"""The directory through which a tuned program communicates with lotus.

It has two pipes, `tells` for JSON lines to lotus and `asks` for JSON lines from it. The file
`claimed` exists once a process of the program has taken on the trials. The file `answer` contains
what all processes of the program do after the trials.
"""

import json
import os
import select

from .deferred_interrupts import breakable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_LONGEST = 1 << 20  # bytes of a line


def claim(folder: str) -> bool:
    """Create `claimed` in a folder; return whether this process was the first. Raises OSError."""
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(os.path.join(folder, "claimed"), flags, 0o600))
    except FileExistsError:
        return False
    return True


class LotusGoneError(Exception):
    """lotus has exited."""


class Link:
    """One process's end of the pipes. Any method raises LotusGoneError if lotus has exited."""

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._asks = -1
        self._text = b""
        self._tells = self._open("tells", os.O_WRONLY)

    def _open(self, name: str, flags: int) -> int:
        try:
            path = os.path.join(self._exchange, name)
            return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise LotusGoneError(str(error)) from None

    def close(self) -> None:
        for descriptor in (self._tells, self._asks):
            if descriptor >= 0:
                os.close(descriptor)
        self._tells = self._asks = -1

    def is_read(self) -> bool:
        """Return whether lotus is still there to read what this process tells."""
        if self._tells < 0:
            return False
        poll = select.poll()
        poll.register(self._tells, 0)
        return not any(events & (select.POLLERR | select.POLLNVAL) for _, events in poll.poll(0))

    def claim(self) -> bool:
        """Return whether this process is the first of the program to claim the trials."""
        try:
            return claim(self._exchange)
        except OSError as error:
            raise LotusGoneError(str(error)) from None

    def tell(self, fact: "Mapping[str, object]") -> None:
        data = (json.dumps(fact) + "\n").encode()
        poll = select.poll()
        poll.register(self._tells, select.POLLOUT)
        while data:
            _, events = poll.poll()[0]
            if events & select.POLLERR:
                raise LotusGoneError("nobody reads")
            try:
                data = data[os.write(self._tells, data) :]
            except BlockingIOError:
                # There is room, but too little for a short line, which is written as a whole.
                select.select((), (), (), 0.01)
            except OSError as error:
                raise LotusGoneError(str(error)) from None

    def ask(self) -> "dict[str, Any]":
        """Wait for the next message of lotus and return it."""
        if self._asks < 0:
            self._asks = self._open("asks", os.O_RDONLY)
        poll = select.poll()
        poll.register(self._asks, select.POLLIN)
        # POLLERR: lotus no longer reads. A pipe whose writer was gone before it was opened does not
        # report that.
        poll.register(self._tells, 0)
        while b"\n" not in self._text:
            with breakable():
                poll.poll()
            try:
                data = os.read(self._asks, 1 << 16)
            except BlockingIOError:
                data = b""
            if not data or len(self._text) > _LONGEST:
                raise LotusGoneError("nobody asks")
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def answer(self) -> "dict[str, Any] | None":
        """Return what all processes of the program do after the trials, if that is known."""
        try:
            with open(os.path.join(self._exchange, "answer"), encoding="utf-8") as file:
                answer: dict[str, Any] = json.load(file)
                return answer
        except (OSError, ValueError):
            return None

    def wait(self, unclaimed_s: float, clock: "Callable[[], float]") -> "dict[str, Any] | None":
        """Wait for the answer; return None if no process claims the trials for `unclaimed_s`."""
        poll = select.poll()
        poll.register(self._tells, 0)  # POLLERR: lotus no longer reads
        until = clock() + unclaimed_s
        claimed = os.path.join(self._exchange, "claimed")
        while True:
            answer = self.answer()
            if answer is not None:
                return answer
            if clock() > until and not os.path.exists(claimed):
                return None
            with breakable():
                hung_up = poll.poll(50)
            if hung_up:
                raise LotusGoneError("nobody reads")


def mention(exchange: str, fact: "Mapping[str, object]") -> None:
    """Send lotus a fact that may get lost."""
    try:
        link = Link(exchange)
    except LotusGoneError:
        return
    try:
        data = (json.dumps(fact) + "\n").encode()
        if len(data) <= select.PIPE_BUF:
            os.write(link._tells, data)
    except OSError:
        pass
    finally:
        link.close()

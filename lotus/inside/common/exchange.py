"""The folder that a tuned program shares with lotus: two pipes, who tunes, and the answer for all.

`tells` carries JSON lines to lotus, `asks` JSON lines from it; `claimed` names the process that
does the trials; `answer` holds what all processes of the program shall do when those are over.
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
    """Whether this process is the first to say so in a folder. Raises OSError."""
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(os.open(os.path.join(folder, "claimed"), flags, 0o600))
    except FileExistsError:
        return False
    return True


class Gone(Exception):
    """lotus is not there any more."""


class Link:
    """One process's end of the pipes. Raises Gone, at any call, where lotus has gone."""

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
            raise Gone(str(error)) from None

    def close(self) -> None:
        for descriptor in (self._tells, self._asks):
            if descriptor >= 0:
                os.close(descriptor)
        self._tells = self._asks = -1

    def claim(self) -> bool:
        """Whether this process is the first of the program that wants to be tuned."""
        try:
            return claim(self._exchange)
        except OSError as error:
            raise Gone(str(error)) from None

    def tell(self, fact: "Mapping[str, object]") -> None:
        data = (json.dumps(fact) + "\n").encode()
        poll = select.poll()
        poll.register(self._tells, select.POLLOUT)
        while data:
            _, found = poll.poll()[0]
            if found & select.POLLERR:
                raise Gone("nobody reads")
            try:
                data = data[os.write(self._tells, data) :]
            except BlockingIOError:
                # There is room, but not for a whole short line: another process's may not mix in.
                select.select((), (), (), 0.01)
            except OSError as error:
                raise Gone(str(error)) from None

    def ask(self) -> "dict[str, Any]":
        """The next thing to do; waits for it."""
        if self._asks < 0:
            self._asks = self._open("asks", os.O_RDONLY)
        poll = select.poll()
        poll.register(self._asks, select.POLLIN)
        # An error: nobody reads any more. A pipe that is opened when its writer has gone already
        # does not tell so.
        poll.register(self._tells, 0)
        while b"\n" not in self._text:
            with breakable():
                poll.poll()
            try:
                data = os.read(self._asks, 1 << 16)
            except BlockingIOError:
                data = b""
            if not data or len(self._text) > _LONGEST:
                raise Gone("nobody asks")
            self._text += data
        line, _, self._text = self._text.partition(b"\n")
        asked: dict[str, Any] = json.loads(line)
        return asked

    def answer(self) -> "dict[str, Any] | None":
        """What all processes of the program shall do, if that is known."""
        try:
            with open(os.path.join(self._exchange, "answer"), encoding="utf-8") as file:
                answer: dict[str, Any] = json.load(file)
                return answer
        except (OSError, ValueError):
            return None

    def wait(self, unclaimed_s: float, clock: "Callable[[], float]") -> "dict[str, Any] | None":
        """The answer; None where for `unclaimed_s` seconds no process was there to be tuned."""
        poll = select.poll()
        poll.register(self._tells, 0)  # an error: nobody reads any more
        until = clock() + unclaimed_s
        claimed = os.path.join(self._exchange, "claimed")
        while True:
            answer = self.answer()
            if answer is not None:
                return answer
            if clock() > until and not os.path.exists(claimed):
                return None
            with breakable():
                gone = poll.poll(50)
            if gone:
                raise Gone("nobody reads")


def mention(exchange: str, fact: "Mapping[str, object]") -> None:
    """Tell lotus something that it may also miss."""
    try:
        link = Link(exchange)
    except Gone:
        return
    try:
        data = (json.dumps(fact) + "\n").encode()
        if len(data) <= select.PIPE_BUF:
            os.write(link._tells, data)
    except OSError:
        pass
    finally:
        link.close()

"""Writing to the user's stderr, which never fails."""

import contextlib
import os
import select
import sys
import unicodedata
from collections.abc import Callable


def say(text: str, start: str = "", style: Callable[[str], str] = str) -> None:
    """Write a text to stderr; a stream that is closed, broken or full loses it.

    What in it could steer a terminal, as a name from a file may, is written as an escape; `start`
    stands before it as it is, and `style` is applied after that.
    """
    stream = sys.stderr
    if stream is None:
        return
    text = style(printable(text))
    data = (start + text if text.endswith("\n") else f"{start}{text}\n").encode(
        getattr(stream, "encoding", None) or "utf-8", "backslashreplace"
    )
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
        # Not by the stream: it would try again at exit what it could not write, and Python would
        # then return 120 instead of the program's exit code.
        descriptor = stream.fileno()
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # the program left its terminal non-blocking
                select.select([], [descriptor], [], 10)


def printable(text: str) -> str:
    """Return the text with what could control a terminal escaped; line ends stay."""
    if text.isprintable():
        return text  # also one of a class of its own, as a grey cell is
    return "".join(char if is_harmless(char) else _escape(char) for char in text)


def is_harmless(character: str) -> bool:
    """Return True if it controls no terminal: line ends and the spaces of any script do not."""
    return character.isprintable() or character == "\n" or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def open_missing() -> None:
    """Give `sys.stdout` and `sys.stderr` somewhere to write to where they were closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115

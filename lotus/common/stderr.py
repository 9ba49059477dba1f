"""Writing to the user's stderr without ever failing for it."""

import contextlib
import os
import select
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator

_NOTICED_S = 2.0  # of work without a word


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
        # Not by the stream: what it could not write it would try again at exit, and Python would
        # then return 120 instead of the program's exit code.
        descriptor = stream.fileno()
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # the program left its terminal non-blocking
                select.select([], [descriptor], [], 10)


def printable(text: str) -> str:
    """The text with an escape for what could steer a terminal, itself without any; lines stay."""
    if text.isprintable():
        return text  # also one of a class of its own, as a grey cell is
    return "".join(char if is_harmless(char) else _escape(char) for char in text)


def is_harmless(character: str) -> bool:
    """Whether it steers no terminal: a line's end and the spaces of any script do not."""
    return character.isprintable() or character == "\n" or unicodedata.category(character) == "Zs"


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def open_missing() -> None:
    """Give `sys.stdout` and `sys.stderr` somewhere to write to where they were closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr for work of two seconds or more, where a person looks; it is told how much of
    all is done.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, whole: None
        return
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        shown: list[Callable[[int, int], None]] = []
        over = False

        def advance(done: int, whole: int) -> None:
            if over:  # by who kept it
                return
            if not shown and time.monotonic() - begun >= _NOTICED_S:
                shown.append(stack.enter_context(_bar(what)))
            for show in shown:
                show(done, whole)

        try:
            yield advance
        finally:
            over = True


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)

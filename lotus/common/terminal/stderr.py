"""Writing to the user's stderr, which never fails."""

import contextlib
import os
import re
import select
import sys
import unicodedata
from collections.abc import Callable
from typing import TextIO

_PREFIX = "lotus: "
_COLUMNS = 80  # of a terminal that does not say how wide it is
_VERBS = (
    "trace|report|attach|top|doctor|map|export|tune|advise|plan|run|cache|sweep|whatif|compare|"
    "merge|balance|demo|schema|completion"
)
# Commands in messages, which are copied: in backquotes, at the end after a colon, or of lotus.
_COMMAND = re.compile(
    rf"`[^`]*`|(?<=: )(?:lotus (?:{_VERBS})|pip|kill|sudo|cp|env|ulimit|python\S*) .*?(?=; |$)"
    rf"|\blotus (?:{_VERBS})(?: -\S+)*(?: [^\s;,]+)?"
)
_KEPT = "\ue000"  # stands for a space in a command while a message is wrapped


def say(text: str, start: str = "", style: Callable[[str], str] = str) -> None:
    """Write a text to stderr; a stream that is closed, broken or full loses it.

    What in it could steer a terminal, as a name from a file may, is written as an escape; `start`
    stands before it as it is, and `style` is applied after that. Messages of lotus, which are one
    line each, are wrapped on a terminal that is narrower; commands in them are not.
    """
    stream = sys.stderr
    if stream is None:
        return
    text = style(_wrapped(printable(text), stream))
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


def _wrapped(text: str, stream: TextIO) -> str:
    """Return the text with messages that are wider than the terminal on several lines."""
    if _PREFIX not in text or not (width := _width_of(stream)):
        return text
    return "\n".join(
        _lines_of(line, width) if line.startswith(_PREFIX) and len(line) > width else line
        for line in text.split("\n")
    )


def _width_of(stream: TextIO) -> int:
    """Return the columns of a terminal; 0 for what is none."""
    try:
        if not stream.isatty():
            return 0
        if (columns := os.environ.get("COLUMNS", "")).isdecimal() and int(columns):
            return int(columns)
        return os.get_terminal_size(stream.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return 0


def _lines_of(message: str, width: int) -> str:
    import textwrap  # few messages need it

    words = message.removeprefix(_PREFIX)
    words = _COMMAND.sub(lambda found: found[0].replace(" ", _KEPT), words)
    wrapped = textwrap.wrap(
        words,
        width,
        initial_indent=_PREFIX,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapped).replace(_KEPT, " ")


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

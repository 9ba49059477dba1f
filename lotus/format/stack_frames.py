"""The parts of a frame of py-spy's stacks: a function, its file and a line."""

import re

_MOST_DIGITS = 9  # of a line's number
# torch's file whose functions make a batch.
FETCHER = "torch/utils/data/_utils/fetch.py"
# Files that are not the program's own.
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|<frozen ")
# Files in which a thread that is innermost there waits, and functions of other libraries that wait.
_WAITING_FILES = re.compile(
    r"(?:^|/)(?:threading|queue|selectors|socket|ssl|subprocess|multiprocessing/\w+|"
    r"concurrent/futures/\w+|torch/utils/data/(?:\w+/)*\w+)\.py$"
)
_WAITING_NAMES = frozenset(("accept", "poll", "select", "wait"))


def parsed(text: str) -> tuple[str, str, int] | None:
    """Return (function, file, line) of py-spy's `function (file:line)`; None for other text.

    Without a pattern, as one with two parts of any length takes the square of the text's.
    """
    place, _, line = text.removesuffix(")").rpartition(":")
    function, _, file = place.rpartition(" (")
    number = line.isascii() and line.isdecimal() and len(line) <= _MOST_DIGITS
    if not (text.endswith(")") and number and function and file) or "\n" in text:
        return None
    return function, file, int(line)


def bare_name(function: str) -> str:
    """Return the name of a function without its class or what it is defined in."""
    return function.rpartition(".")[2]


def class_of(function: str) -> str:
    """Return the class of a method; "" of a plain function."""
    parts = function.split(".")
    return parts[-2] if len(parts) > 1 and parts[-2] != "<locals>" else ""


def waits(function: str, file: str) -> bool:
    """Return True if a thread with this innermost function waits, and does not compute.

    A function of the program with such a name may well compute.
    """
    named = bare_name(function) in _WAITING_NAMES and LIBRARY.search(file)
    return bool(named or _WAITING_FILES.search(file))

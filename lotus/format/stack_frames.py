"""What a frame of py-spy's stacks says: a function, its file and a line."""

import re

_MOST_DIGITS = 9  # of a line's number
# Files that are not the program's own.
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|<frozen ")


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

"""A line of a Python stack; apart, as what reads stacks from files needs pandas."""

from typing import NamedTuple


class Frame(NamedTuple):
    """One line of a stack; `line` is 0 if py-spy does not know it."""

    function: str
    file: str
    line: int

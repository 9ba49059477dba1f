"""Where what a signal's handler raises may come while settings are tried: where it is waited.

Elsewhere, as where a candidate is ended, it would leave things half done, or be lost.
"""

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_allowed = False


def allowed() -> bool:
    return _allowed


def allow(may: bool) -> bool:
    """From now on; returns whether it was before."""
    global _allowed
    before, _allowed = _allowed, may
    return before


@contextmanager
def breakable(may: bool = True) -> "Iterator[None]":
    before = allow(may)
    try:
        yield
    finally:
        allow(before)

"""Defers exceptions of signal handlers while settings are tried, until the main thread waits.

At other points, for instance while workers are started or stopped, such an exception would leave
work half done or get lost. A second Ctrl-C, a moment after the first, is not deferred.
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Handler = TypeVar("_Handler", bound=Callable[..., object])

INSIST_S = 0.5  # a launcher and the terminal may both deliver one Ctrl-C
_OURS = "_lotus_keeps"

_allowed = False
_kept_back = 0
_between_waits = False
_waiting: "BaseException | None" = None


def allowed() -> bool:
    return _allowed


def allow(may: bool) -> bool:
    """Allow exceptions to be raised from now on, or not; return the previous value."""
    global _allowed
    before, _allowed = _allowed, may
    return before


# Classes, because frames of contextlib would appear in the program's traceback.


class breakable:
    """Context in which deferred exceptions may be raised, or may not."""

    def __init__(self, may: bool = True) -> None:
        self._may = may

    def __enter__(self) -> None:
        self._before = allow(self._may)
        try:
            if self._may:
                _come()
        except BaseException:
            allow(self._before)
            raise

    def __exit__(self, *_: object) -> None:
        allow(self._before)


class kept_back:
    """Context in which no deferred exception is raised."""

    def __enter__(self) -> None:
        global _kept_back
        _kept_back += 1

    def __exit__(self, kind: object, *_: object) -> None:
        global _kept_back
        _kept_back -= 1
        if _allowed and kind is None:
            _come()


class only_waits(kept_back):
    """Context in which exceptions, those of a Watchdog too, are raised inside `let_come` only."""

    def __enter__(self) -> None:
        global _between_waits
        super().__enter__()
        self._before, _between_waits = _between_waits, True

    def __exit__(self, kind: object, *others: object) -> None:
        global _between_waits
        _between_waits = self._before
        super().__exit__(kind, *others)


class let_come:
    """Context in which exceptions may be raised, even inside `kept_back`."""

    def __enter__(self) -> None:
        global _between_waits, _kept_back
        self._before = _kept_back, _between_waits
        _kept_back, _between_waits = 0, False
        try:
            if _allowed:
                _come()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        global _between_waits, _kept_back
        _kept_back, _between_waits = self._before


def between_waits() -> bool:
    return _between_waits


def stop(error: BaseException) -> None:
    """Raise an exception now if that is allowed, else at the next wait."""
    global _waiting
    _waiting = error
    if _allowed:
        _come()


def _come() -> None:
    global _waiting
    if _waiting is not None and not _kept_back:
        error, _waiting = _waiting, None
        raise error


def forget() -> None:
    """Forget a deferred exception, which is raised elsewhere."""
    global _waiting
    _waiting = None


def ours(handler: "_Handler") -> "_Handler":
    """Mark a signal handler that raises only through `stop`."""
    setattr(handler, _OURS, True)
    return handler


def is_ours(handler: object) -> bool:
    return getattr(handler, _OURS, False) is True


class Insisting:
    """Recognizes a second Ctrl-C; the first may arrive twice at once."""

    def __init__(self) -> None:
        self._first: float | None = None

    def again(self) -> bool:
        """Note a Ctrl-C; return whether the first was at least INSIST_S ago."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first >= INSIST_S

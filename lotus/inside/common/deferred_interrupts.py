"""Where what a signal's handler raises may come while settings are tried: where it is waited.

Elsewhere, as where workers are started or ended, it would leave things half done, or be lost. There
it is kept until the next wait. Of Ctrl-C a second one, a moment later, is not kept.
"""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Handler = TypeVar("_Handler", bound=Callable[..., object])

INSIST_S = 0.5  # a launcher and the terminal may both pass on one Ctrl-C
_OURS = "_lotus_keeps"

_allowed = False
_kept_back = 0
_between_waits = False
_waiting: "BaseException | None" = None


def allowed() -> bool:
    return _allowed


def allow(may: bool) -> bool:
    """From now on; returns whether it was before."""
    global _allowed
    before, _allowed = _allowed, may
    return before


# Classes, as contextlib's frames would stand in the traceback that the program shows.


class breakable:
    """Meanwhile it may come, or may not."""

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
    """Meanwhile nothing that a signal's handler raised comes, where else it might."""

    def __enter__(self) -> None:
        global _kept_back
        _kept_back += 1

    def __exit__(self, kind: object, *_: object) -> None:
        global _kept_back
        _kept_back -= 1
        if _allowed and kind is None:
            _come()


class only_waits(kept_back):
    """Meanwhile it comes inside `let_come` only; what a Watch raises too."""

    def __enter__(self) -> None:
        global _between_waits
        super().__enter__()
        self._before, _between_waits = _between_waits, True

    def __exit__(self, kind: object, *others: object) -> None:
        global _between_waits
        _between_waits = self._before
        super().__exit__(kind, *others)


class let_come:
    """It may come meanwhile, though it is kept back around this."""

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
    """Raise it: now, or where that would do harm, at the next wait."""
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
    """What waits to be raised is raised elsewhere."""
    global _waiting
    _waiting = None


def ours(handler: "_Handler") -> "_Handler":
    """Mark a signal's handler that raises by `stop` only."""
    setattr(handler, _OURS, True)
    return handler


def is_ours(handler: object) -> bool:
    return getattr(handler, _OURS, False) is True


class Insisting:
    """Tells a second Ctrl-C from the first one, which may have come twice at once."""

    def __init__(self) -> None:
        self._first: float | None = None

    def again(self) -> bool:
        """One has come: whether the first was long enough ago."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first >= INSIST_S

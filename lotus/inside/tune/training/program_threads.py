"""Puts torch's threads back after the program trained with another number of them."""

from __future__ import annotations

import operator
import sys
import weakref
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class _Iterator(weakref.ref):  # type: ignore[type-arg]
    """A reference to an iterator; puts torch's threads back where the program drops the iterator.

    No function of Python does so: the exception of a signal handler would be lost in it.
    """

    put_back: Callable[[], object]


class ProgramThreads:
    """The program's own number of torch's threads, while it trains with `others`; None: the same.

    It gets them back with `put_back`, or when it drops the iterator, unless it has set others.
    """

    def __init__(self, iterator: Any, others: int | None) -> None:
        self._torch: Any = sys.modules["torch"]
        self._others, self._own = others, self._torch.get_num_threads()
        self._watched: _Iterator | None = None
        if others is not None:
            self._watched = _Iterator(iterator, operator.methodcaller("put_back"))
            self._watched.put_back = partial(self._torch.set_num_threads, self._own)

    def look(self) -> None:
        """Put nothing back if the program has set a number of its own meanwhile."""
        if self._watched is None:
            return
        if self._torch.get_num_threads() not in (self._others, self._own):
            self._watched = None

    def put_back(self) -> None:
        """Give the program its own threads again."""
        self._watched = None
        if self._torch.get_num_threads() == self._others != self._own:
            self._torch.set_num_threads(self._own)

"""Lets an epoch begin again at its end, in a program that is ended before it could tell.

`lotus tune` and `lotus advise` compare settings in the program's own steps: a short epoch would end
before there are enough of them.
"""

from __future__ import annotations

import os

from ...apply import epoch_handover
from . import unsent_batches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class EndlessIndices:
    """A sampler's iterator that goes on for ever: at the end of the epoch it begins again.

    While `repeats`, it gives the latest `again` indices again and again, or those since `mark`.
    While `unsent`, it marks them. Where `again` is 0, as for a stream, it repeats nothing and ends
    as before; so it does where `goes_on` says at its end that it shall not begin again. `afresh`
    gives the indices of another epoch, for where none were left of this one.
    """

    def __init__(
        self,
        indices: Iterator[Any],
        again: int,
        goes_on: Callable[[], bool] | None = None,
        afresh: Callable[[], Iterator[Any]] | None = None,
    ) -> None:
        self.repeats = self.unsent = False
        self.wrapped = False  # whether the epoch was over
        self._indices, self._again, self._goes_on = indices, again, goes_on
        self._afresh = afresh
        self._past: list[Any] = []
        self._marked: list[Any] | None = None
        self._number = 0

    def mark(self) -> None:
        """Let the indices that follow be those that are repeated later."""
        self._marked, self._number = [], 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch = self._next()
        return unsent_batches.marked(batch) if self.unsent else batch

    def _next(self) -> Any:
        if self.repeats and self._past:
            latest = self._marked or self._past[-self._again :]
            self._number += 1
            return latest[self._number % len(latest)]
        try:
            batch = next(self._indices)
        except StopIteration:
            if not self._past and self._afresh is None:
                raise
            if self._goes_on is not None and not self._goes_on():
                raise
            if self._past:
                self.wrapped, self._indices = True, iter(self._past)
            elif self._afresh is not None:
                self._indices, self._afresh = self._afresh(), None
            batch = next(self._indices)
        if not self.wrapped and self._again:
            self._past.append(batch)
        if self._marked is not None:
            self._marked.append(batch)
        return batch


def never_end(loader: Any, iterator: Any, goes_on: Callable[[], bool]) -> None:
    """Let the epoch of an iterator begin again at its end, with the batches that are left of it.

    If the workers have all of them in flight already, the sampler begins another epoch. It ends
    where `goes_on` says so, and in a child that the program forks: it may be waited for.
    """
    changed = epoch_handover.KEY in iterator.__dict__  # its indices are with another one already
    changed = changed or isinstance(iterator._sampler_iter, EndlessIndices)
    if changed or epoch_handover.why_not_fed(loader, iterator):
        return
    pid = os.getpid()
    iterator._sampler_iter = EndlessIndices(
        iterator._sampler_iter,
        1,
        lambda: os.getpid() == pid and goes_on(),
        lambda: iter(loader._index_sampler),
    )

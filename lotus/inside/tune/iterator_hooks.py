"""The hooks of `lotus tune` on torch's loaders and their iterators, for its agent (agent.py)."""

from __future__ import annotations

import threading
from contextlib import suppress

from ..apply import epoch_handover
from ..common.guard import edge, hide_our_frames, hook
from .feeds import unsent_batches
from .observation.observer import KEY, clock
from .session.program_end import share_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def get_iterator(original: Callable[..., Any], agent: Any) -> Callable[..., Any]:
    """Hook for `DataLoader._get_iterator`."""

    def _get_iterator(self: Any) -> Any:
        if self.num_workers and not agent.config.apply:  # lotus ends the program
            edge(agent, share_folder)
        start = clock()
        try:
            switched = agent.switched
            iterator = original(self) if switched is None else switched.start(self, original)
        except BaseException as error:
            hide_our_frames(agent, error)
            raise
        edge(agent, agent.epoch_begins, self, iterator, start)
        return iterator

    return hook(_get_iterator)


def reset(original: Callable[..., Any], agent: Any) -> Callable[..., Any]:
    """Hook for `_BaseDataLoaderIter._reset`: an epoch of persistent workers begins."""

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self.__dict__.pop(epoch_handover.KEY, None)
            edge(agent, agent.epoch_begins, loader, self, clock())
        try:
            original(self, loader, first_iter)
        except BaseException as error:
            hide_our_frames(agent, error)
            raise

    return hook(_reset)


def next_batch(original: Callable[..., Any], agent: Any) -> Callable[..., Any]:
    """Hook for `_BaseDataLoaderIter.__next__`."""

    def more(self: Any, rest: Any) -> Any:
        if rest.successor is None:
            with suppress(StopIteration):
                return taken(self, self if rest.before is None else rest.before)
            if rest.begin() is None:
                raise StopIteration
        return taken(self, rest.successor)

    def taken(self: Any, maker: Any) -> Any:
        batch = original(maker)
        if maker is not self:
            self._num_yielded += 1
        return batch

    def __next__(self: Any) -> Any:
        observer = self.__dict__.get(KEY)
        try:
            if observer is not None:
                edge(agent, agent.next_called, self, observer)
                observer = self.__dict__.get(KEY)  # there may be another now, or none
            rest = self.__dict__.get(epoch_handover.KEY)
            if observer is None:
                return original(self) if rest is None else more(self, rest)
            edge(agent, agent.fetch_begins, observer)
            start = clock()
            try:
                observer.in_next = threading.get_ident()
                given = observer.replacement and edge(agent, observer.replacement)
                if given:
                    (batch,) = given
                else:
                    batch = original(self) if rest is None else more(self, rest)
                now = clock()
                if unsent_batches.is_unsent(batch):
                    (batch,) = edge(agent, observer.in_place_of_unsent) or (batch,)
            except StopIteration:
                edge(agent, agent.exhausted, self, observer)
                raise
            finally:
                observer.in_next = 0
            edge(agent, agent.batch_received, observer, batch, start, now)
            return batch
        except StopIteration:
            raise
        except BaseException as error:
            hide_our_frames(agent, error)
            raise

    hook(more)
    hook(taken)
    return hook(__next__)

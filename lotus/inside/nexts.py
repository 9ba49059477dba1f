"""The hooks of `lotus tune` on torch's loaders and their iterators, for its agent (trials.py)."""

from __future__ import annotations

import threading
from contextlib import suppress

from . import going_on
from .guard import edge, hide_our_frames, hook
from .watching import KEY, clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def get_iterator(original: Callable[..., Any], agent: Any) -> Callable[..., Any]:
    """Hook for `DataLoader._get_iterator`."""

    def _get_iterator(self: Any) -> Any:
        start = clock()
        try:
            iterator = original(self)
        except BaseException as error:
            hide_our_frames(agent, error)
            raise
        edge(agent, agent.started, self, iterator, start)
        return iterator

    return hook(_get_iterator)


def reset(original: Callable[..., Any], agent: Any) -> Callable[..., Any]:
    """Hook for `_BaseDataLoaderIter._reset`: an epoch of persistent workers begins."""

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self.__dict__.pop(going_on.KEY, None)
            edge(agent, agent.started, loader, self, clock())
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
        watch = self.__dict__.get(KEY)
        try:
            if watch is not None:
                edge(agent, agent.asked, self, watch)
                watch = self.__dict__.get(KEY)  # there may be another now, or none
            rest = self.__dict__.get(going_on.KEY)
            if watch is None:
                return original(self) if rest is None else more(self, rest)
            edge(agent, agent.fetches, watch)
            start = clock()
            try:
                watch.asking = threading.get_ident()
                batch = original(self) if rest is None else more(self, rest)
                now = clock()
            except StopIteration:
                edge(agent, agent.exhausted, self, watch)
                raise
            finally:
                watch.asking = 0
            edge(agent, agent.took, watch, batch, start, now)
            return batch
        except StopIteration:
            raise
        except BaseException as error:
            hide_our_frames(agent, error)
            raise

    hook(more)
    hook(taken)
    return hook(__next__)


def put_back(owner: Any, name: str, ours: Any, before: Any) -> None:
    if vars(owner).get(name) is ours:  # else somebody put something over it
        setattr(owner, name, before)

"""Keeps the random numbers of the main process the same after a loader's setting was changed.

torch calls `iter` on a sampler once per epoch without workers, and twice if it starts workers. It
draws a base seed each time it makes an iterator; with persistent workers it makes only one. Each of
these calls advances the generator that shuffles the next epoch.
"""

from __future__ import annotations

import sys

from ..common.guard import edge, hide_our_frames, hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any
_KEY = "_lotus_own"  # attribute of an iterator that holds the Own of its changed loader


class Own:
    """Computes what the program's own setting would have drawn, epoch by epoch."""

    def __init__(self, workers: int, persistent: bool) -> None:
        self.workers, self.persistent = workers, persistent
        self.epoch = -1
        self.first_seed = 0

    def seeds(self) -> bool:
        """Return whether it would draw a seed in this epoch."""
        return self.epoch == 0 or not (self.workers and self.persistent)

    def asks_twice(self) -> bool:
        """Return whether it would call `iter` on the sampler twice in this epoch."""
        return self.workers > 0 and self.seeds()


class MadeIterator:
    """A sampler that returns an existing iterator."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator

    def __iter__(self) -> Any:
        return self.iterator


def init(original: Callable[..., Any], applier: Any) -> Callable[..., Any]:
    """Hook for `_BaseDataLoaderIter.__init__`, which iterates the sampler and draws a seed."""

    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        own: Own | None = edge(applier, applier.own, loader)
        try:
            if own is None:
                original(self, loader, *args, **kwargs)
                return
            own.epoch += 1
            self.__dict__[_KEY] = own
            if own.seeds():
                original(self, loader, *args, **kwargs)
            else:
                generator = loader.generator
                loader.generator = sys.modules["torch"].Generator()
                loader.generator.manual_seed((own.first_seed + own.epoch) % 2**63)
                try:
                    original(self, loader, *args, **kwargs)
                finally:
                    loader.generator = generator
            if own.epoch == 0:
                own.first_seed = self._base_seed
            if self._num_workers == 0 and own.asks_twice():
                self._sampler_iter = iter(self._index_sampler)
        except BaseException as error:
            hide_our_frames(applier, error)
            raise

    return hook(__init__)


def reset(original: Callable[..., Any], applier: Any) -> Callable[..., Any]:
    """Hook for `_BaseDataLoaderIter._reset`, which iterates the sampler (again)."""

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        own: Own | None = self.__dict__.get(_KEY)
        try:
            if own is None or (first_iter and own.asks_twice()):
                original(self, loader, first_iter)
            elif first_iter:
                sampler = self._index_sampler
                self._index_sampler = MadeIterator(self._sampler_iter)
                try:
                    original(self, loader, first_iter)
                finally:
                    self._index_sampler = sampler
            else:  # persistent workers go on
                own.epoch += 1
                original(self, loader, first_iter)
                if own.seeds():
                    torch: Any = sys.modules["torch"]
                    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
                if own.asks_twice():
                    self._sampler_iter = iter(self._index_sampler)
        except BaseException as error:
            hide_our_frames(applier, error)
            raise

    return hook(_reset)

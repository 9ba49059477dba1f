"""Batches that workers make and do not send, so that blocks show what sending costs.

The main process marks the indices of such a batch. The worker makes it all the same, drops it, and
sends a short text, in place of which the program gets a batch that it had before.
"""

from __future__ import annotations

from ...common import patching
from ...common.guard import hook
from ...common.process_identity import is_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_SENT = "lotus: this batch was made and not sent"


class UnsentIndices(list):  # type: ignore[type-arg]
    """The indices of a batch that is not sent; for a worker without our hook they are any list."""


class UnsentFetcher:
    """Stands for a worker's fetcher, and drops batches whose indices are marked."""

    def __init__(self, fetcher: Any) -> None:
        self.__dict__.update(_fetcher=fetcher)

    def fetch(self, index: Any) -> Any:
        if type(index) is not UnsentIndices:
            try:
                return self._fetcher.fetch(index)
            except BaseException as error:
                patching.hide(error)
                raise
        try:
            self._fetcher.fetch(list(index))
        except BaseException as error:
            patching.hide(error)
            raise
        return _SENT

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)


hook(UnsentFetcher.fetch)


def create_fetcher(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for `_DatasetKind.create_fetcher`, which workers call."""

    def create_fetcher(*args: Any, **kwargs: Any) -> Any:
        fetcher = original(*args, **kwargs)
        return UnsentFetcher(fetcher) if is_worker() else fetcher

    return hook(create_fetcher)


def marked(index: Any) -> Any:
    """Return the indices of a batch marked, if they are a list."""
    return UnsentIndices(index) if type(index) is list else index


def is_unsent(batch: Any) -> bool:
    """Return whether this was sent in place of a batch."""
    return type(batch) is str and batch == _SENT

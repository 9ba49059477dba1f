"""The program's next steps while its own workers have nothing to do: how long they take alone.

Beside workers that keep the cores busy a step takes longer, many times where its threads wait for
each other; a step that is measured so would be slowed once more by the workers of a trial.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque

from .pausing import wait_until_idle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 8  # steps
_PUT = "_try_put_index"  # torch's: hands on the indices of one batch to a worker
_NEXT = "_next_index"  # torch's: what that asks the sampler by
_MAP_STYLE = 0


class Quiet:
    """Keeps indices back, while batches that lie ready are trained on.

    The sampler is asked for them when torch asks: it may draw, raise, or look at what the program
    has learnt so far. Only of data sets by index: where the worker of an iterable one ends, torch
    takes what it has kept back for the end of the epoch.
    """

    def __init__(self, iterator: Any) -> None:
        """Begin, where batches lie ready: `on` then."""
        self.steps: list[float] = []
        self.cpu: list[float] = []
        self._iterator = weakref.ref(iterator)
        self._kept_back: deque[Any] = deque()
        self.on = _is_torchs(iterator) and _ready(iterator) and not wait_until_idle(iterator)
        if self.on:
            iterator.__dict__[_NEXT] = self._keep_back

    def goes_on(self) -> bool:
        """Whether one more such step can be taken; if not, the workers go on."""
        iterator = self._iterator()
        if not self.on or iterator is None or len(self.steps) >= _MOST or not _ready(iterator):
            self.end()
        return self.on

    def end(self, begins: Any = None) -> None:
        """Hand on what was kept back; not where `begins`, an iterator, is this one: it was asked
        for another epoch, and hands on all of that.
        """
        iterator, kept_back = self._iterator(), self._kept_back
        self.on = False
        if iterator is None:
            return
        known = iterator.__dict__
        known.pop(_NEXT, None)
        if iterator is begins:
            kept_back.clear()
        while kept_back:
            known[_NEXT] = kept_back.popleft
            try:
                getattr(iterator, _PUT)()
            finally:
                del known[_NEXT]

    def _keep_back(self) -> Any:
        iterator = self._iterator()
        self._kept_back.append(getattr(type(iterator), _NEXT)(iterator))
        raise StopIteration  # as where the sampler has no more: torch hands on nothing


def _is_torchs(iterator: Any) -> bool:
    """Whether its workers get the indices of a data set as torch itself hands them on."""
    kind = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
    return getattr(iterator, "_dataset_kind", None) == _MAP_STYLE and all(
        getattr(type(iterator), name, None) is getattr(kind, name, kind) for name in (_PUT, _NEXT)
    )


def _ready(iterator: Any) -> bool:
    """Whether batches were asked for that were not taken; workers at rest have made all of them.

    Not by their numbers: where batches come out of order, torch counts on later.
    """
    return bool(iterator._task_info)

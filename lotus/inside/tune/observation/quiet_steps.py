"""Times training steps of the program while its workers are idle.

Busy workers slow a step down, many times if its threads synchronize often. An emulated step with
that duration would be slowed down a second time by the workers of a trial.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque

from .idle_workers import wait_until_idle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 8  # steps
_PUT = "_try_put_index"  # torch's method that sends the indices of a batch to a worker
_NEXT = "_next_index"  # torch's method that draws them from the sampler
_MAP_STYLE = 0


class Quiet:
    """Withholds indices from the workers while the program trains on batches that are ready.

    Indices are drawn from the sampler when torch asks for them: it may draw random numbers, raise,
    or depend on the state of the program. Iterable data sets are not supported: when one of their
    workers ends, torch takes withheld indices for the end of the epoch.
    """

    def __init__(self, iterator: Any) -> None:
        """Start if batches are ready; `on` is then true."""
        self.steps: list[float] = []
        self.cpu: list[float] = []
        self._iterator = weakref.ref(iterator)
        self._kept_back: deque[Any] = deque()
        self.on = _is_torchs(iterator) and _ready(iterator) and not wait_until_idle(iterator)
        if self.on:
            iterator.__dict__[_NEXT] = self._keep_back

    def goes_on(self) -> bool:
        """Return whether another such step is possible; if not, resume the workers."""
        iterator = self._iterator()
        if not self.on or iterator is None or len(self.steps) >= _MOST or not _ready(iterator):
            self.end()
        return self.on

    def end(self, begins: Any = None) -> None:
        """Send withheld indices to the workers.

        If `begins` is this iterator, it starts another epoch, and the indices are dropped.
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
        raise StopIteration  # as if the sampler were exhausted, so that torch sends nothing


def _is_torchs(iterator: Any) -> bool:
    """Return whether this is torch's own iterator, with workers, of a map-style data set."""
    kind = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
    return getattr(iterator, "_dataset_kind", None) == _MAP_STYLE and all(
        getattr(type(iterator), name, None) is getattr(kind, name, kind) for name in (_PUT, _NEXT)
    )


def _ready(iterator: Any) -> bool:
    """Return whether requested batches are left; idle workers have completed all of them.

    Batch numbers cannot tell: torch updates them late if batches come out of order.
    """
    return bool(iterator._task_info)

"""Puts ways to fetch samples in and takes them out while the program trains: see fed_training.py.

All workers have them ready; a byte in a file that they map says which one the next fetch uses. So
no worker starts anew, and blocks with and without one can be compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ...apply.changed_transforms import at
from ...apply.worker_start import WorkerInit
from ...common.guard import edge, hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

active: SwitchedFetches | None = None  # of this process


class SwitchedFetches(ABC):
    """`kinds` of data have the numbers 1, 2, ... in the byte of the file `path`; others 0."""

    def __init__(self, applier: Any, kinds: Sequence[str], path: str) -> None:
        self._applier, self._kinds, self._path = applier, list(kinds), path
        self._byte = at(path)

    @abstractmethod
    def _plan(self, loader: Any) -> Any:
        """Return what the workers of a loader need; None: nothing."""

    @abstractmethod
    def _pending(self, loader: Any, plan: Any) -> tuple[Any, Any]:
        """Return (feature, its `pending`) for a loader without workers."""

    @abstractmethod
    def _init(self, function: Callable[[int], object] | None, plan: Any) -> WorkerInit:
        """Return the `worker_init_fn` that gives workers the plan."""

    @abstractmethod
    def why_not(self, loader: Any, kind: str) -> str:
        """Return why no block with this kind is measured; "" if it can be."""

    def problem(self) -> str:
        """Return why what was switched on was not used; "" if nothing is known against it."""
        return ""

    def has(self, kind: str) -> bool:
        """Return whether blocks of this kind need it."""
        return kind in self._kinds

    def start(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """Return the iterator that `make` makes of a loader, with everything ready."""
        plan = edge(self._applier, self._plan, loader)
        if plan is None:
            return make(loader)
        if not loader.num_workers:
            feature, pending = self._pending(loader, plan)
            feature.pending = pending
            try:
                return make(loader)
            finally:
                feature.pending = None
        function = loader.worker_init_fn
        loader.worker_init_fn = self._init(function, plan)
        try:
            return make(loader)
        finally:
            loader.worker_init_fn = function  # the program never sees ours

    def switch(self, kind: str) -> None:
        """Let the fetches that follow be of a kind; of another name: the program's own."""
        self._byte[0] = self._kinds.index(kind) + 1 if kind in self._kinds else 0


hook(SwitchedFetches.start)

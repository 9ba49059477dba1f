"""Alternatives that are put in and taken out while the program trains: see fed_training.py.

All workers have the alternatives ready; a byte in a file that they map says which ones the next
fetch uses. So no worker starts anew, and blocks with and without them can be compared.
"""

from __future__ import annotations

from ..apply.changed_transforms import AlternativePlan, at, change_of
from ..apply.transform_change import CannotChange
from ..apply.worker_start import WorkerInit
from ..common.guard import edge, hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

active: SwitchedAlternatives | None = None  # of this process


class SwitchedAlternatives:
    """`choices` has the alternatives of each kind; `path` is the file."""

    def __init__(self, applier: Any, choices: Mapping[str, Sequence[str]], path: str) -> None:
        self._applier, self._path = applier, path
        self._choices = {kind: list(names) for kind, names in choices.items()}
        self._byte = at(path)

    def start(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """Return the iterator that `make` makes of a loader, with the alternatives ready."""
        plan = edge(self._applier, self._plan, loader)
        if plan is None:
            return make(loader)
        if not loader.num_workers:
            self._applier.changed.pending = (loader.dataset, plan)
            try:
                return make(loader)
            finally:
                self._applier.changed.pending = None
        function = loader.worker_init_fn
        loader.worker_init_fn = WorkerInit(None, function, None, plan)
        try:
            return make(loader)
        finally:
            loader.worker_init_fn = function  # the program never sees ours

    def _plan(self, loader: Any) -> AlternativePlan | None:
        if not any(self.names(loader, kind) for kind in self._choices):
            return None
        return AlternativePlan([*self._choices.values()], self._path)

    def names(self, loader: Any, kind: str) -> list[str]:
        """Return which alternatives of a kind a loader's samples allow."""
        try:
            return change_of(loader, self._choices[kind], self._applier.note).names
        except CannotChange:
            return []

    def why_not(self, loader: Any, kind: str) -> str:
        """Return why no block with this kind is measured; "" if it can be."""
        names = self.names(loader, kind)
        if not names:
            return "none fits its operations"
        others = [other for other in self._choices if other != kind]
        if kind == "all" and any(self.names(loader, other) == names for other in others):
            return "none that may change values fits its operations"
        return ""

    def switch(self, kind: str) -> None:
        """Let the fetches that follow use the alternatives of a kind; none of another name."""
        kinds = list(self._choices)
        self._byte[0] = kinds.index(kind) + 1 if kind in kinds else 0


hook(SwitchedAlternatives.start)

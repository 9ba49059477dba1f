"""Alternatives that are put in and taken out while the program trains."""

from __future__ import annotations

from ...apply.changed_transforms import AlternativePlan, change_of
from ...apply.transform_change import TransformChangeError
from ...apply.worker_start import WorkerInit
from .switched_fetches import SwitchedFetches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class SwitchedAlternatives(SwitchedFetches):
    """`choices` has the alternatives of each kind."""

    def __init__(self, applier: Any, choices: Mapping[str, Sequence[str]], path: str) -> None:
        super().__init__(applier, list(choices), path)
        self._choices = {kind: list(names) for kind, names in choices.items()}

    def _plan(self, loader: Any) -> AlternativePlan | None:
        if not any(self.names(loader, kind) for kind in self._choices):
            return None
        return AlternativePlan([*self._choices.values()], self._path)

    def _pending(self, loader: Any, plan: AlternativePlan) -> tuple[Any, Any]:
        return self._applier.changed, (loader.dataset, plan)

    def _init(self, function: Callable[[int], object] | None, plan: AlternativePlan) -> WorkerInit:
        return WorkerInit(None, function, None, plan)

    def names(self, loader: Any, kind: str) -> list[str]:
        """Return which alternatives of a kind a loader's samples allow."""
        try:
            return change_of(loader, self._choices[kind], self._applier.note).names
        except TransformChangeError:
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

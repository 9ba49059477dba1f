"""A cache of samples that is put in and taken out while the program trains, for `lotus plan`."""

from __future__ import annotations

from ...apply import sample_caching
from ...apply.sample_caching import NotCachedError
from ...apply.worker_start import WorkerInit
from ...cache.fingerprints import FingerprintError
from ...cache.transform_place import NoTransformError
from .switched_fetches import SwitchedFetches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...cache.cached_samples import CachePlan


class SwitchedCache(SwitchedFetches):
    """`cache` is that of an entry of settings, as for `lotus run`."""

    def __init__(self, applier: Any, cache: dict[str, Any], path: str) -> None:
        super().__init__(applier, sample_caching.KINDS, path)
        self._cache = cache
        self._checked: tuple[Any, str] = (None, "")  # a loader, and why its samples are not cached

    def _plan(self, loader: Any) -> CachePlan | None:
        plan = why = None
        try:
            plan = sample_caching.plan_of(loader, self._cache)
            plan.switch = self._path
        except (NotCachedError, FingerprintError, NoTransformError) as reason:
            why = str(reason)
        self._checked = loader, why or ""
        return plan

    def _pending(self, loader: Any, plan: CachePlan) -> tuple[Any, Any]:
        return self._applier.caching, (loader.dataset, plan, False)

    def _init(self, function: Callable[[int], object] | None, plan: CachePlan) -> WorkerInit:
        return WorkerInit(None, function, plan)

    def why_not(self, loader: Any, kind: str) -> str:
        """Return why no block with this kind is measured; "" if it can be."""
        if self._checked[0] is not loader:
            self._plan(loader)
        return self._checked[1] or self.problem()

    def problem(self) -> str:
        """Return why samples were not cached; "" if nothing is known against it."""
        return sample_caching.problem(self._path)

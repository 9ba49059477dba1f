"""Torch's Subset, as random_split makes it: the single samples that it asks its data set for."""

from __future__ import annotations

import operator
import sys
from types import MethodType

from ...common.guard import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST = 8  # within each other


class SubsetView:
    """A subset whose data set is timed; its batches are made by torch's own `__getitems__`.

    So each frame of a traceback is as it is without lotus.
    """

    indices = property(operator.attrgetter("_subset.indices"))

    def __init__(self, subset: Any, timed: Any) -> None:
        self._subset, self._timed, self._inner = subset, timed, subset.dataset

    @property
    @hook
    def __getitems__(self) -> Callable[[Any], Any]:
        """Bound at each use: a data set in a reference cycle would be freed late."""
        return MethodType(type(self._subset).__getitems__, self)

    @property
    @hook
    def dataset(self) -> Any:
        """Timed, unless the program has put in another one."""
        inner = self._subset.dataset
        return self._timed if inner is self._inner else inner


def view_of(dataset: Any, timed: Callable[[Any], Any], depth: int = _MOST) -> SubsetView | None:
    """Return a view of it if it is torch's Subset of a data set without `__getitems__`, else None.

    `timed` makes a data set of single samples a timed one. Torch's loaders are loaded.
    """
    kind = sys.modules["torch.utils.data"].Subset
    if type(dataset) is not kind or not depth or "__getitems__" in vars(dataset):
        return None
    if kind.__getitems__.__module__ != kind.__module__:
        return None  # the program has replaced it
    inner = dataset.dataset
    if type(inner) is kind:
        within = view_of(inner, timed, depth - 1)
        return None if within is None else SubsetView(dataset, within)
    if callable(getattr(inner, "__getitems__", None)):
        return None
    return SubsetView(dataset, timed(inner))

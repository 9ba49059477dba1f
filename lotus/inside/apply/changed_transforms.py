"""Makes samples with alternatives: in the workers, and in the main process without any.

Around each fetch the data set has the changed transform, and its own one otherwise: the program
never sees another. A plan with a switch has several changes; a byte in a file, which this process
and its workers map, says which of them the next fetch uses.
"""

from __future__ import annotations

import mmap
import os

from ..cache.loader_refusal import refusal
from ..common import patching
from ..common.guard import edge, hook
from ..common.loaders.loader_description import words
from .transform_change import TransformChange, TransformChangeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


active: ChangedTransforms | None = None  # of this process


class AlternativePlan:
    """The alternatives that are applied; it is pickled for workers that are spawned.

    Without a switch it is the first choice. With one, a byte there says which: 0 is none. `steps`
    are the names of what the changed `Compose` calls, and `cut` is before which of them samples are
    cached; None: they are not.
    """

    steps: Sequence[str] = ()
    cut: int | None = None

    def __init__(self, choices: Sequence[Sequence[str]], switch: str | None = None) -> None:
        self.choices = [list(names) for names in choices]
        self.switch = switch


class ChangedFetcher:
    """Stands for a fetcher, and changes the data set while it fetches.

    Everything else, `vars` included, is the fetcher's: a trace replaces some of its attributes.
    """

    __slots__ = ("__weakref__", "_at", "_changes", "_fetcher")

    def __init__(self, fetcher: Any, changes: Sequence[TransformChange | None], at: Any) -> None:
        for name, value in (("_fetcher", fetcher), ("_changes", changes), ("_at", at)):
            object.__setattr__(self, name, value)

    def has(self, names: Sequence[str]) -> bool:
        """Return whether just these alternatives make all samples."""
        return [change and change.names for change in self._changes] == [list(names)]

    def as_fetched(self, look: Callable[[], object]) -> None:
        """Call `look` once for each state in which the data set is when samples are made."""
        for change in self._changes:
            if change is None:
                look()
                continue
            change.put()
            try:
                look()
            finally:
                change.keep()

    def fetch(self, index: Any) -> Any:
        change = self._changes[0 if self._at is None else self._at[0]]
        if change is None:
            return self._fetcher.fetch(index)
        change.put()
        try:
            return self._fetcher.fetch(index)
        except BaseException as error:
            patching.hide(error)
            raise
        finally:
            change.restore()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._fetcher, name, value)


hook(ChangedFetcher.fetch)


class ChangedTransforms:
    """Puts alternatives in for the loaders of this process."""

    def __init__(self, applier: Any) -> None:
        self._applier = applier
        self.pending: tuple[Any, AlternativePlan] | None = None  # data set, and what starts now

    def plan(
        self, loader: Any, names: Sequence[str], site: str, cache: dict[str, Any] | None
    ) -> AlternativePlan | None:
        """Return the plan for a loader that is iterated now, or note why there is none.

        Its samples are cached as `cache` says, with what the alternatives make there.
        """
        what = words(loader, site)
        try:
            change = change_of(loader, names, self._applier.note)
            cut = None if cache is None else change.cut(cache["path"] or (), cache["cut"])
            if cache is not None and cut is None:
                raise TransformChangeError(
                    "the place at which samples are cached lies within what they do"
                )
        except TransformChangeError as reason:
            self._applier.note(f"no alternatives are put in for {what}: {reason}")
            return None
        for name in change.left:
            self._applier.note(f"{name} is not put in for {what}: it does not fit")
        self._applier.note(f"put in for {what}: {', '.join(change.names)}")
        plan = AlternativePlan([change.names])
        plan.steps, plan.cut = change.names_of_steps(), cut
        return plan

    def create_fetcher(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Hook for `_DatasetKind.create_fetcher`, which workers and the main process call."""

        def create_fetcher(kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
            fetcher = original(kind, dataset, *args, **kwargs)
            if self.pending is not None and self.pending[0] is dataset:
                fetcher = edge(self._applier, self._changed, fetcher, dataset) or fetcher
            return fetcher

        return hook(create_fetcher)

    def _changed(self, fetcher: Any, dataset: Any) -> ChangedFetcher | None:
        if self.pending is None:
            return None
        plan, note = self.pending[1], self._applier.note
        changes: list[TransformChange | None] = [] if plan.switch is None else [None]
        for names in plan.choices:
            try:
                changes.append(TransformChange(dataset, names, note))
            except TransformChangeError as reason:
                # With a switch, `lotus advise` says why. Without, this was seen before in the main
                # process, unless worker_init_fn has changed the data set.
                if plan.switch is None:
                    note(f"no alternatives are put in: {reason}")
                changes.append(None)
        return ChangedFetcher(fetcher, changes, None if plan.switch is None else at(plan.switch))


def change_of(loader: Any, names: Sequence[str], note: Callable[[str], object]) -> TransformChange:
    """Return how alternatives change a loader's samples. Raises TransformChangeError."""
    why = refusal(loader)
    if why is not None:
        raise TransformChangeError(why)
    return TransformChange(loader.dataset, names, note)


def at(path: str) -> Any:
    """Return the byte of a switch, as something with one item that other processes see change."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, 1)
    finally:
        os.close(fd)

"""Chooses the loader to tune among those that the program iterates."""

from __future__ import annotations

import weakref

from ..common import loader_description
from ..common.guard import ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..apply.settings_applier import Applier


class LoaderChoice:
    """The loaders that were iterated in this process, by number, and which is to be tuned.

    `wanted` is a number, a name or place, or None for the loader of most samples.
    """

    def __init__(self, wanted: int | str | None, applier: Applier) -> None:
        self.wanted, self._applier = wanted, applier
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id: loader, number
        self._epochs: list[int] = []  # of each, by number
        self._lengths: dict[int, tuple[weakref.ref[Any], float]] = {}

    def forget(self) -> None:
        """Forget all loaders: in a forked process numbers begin again."""
        self._numbers, self._epochs = {}, []

    def number(self, loader: Any) -> int:
        """The loader's number by first iteration."""
        reference, number = self._numbers.get(id(loader), (None, 0))
        if reference is None or reference() is not loader:
            number = len(self._epochs)
            self._numbers[id(loader)] = (weakref.ref(loader), number)
            self._epochs.append(0)
        return number

    def epochs(self, loader: Any) -> int:
        """How many epochs of the loader have begun."""
        return self._epochs[self.number(loader)]

    def begin_epoch(self, loader: Any) -> int:
        """Count an epoch that begins. Returns how many have begun."""
        number = self.number(loader)
        self._epochs[number] += 1
        return self._epochs[number]

    def site(self, loader: Any) -> str:
        """Where the loader was made; "" where that is unknown."""
        known = self._applier.loaders.find(loader)
        return "" if known is None else known.site

    def words(self, loader: Any) -> str:
        """A description of the loader, with the place where it was made."""
        return loader_description.words(loader, self.site(loader))

    def is_chosen(self, loader: Any) -> bool:
        """Whether this loader is to be tuned, as far as that is known by now."""
        if isinstance(self.wanted, int):
            return self.number(loader) == self.wanted
        if self.wanted is not None:
            known = self._applier.loaders.find(loader)
            names = () if known is None else (known.site, known.once, known.name)
            return self.wanted in (
                type(loader.dataset).__name__,
                loader_description.iterated_at(),
                *names,
            )
        others = [known.reference() for known in self._applier.loaders.all()]
        samples = self._samples(loader)
        return all(self._samples(other) <= samples for other in others if other is not None)

    def _samples(self, loader: Any) -> float:
        """Samples of an epoch; a stream without a length is endless."""
        reference, length = self._lengths.get(id(loader), (None, 0.0))
        if reference is None or reference() is not loader:
            samples = loader_description.length_of(loader.sampler)
            if type(samples) is not int:
                samples = ask(len, loader.dataset)
            length = float(samples) if type(samples) is int else float("inf")
            self._lengths[id(loader)] = (weakref.ref(loader), length)
        return length

"""Chooses the loader to tune among those that the program iterates."""

from __future__ import annotations

import weakref

from ...common.guard import ask
from ...common.loaders import loader_description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...apply.settings_applier import Applier


class LoaderChoice:
    """Numbers the loaders that are iterated in this process and chooses the one to tune.

    `target` is a number, a name or place, or None for the loader with the most samples.
    """

    def __init__(self, target: int | str | None, applier: Applier) -> None:
        self.target, self._applier = target, applier
        self._numbers: dict[int, tuple[weakref.ref[Any], int]] = {}  # by id: loader, number
        self._epochs: list[int] = []  # number of epochs, by loader number
        self._lengths: dict[int, tuple[weakref.ref[Any], float]] = {}

    def forget(self) -> None:
        """Forget all loaders; a forked process starts numbering again."""
        self._numbers, self._epochs = {}, []

    def number(self, loader: Any) -> int:
        """Return the number of a loader in the order of first iterations."""
        reference, number = self._numbers.get(id(loader), (None, 0))
        if reference is None or reference() is not loader:
            number = len(self._epochs)
            self._numbers[id(loader)] = (weakref.ref(loader), number)
            self._epochs.append(0)
        return number

    def epochs(self, loader: Any) -> int:
        """Return how many epochs of the loader have begun."""
        return self._epochs[self.number(loader)]

    def begin_epoch(self, loader: Any) -> int:
        """Count an epoch that begins; return how many have begun."""
        number = self.number(loader)
        self._epochs[number] += 1
        return self._epochs[number]

    def site(self, loader: Any) -> str:
        """Return where the loader was made; "" if unknown."""
        known = self._applier.loaders.find(loader)
        return "" if known is None else known.site

    def words(self, loader: Any) -> str:
        """Return a description of the loader, with the place where it was made."""
        return loader_description.words(loader, self.site(loader))

    def is_chosen(self, loader: Any) -> bool:
        """Return whether this loader is to be tuned, as far as is known so far."""
        if isinstance(self.target, int):
            return self.number(loader) == self.target
        if self.target is not None:
            known = self._applier.loaders.find(loader)
            names = () if known is None else (known.site, known.once, known.name)
            return self.target in (
                type(loader.dataset).__name__,
                loader_description.iterated_at(),
                *names,
            )
        others = [known.reference() for known in self._applier.loaders.all()]
        samples = self._samples(loader)
        return all(self._samples(other) <= samples for other in others if other is not None)

    def _samples(self, loader: Any) -> float:
        """Return the samples of an epoch; infinite for a stream without a length."""
        reference, length = self._lengths.get(id(loader), (None, 0.0))
        if reference is None or reference() is not loader:
            samples = loader_description.length_of(loader.sampler)
            if type(samples) is not int:
                samples = ask(len, loader.dataset)
            length = float(samples) if type(samples) is int else float("inf")
            self._lengths[id(loader)] = (weakref.ref(loader), length)
        return length

"""Finds the transform that a data set calls for each sample, and looks at what goes through it."""

from __future__ import annotations

from ..common.guard import hook
from ..common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

_NAMES = ("transform", "transforms")
_DEEPEST = 8  # data sets in each other
# Containers that do nothing but call their operations in turn, by module and name.
_CONTAINERS = {
    ("torchvision.transforms.transforms", "Compose"),
    ("torchvision.transforms.v2._container", "Compose"),
}


# Then operations after the cut, of which the key of a cache does not know, may change samples.
INSPECTED = "the data set's own code uses attributes of its transform"


class NoTransformError(Exception):
    """The reason why no transform is looked at, as a clause."""


def paths(dataset: object) -> Iterator[list[str]]:
    """Yield where the transform of a data set may be, the most likely place first.

    Each is a list of attributes from the data set on. An attribute that contains a `Compose` comes
    first, then one that is called `transform`.
    """
    likely: list[list[str]] = []
    others: list[list[str]] = []
    path: list[str] = []
    owner = dataset
    for _ in range(_DEEPEST):
        for name, value in attributes(owner).items():
            if _is_container(value):
                likely.append([*path, name])
            elif name in _NAMES and callable(value) and not _holds_transform(value):
                others.append([*path, name])
        path = [*path, "dataset"]
        owner = attributes(owner).get("dataset")
        if owner is None:
            break
    yield from likely
    yield from others


def _is_container(value: object) -> bool:
    kind = type(value)
    return (kind.__module__, kind.__name__) in _CONTAINERS


def _holds_transform(value: object) -> bool:
    """Return True if it only passes a sample to its own transform (StandardTransform)."""
    return type(value).__name__ == "StandardTransform"


class TransformPlace:
    """A transform, and all attributes that hold it. Raises NoTransformError."""

    def __init__(self, dataset: object, path: Sequence[str]) -> None:
        self.path = list(path)
        owner = dataset
        for name in path[:-1]:
            owner = attributes(owner).get(name)
        self._owner, self._name = attributes(owner), path[-1]
        self.transform: Any = self._owner.get(self._name)
        if not callable(self.transform):
            raise NoTransformError(f"the data set has no {'.'.join(path)} that can be called")
        self.owners: list[tuple[dict[str, Any], str]] = []
        for holder in (owner, *attributes(owner).values()):
            held = attributes(holder)
            self.owners += [(held, name) for name in held if held[name] is self.transform]

    def is_container(self) -> bool:
        """Return True if it is a `Compose` of torchvision."""
        return _is_container(self.transform)

    def is_current(self) -> bool:
        """Return True if the data set still has this transform there."""
        return self._owner.get(self._name) is self.transform

    def operations(self) -> list[Callable[[Any], Any]]:
        """Return what is called in turn: the items of a `Compose`, else the transform itself."""
        if _is_container(self.transform):
            return list(attributes(self.transform).get("transforms") or ())
        return [self.transform]

    def names(self) -> list[str]:
        """Return the names of the operations' types, or of functions."""
        return [
            str(getattr(operation, "__name__", type(operation).__name__))
            for operation in self.operations()
        ]

    def replace(self, stand_in: object) -> None:
        for held, name in self.owners:
            held[name] = stand_in

    def restore(self) -> None:
        for held, name in self.owners:
            held[name] = self.transform


class Tap:
    """Stands in for a transform while a sample is made, and shows what goes through it.

    `look` gets the number of a cut and the value there, before the operation of that number runs;
    the number of operations is the cut after the last. It is not called where the transform is
    called more than once, or other than with one value: `single` tells.
    """

    def __init__(
        self,
        place: TransformPlace,
        cuts: Sequence[int],
        look: Callable[[int, Any], object],
    ) -> None:
        self._transform, self._operations = place.transform, place.operations()
        self._cuts, self._look = frozenset(cuts), look
        self.calls = 0
        self.inspected = False  # whether an attribute of the transform was asked for
        self.result: Any = None

    @property
    def single(self) -> bool:
        """True if the transform was called once with one value."""
        return self.calls == 1

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1 if len(args) == 1 and not kwargs else 2
        if self.calls != 1:
            return self._transform(*args, **kwargs)
        (value,) = args
        for number, operation in enumerate(self._operations):
            if number in self._cuts:
                self._look(number, value)
            value = operation(value)
        if len(self._operations) in self._cuts:
            self._look(len(self._operations), value)
        self.result = value
        return value

    def __getattr__(self, name: str) -> Any:
        self.inspected = True
        return getattr(self._transform, name)


hook(Tap.__call__)

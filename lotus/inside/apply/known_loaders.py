"""Keeps the loaders of this process that are alive, and the setting of each."""

from functools import partial

from ..common.loaders import loader_description

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .rng_parity import Own


class KnownLoader:
    """A loader that is alive, and its setting."""

    def __init__(self, reference: "Any", site: str, by_user: bool) -> None:
        self.reference = reference
        self.site = site
        self.once = self.name = ""  # its place in the notation of older versions; a label
        self.by_user = by_user  # made by a line of the program, not by a package
        self.iterated = False
        self.entry: int | None = None  # the entry whose setting it has
        self.before: dict[str, Any] = {}  # its own attributes, if they were changed
        self.own: Own | None = None

    def restore(self) -> None:
        """Forget the setting, after the loader got its own attributes back."""
        self.entry, self.own, self.before = None, None, {}


class KnownLoaders:
    """The loaders of this process that are alive."""

    def __init__(self) -> None:
        self._by_id: dict[int, KnownLoader] = {}

    def all(self) -> "list[KnownLoader]":
        return list(self._by_id.values())

    def add(self, loader: "Any", site: str = "", by_user: bool = False) -> KnownLoader:
        import weakref

        # Not a Python function: an exception of a signal handler in a callback would be lost.
        reference = weakref.ref(loader, partial(self._forget, id(loader)))
        self._by_id[id(loader)] = known = KnownLoader(reference, site, by_user)
        return known

    def _forget(self, key: int, reference: object) -> None:
        known = self._by_id.get(key)
        if known is not None and known.reference is reference:
            del self._by_id[key]

    def find(self, loader: "Any") -> KnownLoader | None:
        known = self._by_id.get(id(loader))
        return known if known is not None and known.reference() is loader else None

    def forerunner(self, loader: "Any", index: int | None) -> KnownLoader | None:
        """Return the loader that a package such as Lightning has recreated as this one.

        `index` is the entry that matches this one; if it is None, only loaders that the program
        made count.
        """
        alike = []
        for known in self.all():
            other = known.reference()
            if other is None or other is loader:
                continue
            if not known.by_user if index is None else known.entry != index:
                continue
            if _alike(other, loader):
                alike.append(known)
        # It is ambiguous if similar loaders have different settings.
        return alike[0] if len({known.entry for known in alike}) == 1 else None


def _alike(other: "Any", loader: "Any") -> bool:
    """Return whether a loader may be a copy of another, perhaps with the package's sampler."""
    plain = ("RandomSampler", "SequentialSampler")
    samplers = (loader_description.sampler(other), loader_description.sampler(loader))
    return (
        other.dataset is loader.dataset
        and type(other) is type(loader)
        and other.collate_fn is loader.collate_fn
        and other.drop_last == loader.drop_last
        and (samplers[0] == samplers[1] or not set(samplers) <= set(plain))
    )

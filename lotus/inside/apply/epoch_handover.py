"""Changes the setting of a loader in the middle of an epoch, without changing its samples.

The program keeps its iterator, which yields the batches that its workers have in flight but draws
no more indices. Then a second iterator, made with the new setting, takes over the sampler's
remaining indices. Samples and their order stay the same.
"""

import itertools
import sys

from ..common.loaders.loader_description import is_iterable
from . import loader_attributes
from .rng_parity import _KEY as OWN
from .rng_parity import MadeIterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .settings_applier import Applier

KEY = "_lotus_rest"  # attribute of an iterator that holds the Rest of its epoch
_MISSING = object()


class Rest:
    """The remaining indices of an epoch, for an iterator with the new setting."""

    def __init__(self, applier: "Applier", loader: "Any", iterator: "Any") -> None:
        self.applier, self.loader = applier, loader
        self.indices: Iterator[Any] = iterator._sampler_iter
        self.seed = (iterator._base_seed + 1_000_003 + iterator._num_yielded) % 2**63
        self.successor: Any = None
        self.before: Any = None  # a previous successor with batches in flight
        self.refused = ""  # why the new setting could not be used
        self.over = False
        iterator.__dict__[KEY] = self
        iterator._sampler_iter = iter(())

    def begin(self) -> "Any":
        """Return the iterator that continues; None if the epoch is over.

        If it cannot be made with the new setting, it is made with the program's own. Raises what
        that raises.
        """
        if self.successor is None and not self.over:
            first = next(self.indices, _MISSING)
            if first is _MISSING:
                self.over = True
            else:
                self.indices = itertools.chain([first], self.indices)
                try:
                    self.successor = self._made()
                except Exception as error:
                    self._give_back(error)
                    self.successor = self._made()
                self.before = None
        return self.successor

    def change(self) -> None:
        """Continue with the loader's new setting after the batches in flight."""
        successor, self.refused = self.successor, ""
        if successor is not None:
            self.before, self.successor = successor, None
            self.seed = (self.seed + 1_000_003 + successor._num_yielded) % 2**63
            self.indices, successor._sampler_iter = successor._sampler_iter, iter(())
            _end_with_epoch(successor)

    def _made(self) -> "Any":
        loader, known = self.loader, self.applier.loaders.find(self.loader)
        name, sampler = sampler_of(loader)
        generator = loader.generator
        own = None if known is None else known.own
        # It must draw nothing and count no epoch, because the epoch has already begun.
        loader.__dict__[name] = MadeIterator(self.indices)
        loader.generator = sys.modules["torch"].Generator()
        loader.generator.manual_seed(self.seed)
        if known is not None:
            known.own = None
        try:
            made = loader._get_iterator()
        finally:
            loader.__dict__[name] = sampler
            loader.generator = generator
            if known is not None and known.entry is not None:
                known.own = own
        made._index_sampler = sampler
        if known is not None and known.own is not None:
            made.__dict__[OWN] = known.own
        return made

    def _give_back(self, error: Exception) -> None:
        known = self.applier.loaders.find(self.loader)
        if known is None or known.entry is None:
            raise error
        loader_attributes.assign(self.loader, known.before)
        what = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        self.refused = what
        self.applier.note(f"the loader goes on with its own settings: {what}")
        known.restore()


def sampler_of(loader: "Any") -> "tuple[str, Any]":
    """Return (attribute name, value) of the sampler that gives an iterator its indices."""
    name = "batch_sampler" if loader._auto_collation else "sampler"
    return name, loader.__dict__.get(name)


def as_it_is(loader: "Any") -> "dict[str, Any]":
    """Return an entry with the current setting of a loader, for this loader only."""
    setting = loader_attributes.attributes(loader)
    del setting["multiprocessing_context"]  # it does not change
    return {"loader": {}, "setting": setting, "iterable_safe": False}


def why_not(loader: "Any", iterator: "Any", entry: "dict[str, Any]") -> str:
    """Return why this epoch cannot continue with the setting of `entry`; "" if it can."""
    if not _possible(loader, iterator):
        return "the setting of such a loader cannot change in the midst of an epoch"
    try:
        loader_attributes.resolve(entry, loader, loader_attributes.attributes(loader))
    except loader_attributes.SettingRefusedError as reason:
        return str(reason)
    return ""


def only_threads_change(loader: "Any", iterator: "Any", entry: "dict[str, Any]") -> bool:
    """Return True if an epoch of a stream goes on as it is, with other threads of torch at most.

    That is, if `entry` has the loader's own setting, which cannot change meanwhile.
    """
    of_loader = getattr(iterator, "_dataset", None) is loader.dataset
    if not of_loader or not is_iterable(loader):
        return False
    before, setting = loader_attributes.attributes(loader), entry["setting"]
    method = loader_attributes.start_method(loader)
    if setting.get("threads") is not None or setting.get("start_method") not in (None, method):
        return False
    try:
        after = loader_attributes.resolve(entry, loader, before)
    except loader_attributes.SettingRefusedError:
        return False
    # The one is a name in `after`; the other is left out of stretches, and means the next epochs.
    for name in ("multiprocessing_context", "persistent_workers"):
        after[name] = before[name]
    return after == before


def why_not_fed(loader: "Any", iterator: "Any") -> str:
    """Return why the indices of this epoch cannot be repeated; "" if they can."""
    if _possible(loader, iterator):
        return ""
    return "the samples of such a loader cannot be repeated"


def _possible(loader: "Any", iterator: "Any") -> bool:
    module: Any = sys.modules["torch.utils.data.dataloader"]
    plain = (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter)
    named = sampler_of(loader)[1]
    return (
        type(iterator) in plain
        and iterator._dataset_kind == 0
        and named is not None
        and named is loader._index_sampler
        and "MapDataPipe" not in type(loader.dataset).__name__
    )


def change(
    applier: "Applier",
    loader: "Any",
    iterator: "Any",
    entry: "dict[str, Any]",
    epochs: int,
    quiet: bool = False,
) -> bool:
    """Change the setting of a loader; return whether that succeeded, and note why if not.

    `iterator` is the current iterator, or None; `epochs` counts its epochs, including the current
    one. `quiet` suppresses all other notes.
    """
    if not applier.on:
        return False
    known = applier.loaders.find(loader) or applier.loaders.add(loader)
    before = known.own
    applier.entries.append(entry)
    index = len(applier.entries) - 1
    applier.put(loader, known, index, known if known.before else None, quiet)
    own = known.own
    if known.entry != index or own is None:
        return False
    if before is not None and before.epoch >= 0:
        own.epoch, own.first_seed = before.epoch, before.first_seed
    else:
        own.epoch, own.first_seed = epochs - 1, getattr(iterator, "_base_seed", 0)
    loader._iterator = None  # persistent workers have the old setting
    if iterator is None:
        return True
    _end_with_epoch(iterator)
    rest = iterator.__dict__.get(KEY)
    if rest is not None:
        rest.change()
    elif _possible(loader, iterator):
        Rest(applier, loader, iterator)
    return True


def _end_with_epoch(iterator: "Any") -> None:
    """Let the workers end with this epoch, even persistent ones."""
    if iterator._num_workers and iterator._persistent_workers:
        iterator._persistent_workers = False

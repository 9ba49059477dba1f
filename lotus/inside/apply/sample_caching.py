"""Puts cached samples in place of a loader's data set, where its settings say so.

While lotus measures a cache, a byte in a file that this process and its workers map says for each
fetch whether samples come from there, or are cached, or neither.
"""

import os
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.util import Finalize

from ..cache import cache_folder
from ..cache.cached_samples import CachedSamples, CachePlan, SampleCount, SampleMaker, key_of
from ..cache.fingerprints import FingerprintError
from ..cache.loader_refusal import refusal
from ..cache.sample_store import SampleStore
from ..cache.transform_place import NoTransformError, TransformPlace
from ..common import patching
from ..common.guard import edge, hook
from ..common.loaders.loader_description import words
from .changed_transforms import ChangedFetcher, at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .changed_transforms import AlternativePlan

# States of a data set: of a few loaders that are made at one place, or of one that changes with its
# epochs. Each has a folder with the whole budget.
_MOST_KEYS = 3

KINDS = ("filling", "cached")  # what the byte may say; 0: neither

active: "SampleCaching | None" = None  # of this process


class NotCachedError(Exception):
    """The reason why a loader's samples are not cached, as a clause."""


class SampleCaching:
    """Caches samples of loaders in this process; `pending` is the plan of what starts now."""

    def __init__(self, applier: "Any") -> None:
        self._applier = applier
        # Data set, plan, and whether a function of the program has run on the data set since.
        self.pending: tuple[Any, CachePlan, bool] | None = None
        self._count: SampleCount | None = None  # of this process
        self._stores: dict[str, SampleStore] = {}  # by folder
        self._keys: dict[int, set[str]] = {}  # by entry

    def plan(
        self, loader: "Any", entry: int, site: str, made_by: "AlternativePlan | None" = None
    ) -> "CachePlan | None":
        """Return the plan for a loader that is iterated now, or note why there is none.

        `made_by` are the alternatives that make its samples.
        """
        cache = self._applier.entries[entry].get("cache")
        if cache is None:
            return None
        try:
            plan = plan_of(loader, cache, made_by)
            keys = self._keys.setdefault(entry, set())
            keys.add(plan.key)
            if len(keys) > _MOST_KEYS:
                raise NotCachedError("its data set is another one from epoch to epoch")
            self._applier.note(_words(loader, plan))
            return plan
        except (OSError, NotCachedError, FingerprintError, NoTransformError) as reason:
            self._applier.note(f"samples of {words(loader, site)} are not cached: {reason}")
            return None

    def create_fetcher(self, original: "Callable[..., Any]") -> "Callable[..., Any]":
        """Hook for `_DatasetKind.create_fetcher`, which workers and the main process call."""

        def create_fetcher(kind: "Any", dataset: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            fetcher = original(kind, dataset, *args, **kwargs)
            return edge(self._applier, self._place, fetcher, dataset) or fetcher

        return hook(create_fetcher)

    def _place(self, fetcher: "Any", dataset: "Any") -> "SwitchedFetcher | None":
        """Let a fetcher use cached samples; return what stands for it, if anything does."""
        if self.pending is None or self.pending[0] is not dataset:
            return None
        _, plan, run = self.pending
        note = self._applier.note if plan.switch is None else partial(_tell_problem, plan.switch)
        try:
            if run and key_of(dataset, plan.path, plan.cut, plan.alternatives) != plan.key:
                raise NotCachedError("worker_init_fn changes the data set")
            count = self._counted()
            store = self._stores.get(plan.folder)
            if store is None:
                store = SampleStore(plan.folder, plan.budget_bytes, note, plan.about)
                self._stores[plan.folder] = store
            maker = _maker(fetcher, plan, lambda: SampleMaker(dataset, plan, store, note, count))
        except (OSError, NoTransformError, FingerprintError, NotCachedError) as error:
            note(f"samples are not cached: {error}")
            return None
        cached = CachedSamples(dataset, maker)
        if plan.switch is not None:
            return SwitchedFetcher(fetcher, cached, maker, at(plan.switch))
        fetcher.dataset = cached
        return None

    def _counted(self) -> SampleCount:
        """Return the count of this process, which is recorded when it ends."""
        if self._count is None or self._count.pid != os.getpid():
            self._count = SampleCount()
            # Workers end by this; their exit handlers do not run.
            Finalize(None, self._record, (self._count,), exitpriority=0)
        return self._count

    def _record(self, count: SampleCount) -> None:
        if count.pid == os.getpid():
            for store in self._stores.values():
                store.close()
            fact = {"process": count.pid, "kept": count.kept, "made": count.made}
            self._applier.tell(fact)


def _maker(fetcher: "Any", plan: CachePlan, make: "Callable[[], SampleMaker]") -> SampleMaker:
    """Make it while the data set is as it is when the fetcher makes samples."""
    if not plan.alternatives:
        return make()
    if not isinstance(fetcher, ChangedFetcher) or not fetcher.has(plan.alternatives):
        raise NotCachedError("alternatives that make them cannot be put in")
    made: list[SampleMaker] = []
    fetcher.as_fetched(lambda: made.append(make()))
    return made[0]


class SwitchedFetcher:
    """Stands for a fetcher, and gives it cached samples or its own data set, as a byte says."""

    def __init__(
        self, fetcher: "Any", cached: CachedSamples, maker: SampleMaker, byte: "Any"
    ) -> None:
        self.__dict__.update(
            _fetcher=fetcher, _own=fetcher.dataset, _cached=cached, _maker=maker, _byte=byte
        )

    def fetch(self, index: "Any") -> "Any":
        number = self._byte[0]
        self._maker.anew = number == 1
        self._fetcher.dataset = self._cached if number else self._own
        try:
            return self._fetcher.fetch(index)
        except BaseException as error:
            patching.hide(error)
            raise

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._fetcher, name)


hook(SwitchedFetcher.fetch)


def _tell_problem(switch: str, text: str) -> None:
    """Leave beside the switch why samples are not cached, for `problem`."""
    with suppress(OSError):
        cache_folder.write_whole(f"{switch}.problem", text.encode("utf-8", "backslashreplace"))


def problem(switch: str) -> str:
    """Return why samples are not cached although a switch says so; "" if nothing is known."""
    try:
        with open(f"{switch}.problem", encoding="utf-8", errors="replace") as file:
            return file.read(1000)
    except OSError:
        return ""


def plan_of(
    loader: "Any", cache: "dict[str, Any]", made_by: "AlternativePlan | None" = None
) -> CachePlan:
    """Return the plan for a loader, whose samples alternatives make.

    Raises NotCachedError, FingerprintError, NoTransformError, OSError.
    """
    dataset = loader.dataset
    why = refusal(loader)
    if why is not None:
        raise NotCachedError(why)
    path, cut, steps = cache["path"], cache["cut"], list(cache["operations"])
    if path is not None:
        names = TransformPlace(dataset, path).names()
        if names != steps:
            raise NotCachedError(
                f"its transform is {names}, the settings are for {cache['operations']}"
            )
    alternatives: tuple[str, ...] = ()
    if made_by is not None and made_by.cut is not None:
        cut, steps, alternatives = made_by.cut, list(made_by.steps), tuple(made_by.choices[0])
    key = key_of(dataset, path, cut, alternatives)
    root = cache["folder"] or cache_folder.users_root()
    plan = CachePlan(path, cut, key, os.path.join(root, cache_folder.cache_name(key)))
    plan.alternatives = alternatives
    plan.budget_bytes, plan.least_ns_per_byte = cache["budget_bytes"], cache["least_ns_per_byte"]
    plan.compression = cache.get("compression")
    plan.about = {
        "data_set": type(dataset).__name__,
        "operations": steps,
        "cut": cut,
        "compression": plan.compression,
        "command": [os.path.basename(word) for word in sys.argv[:1]],
    }
    return plan


def _words(loader: "Any", plan: CachePlan) -> str:
    kind = type(loader.dataset).__name__
    what, after = f"whole samples of {kind} are cached", plan.about["operations"][plan.cut :]
    if after:
        what = f"samples of {kind} are cached as {after[0]} gets them"
    root = os.path.dirname(plan.folder)
    how = "" if plan.compression is None else f", compressed ({plan.compression})"
    unit, name = (2**30, "GiB") if plan.budget_bytes >= 2**30 else (2**20, "MiB")
    return f"{what}{how}: at most {plan.budget_bytes / unit:.3g} {name} in {root}"

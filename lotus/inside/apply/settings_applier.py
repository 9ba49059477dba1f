"""Applies loader settings when the program makes a loader.

Active only if LOTUS_SETTINGS is set. This is JSON with `loaders` (each with a `loader` to match, a
`setting` and `iterable_safe`), the version of `torch` that they were tuned with, and `said`: the
path of a file that all processes share, with the facts for `lotus run` and the notes that were
already shown. For `lotus sweep`, a `loader` may be {"every": true}, and `keep` leaves attributes
alone that a setting does not name. Other keys are applied by the `features` of those names.

torch makes the loader as the program asks. Then its attributes are replaced by those of the
setting, all or none. So torch still reports mistakes of the program. A subclass, and Lightning when
it recreates the loader from its attributes, see the values that are really used.
"""

import os
import sys
from contextlib import suppress
from functools import partial

from ..common import import_hook
from ..common.loaders import loader_description, worker_threads
from ..common.process_identity import is_worker
from . import loader_attributes
from .known_loaders import KnownLoader, KnownLoaders
from .loader_match import FACTS, Matching
from .run_notes import RunNotes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, ModuleType
    from typing import Any, Protocol

    from ..cache.cached_samples import CachePlan
    from .changed_transforms import AlternativePlan, ChangedTransforms
    from .rng_parity import Own
    from .sample_caching import SampleCaching

    class Feature(Protocol):
        """Changes a job in another way; hooks DataLoader and DistributedDataParallel."""

        def install(self, module: Any) -> None: ...
        def hook_models(self, module: Any) -> None: ...

    Features = Mapping[str, Callable[["Applier", dict[str, Any]], Feature]]

_DATALOADER = "torch.utils.data.dataloader"
_DDP = "torch.nn.parallel.distributed"

active: "Applier | None" = None  # the applier of this process


class Applier:
    """Applies the settings of this run in this process."""

    def __init__(self, environ: "Mapping[str, str]", features: "Features | None" = None) -> None:
        """`features`: by key of LOTUS_SETTINGS, makes the feature from its value."""
        self.features = features or {}
        self.acting: list[Feature] = []
        self.text = environ["LOTUS_SETTINGS"]
        self.on = True
        self.undo: list[Callable[[], object]] = []
        self.waiting: dict[str, list[Callable[[Any], object]]] = {}  # see import_hook
        self.loaders = KnownLoaders()
        self.entries: list[dict[str, Any]] = []
        self.matching = Matching(self.entries)
        self.notes = RunNotes()
        self.caching: SampleCaching | None = None  # where an entry caches samples
        self.changed: ChangedTransforms | None = None  # where an entry has alternatives
        self._threads_set: set[int] = set()  # entries whose threads of torch were set
        self.pid, self.numbers = os.getpid(), 0  # loaders that were iterated in this process

    def install(self) -> None:
        module = sys.modules.get(_DATALOADER)
        if module is not None:
            self.run(self._hook_torch, module)
            return
        self.waiting[_DATALOADER] = [self._hook_torch]
        self.waiting[_DDP] = [self._hook_distributed]
        self.undo.append(import_hook.watch(self))

    def uninstall(self) -> None:
        """Remove all hooks; loaders keep their settings."""
        self.on = False
        while self.undo:
            self.undo.pop()()

    def run(self, function: "Callable[[Any], object]", module: "ModuleType") -> None:
        try:
            function(module)
        except Exception as error:
            self.fault(error)

    def fault(self, error: Exception) -> None:
        self.on = False
        with suppress(Exception):
            self.note(f"the settings are not applied: {type(error).__name__}: {error}")

    def _hook_torch(self, module: "Any") -> None:
        import json

        from ..common import patching
        from . import rng_parity, settings_hooks

        fields = json.loads(self.text)
        self.entries, self.notes.path = fields["loaders"], fields.get("said")
        self.matching = Matching(self.entries)
        torch = str(sys.modules["torch"].__version__)
        loader, base = module.DataLoader, module._BaseDataLoaderIter
        plan: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (loader, "__init__", settings_hooks.init),
            (loader, "_get_iterator", settings_hooks.get_iterator),
            (base, "__init__", rng_parity.init),
            (base, "_reset", rng_parity.reset),
        )
        missing = [name for owner, name, _ in plan if name not in vars(owner)]
        if missing:  # all or nothing: leave an unknown torch alone
            raise LookupError(f"torch {torch} is not as lotus knows it: {missing[0]!r}")
        for owner, name, make in plan:
            around = partial(make, applier=self)
            self.undo.append(patching.listen(owner, name, "settings", around))
        if any(entry.get("alternatives") for entry in self.entries):
            self.hook_transforms(module)
        if any(entry.get("cache") for entry in self.entries):
            self.hook_samples(module)  # outermost: what alternatives make is cached
        for name, make in self.features.items():
            if fields.get(name) is not None:
                feature = make(self, fields[name])
                self.acting.append(feature)
                feature.install(module)
        if fields.get("torch") not in (None, torch):
            self.note(f"the settings were found with torch {fields['torch']}, this is {torch}")

    def hook_samples(self, module: "Any") -> None:
        """Let samples be cached, where a loader's plan says so."""
        from ..common import guard, patching
        from . import sample_caching

        self.caching = sample_caching.active = sample_caching.SampleCaching(self)
        errors = guard.exception_wrapper
        for owner, name, around in (
            (module._DatasetKind, "create_fetcher", self.caching.create_fetcher),
            (module._utils.worker, "ExceptionWrapper", errors),
        ):
            self.undo.append(patching.listen(owner, name, "settings", around))

    def hook_transforms(self, module: "Any") -> None:
        """Let alternatives make samples, where a loader's plan says so."""
        from ..common import guard, patching
        from . import changed_transforms

        self.changed = changed_transforms.active = changed_transforms.ChangedTransforms(self)
        for owner, name, around in (
            (module._DatasetKind, "create_fetcher", self.changed.create_fetcher),
            (module._utils.worker, "ExceptionWrapper", guard.exception_wrapper),
        ):
            self.undo.append(patching.listen(owner, name, "settings:alternatives", around))

    def _hook_distributed(self, module: "ModuleType") -> None:
        # torch 2.2 imports this module after the other one, torch 2.14 before it.
        for feature in self.acting:
            feature.hook_models(module)

    # Reports.

    def note(self, text: str) -> None:
        """Write one line to stderr, once in all processes of the run."""
        self.notes.note(text)

    def tell(self, fact: "dict[str, Any]") -> bool:
        """Record a fact for `lotus run`; return whether it is new."""
        return self.notes.tell(fact)

    # Decisions.

    def made(self, loader: "Any", frame: "FrameType | None") -> None:
        """Handle a loader that was made: apply the setting that matches it, if any."""
        if is_worker():
            return  # a loader inside a data set
        site, by_user = loader_description.made_at(loader, frame)
        known = self.loaders.add(loader, site, by_user)
        known.once = loader_description.once_made_at(loader, frame)
        known.name = loader_description.name_of(loader, frame)
        index = self.matching.made(loader, site, known.once)
        before = None if by_user else self.loaders.forerunner(loader, index)
        if index is None and before is not None:
            index, known.site, known.name = before.entry, before.site, before.name
        if index is not None:
            self.put(loader, known, index, before)
        elif before is None:
            self.tell({"made": loader_description.words(loader, site)})

    def iterated(self, loader: "Any") -> "KnownLoader | None":
        """Handle a loader that is iterated; a setting may name it by its number only."""
        if is_worker():
            return None
        if self.pid != os.getpid():
            self.pid, self.numbers = os.getpid(), 0
            for other in self.loaders.all():
                other.iterated = False
        known = self.loaders.find(loader) or self.loaders.add(loader)
        if not known.iterated:
            known.iterated = True
            number, self.numbers = self.numbers, self.numbers + 1
            # As old runs name it.
            placed = self.matching.exact(loader, loader_description.iterated_at())
            for index, entry in enumerate(self.entries):
                wanted = entry["loader"]
                alone = not any(wanted.get(name) is not None for name in FACTS)
                here = wanted.get("number") == number if alone else index == placed
                if here and (alone or wanted.get("call_site")) and known.entry is None:
                    self.put(loader, known, index, None)
            if known.entry is None:
                self._put_by_names(loader, known)
        return known

    def _put_by_names(self, loader: "Any", known: KnownLoader) -> None:
        """Apply a setting that was tuned on a data set of another length."""
        meant, note = self.matching.iterated(loader, known.site)
        if note:
            self.note(note)
        if meant is not None:
            self.put(loader, known, meant, None)

    def own(self, loader: "Any") -> "Own | None":
        """Return what a changed loader would draw with the program's own setting."""
        known = self.loaders.find(loader)
        return known.own if known is not None else None

    # Actions.

    def put(
        self,
        loader: "Any",
        known: KnownLoader,
        index: int,
        again: KnownLoader | None,
        quiet: bool = False,
    ) -> None:
        """Apply a setting to a loader, or note why not.

        `again` is the loader of which this one is a copy, if any. `quiet` suppresses notes about
        the consequences of the setting.
        """
        entry = self.entries[index]
        try:
            own = (again.before if again is not None else None) or loader_attributes.attributes(
                loader
            )
            after = loader_attributes.resolve(entry, loader, own)
        except loader_attributes.SettingRefusedError as reason:
            self.tell({"refused": index})
            self.note(
                f"{loader_description.words(loader, known.site)} keeps its own settings: {reason}"
            )
            return
        from .rng_parity import Own

        where = f"at {known.site}" if known.site else f"of {loader_description.words(loader, '')}"
        loader_attributes.assign(loader, after)
        known.entry, known.before = index, own
        known.own = Own(own["num_workers"], own["persistent_workers"])
        if quiet:
            return
        self.tell({"applied": index})
        if own["num_workers"] != after["num_workers"]:
            self.note(
                f"num_workers goes from {own['num_workers']} to {after['num_workers']} {where}: "
                "random augmentations will draw other numbers than before"
            )
        threads = entry["setting"].get("torch_threads")
        if threads is not None:
            words = "1 thread" if threads == 1 else f"{threads} threads"
            self.note(
                f"torch gets {words} in the training process when the loader {where} is first "
                "iterated: sums of floats may differ in their last bits"
            )
        if after["persistent_workers"] and not own["persistent_workers"]:
            self.note(
                f"workers stay from epoch to epoch {where}: what the program changes in the data "
                "set between epochs does not reach them"
            )

    def give_back(self, loader: "Any", known: KnownLoader, error: Exception) -> None:
        """Restore the program's own setting, as workers cannot be started with ours."""
        loader_attributes.assign(loader, known.before)
        self.tell({"refused": known.entry})
        what = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        method = self.entries[known.entry or 0]["setting"].get("start_method")
        self.note(
            f"{loader_description.words(loader, known.site)} goes on with its own settings: "
            f"its workers cannot be started by {method} ({what})"
        )
        known.restore()

    def set_torch_threads(self, known: KnownLoader) -> None:
        """Set torch's threads in this process as the loader's setting says, once per setting.

        A loader may be made again for each epoch; what the program has set meanwhile stays.
        """
        index = known.entry
        if index is None or index in self._threads_set:
            return
        threads = self.entries[index]["setting"].get("torch_threads")
        if threads is not None:
            self._threads_set.add(index)
            sys.modules["torch"].set_num_threads(threads)

    def threads(self, loader: "Any", known: KnownLoader) -> int | None:
        """Return the number of threads for workers that start now; None: no change."""
        if known.entry is None or loader.num_workers == 0:
            return None
        threads: int | None = self.entries[known.entry]["setting"].get("threads")
        if threads is None:
            return None
        words = loader_description.words(loader, known.site)
        why = worker_threads.hinders(threads, loader_attributes.start_method(loader), words)
        if why:
            self.note(why)
            return None
        worker_threads.openblas_setters()  # before a fork
        return threads

    def cache_plan(
        self, loader: "Any", known: KnownLoader, made_by: "AlternativePlan | None"
    ) -> "CachePlan | None":
        """Return what to cache of a loader's samples; None: nothing."""
        if self.caching is None or known.entry is None:
            return None
        return self.caching.plan(loader, known.entry, known.site, made_by)

    def alternatives(self, loader: "Any", known: KnownLoader) -> "AlternativePlan | None":
        """Return which alternatives make a loader's samples; None: none."""
        if self.changed is None or known.entry is None:
            return None
        entry = self.entries[known.entry]
        names = entry.get("alternatives")
        if not names:
            return None
        return self.changed.plan(loader, names, known.site, entry.get("cache"))


def install(
    environ: "Mapping[str, str] | None" = None, features: "Features | None" = None
) -> Applier:
    """Apply the settings of the environment in this process; raises nothing."""
    global active
    if active is None or not active.on:
        active = Applier(os.environ if environ is None else environ, features)
        try:
            active.install()
        except Exception as error:
            active.fault(error)
    return active

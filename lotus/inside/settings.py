"""Loader settings that were found outside, put on a loader where the program makes it.

An acting hook, in force only where LOTUS_SETTINGS is: JSON with `loaders` (each a `loader`, which
one it is, a `setting` and `iterable_safe`), the `torch` it was found with and `said`, the path of
a file that all processes share: what happened, for `lotus run`, and what a user was told already.
For `lotus sweep` a `loader` may be {"every": true}, and `keep` says that what a setting does not
name stays as the program has it. A `balance` is put on by balancing.py, a `mode` by modes.py.

torch makes the loader as the program asks; then its attributes become those of the setting, all
or none. So a mistake of the program stays torch's to tell, and a subclass, or Lightning when it
makes the loader again from its attributes, sees what is really used.
"""

import os
import sys
from contextlib import suppress
from functools import partial, wraps

from . import assigning, described

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType, ModuleType
    from typing import Any

    from .balancing import Balance
    from .draws import Own
    from .modes import Mode

_DATALOADER = "torch.utils.data.dataloader"
_DDP = "torch.nn.parallel.distributed"
_MOST_SAID = 1 << 16  # bytes
_FACTS = ("call_site", "dataset", "sampler", "dataset_length")  # the last may take time to tell

active: "Applier | None" = None  # the one in force in this process


class _Known:
    """A loader that lives: what was decided on it."""

    def __init__(self, reference: "Any", site: str, by_user: bool) -> None:
        self.reference = reference
        self.site = site
        self.by_user = by_user  # made by a line of the program, not by a package
        self.iterated = False
        self.entry: int | None = None  # whose setting it has
        self.before: dict[str, Any] = {}  # its own attributes, where they were changed
        self.own: Own | None = None


class Applier:
    """The settings of this run in this process."""

    def __init__(self, environ: "Mapping[str, str]") -> None:
        self.text = environ["LOTUS_SETTINGS"]
        self.on = True
        self.undo: list[Callable[[], object]] = []
        self.waiting: dict[str, list[Callable[[Any], object]]] = {}  # for install.Watcher
        self.known: dict[int, _Known] = {}  # by id(loader)
        self.entries: list[dict[str, Any]] = []
        self.said: str | None = None
        self.told: set[str] = set()
        self.balance: Balance | None = None
        self.mode: Mode | None = None
        self.pid, self.numbers = os.getpid(), 0  # loaders that were iterated in this process
        self.stderr: tuple[int, int] | None = None  # later it may be a file of the program
        with suppress(OSError):
            status = os.fstat(2)
            self.stderr = (status.st_dev, status.st_ino)

    def install(self) -> None:
        module = sys.modules.get(_DATALOADER)
        if module is not None:
            self.run(self._hook_torch, module)
            return
        from .install import Watcher

        self.waiting[_DATALOADER] = [self._hook_torch]
        self.waiting[_DDP] = [self._hook_distributed]
        finder = Watcher(self)
        sys.meta_path.insert(0, finder)

        def unwatch() -> None:
            if finder in sys.meta_path:
                sys.meta_path.remove(finder)

        self.undo.append(unwatch)

    def uninstall(self) -> None:
        """Put torch back as it was; loaders keep what they have."""
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

        from . import draws

        given = json.loads(self.text)
        self.entries, self.said = given["loaders"], given.get("said")
        torch = str(sys.modules["torch"].__version__)
        loader, base = module.DataLoader, module._BaseDataLoaderIter
        plan: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (loader, "__init__", _init),
            (loader, "_get_iterator", _get_iterator),
            (base, "__init__", draws.init),
            (base, "_reset", draws.reset),
        )
        try:
            found = [vars(owner)[name] for owner, name, _ in plan]
        except KeyError as error:
            raise LookupError(f"torch {torch} is not as lotus knows it: {error}") from error
        made = [make(before, self) for before, (_, _, make) in zip(found, plan, strict=True)]
        for (owner, name, _), before, after in zip(plan, found, made, strict=True):
            setattr(owner, name, after)
            self.undo.append(partial(setattr, owner, name, before))
        if given.get("balance") is not None:
            from .balancing import Balance

            self.balance = Balance(self, given["balance"])
            self.balance.install(module)
        if given.get("mode") is not None:
            from .modes import Mode

            self.mode = Mode(self, given["mode"])
            self.mode.install(module)
        if given.get("torch") not in (None, torch):
            self.note(f"the settings were found with torch {given['torch']}, this is {torch}")

    def _hook_distributed(self, module: "ModuleType") -> None:
        # Of the two modules torch 2.2 finishes this one last, torch 2.14 first.
        for one in (self.balance, self.mode):
            if one is not None:
                one.hook_models(module)

    # What is said.

    def note(self, text: str) -> None:
        """One line on stderr, once in all processes of the run."""
        text = "".join(char if char.isprintable() else "?" for char in text)[:1000]
        if text in self.told:
            return
        self.told.add(text)
        # Only if descriptor 2 still is what it was: it may be a file of the program by now.
        if self.tell({"note": text}) and self.stderr is not None:
            with suppress(OSError):
                status = os.fstat(2)
                if (status.st_dev, status.st_ino) == self.stderr:
                    os.write(2, f"lotus: {text}\n".encode("ascii", "backslashreplace"))

    def tell(self, fact: "dict[str, object]") -> bool:
        """Leave a fact for `lotus run`; returns whether it is news."""
        import fcntl
        import json

        if self.said is None:
            return True
        line = json.dumps(fact).encode() + b"\n"
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.said, flags)
        except OSError:  # `lotus run` has ended, or another machine
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            before = os.pread(fd, _MOST_SAID, 0)
            if line in before.splitlines(keepends=True):
                return False
            if len(before) + len(line) <= _MOST_SAID:
                os.write(fd, line)
            return True
        except OSError:
            return True
        finally:
            os.close(fd)

    # What is decided.

    def made(self, loader: "Any", frame: "FrameType | None") -> None:
        """A loader was made: put a setting on it if one is meant for it."""
        if _is_worker():
            return  # a loader inside a data set
        site, by_user = described.made_at(loader, frame)
        known = self._know(loader, site, by_user)
        index = self._meant(loader, site)
        before = None if by_user else self._before(loader, index)
        if index is None and before is not None:
            index, known.site = before.entry, before.site
        if index is not None:
            self.put(loader, known, index, before)
        elif before is None:
            self.tell({"made": described.words(loader, site)})

    def iterated(self, loader: "Any") -> "_Known | None":
        """A loader is iterated: the n-th of this process, where a setting names only that."""
        if _is_worker():
            return None
        if self.pid != os.getpid():
            self.pid, self.numbers = os.getpid(), 0
            for other in self.known.values():
                other.iterated = False
        known = self._find(loader) or self._know(loader, "", False)
        if not known.iterated:
            known.iterated = True
            number, self.numbers = self.numbers, self.numbers + 1
            for index, entry in enumerate(self.entries):
                wanted = entry["loader"]
                alone = not any(wanted.get(name) is not None for name in _FACTS)
                if alone and wanted.get("number") == number and known.entry is None:
                    self.put(loader, known, index, None)
        return known

    def own(self, loader: "Any") -> "Own | None":
        """What a changed loader would draw with the program's own setting."""
        known = self._find(loader)
        return known.own if known is not None else None

    def _know(self, loader: "Any", site: str, by_user: bool) -> _Known:
        import weakref

        # No function of ours: in a callback the exception of a signal handler would be lost.
        reference = weakref.ref(loader, partial(self._forget, id(loader)))
        self.known[id(loader)] = known = _Known(reference, site, by_user)
        return known

    def _forget(self, key: int, reference: object) -> None:
        known = self.known.get(key)
        if known is not None and known.reference is reference:
            del self.known[key]

    def _find(self, loader: "Any") -> _Known | None:
        known = self.known.get(id(loader))
        return known if known is not None and known.reference() is loader else None

    def _meant(self, loader: "Any", site: str) -> int | None:
        """The first entry of which all that it says is so."""
        facts: dict[str, Any] = {"call_site": site, "dataset": type(loader.dataset).__name__}
        facts["sampler"] = described.sampler(loader)
        for index, entry in enumerate(self.entries):
            wanted = entry["loader"]
            if wanted.get("every") is True:
                return index
            names = [name for name in _FACTS if wanted.get(name) is not None]
            for name in names:
                if name == "dataset_length" and name not in facts:
                    facts[name] = described.length(loader)
                if facts[name] != wanted[name]:
                    break
            else:
                if names:
                    return index
        return None

    def _before(self, loader: "Any", index: int | None) -> _Known | None:
        """What is known of the loader that a package makes again, as Lightning does.

        Where no entry is meant for it by itself, only of one that the program made.
        """
        plain = ("RandomSampler", "SequentialSampler")
        found = []
        for known in list(self.known.values()):
            other = known.reference()
            if other is None or other is loader:
                continue
            if not known.by_user if index is None else known.entry != index:
                continue
            samplers = (described.sampler(other), described.sampler(loader))
            if (
                other.dataset is loader.dataset
                and type(other) is type(loader)
                and other.collate_fn is loader.collate_fn
                and other.drop_last == loader.drop_last
                and (samplers[0] == samplers[1] or not set(samplers) <= set(plain))
            ):
                found.append(known)
        # Of two that are alike and were treated differently it may be either.
        return found[0] if len({known.entry for known in found}) == 1 else None

    # What is done.

    def put(
        self,
        loader: "Any",
        known: _Known,
        index: int,
        again: _Known | None,
        quiet: bool = False,
    ) -> None:
        """Put a setting on a loader, or say why not; `again`: as on this one, its forerunner.

        `quiet`: nothing is said of what changes with it.
        """
        entry = self.entries[index]
        try:
            own = (again.before if again is not None else None) or assigning.attributes(loader)
            after = assigning.wanted(entry, loader, own)
        except assigning.Refused as reason:
            self.tell({"refused": index})
            self.note(f"{described.words(loader, known.site)} keeps its own settings: {reason}")
            return
        from .draws import Own

        where = f"at {known.site}" if known.site else f"of {described.words(loader, '')}"
        assigning.assign(loader, after)
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
        if after["persistent_workers"] and not own["persistent_workers"]:
            self.note(
                f"workers stay from epoch to epoch {where}: what the program changes in the data "
                "set between epochs does not reach them"
            )

    def give_back(self, loader: "Any", known: _Known, error: Exception) -> None:
        """Put the program's own setting back: the workers of ours cannot be started."""
        assigning.assign(loader, known.before)
        self.tell({"refused": known.entry})
        what = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        method = self.entries[known.entry or 0]["setting"].get("start_method")
        self.note(
            f"{described.words(loader, known.site)} goes on with its own settings: "
            f"its workers cannot be started by {method} ({what})"
        )
        known.entry, known.own, known.before = None, None, {}

    def threads(self, loader: "Any", known: _Known) -> int | None:
        """How many threads the workers that start now shall have."""
        if known.entry is None or loader.num_workers == 0:
            return None
        threads: int | None = self.entries[known.entry]["setting"].get("threads")
        if threads is None:
            return None
        method = assigning.start_method(loader)
        if method == "fork" and threads > 1:
            # Seen with torch 2.14 (hangs) and 2.2 (dies) where the parent had used its own.
            self.note(
                f"the {threads} threads a worker are not set for "
                f"{described.words(loader, known.site)}: OpenMP can hang in forked workers; "
                "the setting needs a start_method of spawn"
            )
            return None
        ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sitecustomize")
        found = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if method != "fork" and (not os.environ.get("LOTUS_SETTINGS") or ours not in found):
            self.note("the threads a worker are not set: the program took lotus's environment away")
            return None
        return threads


def install(environ: "Mapping[str, str] | None" = None) -> Applier:
    """Apply the settings of the environment in this process; raises nothing."""
    global active
    if active is None or not active.on:
        active = Applier(os.environ if environ is None else environ)
        try:
            active.install()
        except Exception as error:
            active.fault(error)
    return active


# The hooks.


def _init(original: "Callable[..., Any]", applier: "Any") -> "Callable[..., Any]":
    """Hook for `DataLoader.__init__`."""
    import inspect

    from .guard import edge, hide_our_frames, hook

    def __init__(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            hide_our_frames(applier, error)
            raise
        edge(applier, applier.made, self, sys._getframe(1))

    # Lightning makes a loader again by this signature.
    made = wraps(original)(hook(__init__))
    made.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return made


def _get_iterator(original: "Callable[..., Any]", applier: "Any") -> "Callable[..., Any]":
    """Hook for `DataLoader._get_iterator`."""
    from .guard import edge, hide_our_frames, hook

    def start(self: "Any", known: _Known) -> "Any":
        own = known.before["num_workers"] == self.num_workers
        make = original if own else assigning.unwarned(original)
        threads = edge(applier, applier.threads, self, known)
        if threads is None:
            return make(self)
        function = self.worker_init_fn
        self.worker_init_fn = WorkerInit(threads, function)
        try:
            return make(self)
        finally:
            self.worker_init_fn = function  # the program never sees ours

    def _get_iterator(self: "Any") -> "Any":
        known: _Known | None = edge(applier, applier.iterated, self)
        try:
            if known is None or known.entry is None:
                return original(self)
            if not _other_start(applier, self, known):
                iterator = start(self, known)
            else:
                generator = self.generator or sys.modules["torch"].default_generator
                state = generator.get_state()
                failed = None
                try:
                    iterator = start(self, known)
                except Exception as error:
                    if not _is_about_pickling(error):
                        raise
                    failed = error.with_traceback(None)
                if failed is not None:
                    generator.set_state(state)
                    edge(applier, applier.give_back, self, known, failed)
                    return original(self)
            if self.persistent_workers and self.num_workers:
                self._iterator = iterator  # where it was not persistent when `iter` looked
            return iterator
        except BaseException as error:
            hide_our_frames(applier, error)
            raise

    hook(start)
    return wraps(original)(hook(_get_iterator))


def _other_start(applier: Applier, loader: "Any", known: _Known) -> bool:
    """Whether workers are started in another way than by the program itself."""
    assert known.entry is not None
    asked = applier.entries[known.entry]["setting"].get("start_method")
    return asked not in (None, "fork") and loader.num_workers > 0


def _is_about_pickling(error: Exception) -> bool:
    import pickle

    return isinstance(error, (pickle.PicklingError, TypeError, AttributeError))


class WorkerInit:
    """Stands for a loader's `worker_init_fn` while its workers start; sets their threads first.

    Python takes `__call__` from here, which sets them, and calls what it got: no frame of ours is
    below the user's function.
    """

    def __init__(self, threads: int, function: "Callable[[int], object] | None") -> None:
        self.threads, self.function = threads, function

    @property
    def __call__(self) -> "Callable[[int], object]":
        if _is_worker():
            with suppress(Exception):
                _set_threads(self.threads)
        return self.function if self.function is not None else bool


def _set_threads(threads: int) -> None:
    # For libraries that are loaded later, and for processes that the worker starts.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["OPENCV_FOR_THREADS_NUM"] = str(threads)
    sys.modules["torch"].set_num_threads(threads)
    cv2: Any = sys.modules.get("cv2")
    if cv2 is not None:
        cv2.setNumThreads(threads)


def _is_worker() -> bool:
    """Whether this process is a DataLoader's worker, or may have no children for another reason."""
    multiprocessing: Any = sys.modules.get("multiprocessing")
    return multiprocessing is not None and bool(multiprocessing.current_process().daemon)

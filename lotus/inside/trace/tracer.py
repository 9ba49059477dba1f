"""Installs and removes the hooks; waits for torch.utils.data and never imports it.

Every Python process of the traced program loads this file, and most of them do not need it. So
modules that Python itself has not imported are imported together with torch.utils.data. Even
`__future__` is one of them, which is why annotations are quoted.
"""

import atexit
import os
import sys

from ..common import import_hook
from . import active

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

    from ..common.patching import Around, Function
    from .loaders.iterations import Loaders
    from .operation_stand_ins import StandIns
    from .recorder import Recorder
_DATALOADER = "torch.utils.data.dataloader"
_CHECKS = "check_worker_number_rationality"  # by which `DataLoader.__init__` ends
# Methods that iterate the sampler and draw from it; where they are not, its time is not known.
_DRAWS = ("_reset", "_next_index")
_PARALLEL = "torch.nn.parallel.distributed"
# Classes that average gradients in other ways: module, class.
_SHARDED = (
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
    ("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState"),
)
_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
# Loaders that cannot be traced inside: module, class, reason.
_UNSEEN = (
    ("ffcv.loader.loader", "Loader", "it loads in compiled threads"),
    ("nvidia.dali.pipeline", "Pipeline", "DALI loads in its own native threads"),
)


# Modules of transforms that apply others by name (`augment_hooks.FUNCTIONS`).
_AUGMENTING = (
    "torchvision.transforms.autoaugment",
    "torchvision.transforms.v2._auto_augment",
    "timm.data.auto_augment",
)


def _with(function: "Callable[..., Any]", **named: str) -> "Callable[[Any], Any]":
    """Return a function of a module that calls one with further arguments.

    It is that of `functools`, which is not imported in a program that does not import it.
    """
    return lambda module: function(module, **named)


class Tracer:
    """All hooks of one recording in this process."""

    def __init__(self, environ: "Mapping[str, str]") -> None:
        self.environ = environ
        self.named = [name for name in (environ.get("LOTUS_OPS") or "").split("\n") if name]
        # Functions that undo changes, called in reverse order.
        self.undo: list[Callable[[], object]] = []
        # By module name: functions to call once it is imported.
        self.waiting: dict[str, list[Callable[[Any], object]]] = {}
        # For __main__, which is complete only when the first loader is iterated.
        self.late: list[Callable[[Any], object]] = []
        self.unseen: set[str] = set()
        self.stand_ins: StandIns = {}
        self.on = True
        self._recorder: Recorder | None = None
        self._loaders: Loaders | None = None  # once torch's DataLoader is hooked
        # Checked later, when it may be a file of the program.
        self.stderr: tuple[int, int] | None = None
        try:
            status = os.fstat(2)
            self.stderr = (status.st_dev, status.st_ino)
        except OSError:
            pass

    @property
    def recorder(self) -> "Recorder":
        if self._recorder is None:
            from .config import Config
            from .recorder import Recorder

            self._recorder = recorder = Recorder(Config(self.environ), self.stderr)
            atexit.register(recorder.finish)
            self.undo.append(lambda: atexit.unregister(recorder.finish))
            # Python cannot unregister it.
            os.register_at_fork(after_in_child=self._after_fork)
        return self._recorder

    def install(self) -> None:
        self._when_imported(_DATALOADER, self._hook_torch)
        self._when_imported(_STATEFUL, self._hook_stateful)
        self._when_imported("multiprocessing.spawn", self._hook_spawn)
        self._when_imported(_PARALLEL, self._hook_gradients)
        for module, name, why in _UNSEEN:
            self._when_imported(module, _with(self._hook_unseen, name=name, why=why))
        for module in _AUGMENTING:
            self._when_imported(module, self._hook_augmenting)
        self._when_imported("datasets.utils._dill", self._hook_fingerprints)
        self._when_imported("monai.data.dataset", self._hook_persistent)
        for named in self.named:
            module = named.partition(":")[0]
            call = _with(self._hook_named, named=named)
            if module == "__main__":
                self.late.append(call)
            else:
                self._when_imported(module, call)
        if self.waiting:
            self.undo.append(import_hook.watch(self))

    def uninstall(self) -> None:
        """Write what is left and undo all changes."""
        self.on = False
        recorder = self._recorder
        if recorder is not None:
            recorder.finish()
        while self.undo:
            try:
                self.undo.pop()()
            except Exception as error:
                self.fault(error)
        if recorder is not None:
            recorder.stop()

    def fault(self, error: Exception) -> None:
        try:
            self.recorder.fault(error)
        except Exception:  # even making the recorder may have failed
            try:  # noqa: SIM105
                self._fault_without_recorder(error)
            except Exception:
                pass

    def _fault_without_recorder(self, error: Exception) -> None:
        import json

        text = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        line = json.dumps({"event": "fault", "error": text, "pid": os.getpid()})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(os.path.join(self.environ["LOTUS_RUN"], "processes.jsonl"), flags)
        try:
            os.write(fd, (line + "\n").encode())
        finally:
            os.close(fd)

    def _when_imported(self, name: str, function: "Callable[[Any], object]") -> None:
        module = sys.modules.get(name)
        if module is not None:
            self.run(function, module)
        else:
            self.waiting.setdefault(name, []).append(function)

    def run(self, function: "Callable[[Any], object]", module: "ModuleType") -> None:
        try:
            function(module)
        except Exception as error:
            from ..common.guard import of_the_program

            self.fault(error)
            if of_the_program(error):
                raise

    def listen(self, owner: object, name: str, around: "Around", feature: str = "trace") -> None:
        """Listen on a method of a class or a module, until this recording ends."""
        from ..common.patching import listen

        self.undo.append(listen(owner, name, feature, around))

    def _hook_torch(self, module: "Any") -> None:
        from . import spans  # noqa: F401  (`lotus.span` finds it by its name)
        from .loaders.iterations import Loaders
        from .log.log_writer import append_line

        recorder = self.recorder
        version = str(sys.modules["torch"].__version__)
        append_line(recorder.config.run, {"event": "torch", "torch": version})
        loaders = Loaders(recorder)
        try:
            self._listen_to_all(lambda: self._plan(module, loaders))
        except LookupError as error:
            raise LookupError(f"torch {version} is not as lotus knows it: {error}") from error
        self._loaders = loaders
        # Once all of torch is imported.
        self.late.append(lambda _: recorder.device_times.find(sys.modules["torch"]))
        ranges = recorder.ranges
        if ranges is not None:  # before the first workers start
            self.late.append(lambda _: ranges.load())

    def _listen_to_all(self, plan: "Callable[[], list[tuple[Any, str, Around]]]") -> None:
        """Listen on all methods of a plan, or raise LookupError and leave everything alone."""
        before = len(self.undo)
        try:
            for owner, name, around in plan():
                self.listen(owner, name, around)
        except (AttributeError, KeyError) as error:
            while len(self.undo) > before:
                self.undo.pop()()
            raise LookupError(str(error)) from error

    def _hook_stateful(self, module: "Any") -> None:
        from .loaders import stateful_hooks

        loaders = self._loaders
        if loaders is None:
            return  # nor is torch's
        try:
            self._listen_to_all(lambda: stateful_hooks.plan(module, loaders, self.hook_main))
        except LookupError as error:
            why = f"this version of torchdata is not as lotus knows it: {error}"
            self._hook_unseen(module, stateful_hooks.CLASS, why)

    def hook_main(self) -> None:
        """Hook operations that are named in __main__, once."""
        late, self.late = self.late, []
        for function in late:
            self.run(function, sys.modules["__main__"])

    def _plan(self, module: "Any", loaders: "Loaders") -> "list[tuple[Any, str, Around]]":
        """Return the methods to listen on; raise AttributeError if one does not exist."""
        from functools import partial

        from ..common import guard
        from .loaders import loader_hooks, worker_hooks
        from .operation_stand_ins import give_back

        recorder, utils = loaders.recorder, module._utils
        loader, kind = module.DataLoader, module._DatasetKind
        many, single = module._MultiProcessingDataLoaderIter, module._SingleProcessDataLoaderIter
        base: Any = getattr(module, "_BaseDataLoaderIter", None)
        stand_ins = self.stand_ins
        self.undo.append(partial(give_back, stand_ins))
        get_iterator = partial(loader_hooks.get_iterator, before=self.hook_main)
        drawing = partial(loader_hooks.drawing, recorder=recorder)
        create_fetcher = partial(
            loader_hooks.create_fetcher, recorder=recorder, stand_ins=stand_ins
        )
        of_loaders: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (loader, "_get_iterator", get_iterator),
            (many, "_reset", loader_hooks.reset),
            (many, "_next_data", loader_hooks.next_data),
            (single, "_next_data", loader_hooks.next_data),
            (many, "_shutdown_workers", loader_hooks.shutdown_workers),
            (utils.pin_memory, "_pin_memory_loop", loader_hooks.pin_memory_loop),
        )
        if _CHECKS in vars(loader):  # without it, only names and places are missing
            of_loaders = (*of_loaders, (loader, _CHECKS, loader_hooks.check_workers))
        return [
            *((owner, name, partial(make, loaders=loaders)) for owner, name, make in of_loaders),
            *((base, name, drawing) for name in _DRAWS if hasattr(base, name)),
            (many, "_try_get_data", partial(loader_hooks.try_get_data, recorder=recorder)),
            (utils.worker, "_worker_loop", partial(worker_hooks.worker_loop, recorder=recorder)),
            (utils.worker, "ExceptionWrapper", guard.exception_wrapper),
            (kind, "create_fetcher", create_fetcher),
        ]

    def _hook_gradients(self, module: "Any") -> None:
        from contextlib import suppress

        from ..distributed import gradient_sync
        from . import recorder
        from .log import log_writer, writer

        torch = sys.modules["torch"]
        cls = getattr(module, "DistributedDataParallel", None)
        gradients: Any = None
        if cls is not None and "_post_forward" in vars(cls):
            with suppress(AttributeError):
                modules = (recorder, writer, log_writer)
                gradients = gradient_sync.Gradients(self.recorder, torch, modules)
        if gradients is None:  # loaders are recorded all the same
            text = f"gradient synchronisation is not timed: torch {torch.__version__} is another"
            self.recorder.event({"event": "note", "text": text})
            return

        def hook(cls: "Any", name: str, make: "Callable[..., Any]", *args: "Any") -> None:
            if cls is not None and name in vars(cls):
                around = lambda original: make(original, gradients, *args)  # noqa: E731
                self.listen(cls, name, around, "gradients")

        hook(cls, "_post_forward", gradient_sync.post_forward)

        def checkpoints(module: "Any") -> None:
            cls = getattr(module, "CheckpointFunction", None)
            hook(cls, "backward", gradient_sync.checkpoint_backward)

        def sharded(module: "Any", name: str) -> None:
            hook(getattr(module, name, None), "__init__", gradient_sync.unmeasured, name)

        self._when_imported("torch.utils.checkpoint", checkpoints)
        for name, owner in _SHARDED:
            self._when_imported(name, _with(sharded, name=owner))

    def _after_fork(self) -> None:
        if self.on:
            try:
                self.recorder.after_fork()
            except Exception as error:
                self.fault(error)

    def _hook_named(self, module: "Any", named: str) -> None:
        from .transforms.transform_finder import wrap_named

        recorder = self.recorder
        name = named.partition(":")[2]
        owner: Any
        owner, path = module, name.split(".")
        try:
            for part in path[:-1]:
                owner = getattr(owner, part)
            operation = recorder.definitions.define(name, kind="named")
            self.undo.append(wrap_named(owner, path[-1], operation, recorder))
        except (AttributeError, TypeError) as error:
            recorder.event({"event": "note", "text": f"--op {named}: {error}"})

    def _hook_augmenting(self, module: "Any") -> None:
        from functools import partial

        from .transforms import augment_hooks

        kind, name, _ = augment_hooks.FUNCTIONS[module.__name__]
        owner = getattr(module, kind, None) if kind else module
        if name in getattr(owner, "__dict__", ()) and self.recorder.config.level >= 2:
            make = partial(augment_hooks.apply, module=module, recorder=self.recorder)
            self.listen(owner, name, make)

    def _hook_spawn(self, module: "Any") -> None:
        from .loaders import spawn_hooks

        self.listen(module, "prepare", spawn_hooks.prepare)

    def _hook_fingerprints(self, module: "Any") -> None:
        from . import cache_keys

        self.listen(module.Pickler, "save", cache_keys.save)

    def _hook_persistent(self, module: "Any") -> None:
        from functools import partial

        from . import cache_keys

        make = partial(
            cache_keys.set_transform_hash, recorder=self.recorder, stand_ins=self.stand_ins
        )
        self.listen(module.PersistentDataset, "set_transform_hash", make)

    def _hook_unseen(self, module: "ModuleType", name: str, why: str) -> None:
        from ..common.guard import hook
        from ..common.patching import listen

        cls: Any = getattr(module, name, None)
        if not hasattr(cls, "__iter__"):
            return

        def around(original: "Function") -> "Function":
            def __iter__(loader: "Any") -> "Any":
                if name not in self.unseen:
                    self.unseen.add(name)
                    what = f"{module.__name__}.{name}"
                    self.recorder.event({"event": "unseen", "what": what, "why": why})
                return original(loader)

            return hook(__iter__)

        self.undo.append(listen(cls, "__iter__", "trace", around, inherited=True))


def install(environ: "Mapping[str, str] | None" = None) -> Tracer:
    """Start recording in this process as the environment asks; return the Tracer.

    Raises nothing: on a fault there is one line on stderr and no recording.
    """
    if active.tracer is not None and active.tracer.on:
        running: Tracer = active.tracer
        return running
    active.tracer = tracer = Tracer(dict(os.environ if environ is None else environ))
    try:
        tracer.install()
    except Exception as error:
        tracer.fault(error)
    return tracer

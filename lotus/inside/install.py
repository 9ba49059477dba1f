"""Install and uninstall the hooks, in pairs; wait for torch.utils.data, never import it.

Every Python that the traced program starts loads this file, most of them for nothing: what costs
time to import is imported when torch.utils.data is. So is `__future__`: annotations are quoted.
"""

import atexit
import os
import sys
from contextlib import suppress
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from .iterations import Loaders
    from .operations import Given
    from .recorder import Recorder
    from .settings import Applier
_DATALOADER = "torch.utils.data.dataloader"
_PARALLEL = "torch.nn.parallel.distributed"
# What averages gradients in ways of its own: module, class.
_SHARDED = (
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"),
    ("torch.distributed.fsdp._fully_shard._fsdp_state", "FSDPState"),
)
# Loaders with a worker loop of their own: module, class, why its inside cannot be seen.
_UNSEEN = (
    (
        "torchdata.stateful_dataloader.stateful_dataloader",
        "StatefulDataLoader",
        "it has a worker loop of its own",
    ),
    ("ffcv.loader.loader", "Loader", "it loads in compiled threads"),
    ("nvidia.dali.pipeline", "Pipeline", "DALI loads in its own native threads"),
)

active: "Tracer | None" = None  # the one in force in this process


class Tracer:
    """All hooks of one recording in this process."""

    def __init__(self, environ: "Mapping[str, str]") -> None:
        self.environ = environ
        self.named = [name for name in (environ.get("LOTUS_OPS") or "").split("\n") if name]
        # Functions that put back what was there, called in reverse.
        self.undo: list[Callable[[], object]] = []
        # By module name: functions to call once it is imported.
        self.waiting: dict[str, list[Callable[[Any], object]]] = {}
        # For __main__, which is complete only when the first loader is iterated.
        self.late: list[Callable[[Any], object]] = []
        self.unseen: set[str] = set()
        self.on = True
        self._recorder: Recorder | None = None
        # Later it may be a file of the program.
        self.stderr: tuple[int, int] | None = None
        with suppress(OSError):
            status = os.fstat(2)
            self.stderr = (status.st_dev, status.st_ino)

    @property
    def recorder(self) -> "Recorder":
        if self._recorder is None:
            from .config import Config
            from .recorder import Recorder

            self._recorder = recorder = Recorder(Config(self.environ), self.stderr)
            atexit.register(recorder.finish)
            self.undo.append(lambda: atexit.unregister(recorder.finish))
            # Registered for good: Python has no way to take it back.
            os.register_at_fork(after_in_child=self._after_fork)
        return self._recorder

    def install(self) -> None:
        self._when_imported(_DATALOADER, self._hook_torch)
        self._when_imported(_PARALLEL, self._hook_gradients)
        for module, name, why in _UNSEEN:
            self._when_imported(module, partial(self._hook_unseen, name=name, why=why))
        for named in self.named:
            module = named.partition(":")[0]
            call = partial(self._hook_named, named=named)
            if module == "__main__":
                self.late.append(call)
            else:
                self._when_imported(module, call)
        if self.waiting:
            finder = Watcher(self)
            sys.meta_path.insert(0, finder)

            def unwatch() -> None:
                if finder in sys.meta_path:
                    sys.meta_path.remove(finder)

            self.undo.append(unwatch)

    def uninstall(self) -> None:
        """Write what is left and put everything back as it was."""
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
            recorder.on = False

    def fault(self, error: Exception) -> None:
        with suppress(Exception):  # where not even a recorder could be made
            self.recorder.fault(error)

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
            from .guard import of_the_program

            self.fault(error)
            if of_the_program(error):
                raise

    def _replace(self, owner: object, name: str, value: object) -> None:
        before = vars(owner)[name]
        setattr(owner, name, value)
        self.undo.append(lambda: setattr(owner, name, before))

    def _hook_torch(self, module: "Any") -> None:
        from . import spans  # noqa: F401  (`lotus.span` finds it by its name)
        from .guard import hook
        from .iterations import Loaders
        from .log import append_line

        recorder = self.recorder
        version = str(sys.modules["torch"].__version__)
        append_line(recorder.config.run, {"event": "torch", "torch": version})
        loaders = Loaders(recorder)
        try:
            made = self._plan(module, loaders)
        except (AttributeError, KeyError) as error:
            raise LookupError(f"torch {version} is not as lotus knows it: {error}") from error
        # All or nothing: another torch is left alone.
        for owner, name, value in made:
            self._replace(owner, name, value)
        if self.late:
            original = module.DataLoader._get_iterator

            def _get_iterator(self_: "Any", *args: "Any", **kwargs: "Any") -> "Any":
                late, self.late = self.late, []
                for function in late:
                    self.run(function, sys.modules["__main__"])
                return original(self_, *args, **kwargs)

            self._replace(module.DataLoader, "_get_iterator", hook(_get_iterator))

    def _plan(self, module: "Any", loaders: "Loaders") -> "list[tuple[Any, str, Any]]":
        """What to replace by what; raises AttributeError or KeyError where it is not there."""
        from . import loader, worker
        from .operations import give_back

        recorder, utils = loaders.recorder, module._utils
        many, single = module._MultiProcessingDataLoaderIter, module._SingleProcessDataLoaderIter
        plan: tuple[tuple[Any, str, Callable[..., Any], tuple[Any, ...]], ...] = (
            (module.DataLoader, "_get_iterator", loader.get_iterator, (loaders,)),
            (many, "_reset", loader.reset, (loaders,)),
            (many, "_try_get_data", loader.try_get_data, (recorder,)),
            (many, "_next_data", loader.next_data, (loaders,)),
            (single, "_next_data", loader.next_data, (loaders,)),
            (many, "_shutdown_workers", loader.shutdown_workers, (loaders,)),
            (utils.pin_memory, "_pin_memory_loop", loader.pin_memory_loop, (loaders,)),
            (utils.worker, "_worker_loop", worker.worker_loop, (recorder,)),
            (utils.worker, "ExceptionWrapper", worker.exception_wrapper, ()),
        )
        made = [(owner, name, make(vars(owner)[name], *args)) for owner, name, make, args in plan]
        kind = module._DatasetKind
        given: Given = {}
        self.undo.append(partial(give_back, given))
        create = loader.create_fetcher(kind.create_fetcher, recorder, given)
        return [*made, (kind, "create_fetcher", create)]

    def _hook_gradients(self, module: "Any") -> None:
        from . import gradients

        torch = sys.modules["torch"]
        cls = getattr(module, "DistributedDataParallel", None)
        original = vars(cls).get("_post_forward") if cls else None
        try:
            known = gradients.Gradients(self.recorder, torch)
        except AttributeError:
            original = None
        if original is None:  # loaders are recorded all the same
            text = f"gradient synchronisation is not timed: torch {torch.__version__} is another"
            self.recorder.event({"event": "note", "text": text})
            return
        self._replace(cls, "_post_forward", gradients.post_forward(original, known))

        def checkpoints(module: "Any") -> None:
            cls = getattr(module, "CheckpointFunction", None)
            original = getattr(vars(cls).get("backward") if cls else None, "__func__", None)
            if original is not None:
                self._replace(cls, "backward", gradients.checkpoint_backward(original, known))

        def sharded(module: "Any", name: str) -> None:
            cls = getattr(module, name, None)
            original = vars(cls).get("__init__") if cls else None
            if original is not None:
                self._replace(cls, "__init__", gradients.unmeasured(original, known, name))

        self._when_imported("torch.utils.checkpoint", checkpoints)
        for name, owner in _SHARDED:
            self._when_imported(name, partial(sharded, name=owner))

    def _after_fork(self) -> None:
        if self.on:
            try:
                self.recorder.after_fork()
            except Exception as error:
                self.fault(error)

    def _hook_named(self, module: "Any", named: str) -> None:
        from .operations import wrap_named

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

    def _hook_unseen(self, module: "ModuleType", name: str, why: str) -> None:
        from .guard import hook

        cls: Any = getattr(module, name, None)
        original = getattr(cls, "__iter__", None)
        if original is None:
            return

        def __iter__(loader: "Any") -> "Any":
            if name not in self.unseen:
                self.unseen.add(name)
                what = f"{module.__name__}.{name}"
                self.recorder.event({"event": "unseen", "what": what, "why": why})
            return original(loader)

        cls.__iter__ = hook(__iter__)
        self.undo.append(lambda: setattr(cls, "__iter__", original))


class Watcher:
    """A meta path finder that calls functions after a module was imported; finds nothing itself."""

    def __init__(self, tracer: "Tracer | Applier") -> None:
        self.tracer = tracer
        self.busy: set[str] = set()

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        tracer = self.tracer
        if name not in tracer.waiting or name in self.busy:
            return None
        self.busy.add(name)
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            found = (
                finder.find_spec(name, path, target)
                for finder in others
                if hasattr(finder, "find_spec")
            )
            spec = next((one for one in found if one is not None), None)
        finally:
            self.busy.discard(name)
        loader: Any = getattr(spec, "loader", None)
        # A class loads what is built in: it is the same one for all modules.
        if loader is None or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        original = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            vars(loader).pop("exec_module", None)  # the loader is again what it was
            original(module)
            for function in tracer.waiting.pop(name, ()):
                tracer.run(function, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return spec  # a loader that takes no attributes: of a built-in module
        return spec


def install(environ: "Mapping[str, str] | None" = None) -> Tracer:
    """Start recording in this process as the environment asks; return the Tracer.

    Raises nothing: on a fault there is one line on stderr and no recording.
    """
    global active
    if active is not None and active.on:
        return active
    active = tracer = Tracer(dict(os.environ if environ is None else environ))
    try:
        tracer.install()
    except Exception as error:
        tracer.fault(error)
    return tracer

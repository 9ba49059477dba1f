"""Runs each operation of the program's pipeline in isolation, for `lotus map build`.

When the program starts to iterate its loader, some samples are fetched in its main process, and the
real inputs of each operation are kept. Then each operation runs on copies of its inputs, in runs of
warm-up, gap and bucket, while perf samples this process. The times of the buckets are written to
isolation.jsonl in the run directory. Then the program is ended.

All of this happens in the program's own process: a forked child cannot use threads of OpenMP, and a
spawned one would not have the program's objects.

The program ends by `os._exit`. SystemExit would run its `finally` blocks and exit handlers, which
may overwrite a trained model with an untrained one.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import weakref

from ..common.control import exchange
from ..common.control.ending import end_at_once
from ..common.guard import ask, hook
from ..common.loaders import loader_description
from ..trace import active
from ..trace.log.log_writer import put
from ..trace.tracer import Tracer
from . import data_habits, shared_prefixes
from .alternative_bench import AlternativeBench
from .cut_bench import CutBench
from .cut_checks import SamplePath
from .input_capture import LOADER, Catcher, InputCopyError, describe
from .library_threads import LibraryThreads
from .op_bench import Bench
from .request import IsolationRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

NAME = "isolation.jsonl"
_CHECKS = "check_worker_number_rationality"  # by which `DataLoader.__init__` ends


class IsolationLink:
    """The two pipes to lotus. Raises OSError if lotus has exited."""

    def __init__(self, exchange: str) -> None:
        self._exchange = exchange
        self._ready = os.open(
            os.path.join(exchange, "ready"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )

    def claim(self) -> bool:
        """Return whether this process is the first of the program, of all its ranks, to ask."""
        return exchange.claim(self._exchange)

    def tell(self, event: str, **facts: object) -> None:
        message = {"event": event, "pid": os.getpid(), **facts}
        os.write(self._ready, (json.dumps(message) + "\n").encode())

    def wait(self) -> None:
        """Wait until lotus says go. Raises OSError if it has exited."""
        go = os.open(os.path.join(self._exchange, "go"), os.O_RDONLY | os.O_NONBLOCK)
        poll = select.poll()
        poll.register(go, select.POLLIN)
        poll.register(self._ready, 0)  # POLLERR: lotus no longer reads
        events = dict(poll.poll())
        os.close(go)
        if go not in events:
            raise OSError("lotus has gone")

    def wait_for_end(self) -> None:
        poll = select.poll()
        poll.register(self._ready, 0)
        poll.poll()


class Isolator(Tracer):
    """Replaces the tracer: waits for the loader, isolates its operations, ends the program."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.settings = IsolationRequest(environ["LOTUS_ISOLATE"])
        self.path = os.path.join(environ["LOTUS_RUN"], NAME)
        self.catcher = Catcher(self.settings.samples, self.say)
        self.busy = False
        self.iterated: list[Any] = []
        # Where loaders were made, and their names in the program.
        self.sites: weakref.WeakKeyDictionary[Any, tuple[str, str]] = weakref.WeakKeyDictionary()

    @property
    def recorder(self) -> Any:
        return self.catcher

    def say(self, event: Mapping[str, object]) -> None:
        """Append one line to the run directory."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            put(fd, (json.dumps(event) + "\n").encode())
        finally:
            os.close(fd)

    def _hook_torch(self, module: Any) -> None:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def _get_iterator(loader: Any, *args: Any, **kwargs: Any) -> Any:
                if not self.busy and module._utils.worker.get_worker_info() is None:
                    self.hook_main()
                    chosen = self.choose(loader, module.DataLoader)
                    if chosen is not None:
                        self.busy = True
                        self.work(chosen)  # does not return
                return original(loader, *args, **kwargs)

            return hook(_get_iterator)

        self.listen(module.DataLoader, "_get_iterator", around)
        if _CHECKS in vars(module.DataLoader):
            self.listen(module.DataLoader, _CHECKS, self._noting_sites)

    def _noting_sites(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def check_worker_number_rationality(loader: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_code.co_name == "__init__":  # not when its workers start
                ask(self._note_site, loader, frame)
            return original(loader)

        return hook(check_worker_number_rationality)

    def _note_site(self, loader: Any, frame: Any) -> None:
        site, _ = loader_description.made_at(loader, frame)
        self.sites[loader] = (site, loader_description.name_of(loader, frame))

    def _hook_gradients(self, module: Any) -> None:
        """Do nothing: training steps are not timed."""

    def _hook_augmenting(self, module: Any) -> None:
        """Do nothing: what RandAugment and its kind draw runs as a part of them."""

    def choose(self, loader: Any, kind: type) -> Any:
        """Return the loader to isolate when `loader` is iterated; None if it is a later one."""
        if self.settings.loader is None:
            import gc

            # `type`, because the `__class__` of some objects runs code. `max` prefers the iterated
            # loader among equals.
            loaders = [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]
            return max([loader, *loaders], key=_samples_of)
        if isinstance(self.settings.loader, str):
            names = (type(loader.dataset).__name__, loader_description.iterated_at())
            named = self.settings.loader in (*names, *self.sites.get(loader, ()))
            return loader if named else None
        if not any(known is loader for known in self.iterated):
            self.iterated.append(loader)
        number = next(n for n, known in enumerate(self.iterated) if known is loader)
        return loader if number == self.settings.loader else None

    def work(self, loader: Any) -> None:
        try:
            link = IsolationLink(self.settings.exchange)
        except OSError:  # another process of the program was isolated, which is enough
            end_at_once(0)
        try:
            if link.claim():
                self._isolate(loader, link)
                link.tell("done")
            else:
                link.wait_for_end()
        except Exception as error:
            self.fault(error)
        end_at_once(0)

    def fault(self, error: Exception) -> None:
        """Report an error and end the program, which must not train for hours instead."""
        try:  # noqa: SIM105 - the disk may be full
            self.say({"event": "fault", "error": describe(error)})
        except OSError:
            pass
        end_at_once(1)

    def _isolate(self, loader: Any, link: IsolationLink) -> None:
        if self.settings.cuts is not None:
            link.tell("ready")
            link.wait()
            samples, epochs = self.settings.samples, self.settings.epochs
            budget_ns, folder = self.settings.budget_ns, self.settings.cuts
            cuts = CutBench(samples, epochs, budget_ns, folder, self.say)
            if self.settings.look_only:
                cuts.look_only(loader, self._site(loader))
                return
            cuts.measure(loader, self._site(loader))
            if cuts.path is not None:
                ask(self._tell_prefixes, loader, cuts.path, cuts.keys)
            return
        catcher = self.catcher
        threads = [thread.native_id for thread in threading.enumerate()]
        if loader.num_workers > 0:
            sys.modules["torch"].set_num_threads(1)  # as torch does in each worker
        counted = LibraryThreads()
        catcher.take(loader)
        used_ns = counted.used_ns()
        for name in self.settings.skipped:
            if catcher.calls.pop(name, None):
                catcher.failed[name] = "--skip names it"
        described = {
            "dataset": type(loader.dataset).__name__,
            "batch_size": loader.batch_size,
            "num_workers": loader.num_workers,
            "inputs": {name: len(calls) for name, calls in catcher.calls.items()},
            "calls_a_sample": catcher.calls_a_sample(),
            "threads": threads,  # of the program itself: their work belongs to no operation
        }
        self.say({"event": "taken", "pid": os.getpid(), **described})
        link.tell("ready")
        link.wait()
        for name, why in catcher.failed.items():
            if not catcher.calls.get(name):
                self.say({"event": "skipped", "operation": name, "why": why})
        if self.settings.alternatives is not None:
            habits = ask(data_habits.event, loader.dataset, catcher.opened)
            if habits is not None:
                self.say({**habits, "num_workers": loader.num_workers, "used_ns": used_ns})
            folder, budget_ns = self.settings.alternatives, self.settings.budget_ns
            bench = AlternativeBench(folder, budget_ns, self.say, self.settings.names)
            bench.try_all(catcher, link.tell)
            return
        buckets = Bench(self.settings, self.say)
        for name, calls in catcher.calls.items():
            try:
                if calls:
                    buckets.measure(name, calls)
            except InputCopyError as error:
                self.say({"event": "skipped", "operation": name, "why": str(error)})
            except Exception as error:
                why = f"it raised {describe(error)}"
                self.say({"event": "skipped", "operation": name, "why": why})
            calls.clear()  # free the memory of its inputs
        for name in sorted(catcher.missed):
            text = f"{name} was called again in {LOADER}, whose functions may be {name}'s too"
            self.say({"event": "note", "text": text})

    def _site(self, loader: Any) -> str:
        site, _ = self.sites.get(loader, ("", ""))
        return site

    def _tell_prefixes(self, loader: Any, path: SamplePath, keys: Mapping[int, str]) -> None:
        """Report what caches and the program's other loaders have of the samples at the cuts."""
        indices = shared_prefixes.sampled_indices(loader)
        for cut, key in keys.items():
            shares = shared_prefixes.cached_shares(path.dataset, key, self.settings.roots, indices)
            self.say({"event": "cached", "cut": cut, "shares": shares})
        kind = sys.modules["torch"].utils.data.DataLoader
        for other in shared_prefixes.others(loader, path.names(), keys, kind, self._site):
            self.say({"event": "other_loader", **other})


def _samples_of(loader: Any) -> int:
    try:
        return len(loader.dataset)
    except Exception:  # an iterable data set, or an error of the program
        return -1


def install(environ: Mapping[str, str]) -> Isolator:
    """Wait for the loader of this process."""
    isolator = Isolator(environ)
    isolator.install()
    return isolator


def enter(path: str) -> None:
    """Start isolation; called by the sitecustomize at `path` after that of `lotus trace` has run.

    Remove the hooks of the trace, install the own ones, and run the sitecustomize that both hide.
    """
    if active.tracer is not None:
        active.tracer.uninstall()
    if os.environ.get("LOTUS_ISOLATE"):
        active.tracer = install(dict(os.environ))
    import importlib.machinery
    import importlib.util

    ours = (
        os.path.dirname(path),
        os.path.join(os.path.dirname(os.path.dirname(__file__)), "sitecustomize"),
    )
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") not in ours]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)

"""Tracks the loaders of this process and their iterations: number, parameters, start, end."""

from __future__ import annotations

import functools
import sys
import threading
import types
import weakref

from ...common.clocks import clock
from ...common.guard import ask, edge
from ...common.loaders.code_origin import nearest, place
from ...common.loaders.loader_description import length_of
from ...common.loaders.loader_origin import Built, look, role_of_data
from ...common.loaders.worker_needs import workers_needed_at
from ...common.object_attributes import attributes
from ...common.process_identity import rank_of_process
from ..log import state_page
from ..log.log_format import UNMEASURED
from ..log.rusage import cpus, peak, run_delay_ns
from .compute_threads import library_threads_set, threads_set_at, torch_threads
from .library_consumers import facts_of_caller

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from ..device_times import DeviceStep
    from ..recorder import Recorder
KEY = "_lotus_iteration"  # attribute of an iterator that holds its Iteration
# Attribute of an iterator: what drawing indices took since `next` or `iter()` was recorded last.
DRAWN = "_lotus_sampler_ns"


class Iteration:
    """One `iter()` of a loader."""

    __slots__ = (
        "after",
        "alive",
        "arrivals",
        "device_step",
        "epoch",
        "failed",
        "gone",
        "last_next",
        "loader",
        "own_ns",
        "pid",
        "pins",
        "snapshot_ns",
        "state_dict_ns",
        "step_begun",
        "taken",
        "workers",
    )

    def __init__(self, loader: int, epoch: int, workers: int, pid: int, after: int) -> None:
        self.after = after  # the phase of the process when the loop has ended
        self.loader = loader
        self.epoch = epoch
        self.workers = workers
        self.pid = pid  # a forked child may have iterators of its parent
        self.gone: weakref.ref[Any] | None = None  # reference to the iterator
        self.taken = 0  # calls of `next` that returned a batch or raised
        self.failed = 0
        # Arrival time in the main process by batch; "last": the batch that arrived last.
        self.arrivals: dict[int | str, int] = {}
        self.pins: list[tuple[int, int, int]] = []  # batch, start, end: from the pin thread
        self.last_next = 0  # start of the `next` in hand, 0 between two
        self.own_ns = 0  # that our hook of `next` took in the training loop, beside `next` itself
        # Of a StatefulDataLoader: what the snapshots of its state took in the `next` in hand, and
        # `state_dict()` between two `next`.
        self.snapshot_ns = self.state_dict_ns = 0
        self.device_step: DeviceStep | None = None  # that of the batch handed over last
        # When the step in hand began, ns, and the number of full collections then; 0: none has.
        self.step_begun = 0, 0
        self.alive = True


class _Known:
    """A loader that is alive: its number and its last iteration."""

    __slots__ = ("last", "number", "reference")

    def __init__(self, reference: weakref.ref[Any], number: int) -> None:
        self.reference = reference
        self.number = number
        self.last: Iteration | None = None


class Loaders:
    """The loaders of this process, numbered by their first `iter()`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        # By id(loader), including loaders of the parent in a forked child.
        self.built: dict[int, tuple[weakref.ref[Any], Built]] = {}
        self._forget()

    def was_built(self, loader: Any, frame: FrameType) -> None:
        """Handle a loader that was made by the `__init__` in `frame`."""
        built = ask(look, loader, frame)
        if built is None:
            return
        if not built.by_program:
            built = self._made_again(loader) or built
        # Not a Python function: see `get`.
        forget: Callable[[object], object] = functools.partial(self.built.pop, id(loader))
        self.built[id(loader)] = weakref.ref(loader, forget), built

    def _made_again(self, loader: Any) -> Built | None:
        """Return the origin of the loader of which this one is a copy that a library made.

        Lightning and accelerate make copies. Return None if the original is ambiguous.
        """
        data = attributes(loader).get("dataset")
        likes = [
            built
            for reference, built in list(self.built.values())
            if built.by_program
            and (other := reference()) is not None
            and attributes(other).get("dataset") is data
        ]
        return likes[0] if len(likes) == 1 else None

    def _built(self, loader: Any) -> Built | None:
        reference, built = self.built.get(id(loader), (None, None))
        return built if reference is not None and reference() is loader else None

    def _forget(self) -> None:
        self.pid = self.recorder.pid
        self.known: dict[int, _Known] = {}  # by id(loader)
        self.epochs: list[int] = []  # number of epochs, by loader number
        self.unseen: set[type] = set()
        # By id(queue), while its pin thread runs.
        self.pins: dict[int, list[tuple[int, int, int]]] = {}

    def get(self, loader: Any) -> _Known:
        if self.pid != self.recorder.pid:
            self._forget()  # a forked child has its own log
        entry = self.known.get(id(loader))
        if entry is not None and entry.reference() is loader:
            return entry
        number = len(self.epochs)
        self.epochs.append(0)
        # Not a Python function: an exception of a signal handler in a callback would be lost.
        forget: Callable[[object], object] = functools.partial(self.known.pop, id(loader))
        self.known[id(loader)] = entry = _Known(weakref.ref(loader, forget), number)
        described = ask(describe, loader, self._built(loader), default={})
        self.recorder.event({"event": "loader", "loader": number, **described})
        return entry

    def has_epochs(self, loader: Any) -> bool:
        """Return True if a loader was iterated before, in this process."""
        entry = self.known.get(id(loader)) if self.pid == self.recorder.pid else None
        return entry is not None and entry.reference() is loader and entry.last is not None

    def started(
        self,
        iterator: Any,
        loader: Any,
        start: int,
        end: int,
        delay_before: int | None,
        resumed: bool,
    ) -> Iteration:
        """Handle an iterator that was made or, with persistent workers, reset.

        `delay_before`: `run_delay_ns` when this began; None: it could not be read.
        """
        recorder = self.recorder
        run_delay = _run_delay_since(delay_before)
        entry = self.get(loader)
        number = entry.number
        if entry.last is not None and resumed:
            self.ended(entry.last, False, start)
        if recorder.worker < 0:
            recorder.open_page(-1)
        recorder.iteration_started()
        workers = getattr(iterator, "_workers", ())
        pids = [worker.pid for worker in workers if not isinstance(worker, threading.Thread)]
        if len(pids) < len(workers):
            self._unseen(loader)
        iteration = Iteration(
            number, self.epochs[number], len(workers), recorder.pid, _after(recorder.page.words)
        )
        self.epochs[number] += 1
        entry.last = iteration
        if hasattr(iterator, "_pin_memory_thread"):
            iteration.pins = self.pins_of(iterator._data_queue)
        iteration.gone = weakref.ref(iterator, self._when_gone(iteration))
        iterator.__dict__[KEY] = iteration
        recorder.killed_workers.started(pids)
        recorder.event(
            {
                "event": "iterator",
                "loader": number,
                "epoch": iteration.epoch,
                "start_ns": start,
                "end_ns": end,
                "run_delay_ns": run_delay,
                "sampler_ns": drawn_since(iterator),
                "workers": pids,
                "resumed": resumed,
                "cpus": cpus(),
                **ask(facts_of_caller, loader, sys._getframe(1), default={}),
            }
        )
        return iteration

    def _unseen(self, loader: Any) -> None:
        """Name, once, a kind of loader whose workers are threads of this process."""
        kind = type(loader)
        if kind not in self.unseen:
            self.unseen.add(kind)
            name = f"{kind.__module__}.{kind.__qualname__}"
            self.recorder.event({"event": "unseen", "what": name, "why": "its workers are threads"})

    def pins_of(self, queue: object) -> list[tuple[int, int, int]]:
        """Return the list to which the pin thread of this queue appends."""
        return self.pins.setdefault(id(queue), [])

    def _when_gone(self, iteration: Iteration) -> Callable[[object], None]:
        """Return a callback for when an iterator is freed because its loop was left early."""
        recorder, finalizing = self.recorder, sys.is_finalizing

        def gone(_: object) -> None:
            if not finalizing():
                edge(recorder, self.ended, iteration, False)

        return gone

    def ended(self, iteration: Iteration, exhausted: bool, time: int | None = None) -> None:
        if not iteration.alive or iteration.pid != self.recorder.pid:
            return
        iteration.alive = False
        iteration.gone = None  # an exception of a signal handler in a callback would be lost
        recorder = self.recorder
        words = recorder.page.words
        of_page = words[state_page.W_LOADER], words[state_page.W_EPOCH]
        is_last = of_page == (iteration.loader, iteration.epoch)
        if is_last and words[state_page.W_PHASE] == state_page.STEP:
            words[state_page.W_PHASE] = iteration.after
        recorder.event(
            {
                "event": "epoch_end",
                "loader": iteration.loader,
                "epoch": iteration.epoch,
                "time_ns": clock() if time is None else time,
                "batches": iteration.taken - iteration.failed,
                "exhausted": exhausted,
                "last_next_ns": iteration.last_next if exhausted else 0,
                "peak_rss": peak(),
                "threads": _other_threads(),
                "torch_threads": ask(torch_threads, default=-1),
                "own_ns": iteration.own_ns,
                "state_dict_ns": iteration.state_dict_ns,
            }
        )
        recorder.iteration_ended()


def drawn_since(iterator: Any) -> int:
    """Return and forget what drawing indices took, ns; UNMEASURED if none were drawn."""
    drawn: int = iterator.__dict__.pop(DRAWN, UNMEASURED)
    return drawn


def _run_delay_since(before: int | None) -> int | None:
    """Return how long this thread has been without a core since `before` was read, ns.

    None: not known.
    """
    now = run_delay_ns()
    return None if before is None or UNMEASURED in (before, now) else now - before


def _after(words: memoryview) -> int:
    """Return the phase that a loop which begins now leaves behind.

    One within the step of another loop, or within the making of a sample, goes back to that.
    """
    around = (state_page.STEP, state_page.FETCH, state_page.COLLATE)
    phase = words[state_page.W_PHASE]
    return phase if phase in around else state_page.BETWEEN


def _other_threads() -> int:
    """Return the number of live Python threads that the program itself started."""
    names = [str(vars(thread).get("_name", "")) for thread in threading.enumerate()]
    ours = ("MainThread", "QueueFeederThread", "lotus")
    return sum(not name.startswith(ours) and "(_pin_memory_loop)" not in name for name in names)


def describe(loader: Any, built: Built | None = None) -> dict[str, object]:
    """Return the parameters of a DataLoader that is iterated, as JSON values.

    If its origin `built` is unknown, its place is that of the iteration.
    """
    caller = nearest(sys._getframe(1))
    iterated_at = place(caller)

    def name(thing: Any) -> Any:
        if thing is None:
            return None
        named = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
        return thing.__name__ if type(thing) in named else type(thing).__name__

    def get(key: str, default: Any = None) -> Any:
        return ask(getattr, loader, key, default, default=default)

    dataset = get("dataset")
    iterable = get("_dataset_kind") == 1
    context = get("multiprocessing_context")
    workers = get("num_workers", 0)
    method = None
    if workers:
        multiprocessing: Any = sys.modules.get("multiprocessing")
        method = (context or multiprocessing).get_start_method()
    rank, _, world_size = rank_of_process()
    places = {
        "threads_set_at": ask(threads_set_at, caller, default=""),
        "library_threads_set": ask(library_threads_set, caller, default=""),
        "workers_needed_at": ask(workers_needed_at, loader, default="") if workers else "",
    }
    return {
        **{key: place for key, place in places.items() if place},
        "call_site": iterated_at if built is None else built.site,
        "iterated_at": iterated_at,
        "name": (role_of_data(dataset) if built is None else built.name) or None,
        "class": type(loader).__name__,
        "dataset": type(dataset).__name__,
        "dataset_kind": "iterable" if iterable else "map",
        # torch remembers `len` of an iterable data set or its loader and may warn later.
        "dataset_length": None if iterable else ask(len, dataset),
        "length": None if iterable else length_of(get("_index_sampler")),
        "batch_size": get("batch_size") or attributes(get("batch_sampler")).get("batch_size"),
        "num_workers": workers,
        "prefetch_factor": get("prefetch_factor"),
        "pin_memory": bool(get("pin_memory")),
        "persistent_workers": bool(get("persistent_workers")),
        "start_method": method,
        "drop_last": bool(get("drop_last")),
        "in_order": bool(get("in_order", True)),
        "sampler": name(get("sampler")),
        "batch_sampler": name(get("batch_sampler")),
        "collate_fn": name(get("collate_fn")),
        "timeout": get("timeout", 0),
        "snapshot_every_n_steps": get("snapshot_every_n_steps"),
        "rank": rank,
        "world_size": world_size,
    }

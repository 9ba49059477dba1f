"""Hooks in the process that iterates a DataLoader: waiting, order of arrival, start, end.

They sit below the methods that users call (`_next_data`, not `__next__`): torch's own frame stays
the one that warns and raises.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
import weakref

from . import clock, state
from .fetch import instrument
from .guard import ask, hook, of_the_program, ours, strip
from .layout import FAILED
from .log import rank_of_process
from .operations import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any

    from .operations import Given
    from .recorder import Recorder
_KEY = "_lotus_iteration"


class Iteration:
    """What is known of one `iter()` of a loader."""

    __slots__ = (
        "alive",
        "arrivals",
        "epoch",
        "failed",
        "gone",
        "last_next",
        "loader",
        "pid",
        "pins",
        "taken",
        "workers",
    )

    def __init__(self, loader: int, epoch: int, workers: int, pid: int) -> None:
        self.loader = loader
        self.epoch = epoch
        self.workers = workers
        self.pid = pid  # a forked child may hold iterators of its parent
        self.gone: weakref.ref[Any] | None = None  # reference to the iterator
        self.taken = 0  # calls of `next` that returned a batch or failed
        self.failed = 0
        # Batch -> when it came out of the workers' queue; "last": the batch that did so last.
        self.arrivals: dict[int | str, int] = {}
        self.pins: list[tuple[int, int, int]] = []  # batch, start, end: from the pin thread
        self.last_next = 0  # start of the `next` in hand, 0 between two
        self.alive = True


class _Known:
    """A loader that lives: its number and its last iteration."""

    __slots__ = ("last", "number", "reference")

    def __init__(self, reference: weakref.ref[Any], number: int) -> None:
        self.reference = reference
        self.number = number
        self.last: Iteration | None = None


class Loaders:
    """The loaders of this process, numbered by their first `iter()`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._forget()

    def _forget(self) -> None:
        self.pid = self.recorder.pid
        self.known: dict[int, _Known] = {}  # by id(loader)
        self.epochs: list[int] = []  # by number: how often it was iterated
        # By id(queue), while its pin thread runs.
        self.pins: dict[int, list[tuple[int, int, int]]] = {}

    def get(self, loader: Any) -> _Known:
        if self.pid != self.recorder.pid:
            self._forget()  # a forked child has a log of its own
        known = self.known.get(id(loader))
        if known is not None and known.reference() is loader:
            return known
        number = len(self.epochs)
        self.epochs.append(0)
        # No function of ours: in a callback the exception of a signal handler would be lost.
        forget: Callable[[object], object] = functools.partial(self.known.pop, id(loader))
        self.known[id(loader)] = known = _Known(weakref.ref(loader, forget), number)
        described = ask(describe, loader, default={})
        self.recorder.event({"event": "loader", "loader": number, **described})
        return known

    def started(self, iterator: Any, loader: Any, start: int, end: int, resumed: bool) -> Iteration:
        """An iterator was made or, with persistent workers, reset."""
        recorder = self.recorder
        known = self.get(loader)
        number = known.number
        if known.last is not None and resumed:
            self.ended(known.last, False, start)
        if recorder.worker < 0:
            recorder.open_page(-1)
        recorder.iteration_started()
        workers = [worker.pid for worker in getattr(iterator, "_workers", ())]
        iteration = Iteration(number, self.epochs[number], len(workers), recorder.pid)
        self.epochs[number] += 1
        known.last = iteration
        if hasattr(iterator, "_pin_memory_thread"):
            iteration.pins = self.pins_of(iterator._data_queue)
        iteration.gone = weakref.ref(iterator, self._when_gone(iteration))
        iterator.__dict__[_KEY] = iteration
        recorder.event(
            {
                "event": "iterator",
                "loader": number,
                "epoch": iteration.epoch,
                "start_ns": start,
                "end_ns": end,
                "workers": workers,
                "resumed": resumed,
            }
        )
        return iteration

    def pins_of(self, queue: object) -> list[tuple[int, int, int]]:
        """The list to which the pin thread of this queue appends, whoever asks first."""
        return self.pins.setdefault(id(queue), [])

    def _when_gone(self, iteration: Iteration) -> Callable[[object], None]:
        """Called when an iterator is freed: the loop was left before its end."""
        recorder, finalizing = self.recorder, sys.is_finalizing

        def gone(_: object) -> None:
            if not finalizing():
                edge(recorder, self.ended, iteration, False)

        return gone

    def ended(self, iteration: Iteration, exhausted: bool, time: int | None = None) -> None:
        if not iteration.alive or iteration.pid != self.recorder.pid:
            return
        iteration.alive = False
        iteration.gone = None  # in a callback the exception of a signal handler would be lost
        recorder = self.recorder
        recorder.event(
            {
                "event": "epoch_end",
                "loader": iteration.loader,
                "epoch": iteration.epoch,
                "time_ns": clock() if time is None else time,
                "batches": iteration.taken - iteration.failed,
                "exhausted": exhausted,
                "last_next_ns": iteration.last_next if exhausted else 0,
            }
        )
        recorder.iteration_ended()


def call_site() -> str:
    """`file:line` of the nearest caller that is neither lotus nor an installed package."""
    frame: FrameType | None = sys._getframe(1)
    first = None
    while frame is not None:
        path = frame.f_code.co_filename
        if not ours(frame):
            if f"torch{os.sep}utils{os.sep}data" not in path and first is None:
                first = frame
            if "-packages" not in path and not path.startswith(os.path.dirname(os.__file__)):
                first = frame
                break
        frame = frame.f_back
    if first is None:
        return ""
    return f"{os.path.basename(first.f_code.co_filename)}:{first.f_lineno}"


def _length(thing: Any) -> Any:
    return ask(len, thing)  # code of the user: __len__ may raise what it likes


def describe(loader: Any) -> dict[str, object]:
    """The parameters of a DataLoader, as JSON-able values."""

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
    return {
        "call_site": call_site(),
        "class": type(loader).__name__,
        "dataset": type(dataset).__name__,
        "dataset_kind": "iterable" if iterable else "map",
        # `len` of an iterable data set or its loader is remembered by torch and may warn later.
        "dataset_length": None if iterable else _length(dataset),
        "length": None if iterable else _length(get("_index_sampler")),
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
        "rank": rank,
        "world_size": world_size,
    }


def edge(recorder: Recorder, function: Callable[..., Any], *args: Any) -> Any:
    """Call our own `function`; what it raises switches recording off, never reaches the user."""
    if recorder.on:
        try:
            return function(*args)
        except BaseException as error:
            if not isinstance(error, Exception) or of_the_program(error):
                hide_our_frames(recorder, error)
                raise
            recorder.fault(error)
    return None


def hide_our_frames(recorder: Recorder, error: BaseException) -> None:
    """Take our frames out of an exception on its way to the user.

    Below this hook it can be done at once; this hook's own frame is left out when the exception
    ends the program or a thread (only for that is `sys.excepthook` touched).
    """
    try:
        strip(error.__traceback__)
        if threading.current_thread() is not threading.main_thread():
            _hide_in_thread()
        shown = sys.excepthook
        if getattr(shown, "_lotus", False):
            return

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: TracebackType | None
        ) -> None:
            sys.excepthook = shown
            if value is not None:
                value.__traceback__ = strip(traceback)
            shown(kind, value, strip(traceback))

        excepthook.__dict__["_lotus"] = True
        sys.excepthook = excepthook
    except Exception as fault:
        if of_the_program(fault):
            raise
        recorder.fault(fault)


def _hide_in_thread() -> None:
    shown = threading.excepthook
    if getattr(shown, "_lotus", False):
        return

    def excepthook(args: threading.ExceptHookArgs) -> None:
        threading.excepthook = shown
        traceback = strip(args.exc_traceback)
        if args.exc_value is not None:
            args.exc_value.__traceback__ = traceback
        shown(threading.ExceptHookArgs((args.exc_type, args.exc_value, traceback, args.thread)))

    excepthook.__dict__["_lotus"] = True
    threading.excepthook = excepthook


def hide_where_ignored(recorder: Recorder, error: BaseException) -> None:
    """The same for what Python says of an exception in `__del__`, after which it goes on."""
    hide_our_frames(recorder, error)
    shown = sys.unraisablehook
    if not hasattr(shown, "_lotus"):

        def unraisablehook(unraisable: Any) -> None:
            sys.unraisablehook = shown
            strip(unraisable.exc_traceback)  # the first frame is torch's
            shown(unraisable)

        unraisablehook.__dict__["_lotus"] = True
        sys.unraisablehook = unraisablehook


def get_iterator(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `DataLoader._get_iterator`."""
    recorder = loaders.recorder

    def _get_iterator(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        try:
            iterator = original(self, *args, **kwargs)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        edge(recorder, loaders.started, iterator, self, start, clock(), False)
        return iterator

    return hook(_get_iterator)


def reset(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._reset`: an epoch of persistent workers starts."""
    recorder = loaders.recorder

    def _reset(self: Any, loader: Any, first_iter: bool = False) -> Any:
        if first_iter:
            return original(self, loader, first_iter)
        start = clock()
        try:
            result = original(self, loader, first_iter)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        edge(recorder, loaders.started, self, loader, start, clock(), True)
        return result

    return hook(_reset)


def try_get_data(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._try_get_data`: when each batch arrives."""

    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        edge(recorder, arrived, self, result)
        return result

    return hook(_try_get_data)


def arrived(iterator: Any, result: Any) -> None:
    iteration: Iteration | None = iterator.__dict__.get(_KEY)
    if iteration is not None and result[0]:
        iteration.arrivals[result[1][0]] = clock()
        if not getattr(iterator, "_in_order", True):
            iteration.arrivals["last"] = result[1][0]


def next_data(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_next_data` of both iterators: one `next` of the consumer."""
    recorder = loaders.recorder

    def _next_data(self: Any) -> Any:
        iteration: Iteration | None = self.__dict__.get(_KEY)
        if iteration is None or not recorder.on or iteration.pid != recorder.pid:
            return original(self)
        page, here = recorder.page.words, recorder.here
        before = getattr(here, "where", None)
        where = (iteration.loader, iteration.epoch, iteration.taken)
        if iteration.workers == 0:
            here.where = where
        page[state.W_PHASE] = state.WAIT
        page[state.W_LOADER], page[state.W_EPOCH] = where[0], where[1]
        page[state.W_BATCH] = where[2]
        page[state.W_SINCE] = iteration.last_next = start = clock()
        received = getattr(self, "_rcvd_idx", None)
        try:
            data = original(self)
        except StopIteration as end_of_loop:
            try:
                edge(recorder, stopped, recorder, loaders, iteration)
            except BaseException as error:  # of a signal handler, and not about the loop's end
                error.__context__ = end_of_loop.__context__
                raise
            raise
        except BaseException as error:
            iteration.last_next = 0
            # Not where it waited in vain: then the batch is still the one to come.
            awaited = getattr(self, "_rcvd_idx", None) == received
            edge(recorder, record, recorder, iteration, self, start, clock(), FAILED, awaited)
            hide_our_frames(recorder, error)
            raise
        finally:
            if before is not None:  # a loader inside a data set
                here.where = before
        end = clock()
        iteration.last_next = 0
        page[state.W_PHASE] = state.STEP
        page[state.W_SINCE] = end
        edge(recorder, record, recorder, iteration, self, start, end, 0)
        return data

    return hook(_next_data)


def stopped(recorder: Recorder, loaders: Loaders, iteration: Iteration) -> None:
    recorder.flush_batch(clock())
    loaders.ended(iteration, True)


def record(
    recorder: Recorder,
    iteration: Iteration,
    iterator: Any,
    start: int,
    end: int,
    flags: int,
    awaited: bool = False,
) -> None:
    """Write the record of one `next` that returned a batch or raised."""
    arrivals = iteration.arrivals
    if iteration.workers == 0:
        batch = iteration.taken
    elif "last" in arrivals:
        batch = arrivals["last"]
    else:
        batch = iterator._rcvd_idx - (not awaited)
    arrival = arrivals.pop(batch, 0)
    iteration.taken += 1
    iteration.failed += flags != 0
    count = len(iteration.pins)
    pins = iteration.pins[:count]
    del iteration.pins[:count]
    where = (iteration.loader, iteration.epoch, max(batch, 0))
    recorder.wait(where, flags, start, end, arrival, pins)


def shutdown_workers(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._shutdown_workers`."""
    recorder = loaders.recorder

    def _shutdown_workers(self: Any) -> Any:
        iteration: Iteration | None = self.__dict__.get(_KEY)
        if iteration is None or not recorder.on or getattr(self, "_shutdown", True):
            return original(self)
        start = clock()
        try:
            return original(self)
        except BaseException as error:
            hide_where_ignored(recorder, error)
            raise
        finally:
            # Not while the interpreter goes down: there torch does nothing either.
            if self._shutdown and iteration.pid == recorder.pid:
                edge(recorder, shut_down, recorder, loaders, iteration, start)

    return hook(_shutdown_workers)


def shut_down(recorder: Recorder, loaders: Loaders, iteration: Iteration, start: int) -> None:
    recorder.event(
        {
            "event": "shutdown",
            "loader": iteration.loader,
            "epoch": iteration.epoch,
            "start_ns": start,
            "end_ns": clock(),
        }
    )
    # Inside `next` torch shuts down only what is exhausted.
    loaders.ended(iteration, iteration.last_next != 0)


def create_fetcher(
    original: Callable[..., Any], recorder: Recorder, given: Given
) -> staticmethod[..., Any]:
    """Hook for `_DatasetKind.create_fetcher`, which workers and the main process call."""

    def create(kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        fetcher = original(kind, dataset, *args, **kwargs)
        return edge(recorder, instrument, fetcher, dataset, recorder, given) or fetcher

    return staticmethod(hook(create))


class _PinSource:
    """The pin thread's incoming queue: notes which batch it took and when."""

    def __init__(self, queue: Any, note: list[Any]) -> None:
        self._queue, self._note = queue, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        item = self._queue.get(*args, **kwargs)
        self._note[:] = (item[0], clock())
        return item


class _PinTarget:
    """The pin thread's outgoing queue: notes when the batch was pinned."""

    def __init__(
        self, queue: Any, note: list[Any], rows: list[tuple[int, int, int]], recorder: Recorder
    ) -> None:
        self._queue, self._note, self._rows = queue, note, rows
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        note, end = self._note, clock()
        if note and note[0] == item[0] and isinstance(item[0], int):
            if self._recorder.on:
                self._rows.append((note[0], note[1], end))
            del note[:]  # a full queue makes the thread put the same batch again
        self._queue.put(item, *args, **kwargs)


for _method in (_PinSource.get, _PinTarget.put):
    hook(_method)


def pin_memory_loop(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_utils.pin_memory._pin_memory_loop`."""

    def _pin_memory_loop(in_queue: Any, out_queue: Any, *args: Any, **kwargs: Any) -> Any:
        note: list[Any] = []  # the batch that it has in hand and when it was taken
        rows = loaders.pins_of(out_queue)
        try:
            target = _PinTarget(out_queue, note, rows, loaders.recorder)
            return original(_PinSource(in_queue, note), target, *args, **kwargs)
        finally:
            loaders.pins.pop(id(out_queue), None)

    return hook(_pin_memory_loop)

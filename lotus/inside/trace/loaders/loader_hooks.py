"""Hooks in the process that iterates a DataLoader: waits, order of arrival, start and end.

They hook methods below those that users call (`_next_data`, not `__next__`), so that torch's own
frame still is the one that warns and raises.
"""

from __future__ import annotations

import sys

from ...common.clocks import clock, cpu_clock
from ...common.guard import (
    ask,
    edge,
    hide_frames_below,
    hide_our_frames,
    hide_where_ignored,
    hook,
)
from ..fetches import sample_digests
from ..fetches.fetch_hooks import instrument
from ..log import state_page
from ..log.log_format import FAILED
from ..log.rusage import run_delay_ns
from ..profiler_ranges import WAIT, ranged
from . import step_collections
from .iterations import DRAWN, KEY, drawn_since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..operation_stand_ins import StandIns
    from ..recorder import Recorder
    from .iterations import Iteration, Loaders


def get_iterator(
    original: Callable[..., Any], loaders: Loaders, before: Callable[[], None]
) -> Callable[..., Any]:
    """Hook for `DataLoader._get_iterator`; `before` is called first."""
    recorder = loaders.recorder

    def _get_iterator(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        sample_digests.has_earlier_epochs = bool(edge(recorder, loaders.has_epochs, self))
        delay = edge(recorder, run_delay_ns)
        start = clock()
        try:
            iterator = original(self, *args, **kwargs)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        edge(recorder, loaders.started, iterator, self, start, clock(), delay, False)
        return iterator

    return hook(_get_iterator)


def reset(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._reset`: an epoch of persistent workers starts."""
    recorder = loaders.recorder

    def _reset(self: Any, loader: Any, first_iter: bool = False, **kwargs: Any) -> Any:
        if first_iter:
            return original(self, loader, first_iter, **kwargs)
        delay = edge(recorder, run_delay_ns)
        edge(recorder, drawn_since, self)  # of the `next` that found no more batches
        start = clock()
        try:
            result = original(self, loader, first_iter, **kwargs)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        edge(recorder, loaders.started, self, loader, start, clock(), delay, True)
        return result

    return hook(_reset)


def drawing(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Hook for a method of an iterator that iterates the sampler or draws from it."""

    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.on:
            return original(self, *args, **kwargs)
        start = clock()
        try:
            return original(self, *args, **kwargs)
        except StopIteration:
            raise
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        finally:
            edge(recorder, _drew, self, clock() - start)

    return hook(draw)


def _drew(iterator: Any, took: int) -> None:
    known = iterator.__dict__
    known[DRAWN] = known.get(DRAWN, 0) + took


def try_get_data(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._try_get_data`: when each batch arrives."""

    def _try_get_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        edge(recorder, arrived, self, result)
        return result

    return hook(_try_get_data)


def arrived(iterator: Any, result: Any) -> None:
    iteration: Iteration | None = iterator.__dict__.get(KEY)
    if iteration is not None and result[0]:
        iteration.arrivals[result[1][0]] = clock()
        if not getattr(iterator, "_in_order", True):
            iteration.arrivals["last"] = result[1][0]


def next_data(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_next_data` of both iterators: one call of `next` in the training loop."""
    recorder = loaders.recorder
    original = ranged(recorder, original, WAIT)
    device = recorder.device_times

    def _next_data(self: Any) -> Any:
        iteration: Iteration | None = self.__dict__.get(KEY)
        if iteration is None or not recorder.on or iteration.pid != recorder.pid:
            return original(self)
        cpu_clock()  # see rusage.reading
        core_times = edge(recorder, recorder.core_times)
        collections = edge(recorder, step_collections.next_begins, recorder, iteration) or 0
        page, hand = recorder.page.words, recorder.here.hand
        before = hand.where
        where = (iteration.loader, iteration.epoch, iteration.taken)
        if iteration.workers == 0:
            hand.where = where
        page[state_page.W_PHASE] = state_page.WAIT
        page[state_page.W_LOADER], page[state_page.W_EPOCH] = where[0], where[1]
        page[state_page.W_BATCH] = where[2]
        timed = device.used is not None and ask(device.used)
        if timed:
            edge(recorder, device.begin_next, iteration)
        begun = cpu_clock()
        page[state_page.W_SINCE] = iteration.last_next = start = clock()
        received = getattr(self, "_rcvd_idx", None)
        try:
            data = original(self)
        except StopIteration as end_of_loop:
            # So that a kill after the loop does not look like a wait. Where torch has shut down the
            # workers of this loop, `ended` was called meanwhile.
            page[state_page.W_PHASE] = iteration.after
            page[state_page.W_SINCE] = clock()
            try:
                edge(recorder, hide_frames_below, end_of_loop)
                edge(recorder, stopped, recorder, loaders, iteration)
            except BaseException as error:
                # From a signal handler, unrelated to the end of the loop.
                error.__context__ = end_of_loop.__context__
                raise
            raise
        except BaseException as error:
            iteration.last_next = 0
            page[state_page.W_PHASE] = state_page.STEP
            page[state_page.W_SINCE] = clock()
            # False if the batch did not arrive: then it is still awaited.
            awaited = getattr(self, "_rcvd_idx", None) == received
            edge(
                recorder, record, recorder, iteration, self, start, clock(), core_times,
                FAILED, awaited,
            )  # fmt: skip
            edge(recorder, note_killed, recorder, self)
            hide_our_frames(recorder, error)
            raise
        finally:
            hand.where = before  # of a loader whose data set has this one inside, or of none
        end = clock()
        iteration.last_next = 0
        page[state_page.W_PHASE] = state_page.STEP
        page[state_page.W_SINCE] = end
        ended = cpu_clock()
        edge(recorder, record, recorder, iteration, self, start, end, core_times)
        edge(recorder, step_collections.next_ended, recorder, iteration, start, end, collections)
        if timed:
            edge(recorder, device.end_next, iteration, start)
        if core_times is not None:
            # CPU time: the thread may lose its core, or the interpreter, here as anywhere else.
            iteration.own_ns += begun - core_times[0] + cpu_clock() - ended
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
    core_times: tuple[int, int, int],
    flags: int = 0,
    awaited: bool = False,
) -> None:
    """Write the record of one `next` that returned a batch or raised.

    `core_times` were read at its start.
    """
    at_both_ends = (*core_times, *recorder.core_times())
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
    snapshot_ns, iteration.snapshot_ns = iteration.snapshot_ns, 0
    own_parts = snapshot_ns, drawn_since(iterator)
    recorder.wait(where, flags, start, end, arrival, at_both_ends, own_parts, pins)


def note_killed(recorder: Recorder, iterator: Any) -> None:
    for event in recorder.killed_workers.take(getattr(iterator, "_workers", ())):
        recorder.event(event)


def shutdown_workers(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `_MultiProcessingDataLoaderIter._shutdown_workers`."""
    recorder = loaders.recorder

    def _shutdown_workers(self: Any) -> Any:
        iteration: Iteration | None = self.__dict__.get(KEY)
        if iteration is None or not recorder.on or getattr(self, "_shutdown", True):
            try:
                return original(self)
            except BaseException as error:  # of a partly constructed iterator
                hide_where_ignored(recorder, error)
                raise
        edge(recorder, note_killed, recorder, self)
        start = clock()
        try:
            return original(self)
        except BaseException as error:
            hide_where_ignored(recorder, error)
            raise
        finally:
            edge(recorder, recorder.killed_workers.ended, getattr(self, "_workers", ()))
            # Not during interpreter shutdown, when torch does nothing either.
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
    # Inside `next`, torch only shuts down exhausted iterators.
    loaders.ended(iteration, iteration.last_next != 0)


def create_fetcher(
    original: Callable[..., Any], recorder: Recorder, stand_ins: StandIns
) -> Callable[..., Any]:
    """Hook for `_DatasetKind.create_fetcher`, which workers and the main process call."""

    def create(kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        fetcher = original(kind, dataset, *args, **kwargs)
        if recorder.here.hand.unseen:  # in a worker that is a thread
            return fetcher
        return edge(recorder, instrument, fetcher, dataset, recorder, stand_ins) or fetcher

    return hook(create)


class _PinSource:
    """The input queue of the pin thread: notes which batch it took and when."""

    def __init__(self, queue: Any, note: list[Any]) -> None:
        self._queue, self._note = queue, note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        item = self._queue.get(*args, **kwargs)
        self._note[:] = (item[0], clock())
        return item


class _PinTarget:
    """The output queue of the pin thread: notes when the batch was pinned."""

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
        note: list[Any] = []  # the current batch and when it was taken
        rows = loaders.pins_of(out_queue)
        try:
            target = _PinTarget(out_queue, note, rows, loaders.recorder)
            return original(_PinSource(in_queue, note), target, *args, **kwargs)
        finally:
            loaders.pins.pop(id(out_queue), None)

    return hook(_pin_memory_loop)


def check_workers(original: Callable[..., Any], loaders: Loaders) -> Callable[..., Any]:
    """Hook for `DataLoader.check_worker_number_rationality`, the last call of its `__init__`.

    Libraries that recreate a loader by the signature of `__init__` would notice a hook on that.
    """
    recorder = loaders.recorder

    def check_worker_number_rationality(self: Any) -> Any:
        try:
            result = original(self)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        frame = sys._getframe(1)
        if frame.f_code.co_name == "__init__":  # not when its workers start
            edge(recorder, loaders.was_built, self, frame)
        return result

    return hook(check_worker_number_rationality)

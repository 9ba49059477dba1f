"""The hot path of an operation and of a region of the program (`lotus.span`).

Each hook reads the clock, calls the original, reads the clock and appends; packing is left to the
end of the batch. tools/bench/overhead/hooks.py measures what it costs.
"""

from __future__ import annotations

import threading
import types

from ..common.clocks import clock
from ..common.guard import hook
from .called_function import note_place, renamed, sole_parameter
from .log import rusage, state_page
from .log.log_format import UNCOUNTED
from .sample_hooks import timed_classes
from .shared_cell import with_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .config import Config
    from .log.counter_groups import Counters
    from .log.op_table import Definitions
    from .log.state_page import StatePage

    class Recorder(Protocol):
        """The lists that the hooks fill. They add nothing while `gate` is shut."""

        gate: Any
        here: Any
        page: StatePage
        samples: list[int]
        ops: list[int]
        ops_cpu: list[int]
        counters: Counters | None
        definitions: Definitions
        config: Config

        def add_loose(
            self, start: int, end: int, operation: int, cpu: tuple[int, ...] = ()
        ) -> None: ...

    Timing = Callable[[Callable[..., Any], int], Callable[..., Any]]


class Timers:
    """Makes the hooks of one recorder; `reset` after a fork."""

    def __init__(self, recorder: Recorder) -> None:
        # The thread that is in a sample now; 0: none. All hooks read it.
        self._live = types.CellType(0)
        self.Samples, self.Items, self.Iterator = timed_classes(recorder, self._live)
        timing = _timing_cpu if recorder.config.level == 3 else _timing
        if recorder.counters is not None:
            timing = _timing_counted
        self._hook: Timing = with_cell(timing(recorder), "live", self._live)
        self.span = with_cell(_spans(recorder), "live", self._live)
        self._definitions = recorder.definitions

    def reset(self) -> None:
        self._live.cell_contents = 0

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function (self, *args, **kwargs) that times `original`; note its place."""
        note_place(self._definitions, original, number)
        return self._hook(original, number)

    def time_calls(self, stand_in: object, original: Any, number: int) -> None:
        """Do nothing: the `__call__` of the stand-in's class times them."""


# In all functions below, `live` is the cell of `Timers`. Items that belong together are added to
# several lists by `+=`, which is not a call: no signal handler of the program can run in between,
# as it can between two calls.


def _timing(recorder: Recorder) -> Timing:
    live = 0
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    extend, add_loose = recorder.ops.extend, recorder.add_loose

    def operation(original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function (self, *args, **kwargs) that times `original`."""
        word = state_page.word_of(number)

        def __call__(self: object, /, *args: Any, **kwargs: Any) -> Any:
            if gate.shut:
                return original(*args, **kwargs)
            page[word] = start = clock()
            try:
                return original(*args, **kwargs)
            finally:
                page[word], end = 0, clock()
                if live == ident():
                    extend((start, end, number))
                elif not gate.shut:
                    add_loose(start, end, number)

        def call_unary(self: object, sole: Any) -> Any:
            if gate.shut:
                return original(sole)
            page[word] = start = clock()
            try:
                return original(sole)
            finally:
                page[word], end = 0, clock()
                if live == ident():
                    extend((start, end, number))
                elif not gate.shut:
                    add_loose(start, end, number)

        name = sole_parameter(original)
        return hook(__call__ if name is None else renamed(call_unary, original, name))

    return operation


def _timing_cpu(recorder: Recorder) -> Timing:
    live = 0
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    ops, ops_cpu, add_loose = recorder.ops, recorder.ops_cpu, recorder.add_loose

    def operation(original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return the same, which also records what `log_format.CPU` lists."""
        word = state_page.word_of(number)

        def __call__(self: object, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal ops, ops_cpu
            if gate.shut:
                return original(*args, **kwargs)
            before = rusage.now()
            page[word] = start = clock()
            try:
                return original(*args, **kwargs)
            finally:
                page[word], end = 0, clock()
                row = rusage.since(before, start, end)
                if live == ident():
                    ops += (start, end, number)
                    ops_cpu += row
                elif not gate.shut:
                    add_loose(start, end, number, row)

        return hook(__call__)

    return operation


def _timing_counted(recorder: Recorder) -> Timing:
    live, counters = 0, recorder.counters
    assert counters is not None
    shared, fresh, edges = counters.shared, counters.fresh, counters.edges
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    ops, ops_cpu, add_loose = recorder.ops, recorder.ops_cpu, recorder.add_loose

    def operation(original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return the same, which also reads the counters at either end."""
        word = state_page.word_of(number)
        with_cpu = recorder.config.level == 3

        def __call__(self: object, /, *args: Any, **kwargs: Any) -> Any:
            nonlocal ops, ops_cpu, edges
            if gate.shut:
                return original(*args, **kwargs)
            before = rusage.now() if with_cpu else None
            first = shared() if live == ident() else UNCOUNTED
            page[word] = start = clock()
            try:
                return original(*args, **kwargs)
            finally:
                page[word], end = 0, clock()
                last = fresh() if live == ident() else UNCOUNTED
                row = () if before is None else rusage.since(before, start, end)
                if live == ident():
                    ops += (start, end, number)
                    edges += (first, last)
                    ops_cpu += row
                elif not gate.shut:
                    add_loose(start, end, number, row)

        return hook(__call__)

    return operation


def _spans(recorder: Recorder) -> Callable[[int], Callable[[], None]]:
    live, counters = 0, recorder.counters
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    ops, ops_cpu, add_loose = recorder.ops, recorder.ops_cpu, recorder.add_loose
    if counters is not None:
        shared, fresh, edges = counters.shared, counters.fresh, counters.edges
        fetches = counters.marks

    def span(number: int) -> Callable[[], None]:
        """Begin a region; return the function that ends it."""
        before = rusage.now() if recorder.config.level == 3 else None
        opened = live
        first, fetch = UNCOUNTED, None
        if counters is not None and opened == ident():
            first, fetch = shared(), fetches and fetches[-1]
        word = state_page.word_of(number)
        page[word] = start = clock()

        def end() -> None:
            nonlocal ops, ops_cpu, edges
            page[word], now = 0, clock()
            # It may end in another fetch than it began in, which has other readings.
            counted = fetch and fetches and fetches[-1] is fetch and live == ident()
            places = (first, fresh()) if counted else (UNCOUNTED, UNCOUNTED)
            row = () if before is None else rusage.since(before, start, now)
            if live == opened == ident():
                ops += (start, now, number)
                if counters is not None:
                    edges += places
                ops_cpu += row
            elif not gate.shut:
                add_loose(start, now, number, row)

        return end

    return span

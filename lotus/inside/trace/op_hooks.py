"""The hot path: what runs for every sample and every operation.

Each hook reads the clock, calls the original, reads the clock and appends; packing is left to the
end of the batch. tools/bench/hooks.py measures what it costs.
"""

from __future__ import annotations

import sys
import threading
import types
from operator import getitem

from ..common.clocks import clock
from ..common.guard import hook, is_number, of_the_program
from . import beside_fetches
from .log import rusage, state_page
from .log.log_format import UNCOUNTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ..common.config import Config
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


_VARIADIC = 0x04 | 0x08  # CO_VARARGS | CO_VARKEYWORDS


class Timers:
    """Makes the hooks of one recorder; `reset` after a fork."""

    def __init__(self, recorder: Recorder) -> None:
        # The thread that is in a sample now; 0: none. A cell shared by all hooks is the cheapest
        # variable to read. It is set at points where an exception of a signal handler of the
        # program cannot prevent its reset.
        # Only functions defined within one function can share a cell, so all are defined here.
        live = 0
        gate = recorder.gate
        page = recorder.page.words
        # Items that belong together are added to several lists by `+=`, which is not a call: no
        # signal handler of the program can run in between, as it can between two calls.
        samples, ops, ops_cpu = recorder.samples, recorder.ops, recorder.ops_cpu
        extend, ident = ops.extend, threading.get_ident
        add_loose, counters = recorder.add_loose, recorder.counters
        if counters is not None:
            shared, fresh, edges = counters.shared, counters.fresh, counters.edges
            fetches = counters.marks
        W_SAMPLE, W_SINCE = state_page.W_SAMPLE, state_page.W_SAMPLE_SINCE

        def reset() -> None:
            nonlocal live
            live = 0

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
                    end = clock()
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
                    end = clock()
                    if live == ident():
                        extend((start, end, number))
                    elif not gate.shut:
                        add_loose(start, end, number)

            name = sole_parameter(original)
            return hook(__call__ if name is None else renamed(call_unary, original, name))

        def operation_cpu(original: Callable[..., Any], number: int) -> Callable[..., Any]:
            """As `operation`, with thread CPU time, page faults and bytes read."""
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
                    end = clock()
                    row = rusage.since(before)
                    if live == ident():
                        ops += (start, end, number)
                        ops_cpu += row
                    elif not gate.shut:
                        add_loose(start, end, number, row)

            return hook(__call__)

        def operation_counted(original: Callable[..., Any], number: int) -> Callable[..., Any]:
            """As `operation`, with a reading of the counters at either end."""
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
                    end = clock()
                    last = fresh() if live == ident() else UNCOUNTED
                    row = () if before is None else rusage.since(before)
                    if live == ident():
                        ops += (start, end, number)
                        edges += (first, last)
                        ops_cpu += row
                    elif not gate.shut:
                        add_loose(start, end, number, row)

            return hook(__call__)

        class Samples:
            """The part of a map-style data set that a fetcher uses: `data[index]`, timed."""

            __slots__ = ("data",)

            def __init__(self, data: Any) -> None:
                self.data = data

            def __getitem__(self, index: Any) -> Any:
                nonlocal live
                if gate.shut:
                    return self.data[index]
                me = ident()
                if gate.owner != me:
                    fetch = recorder.here.hand.fetch
                    if fetch is None or not fetch.beside:
                        return self.data[index]
                    return beside_fetches.sample(fetch, getitem, self.data, index)
                try:
                    page[W_SAMPLE] = index if type(index) is int or is_number(type(index)) else -1
                except Exception as error:  # too large, or an array
                    if of_the_program(error):
                        raise
                    page[W_SAMPLE] = -1
                outer = live
                page[W_SINCE] = start = clock()
                try:
                    live = me
                    return self.data[index]
                finally:
                    live = outer
                    samples.extend((start, clock() - start, len(ops) // 3))

        class Items(Samples):
            """The same for one that fetches a whole batch in one call, timed as one sample."""

            __slots__ = ()

            def __getitems__(self, indices: Any) -> Any:
                nonlocal live
                me = ident()
                if gate.owner != me:
                    fetch = recorder.here.hand.fetch
                    if gate.shut or fetch is None or not fetch.beside:
                        return self.data.__getitems__(indices)
                    return beside_fetches.sample(fetch, self.data.__getitems__, indices)
                page[W_SAMPLE] = -1
                outer = live
                page[W_SINCE] = start = clock()
                try:
                    live = me
                    return self.data.__getitems__(indices)
                finally:
                    live = outer
                    samples.extend((start, clock() - start, len(ops) // 3))

        class Iterator:
            """The iterator of an iterable data set, each `next` timed as one sample."""

            __slots__ = ("data",)

            def __init__(self, data: Any) -> None:
                self.data = data

            def __iter__(self) -> Iterator:
                return self

            def __next__(self) -> Any:
                nonlocal live
                if gate.shut:
                    return next(self.data)
                me = ident()
                if gate.owner != me:
                    fetch = recorder.here.hand.fetch
                    if fetch is None or not fetch.beside:
                        return next(self.data)
                    return beside_fetches.sample(fetch, next, self.data)
                page[W_SAMPLE] = -1
                outer, before, is_sample = live, len(ops), True
                page[W_SINCE] = start = clock()
                try:
                    live = me
                    return next(self.data)
                except StopIteration:
                    is_sample = len(ops) > before  # to find the end is no sample
                    raise
                finally:
                    live = outer
                    if is_sample:
                        samples.extend((start, clock() - start, len(ops) // 3))

        for method in (Samples.__getitem__, Items.__getitems__, Iterator.__next__):
            hook(method)

        def span(number: int) -> Callable[[], None]:
            """Begin a region; return the function that ends it."""
            before = rusage.now() if recorder.config.level == 3 else None
            opened = live
            first, fetch = UNCOUNTED, None
            if counters is not None and opened == ident():
                first, fetch = shared(), fetches and fetches[-1]
            page[state_page.word_of(number)] = start = clock()

            def end() -> None:
                nonlocal ops, ops_cpu, edges
                now = clock()
                # It may end in another fetch than it began in, which has other readings.
                counted = fetch and fetches and fetches[-1] is fetch and live == ident()
                places = (first, fresh()) if counted else (UNCOUNTED, UNCOUNTED)
                row = () if before is None else rusage.since(before)
                if live == opened == ident():
                    ops += (start, now, number)
                    if counters is not None:
                        edges += places
                    ops_cpu += row
                elif not gate.shut:
                    add_loose(start, now, number, row)

            return end

        self.reset, self.span = reset, span
        self.Samples, self.Items, self.Iterator = Samples, Items, Iterator
        self._hook = operation_cpu if recorder.config.level == 3 else operation
        if counters is not None:
            self._hook = operation_counted
        self._definitions = recorder.definitions

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function (self, *args, **kwargs) that times `original`; note its place."""
        self.note_place(original, number)
        return self._hook(original, number)

    def note_place(self, original: Callable[..., Any], number: int) -> None:
        """Note the file and lines of the function that a call of `original` executes."""
        function = function_of(original)[0]
        if type(function) is types.FunctionType:
            self._definitions.locate(number, function.__code__)

    def time_calls(self, stand_in: object, original: Any, number: int) -> None:
        """Do nothing: the `__call__` of the stand-in's class times them."""


def renamed(call_unary: Any, original: Callable[..., Any], parameter: str) -> Any:
    """Give a hook (self, sole) the parameter's name and the name of the method that it times."""
    code = call_unary.__code__
    names = code.co_varnames
    call_unary.__code__ = code.replace(co_varnames=(names[0], parameter, *names[2:]))
    call_unary.__name__ = "__call__"
    call_unary.__qualname__ = f"{type(original).__name__}.__call__"
    return call_unary


def sole_parameter(thing: Any) -> str | None:
    """Return the name of the only parameter of a callable; None if it accepts others."""
    function, bound = function_of(thing)
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    if (
        function.__defaults__
        or "__wrapped__" in vars(function)
        or code.co_flags & _VARIADIC
        or code.co_kwonlyargcount
        or code.co_posonlyargcount
        or code.co_argcount != bound + 1
    ):
        return None
    name = code.co_varnames[bound]
    return name if name not in ("self", "start", "end") else None


def function_of(thing: Any) -> tuple[Any, int]:
    """Return the function that a call of `thing` executes, and its number of bound arguments."""
    if type(thing) is types.MethodType:
        return thing.__func__, 1
    if type(thing) is types.FunctionType:
        return thing, 0
    function = _of_type(thing, "__call__")
    nn = sys.modules.get("torch.nn")
    if nn is not None and function is vars(nn.Module).get("__call__"):
        function = _of_type(thing, "forward")  # to which it hands on its arguments
    return function, 1


def _of_type(thing: object, name: str) -> Any:
    for kind in type(thing).__mro__:
        if name in vars(kind):
            return vars(kind)[name]
    return None

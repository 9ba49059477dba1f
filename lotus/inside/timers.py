"""The hot path: what runs at every sample and every operation.

Each hook reads the clock, calls the original, reads the clock and appends; packing is left to the
end of the batch. tools/bench/hooks.py measures what it costs.
"""

import threading
import types

from . import state, usage
from .guard import hook
from .log import clock

_VARIADIC = 0x04 | 0x08  # CO_VARARGS | CO_VARKEYWORDS


class Timers:
    """Makes the hooks of one recorder; `reset` after a fork."""

    def __init__(self, recorder):
        # Which thread is in a sample now; 0: none. A cell shared by all hooks made here is the
        # cheapest thing that they can look at.
        live = 0
        page = recorder.page.words
        extend, ident = recorder.ops.extend, threading.get_ident
        samples, ops, extend_cpu = recorder.samples, recorder.ops, recorder.ops_cpu.extend
        add_loose = recorder.add_loose
        W_SAMPLE, W_SINCE = state.W_SAMPLE, state.W_SAMPLE_SINCE

        def reset():
            nonlocal live
            live = 0

        def operation(original, number):
            """Return a function (self, *args, **kwargs) that times `original`."""
            word = state.word_of(number)

            def __call__(self, /, *args, **kwargs):
                page[word] = start = clock()
                try:
                    return original(*args, **kwargs)
                finally:
                    end = clock()
                    if live == ident():
                        extend((start, end, number))
                    elif recorder.on:
                        add_loose(start, end, number)

            def one(self, sole):
                page[word] = start = clock()
                try:
                    return original(sole)
                finally:
                    end = clock()
                    if live == ident():
                        extend((start, end, number))
                    elif recorder.on:
                        add_loose(start, end, number)

            name = sole_parameter(original)
            if name is None:
                return hook(__call__)
            names = one.__code__.co_varnames
            one.__code__ = one.__code__.replace(co_varnames=(names[0], name, *names[2:]))
            one.__name__ = "__call__"
            one.__qualname__ = f"{type(original).__name__}.__call__"
            return hook(one)

        def operation_cpu(original, number):
            """As `operation`, with thread CPU time, page faults and bytes read."""
            word = state.word_of(number)

            def __call__(self, /, *args, **kwargs):
                before = usage.now()
                page[word] = start = clock()
                try:
                    return original(*args, **kwargs)
                finally:
                    end = clock()
                    row = usage.since(before)
                    if live == ident():
                        extend((start, end, number))
                        extend_cpu(row)
                    elif recorder.on:
                        add_loose(start, end, number, row)

            return hook(__call__)

        def sample(dataset):
            """Return a function (self, index) that times `dataset[index]` as one sample."""

            def __getitem__(self, index):
                nonlocal live
                me = ident()
                if recorder.owner != me:
                    return dataset[index]
                try:
                    page[W_SAMPLE] = index
                except (TypeError, ValueError, OverflowError):
                    page[W_SAMPLE] = -1
                outer, live = live, me
                page[W_SINCE] = start = clock()
                try:
                    return dataset[index]
                finally:
                    samples.extend((start, clock() - start, len(ops) // 3))
                    live = outer

            return hook(__getitem__)

        def call(function):
            """Return a function (self, *args) that times `function(*args)` as one sample."""

            def timed(self, *args):
                nonlocal live
                me = ident()
                if recorder.owner != me:
                    return function(*args)
                page[W_SAMPLE] = -1
                outer, live = live, me
                page[W_SINCE] = start = clock()
                try:
                    return function(*args)
                finally:
                    samples.extend((start, clock() - start, len(ops) // 3))
                    live = outer

            return hook(timed)

        def span(number):
            """Begin a region; return the function that ends it."""
            before = usage.now() if recorder.config.level == 3 else None
            page[state.word_of(number)] = start = clock()
            opened = live

            def end():
                now = clock()
                row = None if before is None else usage.since(before)
                if live == opened == ident():
                    extend((start, now, number))
                    if row is not None:
                        extend_cpu(row)
                elif recorder.on:
                    add_loose(start, now, number, row)

            return end

        self.reset = reset
        self.operation = operation_cpu if recorder.config.level == 3 else operation
        self.sample = sample
        self.call = call
        self.span = span


def sole_parameter(thing):
    """The name of the only parameter of a callable, or None where it takes anything else."""
    function = thing
    if not isinstance(thing, (types.FunctionType, types.MethodType)):
        # A module's __call__ hands its arguments on to `forward`.
        names = dir(type(thing))
        name = "forward" if "forward" in names else "__call__"
        function = getattr(type(thing), name, None)
    bound = 0 if function is thing and isinstance(thing, types.FunctionType) else 1
    code = getattr(function, "__code__", None)
    if (
        code is None
        or getattr(function, "__defaults__", None)
        or hasattr(function, "__wrapped__")
        or code.co_flags & _VARIADIC
        or code.co_kwonlyargcount
        or code.co_posonlyargcount
        or code.co_argcount != bound + 1
    ):
        return None
    name = code.co_varnames[bound]
    return name if name not in ("self", "start", "end") else None

"""Decides whether the hot path runs in C (`_hooks.c`), and what then remains in Python.

The extension is optional. It is used if it was built for this interpreter and passes a trial; else
all hooks are those in Python (sample_hooks.py, op_hooks.py), which record the same.
`LOTUS_HOOKS=python` disables it.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from operator import getitem

from ...common.clocks import clock
from ...common.guard import hook, is_number, of_the_program
from .. import beside_fetches
from ..called_function import note_place, renamed, sole_parameter
from ..log import log_format, state_page

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..config import Config
    from ..op_hooks import Recorder

VERSION = 3  # of `_hooks.c`
VARIABLE, PYTHON = "LOTUS_HOOKS", "python"


def _load() -> Any:
    """Return the extension, or None if there is none for this interpreter."""
    if os.environ.get(VARIABLE) == PYTHON:
        return None
    try:
        module: Any = importlib.import_module("._hooks", __package__)
        return module if _works(module) else None
    except Exception as error:  # it is not there, of another Python, or this is a subinterpreter
        if of_the_program(error):
            raise
        return None


def _works(module: Any) -> bool:
    """Return whether a trial records a sample and an operation correctly."""
    if module.VERSION != VERSION:
        return False
    words = memoryview(bytearray(state_page.SIZE)).cast("q")
    gate = module.Gate(words, *[_nothing] * 4)
    timed: Any = type("Trial", (module.Timed,), {"__call__": _nothing, "__slots__": ()})()
    word, shown = state_page.word_of(7), []

    def operation(value: int, extra: int) -> int:
        shown.append(words[word])
        return value + extra

    module.time_calls(timed, gate, operation, 7, word)
    gate.owner = me = threading.get_ident()
    samples = module.Samples(gate, _Trial(timed))
    before = clock()
    result, after = samples[41], clock()
    start, duration, count = gate.samples.tolist()
    begin, end, number = gate.ops.tolist()
    return (
        (result, count, number, gate.live, gate.owner) == (42, 1, 7, 0, me)
        and before <= start <= begin <= end <= start + duration <= after
        and (words[state_page.W_SAMPLE], words[state_page.W_SAMPLE_SINCE]) == (41, start)
        and (shown, words[word]) == ([begin], 0)
        and module.pack_indices([1, 1 << 31]) == b"\1\0\0\0\0\0\0\x80"
        and module.record(1, "<iIQ", [-1, 2, 3], (b"four",))
        == log_format.record(1, "<iIQ", [-1, 2, 3], (b"four",))
    )


class _Trial:
    def __init__(self, timed: Any) -> None:
        self.timed = timed

    def __getitem__(self, index: int) -> Any:
        return self.timed(index, extra=1)


def _nothing(*args: object) -> None:
    pass


MODULE = _load()


def extension_for(config: Config) -> Any:
    """Return the extension if it can record what `config` asks for, else None."""
    python = config.hooks == PYTHON or config.counters or config.ranges
    return MODULE if config.level in (1, 2) and not python else None


def native_or(config: Config, name: str, otherwise: Any) -> Any:
    """Return a function of the extension, or `otherwise` if it is not used."""
    return otherwise if MODULE is None or config.hooks == PYTHON else getattr(MODULE, name)


def _place_of(index: Any) -> int:
    """Return the number of a sample for the state page, -1 if it has none."""
    try:
        return int(index) if is_number(type(index)) else -1
    except Exception as error:  # an array
        if of_the_program(error):
            raise
        return -1


class NativeTimers:
    """op_hooks.Timers with hooks in C; the recorder has the `gate` of the extension."""

    def __init__(self, recorder: Recorder, module: Any) -> None:
        self._gate, self._module = recorder.gate, module
        self._page = recorder.page.words
        self._add_loose = recorder.add_loose
        self._definitions = recorder.definitions
        self.Samples = functools.partial(module.Samples, recorder.gate)
        self.Items = functools.partial(module.Items, recorder.gate)
        self.Iterator = functools.partial(module.Iterator, recorder.gate)

    def reset(self) -> None:
        self._gate.live = 0

    def span(self, number: int) -> Callable[[], None]:
        """Begin a region; return the function that ends it."""
        gate, add_loose, ident = self._gate, self._add_loose, threading.get_ident
        opened, page, word = gate.live, self._page, state_page.word_of(number)
        page[word] = start = clock()

        def end() -> None:
            page[word], now = 0, clock()
            if gate.live == opened == ident():
                gate.ops.extend((start, now, number))
            elif not gate.shut:
                add_loose(start, now, number)

        return end

    def operation(self, original: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Return a function (self, *args, **kwargs) that times `original`; note its place."""
        note_place(self._definitions, original, number)
        gate, page, add, word = self._gate, self._page, self._gate.add, state_page.word_of(number)

        def __call__(self: object, /, *args: Any, **kwargs: Any) -> Any:
            if gate.shut:
                return original(*args, **kwargs)
            page[word] = start = clock()
            try:
                return original(*args, **kwargs)
            finally:
                page[word], end = 0, clock()
                add(start, end, number)

        def call_unary(self: object, sole: Any) -> Any:
            if gate.shut:
                return original(sole)
            page[word] = start = clock()
            try:
                return original(sole)
            finally:
                page[word], end = 0, clock()
                add(start, end, number)

        name = sole_parameter(original)
        return hook(__call__ if name is None else renamed(call_unary, original, name))

    def time_calls(self, stand_in: object, original: Any, number: int) -> None:
        """Time the calls of a stand-in without a frame; its `__call__` is for code that looks it
        up.
        """
        self._module.time_calls(stand_in, self._gate, original, number, state_page.word_of(number))


def gate_of(recorder: Any, module: Any) -> Any:
    """Return a recorder's gate, with the buffers of its rows."""

    def beside(function: Any, *args: Any) -> Any:
        """Get a sample in a thread that is not the one whose fetch has the buffers."""
        function = next if function is None else function
        fetch = recorder.here.hand.fetch
        if fetch is None or not fetch.beside:
            return function(*args)
        return beside_fetches.sample(fetch, function, *args)

    page, add_loose = recorder.page.words, recorder.add_loose
    return module.Gate(page, add_loose, _place_of, hook(beside), getitem)

"""The hot path of a sample: what a fetcher asks for one, timed.

Each hook reads the clock, calls the original, reads the clock and appends; packing is left to the
end of the batch. tools/bench/overhead/hooks.py measures what it costs.
"""

from __future__ import annotations

import threading
from operator import getitem

from ..common.clocks import clock
from ..common.guard import hook, is_number, of_the_program
from . import beside_fetches
from .log import state_page
from .shared_cell import with_cell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CellType
    from typing import Any, Protocol

    from .log.state_page import StatePage

    class Recorder(Protocol):
        """The lists that the hooks fill. They add nothing while `gate` is shut."""

        gate: Any
        here: Any
        page: StatePage
        samples: list[int]
        ops: list[int]


def timed_classes(recorder: Recorder, live: CellType) -> tuple[Any, Any, Any]:
    """Return (Samples, Items, Iterator), which wrap a data set or its iterator.

    `live` holds the thread that is in a sample now; 0: none.
    """
    samples, items = _of_map_style(recorder)
    iterator = _of_iterable(recorder)
    for kind, name in ((samples, "__getitem__"), (items, "__getitems__"), (iterator, "__next__")):
        setattr(kind, name, hook(with_cell(vars(kind)[name], "live", live)))
    return samples, items, iterator


# In both functions below, `live` is the cell of `timed_classes`. It is set at points where an
# exception of a signal handler of the program cannot prevent its reset.


def _of_map_style(recorder: Recorder) -> tuple[Any, Any]:
    live = 0
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    samples, ops = recorder.samples, recorder.ops
    W_SAMPLE, W_SINCE = state_page.W_SAMPLE, state_page.W_SAMPLE_SINCE

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

    return Samples, Items


def _of_iterable(recorder: Recorder) -> Any:
    live = 0
    gate, page, ident = recorder.gate, recorder.page.words, threading.get_ident
    samples, ops = recorder.samples, recorder.ops
    W_SAMPLE, W_SINCE = state_page.W_SAMPLE, state_page.W_SAMPLE_SINCE

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

    return Iterator

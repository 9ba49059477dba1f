"""Hooks a fetcher in a worker or the main process: samples, collate and the fetch itself."""

from __future__ import annotations

import functools
import itertools
import types

from ...common.clocks import clock
from ...common.guard import ask, edge, hook
from ...common.sample_paths import path_of
from .. import full_collections
from ..fetch_state import Fetch
from ..log import state_page
from ..log.log_format import FAILED, ITEMS, MANY, STOPPED
from ..profiler_ranges import COLLATE, FETCH, ranged
from ..shared_cell import with_cell
from ..transforms.transform_finder import Finder
from . import first_batches, sample_digests, whole_batches
from .subset_view import view_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..operation_stand_ins import StandIns
    from ..recorder import Recorder
_MOST_ITEMS = 64
_UNKNOWN = ()
_TIMED = ("dataset", "dataset_iter")  # attributes of a fetcher that are replaced


class TimedFetcher:
    """Replaces torch's fetcher, without reference cycles.

    So the data set is freed as soon as it would be without lotus. `own` has attributes of the
    fetcher as they were before it was timed: torchdata asks its data set and iterator for their
    state. `timed` makes the iterator of a data set that is set later a timed one.
    """

    def __init__(
        self,
        fetcher: Any,
        fetch: Callable[[Any], Any],
        own: dict[str, Any],
        timed: Callable[[Any], Any],
    ) -> None:
        self.__dict__.update(_fetcher=fetcher, fetch=fetch, _timed=timed, **own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fetcher, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
            value = self._timed(value) if name == "dataset_iter" else value
        setattr(self._fetcher, name, value)


def size_in_bytes(batch: Any, depth: int = 4) -> int:
    """Return the bytes of tensors and arrays in a batch; examine at most 64 items per level."""
    kind = type(batch)
    if depth == 0 or kind is int or kind is float:
        return 0
    builtin = kind is list or kind is tuple or kind is dict
    if not builtin and str(kind.__module__).partition(".")[0] in ("torch", "numpy"):
        size = getattr(batch, "nbytes", 0)
        return size if type(size) is int else 0
    if kind in (bytes, bytearray, str):
        return len(batch)
    items: Iterable[Any]
    # With the methods of the built-in type: those of a subclass may do anything.
    if issubclass(kind, dict):
        items = dict.values(batch)
    elif issubclass(kind, list):
        items = list.__iter__(batch)
    elif issubclass(kind, tuple):
        items = tuple.__iter__(batch)
    else:
        return 0
    total = 0
    for item in itertools.islice(items, _MOST_ITEMS):
        total += size_in_bytes(item, depth - 1)
    return total


def _as_list(indices: Any) -> list[Any] | None:
    """Return the indices of a batch; None if they are not in a list or tuple."""
    kind = type(indices)
    if issubclass(kind, list):
        return list.copy(indices)
    return list(tuple.__iter__(indices)) if issubclass(kind, tuple) else None


def _time_samples(fetcher: Any, dataset: Any, timers: Any) -> bool:
    """Time what the fetcher takes samples from; return whether it takes a batch in one call."""
    if hasattr(fetcher, "dataset_iter"):
        fetcher.dataset_iter = timers.Iterator(fetcher.dataset_iter)
        return False
    if not hasattr(type(dataset), "__getitem__"):
        return False
    get_batch = ask(getattr, fetcher.dataset, "__getitems__", None, default=_UNKNOWN)
    if get_batch and fetcher.auto_collation:
        view = ask(view_of, fetcher.dataset, timers.Samples)
        if view is not None:
            fetcher.dataset = view
            return False
    if get_batch is not _UNKNOWN:
        fetcher.dataset = (timers.Items if get_batch else timers.Samples)(fetcher.dataset)
    return bool(fetcher.auto_collation and get_batch)


def _find_operations(fetcher: Any, dataset: Any, recorder: Recorder, stand_ins: StandIns) -> None:
    def find() -> None:
        Finder(recorder, stand_ins).data_set(dataset)

    # Alternatives change the data set while samples are made.
    as_fetched = getattr(fetcher, "as_fetched", None)
    find() if as_fetched is None else as_fetched(find)
    recorder.define_now()


def _collate_hook(fetcher: Any, recorder: Recorder) -> Callable[[Any], Any]:
    in_hand = Fetch()  # the cell of `instrument`
    auto_collation, counters = fetcher.auto_collation, recorder.counters
    original_collate = ranged(recorder, fetcher.collate_fn, COLLATE)

    def collate(data: Any) -> Any:
        fetch_in_hand, page = in_hand, recorder.page.words
        page[state_page.W_PHASE] = state_page.COLLATE
        first = -1 if counters is None or not fetch_in_hand.counted else counters.shared()
        page[state_page.W_SINCE] = start = clock()
        fetch_in_hand.samples = len(data) if auto_collation and type(data) is list else 1
        try:
            return original_collate(data)
        finally:
            fetch_in_hand.collate_start = start
            fetch_in_hand.collate_ns = clock() - start
            if counters is not None and first >= 0:
                fetch_in_hand.collate_readings = (first, counters.fresh())

    return collate


def _fetch_hook(fetcher: Any, dataset: Any, recorder: Recorder, many: bool) -> Callable[[Any], Any]:
    in_hand = Fetch()  # the cell of `instrument`
    iterable, auto_collation = hasattr(fetcher, "dataset_iter"), fetcher.auto_collation
    original_fetch, gate = ranged(recorder, fetcher.fetch, FETCH), recorder.gate
    samples, ops, ops_cpu, readings, edges, marks = recorder.buffers
    path_of_sample = functools.partial(path_of, dataset)

    def fetch(index: Any) -> Any:
        nonlocal in_hand
        hand = recorder.here.hand
        where, around = hand.where, hand.fetch
        page = recorder.page.words
        page[state_page.W_PHASE] = state_page.FETCH
        page[state_page.W_BATCH] = where[2]
        page[state_page.W_SINCE] = clock()
        flags, nbytes = many and MANY, 0
        if not auto_collation and type(index) is list:
            flags |= MANY  # a sampler of whole batches: the data set is called once
        indices: list[Any] | None = None
        current, outer, collections = Fetch(), in_hand, 0
        try:
            in_hand = current
            recorder.begin_fetch(current, where)
            if current.detail:
                if not iterable:
                    indices = _as_list(index if auto_collation or flags & MANY else [index])
                collections = full_collections.number()
            data = original_fetch(index)
        except StopIteration:
            flags |= STOPPED
            raise
        except BaseException:
            flags |= FAILED
            raise
        else:
            if current.detail:
                nbytes = ask(size_in_bytes, data, default=0)
                if iterable and not auto_collation:
                    count = ask(whole_batches.samples_of, data)
                    current.samples = 1 if count is None else count
                    flags |= ITEMS if count is None else MANY if count > 1 else 0
            return data
        finally:
            in_hand = outer
            try:
                if current.detail:
                    collections = full_collections.number() - collections
                    recorder.end_fetch(current, indices, path_of_sample, nbytes, flags)
                    if collections > 0:
                        edge(
                            recorder, full_collections.log, recorder, full_collections.FETCH,
                            current.begun[1], collections,
                        )  # fmt: skip
            finally:
                # Only assignments, no call and no loop, so that a signal handler of the program
                # cannot interrupt them.
                hand.fetch = around
                if current.before is not None:
                    (
                        recorder.depth, recorder.claims, gate.owner, gate.shut,
                        samples[:], ops[:], ops_cpu[:], readings[:], edges[:], marks[:],
                    ) = current.before  # fmt: skip
                if recorder.beside:
                    recorder.beside.discard(current)
                    gate.shut = gate.shut and not recorder.beside
                if not recorder.on:
                    recorder.stop()  # recording was switched off meanwhile: keep the gate shut

    return fetch


def instrument(fetcher: Any, dataset: Any, recorder: Recorder, stand_ins: StandIns) -> TimedFetcher:
    """Return a timed `fetcher`; `recorder.here.hand.where` has the loader, epoch and batch."""
    level, iterator = recorder.config.level, recorder.timers.Iterator
    if level >= 2:
        _find_operations(fetcher, dataset, recorder, stand_ins)
    own: dict[str, Any] = {}
    many = False
    if level >= 1:
        own = {name: vars(fetcher)[name] for name in _TIMED if name in vars(fetcher)}
        many = _time_samples(fetcher, dataset, recorder.timers)
    in_hand = types.CellType(Fetch())  # the fetch that `fetch` began and `collate` is in
    collate = with_cell(_collate_hook(fetcher, recorder), "in_hand", in_hand)
    fetch = with_cell(_fetch_hook(fetcher, dataset, recorder, many), "in_hand", in_hand)
    fetcher.collate_fn = hook(collate)
    timed = TimedFetcher(fetcher, hook(fetch), own, iterator)
    if recorder.worker >= 0:
        iterable = hasattr(fetcher, "dataset_iter")
        again = recorder.worker_epoch > 0 or sample_digests.has_earlier_epochs
        if iterable and fetcher.auto_collation and not again:
            sample_digests.watch(timed, fetcher, recorder)
        first_batches.watch(timed, dataset, recorder)
    return timed

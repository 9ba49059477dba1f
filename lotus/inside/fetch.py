"""Hooks on one fetcher: samples, collate and the fetch itself, in a worker or the main process."""

import functools

from . import state
from .guard import hook
from .layout import FAILED, MANY, STOPPED
from .operations import Finder
from .recorder import clock

_MOST_ITEMS = 64
_PATHS = ("samples", "imgs", "image_paths", "img_paths", "image_files", "files", "paths")


def _proxy_of_map(dataset, recorder):
    """What the fetcher gets for a map-style data set: only what it uses, timed."""
    timers = recorder.timers
    members = {"__slots__": (), "__getitem__": timers.sample(dataset)}
    if getattr(dataset, "__getitems__", None):
        members["__getitems__"] = timers.call(dataset.__getitems__)
    return type("TimedDataset", (), members)()


def _proxy_of_iterator(iterator, recorder):
    members = {
        "__slots__": (),
        "__next__": recorder.timers.call(functools.partial(next, iterator)),
        "__iter__": lambda self: self,
    }
    return type("TimedIterator", (), members)()


def size_in_bytes(batch, depth=4):
    """Bytes of the tensors and arrays in a batch; looks at no more than 64 items a level."""
    if depth == 0:
        return 0
    kind = type(batch)
    if kind.__module__.split(".")[0] in ("torch", "numpy"):
        size = getattr(batch, "nbytes", 0)
        return size if isinstance(size, int) else 0
    if isinstance(batch, (bytes, bytearray, str)):
        return len(batch)
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(size_in_bytes(item, depth - 1) for item in batch[:_MOST_ITEMS])
    return 0


def path_finder(dataset):
    """Return a function index -> path, for data sets that keep a list of their files."""

    def path_of(index, owner=dataset, depth=8):
        indices = getattr(owner, "indices", None)
        inner = getattr(owner, "dataset", None)
        if depth and indices is not None and inner is not None:  # Subset
            return path_of(indices[index], inner, depth - 1)
        parts = getattr(owner, "datasets", None)
        sizes = getattr(owner, "cumulative_sizes", None)
        if depth and parts and sizes:  # ConcatDataset
            part = next(number for number, size in enumerate(sizes) if index < size)
            return path_of(index - (sizes[part - 1] if part else 0), parts[part], depth - 1)
        for name in _PATHS:
            files = vars(owner).get(name)
            if isinstance(files, (list, tuple)) and index < len(files):
                item = files[index]
                if isinstance(item, tuple) and item:
                    item = item[0]
                if isinstance(item, (str, bytes)) or hasattr(item, "__fspath__"):
                    return str(item)
        return None

    return path_of


def instrument(fetcher, dataset, recorder, undo):
    """Time what `fetcher` does; `recorder.where` says for which loader, epoch and batch."""
    level = recorder.config.level
    if level >= 2:
        finder = Finder(recorder, undo)
        try:
            finder.data_set(dataset)
        except Exception as error:  # the user's attributes are code too
            text = f"operations of {type(dataset).__name__} not all found: {error!r}"[:300]
            recorder.event({"event": "note", "text": text})
    many = False
    if level >= 1:
        if hasattr(fetcher, "dataset_iter"):
            fetcher.dataset_iter = _proxy_of_iterator(fetcher.dataset_iter, recorder)
        elif hasattr(type(dataset), "__getitem__"):
            many = bool(fetcher.auto_collation and getattr(dataset, "__getitems__", None))
            fetcher.dataset = _proxy_of_map(dataset, recorder)
    iterable = hasattr(fetcher, "dataset_iter")
    path_of = path_finder(dataset)
    original_collate = fetcher.collate_fn
    original_fetch = fetcher.fetch

    def collate(data):
        page = recorder.page.words
        page[state.W_PHASE] = state.COLLATE
        page[state.W_SINCE] = start = clock()
        recorder.fetched = len(data) if iterable and fetcher.auto_collation else 1
        try:
            return original_collate(data)
        finally:
            recorder.collate_start = start
            recorder.collate_ns = clock() - start

    def fetch(index):
        loader, epoch, batch = recorder.where
        page = recorder.page.words
        page[state.W_PHASE] = state.FETCH
        page[state.W_BATCH] = batch
        page[state.W_SINCE] = clock()
        recorder.fetched = 0
        token = recorder.begin_fetch(loader, epoch, batch)
        flags, size, nbytes = many and MANY, 0, 0
        indices = index if fetcher.auto_collation else [index]
        indices = None if iterable or not isinstance(indices, (list, tuple)) else list(indices)
        try:
            data = original_fetch(index)
        except StopIteration:
            flags |= STOPPED
            raise
        except BaseException:
            flags |= FAILED
            raise
        else:
            size = recorder.fetched if indices is None else len(indices)
            nbytes = size_in_bytes(data)
            return data
        finally:
            if token is not None:
                recorder.path_of = path_of
                recorder.end_fetch(token, indices, size, nbytes, flags)

    fetcher.collate_fn = hook(collate)
    fetcher.fetch = hook(fetch)

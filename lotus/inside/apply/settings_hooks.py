"""The hooks on torch's loaders through which the Applier applies settings."""

import sys
from functools import wraps

from ..common.guard import edge, hide_our_frames, hook
from . import loader_attributes
from .worker_start import WorkerInit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .known_loaders import KnownLoader


def init(original: "Callable[..., Any]", applier: "Any") -> "Callable[..., Any]":
    """Hook for `DataLoader.__init__`."""

    def __init__(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        try:
            original(self, *args, **kwargs)
        except BaseException as error:
            hide_our_frames(applier, error)
            raise
        edge(applier, applier.made, self, sys._getframe(1))

    return wraps(original)(hook(__init__))


def get_iterator(original: "Callable[..., Any]", applier: "Any") -> "Callable[..., Any]":
    """Hook for `DataLoader._get_iterator`."""

    def start(self: "Any", known: "KnownLoader") -> "Any":
        own = known.before["num_workers"] == self.num_workers
        make = original if own else loader_attributes.unwarned(original)
        threads = edge(applier, applier.threads, self, known)
        others = edge(applier, applier.alternatives, self, known)
        plan = edge(applier, applier.cache_plan, self, known, others)
        if threads is None and plan is None and others is None:
            return make(self)
        if not self.num_workers:
            if others is not None:
                applier.changed.pending = (self.dataset, others)
            if plan is not None:
                applier.caching.pending = (self.dataset, plan, False)
            try:
                return make(self)
            finally:
                for feature in (applier.changed, applier.caching):
                    if feature is not None:
                        feature.pending = None
        function = self.worker_init_fn
        self.worker_init_fn = WorkerInit(threads, function, plan, others)
        try:
            return make(self)
        finally:
            self.worker_init_fn = function  # the program never sees ours

    def _get_iterator(self: "Any") -> "Any":
        known: KnownLoader | None = edge(applier, applier.iterated, self)
        try:
            if known is None or known.entry is None:
                return original(self)
            if not _other_start(applier, self, known.entry):
                iterator = start(self, known)
            else:
                generator = self.generator or sys.modules["torch"].default_generator
                state = generator.get_state()
                failed = None
                try:
                    iterator = start(self, known)
                except Exception as error:
                    if not _is_about_pickling(error):
                        raise
                    failed = error.with_traceback(None)
                if failed is not None:
                    generator.set_state(state)
                    edge(applier, applier.give_back, self, known, failed)
                    return original(self)
            edge(applier, applier.set_torch_threads, known)
            if self.persistent_workers and self.num_workers:
                self._iterator = iterator  # `iter` checked before it became persistent
            return iterator
        except BaseException as error:
            hide_our_frames(applier, error)
            raise

    hook(start)
    return wraps(original)(hook(_get_iterator))


def _other_start(applier: "Any", loader: "Any", entry: int) -> bool:
    """Return whether the setting changes the start method of workers."""
    method = applier.entries[entry]["setting"].get("start_method")
    return method not in (None, "fork") and loader.num_workers > 0


def _is_about_pickling(error: Exception) -> bool:
    import pickle

    return isinstance(error, (pickle.PicklingError, TypeError, AttributeError))

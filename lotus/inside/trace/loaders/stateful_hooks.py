"""Hooks for torchdata's StatefulDataLoader, which has its own iterators and worker loop.

They are forks of torch's, so the hooks for torch's fit. In addition they take snapshots of the
loader's state: in the worker after a fetch, in the main process within `next`.
"""

from __future__ import annotations

import sys
from functools import partial

from ...common import guard
from ...common.clocks import clock
from ...common.guard import hide_our_frames, hook
from . import loader_hooks, worker_hooks
from .iterations import KEY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ...common.patching import Around
    from ..recorder import Recorder
    from .iterations import Iteration, Loaders
CLASS = "StatefulDataLoader"
_WORKER = "torchdata.stateful_dataloader.worker"
# Methods by which the iterator with workers takes snapshots while the program waits in `next`.
_IN_NEXT = ("_get_main_state", "_update_worker_snapshot", "_take_snapshot")


def plan(
    module: Any, loaders: Loaders, before: Callable[[], None]
) -> list[tuple[Any, str, Around]]:
    """Return the methods to listen on; raise AttributeError or KeyError if one does not exist.

    `before` is called before an iterator is made.
    """
    recorder, worker = loaders.recorder, sys.modules[_WORKER]
    loader = getattr(module, CLASS)
    many = module._StatefulMultiProcessingDataLoaderIter
    single = module._StatefulSingleProcessDataLoaderIter
    states = module._IncrementalWorkerState
    of_loaders: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
        (loader, "_get_iterator", partial(loader_hooks.get_iterator, before=before)),
        (many, "_reset", loader_hooks.reset),
        (many, "_next_data", loader_hooks.next_data),
        (single, "_next_data", loader_hooks.next_data),
        (many, "_shutdown_workers", loader_hooks.shutdown_workers),
    )
    worker_loop = partial(worker_hooks.worker_loop, recorder=recorder)
    in_worker = partial(_in_worker, recorder=recorder)
    in_next = partial(_in_main, recorder=recorder, counter="snapshot_ns")
    between = partial(_in_main, recorder=recorder, counter="state_dict_ns")
    return [
        *((owner, name, partial(make, loaders=loaders)) for owner, name, make in of_loaders),
        (many, "_try_get_data", partial(loader_hooks.try_get_data, recorder=recorder)),
        (worker, "_worker_loop", worker_loop),
        # The same function: a spawned worker looks it up by the name of its module.
        (module, "_worker_loop", lambda _: vars(worker)["_worker_loop"]),
        (worker, "ExceptionWrapper", guard.exception_wrapper),
        (worker, "_make_state_dict", in_worker),
        (states, "generate_delta", in_worker),
        *((many, name, in_next) for name in _IN_NEXT),
        *((iterator, "state_dict", between) for iterator in (many, single)),
    ]


def _in_worker(original: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """Hook for a worker's snapshot between a fetch and the sending of its batch."""

    def snapshot(*args: Any, **kwargs: Any) -> Any:
        start = clock()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        finally:
            recorder.snapshot_ns += clock() - start

    return hook(snapshot)


def _in_main(original: Callable[..., Any], recorder: Recorder, counter: str) -> Callable[..., Any]:
    """Hook for a method of an iterator; its time is added to `counter` of its Iteration."""

    def snapshot(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = clock()
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        finally:
            iteration: Iteration | None = self.__dict__.get(KEY)
            if iteration is not None and iteration.alive:
                setattr(iteration, counter, getattr(iteration, counter) + clock() - start)

    return hook(snapshot)

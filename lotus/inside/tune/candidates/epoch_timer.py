"""Times epochs of the program's own loader, with cached samples and without, for `lotus plan`.

Everything that an epoch has but the program's step is real: its workers are started and ended,
samples are read from the store of `lotus run`, collated and sent. The step is emulated.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from functools import partial

from ...apply import loader_attributes, sample_caching
from ...apply.sample_caching import NotCached, SampleCaching
from ...apply.worker_start import WorkerInit
from ...cache import cache_folder
from ...cache.fingerprints import NoFingerprint
from ...cache.transform_place import NoTransform
from ...common import patching, worker_errors
from ...common.guard import first_line
from .forked_child import once
from .step_emulator import StepEmulator
from .trial_requests import TimedEpoch
from .watchdog import Failed, Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .candidate_loader import Loading
    from .trial_requests import TimeEpoch

_BATCH, _EPOCH = "a batch", "an epoch"
_MORE_S = 5.0
_WARM = 4  # batches


class EpochTimer:
    """Times epochs one after the other. Call `end` when no more are timed."""

    def __init__(self) -> None:
        self._caching: _Caching | None = None

    def time(
        self,
        loading: Loading,
        request: TimeEpoch,
        step: StepEmulator | Callable[[Any], object] | None,
        others: Sequence[Any],
    ) -> TimedEpoch:
        """Time an epoch of a candidate; what it started has ended then. Raises Failed.

        `others` are batches of indices that the epoch does not have.
        """
        loader = loading.loader
        function = step.run if isinstance(step, StepEmulator) else step
        if request.cache is not None:
            if loader.num_workers and loader_attributes.start_method(loader) != "fork":
                raise Failed("its workers are not forked")
            self._caching = self._caching or _Caching()
        caching = self._caching if request.cache is not None else None

        def timed() -> TimedEpoch:
            watchdog = Watchdog(request.limit_s, _BATCH)
            try:
                result = watchdog.run(
                    partial(_timed, loading, watchdog, function, caching, request, others)
                )
            finally:
                loading.shut(0)
            if caching is not None and caching.problem:
                raise Failed(caching.problem)
            return result

        if loader.num_workers:
            return timed()
        limit_s = request.limit_s * len(loader._index_sampler) + _MORE_S
        result: TimedEpoch = once(timed, limit_s, _EPOCH)
        return result

    def end(self) -> None:
        """Remove what lets loaders cache samples."""
        if self._caching is not None:
            self._caching.remove()


def _timed(
    loading: Loading,
    watchdog: Watchdog,
    step: Callable[[Any], object] | None,
    caching: _Caching | None,
    request: TimeEpoch,
    others: Sequence[Any],
) -> TimedEpoch:
    cache, filled = request.cache, request.filled

    def start(begin: Callable[[Watchdog], object], cached: bool = True) -> None:
        if caching is None or cache is None or not cached:
            begin(watchdog)
        else:
            with caching.of(loading.loader, cache):
                begin(watchdog)

    sampler = loading.loader._index_sampler
    workers = loading.loader.num_workers
    kept = workers and loading.loader.persistent_workers
    began = time.perf_counter()
    if kept or not workers:
        # As in a later epoch of the program: its workers are there, or this child is warm. Workers
        # get what they cache when they start, so what they cache here is removed again. A file that
        # is read here is in memory later: these are other batches, unless all are cached.
        whole, count = sampler.batches, workers or _WARM
        sampler.batches = whole[:count] if filled else [*others[-count:], *whole][:count]
        start(loading.start, cached=bool(kept) or filled)
        for _ in loading.rest():
            watchdog.renew()
        sampler.batches = whole
        if kept:
            if caching is not None and not filled:
                caching.empty()
            began = time.perf_counter()
            loading.again(watchdog)
        else:
            began = time.perf_counter()
            start(loading.again)
    else:
        start(loading.start)
    times = []
    for batch in loading.rest():
        times.append(time.perf_counter() - began)
        if step is not None:
            with watchdog.off():
                step(batch)
        watchdog.renew()
        if len(times) == len(sampler):
            watchdog.workers([], False)  # they end now
    if not times:
        raise Failed("its data set gives no batch")
    return TimedEpoch(tuple(times), time.perf_counter() - began, len(sampler))


class _Caching:
    """Lets loaders that are iterated here cache samples as under `lotus run`.

    It stands for the Applier of SampleCaching, which is off while the program is paused.
    """

    def __init__(self) -> None:
        self.on, self.problem = True, ""
        self._folder = ""  # of the cache of the last loader
        self.entries: list[Any] = []
        self._pid = os.getpid()
        self._samples = SampleCaching(self)
        self._before, sample_caching.active = sample_caching.active, self._samples
        module: Any = sys.modules["torch.utils.data.dataloader"]
        self._undo = [
            patching.listen(owner, name, "trials", around)
            for owner, name, around in (
                (module._DatasetKind, "create_fetcher", self._samples.create_fetcher),
                (module._utils.worker, "ExceptionWrapper", worker_errors.exception_wrapper),
            )
        ]

    def remove(self) -> None:
        """Remove the hooks."""
        sample_caching.active = self._before
        while self._undo:
            self._undo.pop()()

    def note(self, text: str) -> None:
        """Note why samples are not cached; in a worker nobody reads it."""
        self.problem = self.problem or text

    def fault(self, error: Exception) -> None:
        self.on, self.problem = False, first_line(error)

    def tell(self, fact: Mapping[str, Any]) -> None:
        """Drop the counts of samples."""

    def empty(self) -> None:
        """Remove the samples that were cached, while no worker makes one. Raises Failed."""
        try:
            cache_folder.remove_entries(self._folder)
        except FileNotFoundError:
            pass  # nothing could be cached
        except OSError as error:
            raise Failed(f"its cache could not be emptied: {error.strerror}") from None

    @contextmanager
    def of(self, loader: Any, cache: dict[str, Any]) -> Iterator[None]:
        """Cache samples of a loader whose iterator is made meanwhile. Raises Failed."""
        try:
            plan = sample_caching.plan_of(loader, cache)
        except (NotCached, NoFingerprint, NoTransform) as reason:
            raise Failed(str(reason)) from None
        self._folder = plan.folder
        if not loader.num_workers:
            self._samples.pending = (loader.dataset, plan, False)
            try:
                yield
            finally:
                self._samples.pending = None
            return
        outer = loader.worker_init_fn  # of ours, and calls the program's
        outer.function = WorkerInit(None, outer.function, plan)
        yield

"""Iterates the program's loader with another setting, in this process."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

from ....apply import loader_attributes
from ....common.control import deferred_interrupts
from ....common.loaders.loader_description import is_iterable
from ..processes import teardown
from ..processes.watchdog import CandidateError, Watchdog, held, let_go
from ..processes.worker_processes import OwnUsage, Usage
from . import batch_contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from .index_replay import Cycle

MARK = "_lotus_candidate"  # attribute that marks a candidate for hooks
SEED = 20_011
_LONGEST = 70


def copy_of(loader: Any, setting: dict[str, Any], cycle: Cycle | None, seed: int = SEED) -> Any:
    """Return a copy of a loader with a setting, its own generator and, for map-style, `cycle`.

    Raises CandidateError if torch refuses the setting.
    """
    try:
        after = loader_attributes.resolve(
            {"setting": setting, "iterable_safe": True},
            loader,
            loader_attributes.attributes(loader),
        )
    except loader_attributes.SettingRefusedError as reason:
        raise CandidateError(str(reason)) from None
    if after["pin_memory"] and accelerator() is None:
        after["pin_memory"] = False  # torch does not pin then, and warns
    made = object.__new__(type(loader))
    generator = sys.modules["torch"].Generator()
    generator.manual_seed(seed)
    vars(made).update(vars(loader))
    vars(made).update(
        _iterator=None,
        generator=generator,
        check_worker_number_rationality=bool,  # it would warn
        **{MARK: True},
    )
    loader_attributes.assign(made, after)
    threads = setting.get("threads")
    if threads is not None and made.num_workers:
        if loader_attributes.start_method(made) == "fork" and threads > 1:
            raise CandidateError(
                f"OpenMP can hang in forked workers: {threads} threads a worker need a "
                "start_method of spawn"
            )
        from ....apply.worker_start import WorkerInit

        made.worker_init_fn = WorkerInit(threads, made.worker_init_fn)
    if made.num_workers and not _starts_python(made):
        made.worker_init_fn = Bound(made.worker_init_fn)
    if cycle is not None:
        vars(made)["batch_sampler" if made._auto_collation else "sampler"] = cycle
        if made._index_sampler is not cycle:
            raise CandidateError(f"{type(loader).__name__} chooses its indices in a way of its own")
    return made


class Bound:
    """Replaces a `worker_init_fn` in forked workers, so that they die together with the program.

    torch's workers check for that only every five seconds, and not inside the data set's code.
    `__call__` is a property that returns the user's function, so that has no frame of ours above.
    """

    def __init__(self, function: Callable[[int], object] | None) -> None:
        self.function, self.parent = function, os.getpid()

    @property
    def __call__(self) -> Callable[[int], object]:
        with suppress(Exception):
            sys.modules["torch"].multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
            if os.getppid() != self.parent:
                os._exit(1)
        return self.function if self.function is not None else bool


@contextmanager
def _folder_of_sockets(path: str) -> Iterator[None]:
    """Set the folder for the sockets through which new workers share memory.

    Otherwise each worker creates a folder, which remains if the worker is killed.
    """
    import multiprocessing

    config: Any = vars(multiprocessing.current_process())["_config"]
    before = config.get("tempdir")
    if path:
        config["tempdir"] = path
    try:
        yield
    finally:
        if path:
            config["tempdir"] = before


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in workers that start now: they would report it, and we end them anyway."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _starts_python(loader: Any) -> bool:
    return bool(loader.num_workers) and loader_attributes.start_method(loader) != "fork"


def accelerator() -> str | None:
    """Return the kind of accelerator that is available, without creating a context."""
    torch: Any = sys.modules["torch"]
    general = getattr(torch, "accelerator", None)
    if general is not None:
        return str(general.current_accelerator().type) if general.is_available() else None
    return "cuda" if torch.cuda.is_available() else None


def _wait_only(inner: Any) -> None:
    """Allow Ctrl-C only while torch's iterator waits for a batch.

    It would otherwise interrupt the handling of indices or of descriptors of a worker, which would
    report that.
    """
    queue, waits = inner._data_queue, "_poll"
    if queue is not inner._worker_result_queue:  # the queue of the pin thread
        waits = "get"
    setattr(queue, waits, partial(_wait, getattr(queue, waits)))


def _wait(wait: Callable[..., Any], *args: Any, **others: Any) -> Any:
    with deferred_interrupts.let_come():
        return wait(*args, **others)


class Loading:
    """Iterates a candidate, across epochs. Call `shut` in any case."""

    def __init__(
        self, loader: Any, cycle: Cycle | None, say: Callable[[str], object], folder: str = ""
    ) -> None:
        self.loader, self.say = loader, say
        # The folder for its files; the path of a socket has at most 107 characters.
        self._within = folder if len(folder) < _LONGEST else None
        self._own = OwnUsage()
        self.usage: Usage = Usage() if loader.num_workers else self._own
        self.iterable = is_iterable(loader)
        self._cycle, self._taken = cycle, 0
        self._dataloader: Any = sys.modules["torch.utils.data.dataloader"]
        self._inner: Any = None  # torch's
        self._iterator: Any = None
        self._folder = ""

    def start(self, watchdog: Watchdog) -> float:
        """Start its workers. Returns the seconds that it took."""
        if self.loader.num_workers and not self._folder:
            self._folder = tempfile.mkdtemp(prefix="pymp-", dir=self._within or None)
        before = time.perf_counter()
        with (
            held(signal.SIGINT),
            held(signal.SIGCHLD),
            _without_interrupts(),
            _folder_of_sockets(self._folder),
            warnings.catch_warnings(),
        ):
            if _starts_python(self.loader):
                warnings.simplefilter("ignore")  # torch's, about pickling: lotus reports it
            flag = self._dataloader._utils.signal_handling
            was_set = flag._SIGCHLD_handler_set
            try:
                self._iterator = self.loader._get_iterator()
                self._inner = self._find_inner()
                if self.loader.num_workers:
                    _wait_only(self._inner)
            except BaseException as error:
                kind = self._dataloader._MultiProcessingDataLoaderIter
                self._inner = teardown.half_made(error.__traceback__, kind)
                let_go(error)
                raise
            finally:
                flag._SIGCHLD_handler_set = was_set  # `held` puts the handler back
                if self._inner is not None and vars(self._inner).get("_worker_pids_set"):
                    # So that torch's handler does not raise for them anywhere in the program.
                    flag._remove_worker_pids(id(self._inner))
                    self._inner._worker_pids_set = False
        took = time.perf_counter() - before
        self.limit(watchdog)
        return took

    def limit(self, watchdog: Watchdog) -> None:
        """Let torch enforce the time limit if the watchdog cannot."""
        watchdog.workers(self.workers(), self.iterable)
        if self.loader.num_workers and not self.loader.timeout and not watchdog.raises:
            self._inner._timeout = watchdog.limit_s

    def _find_inner(self) -> Any:
        iterator = self._iterator
        for _ in range(3):
            if isinstance(iterator, self._dataloader._BaseDataLoaderIter):
                return iterator
            iterator = getattr(iterator, "iterator", None)
        raise CandidateError(f"{type(self.loader).__name__} iterates in a way of its own")

    def workers(self) -> list[Any]:
        return list(vars(self._inner).get("_workers", ())) if self._inner is not None else []

    def pids(self) -> list[int]:
        """Return the process ids of the workers; without workers, that of this process."""
        return [worker.pid for worker in self.workers()] or [os.getpid()]

    def first(self, watchdog: Watchdog) -> float:
        """Start and take the first batch. Return the seconds of the start."""
        took = self.start(watchdog)
        if self._try() is None:
            raise CandidateError("its data set gives no batch")
        return took

    def take(self, watchdog: Watchdog) -> tuple[Any, float, float]:
        """Take a batch, if necessary of the next epoch.

        Return (batch, seconds in `next`, CPU seconds of this thread in `next`).
        """
        watchdog.renew()
        taken = self._try()
        if taken is None:
            self.say("its data set ended and was started again; that is not in the waits")
            self.usage.add()
            self.again(watchdog)
            taken = self._try() and self._try()  # the first wait includes the start of the workers
            if taken is None:  # there is one batch only
                self.again(watchdog)
                taken = self._try()
            if taken is None:
                raise CandidateError("its data set gives no batch when it is started again")
            self.usage.start(self.pids())
        return taken

    def rest(self) -> Iterator[Any]:
        """Yield the remaining batches of the epoch."""
        while (taken := self._try()) is not None:
            yield taken[0]

    def again(self, watchdog: Watchdog) -> None:
        """Begin the next epoch as torch does."""
        if self.loader.persistent_workers and self.loader.num_workers:
            self._inner._reset(self.loader)
            return
        self.shut(0)
        self.start(watchdog)

    def _try(self) -> tuple[Any, float, float] | None:
        try:
            return self._next()
        except StopIteration:
            return None

    def _next(self) -> tuple[Any, float, float]:
        alone = not self.loader.num_workers
        if alone:
            self._own.begin()
        cpu, before = time.thread_time(), time.perf_counter()
        with deferred_interrupts.only_waits() if not alone else nullcontext():
            batch = next(self._iterator)
        cpu_after = time.thread_time()
        if self.iterable and not alone:
            self.usage.add(often=True)  # a worker may exit at any batch
        after = time.perf_counter()
        if alone:
            self._own.finish()
        self._taken += 1
        return batch, after - before, 0.0 if alone else cpu_after - cpu

    def samples(self, batch: Any) -> int:
        """Return the number of samples of the batch that was taken last."""
        loader = self.loader
        if loader.batch_sampler is None and loader.batch_size is None:
            return 1
        if self._cycle is not None and getattr(loader, "in_order", True):
            drawn = self._cycle.batches
            try:
                return len(drawn[(self._taken - 1) % len(drawn)])
            except TypeError:  # an index of the program's own kind
                pass
        return batch_contents.samples(batch, loader.batch_size)

    def shut(self, patience_s: float) -> None:
        """End it; ask the workers to exit for `patience_s` seconds, then kill them."""
        inner, self._inner, self._iterator = self._inner, None, None
        try:
            if inner is not None and self.loader.num_workers:
                teardown.reap(inner, patience_s)
        finally:
            folder, self._folder = self._folder, ""
            teardown.remove_folder(folder)

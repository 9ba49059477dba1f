"""Hooks in a DataLoader worker: its loop, its two queues and its feeder thread."""

from __future__ import annotations

import collections
import os
import threading
import time

from ...common.clocks import clock
from ...common.guard import ask, guarded, hook, quiet
from ..log import rusage, state_page
from . import spawn_hooks, worker_identity
from .compute_threads import torch_threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..recorder import Recorder
# Longest wait at the end of a worker for the last times of the feeder thread.
_SETTLE_NS = 20_000_000


class IndexQueue:
    """Wraps the worker's index queue, for the worker loop only."""

    def __init__(self, queue: Any, recorder: Recorder) -> None:
        self._queue = queue
        self._recorder = recorder
        self._waiting_since = 0
        self._ready = self._has_made = self._told = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        start = clock()
        if not self._ready:
            self._ready = True
            ready = {"event": "worker_ready", "worker": recorder.worker, "time_ns": start}
            # By now worker_init_fn and imports have changed their settings.
            cpu_ns, delay_ns, _ = rusage.core_times()
            times = {"cpu_ns": cpu_ns, "run_delay_ns": delay_ns}
            recorder.event({**ready, **times, "cpus": rusage.cpus()})
        if self._has_made and not self._told:
            self._told = True
            # By now the data set's own code has changed its settings, as in what it opens lazily.
            settings = {**_threads(), "cpus": rusage.cpus()}
            recorder.event({"event": "worker_threads", "worker": recorder.worker, **settings})
        self._waiting_since = self._waiting_since or start
        page = recorder.page.words
        page[state_page.W_PHASE] = state_page.IDLE
        page[state_page.W_SINCE] = start
        item = self._queue.get(*args, **kwargs)  # raises Empty every few seconds
        end = clock()
        if isinstance(item, tuple) and len(item) == 2:
            recorder.here.hand.where = (-1, recorder.worker_epoch, item[0])
            recorder.snapshot_ns = 0
            self._has_made = True
            recorder.idle_start, recorder.idle_ns = self._waiting_since, end - self._waiting_since
        elif type(item).__name__ == "_ResumeIteration":  # a persistent worker's next epoch
            recorder.worker_epoch += 1
            page[state_page.W_EPOCH] = recorder.worker_epoch
        self._waiting_since = 0
        return item


def _threads() -> dict[str, int]:
    """Return the number of threads of this process, and of torch's compute threads; -1: unknown."""
    return {
        "threads": ask(lambda: len(os.listdir("/proc/self/task")), default=-1),
        "torch_threads": ask(torch_threads, default=-1),
    }


class ResultQueue:
    """Wraps the worker's result queue, for the worker loop only."""

    def __init__(self, queue: Any, recorder: Recorder) -> None:
        self._queue = queue
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        recorder = self._recorder
        page = recorder.page.words
        page[state_page.W_PHASE] = state_page.SEND
        page[state_page.W_SINCE] = now = clock()
        self._queue.put(item, *args, **kwargs)
        recorder.flush_batch(now)


class Feeder:
    """Times how the queue's feeder thread sends each batch: pickle, lock, write."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.batch: Any = None
        self.queued: collections.deque[Any] = collections.deque()
        self.epoch = self.start = self.pickled = self.locked = 0

    def attach(self, queue: Any) -> None:
        """Replace three parts of a queue whose feeder thread has not started yet."""
        parts = ("_thread", "_buffer", "_wlock", "_send_bytes")
        if not all(hasattr(queue, part) for part in parts) or queue._thread is not None:
            return
        if type(queue._buffer) is not collections.deque or queue._wlock is None:
            return
        self.queued = queue._buffer = _SendBuffer(self, queue._buffer)
        queue._wlock = _Lock(self, queue._wlock)
        original = queue._send_bytes

        def send_bytes(data: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(data, *args, **kwargs)
            self.sent(len(data))
            return result

        queue._send_bytes = hook(send_bytes)

    def settle(self) -> None:
        """Wait briefly for a batch being sent: its reader may get it before we have its times."""
        deadline = clock() + _SETTLE_NS
        while (self.queued or self.batch is not None) and clock() < deadline:
            time.sleep(0.0005)

    def sent(self, size: int) -> None:
        end = clock()
        batch, recorder = self.batch, self.recorder
        if recorder.counters is not None and recorder.counters.feeder is None:
            recorder.counters.feeder = time.pthread_getcpuclockid(threading.get_ident())
        if isinstance(batch, int) and recorder.on and recorder.config.selects(batch):
            recorder.sends.append(
                (
                    self.epoch,
                    batch,
                    self.start,
                    self.pickled - self.start,
                    self.locked - self.pickled,
                    end - self.locked,
                    size,
                    threading.get_native_id(),
                )
            )
        self.batch = None


class _SendBuffer(collections.deque["Any"]):
    def __init__(self, feeder: Feeder, items: collections.deque[Any]) -> None:
        super().__init__(items)
        self._feeder = feeder
        self._epochs = collections.deque([feeder.recorder.worker_epoch] * len(items))

    def append(self, item: Any) -> None:
        # The worker may be in the next epoch by the time this batch is sent.
        self._epochs.append(self._feeder.recorder.worker_epoch)
        super().append(item)

    def popleft(self) -> Any:
        item = super().popleft()
        feeder = self._feeder
        feeder.epoch = self._epochs.popleft()
        feeder.batch = item[0] if isinstance(item, tuple) and len(item) == 2 else None
        feeder.start = clock()
        return item


class _Lock:
    def __init__(self, feeder: Feeder, lock: Any) -> None:
        self._feeder = feeder
        self._lock = lock
        self.release = lock.release

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        feeder = self._feeder
        feeder.pickled = clock()
        acquired = self._lock.acquire(*args, **kwargs)
        feeder.locked = clock()
        return acquired

    def __enter__(self) -> Any:
        return self.acquire()

    def __exit__(self, *args: Any) -> Any:
        return self._lock.__exit__(*args)


for _method in (
    IndexQueue.get,
    ResultQueue.put,
    _SendBuffer.append,
    _SendBuffer.popleft,
    _Lock.acquire,
):
    hook(_method)


def process_start_ns() -> int | None:
    """Return when this process started, on CLOCK_MONOTONIC, to 10 ms; None if unknown."""
    # Not by process_stat: an import more, in which a signal handler of the program may raise.
    with quiet(OSError, ValueError, IndexError):
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
        since_boot = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        return since_boot - (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - clock())
    return None


@guarded
def _enter(
    recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any], names: Iterable[str]
) -> dict[str, Any]:
    """Prepare this process as a worker; return the arguments with our queues in place."""
    arguments: dict[str, Any] = dict(zip(names, args, strict=False))
    arguments.update(kwargs)
    recorder.worker = arguments["worker_id"]
    recorder.open_page(recorder.worker)
    started = {"event": "worker", "worker": recorder.worker, "loop_ns": clock()}
    started["num_workers"] = arguments["num_workers"]
    started["process_ns"] = process_start_ns()
    started["imported_ns"] = spawn_hooks.imported_ns
    recorder.event(started)
    worker_identity.watch(arguments.get("init_fn") is not None)
    feeder = Feeder(recorder)
    feeder.attach(arguments["data_queue"])
    recorder.settle = feeder.settle
    arguments["index_queue"] = IndexQueue(arguments["index_queue"], recorder)
    arguments["data_queue"] = ResultQueue(arguments["data_queue"], recorder)
    return arguments


def worker_loop(original: Any, recorder: Recorder) -> Callable[..., Any]:
    """Return the hook for `_utils.worker._worker_loop`."""
    code = original.__code__
    names = code.co_varnames[: code.co_argcount]

    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            # A thread instead of a process: this process's log is not that of a worker.
            recorder.here.hand.unseen = True
            return original(*args, **kwargs)
        arguments = _enter(recorder, args, kwargs, names)
        pid = recorder.pid
        try:
            if arguments is None:
                return original(*args, **kwargs)
            # This frame must not keep the data set alive.
            args, kwargs = (), {}
            return original(**arguments)
        finally:
            if recorder.pid == pid:  # not in a child that was forked in an operation
                end = {"event": "worker_end", "worker": recorder.worker, "time_ns": clock()}
                recorder.event({**end, "reads_worker_info": worker_identity.reads_worker_info()})
                recorder.settle()
                recorder.finish()

    return hook(_worker_loop)

"""Ends a candidate with all its processes, threads, descriptors and files."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from multiprocessing import connection

from ....common.control.deferred_interrupts import breakable
from .watchdog import CandidateError, Watchdog, held
from .worker_processes import descendants, kill_remaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

_SHM = "/dev/shm"
_STARTING = "_lotus_starting"
_DEAD_S = 30.0  # for a killed process to exit; the kernel may hold it
_THREAD_S = 2.0
_QUEUE_S = 0.5


def reap(iterator: Any, patience_s: float) -> None:
    """End the workers of a torch iterator: ask for `patience_s` seconds, then kill them.

    The iterator may be partly constructed. Ctrl-C is held back meanwhile.
    """
    with held(signal.SIGINT), held(signal.SIGCHLD), breakable(False):
        made = vars(iterator)
        made["_shutdown"] = True  # so that torch's finalizer does nothing
        workers = [worker for worker in made.get("_workers", ()) if worker.pid is not None]
        started = descendants(worker.pid for worker in workers)
        if patience_s > 0:
            with suppress(CandidateError, Exception):
                _ask(iterator, workers, patience_s)
        _kill(workers)
        kill_remaining(started)
        _kill_started(made.pop(_STARTING, None))
        queues = [*made.get("_index_queues", ())]
        if "_worker_result_queue" in made:
            queues.append(made["_worker_result_queue"])
        _bounded(partial(_end_pinning, iterator))
        _bounded(partial(_close_all, queues))
        _unlink([*queues, made.get("_workers_done_event")])
        made["_data_queue"] = made["_worker_result_queue"] = None
        made["_task_info"] = {}
        handling: Any = sys.modules["torch.utils.data._utils.signal_handling"]
        if made.get("_worker_pids_set"):
            handling._remove_worker_pids(id(iterator))
            made["_worker_pids_set"] = False


def _ask(iterator: Any, workers: list[Any], patience_s: float) -> None:
    """Ask the workers to exit, as torch does."""
    watchdog = Watchdog(patience_s, "the end of its workers", breakable=False)

    def ask() -> None:
        iterator._workers_done_event.set()  # blocks forever if a worker died while holding its lock
        for queue in iterator._index_queues:
            queue.put(None)
        left = {worker.sentinel for worker in workers}
        while left and watchdog.left_s > 0:
            left -= set(connection.wait(list(left), watchdog.left_s))

    watchdog.run(ask)


def _kill(workers: list[Any]) -> None:
    for worker in workers:
        if worker.is_alive():
            worker.kill()
    for worker in workers:
        pid = worker.pid
        worker.join(_DEAD_S)
        with suppress(ValueError):  # still alive
            worker.close()
        _remove_shared(pid)


def _kill_started(popen: Any) -> None:
    pid, finalizer = getattr(popen, "pid", None), getattr(popen, "finalizer", None)
    if pid is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # not a child if a fork server started it
    if finalizer is not None:
        finalizer()  # closes its pipes


def _remove_shared(pid: int) -> None:
    """Remove the shared memory that a killed process has left behind.

    Files that are mapped here are kept, as with the file_system sharing strategy: torch removes
    them with the tensor, and aborts if they are gone. torch's manager removes the others.
    """
    ours = f"torch_{pid}_"
    with suppress(OSError):
        names = [name for name in os.listdir(_SHM) if name.startswith(ours)]
        if not names:
            return
        with open("/proc/self/maps", errors="replace") as file:
            mapped = {os.path.basename(line.rstrip("\n")) for line in file if ours in line}
        for name in names:
            if name not in mapped:
                with suppress(OSError):
                    os.unlink(os.path.join(_SHM, name))


def _end_pinning(iterator: Any) -> None:
    thread: threading.Thread | None = vars(iterator).get("_pin_memory_thread")
    if thread is None:
        return
    iterator._pin_memory_thread_done_event.set()
    iterator._worker_result_queue.put((None, None))
    thread.join(_THREAD_S)


def _bounded(function: Callable[[], object]) -> None:
    """Run a function in a thread, and abandon it if it takes too long.

    Code that Ctrl-C interrupted may have left the lock of a queue locked. Abandoned threads block
    without using the CPU.
    """
    thread = threading.Thread(target=function, name="lotus-end", daemon=True)
    thread.start()
    thread.join(_THREAD_S)


def _close_all(queues: list[Any]) -> None:
    for queue in queues:
        _close(queue)


def _close(queue: Any) -> None:
    """Close a queue and end its thread, which may be blocked on a pipe that nobody reads."""
    queue.cancel_join_thread()
    thread: threading.Thread | None = queue._thread
    closed = queue._close is not None
    queue.close()
    if thread is not None and not closed:
        # Interrupted while its thread was started: nothing else would end that thread.
        queue._finalize_close(queue._buffer, queue._notempty)
    reader, until = queue._reader, time.monotonic() + _QUEUE_S
    with suppress(OSError):
        while thread is not None and thread.is_alive() and time.monotonic() < until:
            thread.join(0.01)
            if thread.is_alive() and reader.poll(0):
                os.read(reader.fileno(), 1 << 16)
    for end in (queue._reader, queue._writer):
        with suppress(OSError):
            end.close()


def _unlink(owners: list[Any]) -> None:
    """Unlink the named semaphores of these objects now; spawned processes needed the names."""
    from multiprocessing import synchronize, util

    locks: list[Any] = []
    while owners:
        for value in vars(owners.pop() or _unlink).values():
            if isinstance(value, synchronize.SemLock):
                locks.append(value)
            elif isinstance(value, synchronize.Condition):
                owners.append(value)
    registry: dict[Any, Any] = vars(util)["_finalizer_registry"]
    for finalizer in list(registry.values()):
        held_by = getattr(finalizer, "_weakref", None)  # it may have run meanwhile
        if held_by is not None and any(held_by() is value for value in locks):
            finalizer()


def half_made(traceback: TracebackType | None, kind: type) -> Any:
    """Return the iterator whose `__init__` raised; None if it was not an `__init__`."""
    from multiprocessing.popen_fork import Popen

    iterator = None
    while traceback is not None:
        names = traceback.tb_frame.f_locals
        owner = names.get("self")
        if isinstance(owner, kind):
            iterator = owner
            queue, known = names.get("index_queue"), vars(owner).get("_index_queues")
            if queue is not None and known is not None and queue not in known:
                known.append(queue)
        elif isinstance(owner, Popen) and iterator is not None:
            # Interrupted while it received its data: no Process refers to it yet.
            vars(iterator)[_STARTING] = owner
        traceback = traceback.tb_next
    return iterator


class HelperProcesses:
    """Helper processes of multiprocessing and torch; `end` stops those that are new."""

    def __init__(self) -> None:
        import multiprocessing.context
        import multiprocessing.forkserver
        import multiprocessing.resource_sharer
        import multiprocessing.resource_tracker

        package: Any = multiprocessing
        self._tracker: Any = package.resource_tracker._resource_tracker
        self._server: Any = package.forkserver._forkserver
        self._sharer: Any = package.resource_sharer
        self._context: Any = package.context._default_context
        self._had = (
            self._tracker._pid is not None,
            self._server._forkserver_pid is not None,
            self._sharer._resource_sharer._thread is not None,
        )
        self._method = self._context._actual_context

    def end(self) -> None:
        tracker, server, sharer = self._had
        with suppress(AttributeError, OSError), held(signal.SIGCHLD):
            if not server and self._server._forkserver_pid is not None:
                self._server._stop()
            if not tracker and self._tracker._pid is not None:
                self._tracker._stop()
            if not sharer and self._sharer._resource_sharer._thread is not None:
                self._sharer.stop(_THREAD_S)
        self.unsettle()

    def unsettle(self) -> None:
        """Let the program choose its start method, if it still could before."""
        if self._method is None:
            self._context._actual_context = None


def remove_folder(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)

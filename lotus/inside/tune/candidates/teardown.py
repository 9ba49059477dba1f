"""The end of a candidate: its processes, threads, descriptors and files are gone afterwards."""

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

from ...common.deferred_interrupts import breakable
from .watchdog import Failed, Watchdog, held
from .worker_processes import descendants, kill_remaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

_SHM = "/dev/shm"
_STARTING = "_lotus_starting"
_DEAD_S = 30.0  # for a process that was killed; one that the kernel holds does not end
_THREAD_S = 2.0
_QUEUE_S = 0.5


def reap(iterator: Any, patience_s: float) -> None:
    """End a torch iterator with workers: politely for `patience_s`, then by SIGKILL.

    It may be half made. Holds Ctrl-C meanwhile.
    """
    with held(signal.SIGINT), held(signal.SIGCHLD), breakable(False):
        made = vars(iterator)
        made["_shutdown"] = True  # for torch's own way, when the object goes
        workers = [worker for worker in made.get("_workers", ()) if worker.pid is not None]
        started = descendants(worker.pid for worker in workers)
        if patience_s > 0:
            with suppress(Failed, Exception):
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
    """Ask the workers to end, as torch does."""
    watchdog = Watchdog(patience_s, "the end of its workers", breakable=False)

    def ask() -> None:
        iterator._workers_done_event.set()  # waits for ever where a worker died in its lock
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
            os.waitpid(pid, 0)  # not a child where a fork server started it
    if finalizer is not None:
        finalizer()  # closes its pipes


def _remove_shared(pid: int) -> None:
    """What a killed process had put into shared memory and not taken out.

    Not what is mapped here, as where tensors are shared by file_system: torch takes that out when
    the tensor goes, and ends the process where it is not there. Its manager looks after the rest.
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
    """Do it, and leave it where it does not end.

    What Ctrl-C stopped may have left a queue's lock held by nobody. The threads that then stay wait
    without using the CPU.
    """
    thread = threading.Thread(target=function, name="lotus-end", daemon=True)
    thread.start()
    thread.join(_THREAD_S)


def _close_all(queues: list[Any]) -> None:
    for queue in queues:
        _close(queue)


def _close(queue: Any) -> None:
    """Close a queue and end its thread, which may be writing to a pipe that nobody reads."""
    queue.cancel_join_thread()
    thread: threading.Thread | None = queue._thread
    closed = queue._close is not None
    queue.close()
    if thread is not None and not closed:
        # Stopped as its thread was started: nobody else would tell that to end.
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
    """Take the names of their semaphores away now, which spawned processes need, and not later."""
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
    """The iterator whose `__init__` raised; None where it was not in there."""
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
            # Stopped while it was given its data: no Process knows of it yet.
            vars(iterator)[_STARTING] = owner
        traceback = traceback.tb_next
    return iterator


class Helpers:
    """What multiprocessing and torch start once a process: ended where it was not there before."""

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
        """The program may still choose its start method, if it could before."""
        if self._method is None:
            self._context._actual_context = None


def remove_folder(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)

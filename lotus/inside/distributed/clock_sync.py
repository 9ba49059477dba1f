"""Measures the offsets between the clocks of a job's hosts through the job's rendezvous store.

One process per host (local rank 0) opens a second connection to the TCPStore that the program
connected to, and exchanges clock readings with rank 0: a few round trips when the job begins, again
after 1, 3, 7, ... seconds and then once a minute, which also shows the drift. lotus opens no port
and does not use the program's own connection. If all ranks are on one host, nothing is exchanged.

Each process does this in one daemon thread. The thread never waits for a key unless its value is on
the way, because the store reports a wait that timed out on stderr. The thread ends before Python
finalizes: a thread that returns from C++ during finalization aborts the program.
"""

from __future__ import annotations

import os
import sys
import threading

from ..common.clocks import clock
from ..common.guard import of_the_program, quiet
from ..common.process_identity import clock_id, rank_of_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class Recorder(Protocol):
        """Records the readings. `worker` is -1 in a process that trains."""

        worker: int

        def event(self, fact: dict[str, Any]) -> None: ...


NOT_COMPARED = "clocks of the job's hosts were not compared"
_TRIPS = 8  # round trips of a meeting; only the shortest is used
_PATIENCE = 30_000_000_000  # ns that the first meeting waits for all hosts
_LATER = 5_000_000_000  # ns that each later meeting waits
_LONGEST = 60_000_000_000  # ns between two meetings, at most
_MISSES = 5  # failed meetings in a row after which a host is given up


class Meetings:
    """The clock exchange of this process. `look` starts it once there is a process group."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.pid = 0
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None

    def look(self) -> None:
        """Start the exchange if the job has other hosts; cheap once that is decided."""
        if self.pid == os.getpid() or self.recorder.worker >= 0:
            return
        try:
            self._begin()
        except Exception as error:
            self.pid = os.getpid()
            if of_the_program(error):
                raise
            self._note(f"{type(error).__name__}: {error}".replace("\n", " ")[:200])

    def _begin(self) -> None:
        torch = sys.modules.get("torch")
        distributed: Any = getattr(torch, "distributed", None)
        if distributed is None or not distributed.is_available():
            self.pid = os.getpid()
            return
        if not distributed.is_initialized():
            return
        self.pid = os.getpid()
        rank, local, _ = rank_of_process()
        world = distributed.get_world_size()
        alone = os.environ.get("LOCAL_WORLD_SIZE") == str(world)
        if world < 2 or alone or (local and rank):
            return
        store = distributed.distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        if type(store).__name__ != "TCPStore":
            self._note(f"the job's store is a {type(store).__name__}")
            return
        self.stop = threading.Event()
        self.thread = threading.Thread(
            target=self._run, args=(store, rank or 0, self.stop), name="lotus-clocks", daemon=True
        )
        self.thread.start()

    def end(self) -> None:
        """Stop the thread; to be called before Python finalizes.

        The thread sleeps or is in a call that takes one round trip. If the store does not answer,
        the thread is abandoned.
        """
        thread, self.thread = self.thread, None
        if thread is not None and self.pid == os.getpid():
            self.stop.set()
            thread.join(1.0)

    def _note(self, why: str) -> None:
        text = f"{NOT_COMPARED}: {why}"
        self.recorder.event({"event": "note", "text": text})

    def _run(self, store: Any, rank: int, stop: threading.Event) -> None:
        try:
            exchange = Exchange(self.recorder, _connection(store), stop)
            exchange.answer() if rank == 0 else exchange.ask()
        except Exception as error:
            if not stop.is_set():
                with quiet(Exception):
                    self._note(f"{type(error).__name__}: {error}".splitlines()[0][:200])


def _connection(store: Any) -> Any:
    """Open a second connection to a TCPStore."""
    from datetime import timedelta

    patience = timedelta(seconds=5)
    if hasattr(store, "clone"):
        connection = store.clone()
        connection.set_timeout(patience)
        return connection
    return type(store)(store.host, store.port, None, False, patience, False)


class _Host:
    """A host that meets rank 0: its number, its next meeting, and when that is due."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.meeting = 0
        self.due = clock()
        self.missed = 0

    def next(self, now: int) -> None:
        self.meeting += 1
        self.due = now + interval(self.meeting)


def interval(meeting: int) -> int:
    """Return the ns between a meeting and the previous one."""
    return min(10**9 << min(meeting - 1, 10), _LONGEST)


class Exchange:
    """One side of the exchange. Its methods raise whatever the store raises."""

    def __init__(self, recorder: Recorder, store: Any, stop: threading.Event) -> None:
        from datetime import timedelta

        self.recorder, self.store, self.stop = recorder, store, stop
        self.id = clock_id()
        # A restarted job may get the same store again, and its hosts may count restarts
        # differently. So all keys but the reference are below a name that rank 0 draws (`job`).
        self.prefix = "lotus/clocks"
        self.patience = timedelta(seconds=10)

    def count(self, name: str, more: int = 0) -> int:
        """Add to a counter of the store and return its new value; never waits."""
        return int(self.store.add(f"{self.prefix}/{name}", more))

    def until(self, name: str, patience: int, pause: float) -> bool:
        """Wait until a counter is not 0; return False if it stays 0 or the program ends."""
        end = clock() + patience
        while not self.count(name):
            if self.stop.wait(pause) or clock() > end:
                return False
        return True

    def enter(self, job: str) -> None:
        """Use the keys of this start of the job from now on."""
        self.prefix = f"lotus/clocks/{job}"

    def accepts(self) -> bool:
        """Return whether the store accepts connections; torch would log a failure to stderr."""
        import socket

        with quiet(OSError):
            socket.create_connection((self.store.host, self.store.port), 1.0).close()
            return True
        return False

    def tell(self, reference: str, job: str, time: int, offset: int, trip: int) -> None:
        self.recorder.event(
            {
                "event": "clock",
                "clock": self.id,
                "reference": reference,
                "job": job,
                "time_ns": time,
                "offset_ns": offset,
                "round_trip_ns": trip,
            }
        )

    # -- rank 0 ----------------------------------------------------------------------------

    def answer(self) -> None:
        """Publish the id of this clock, then answer all hosts that arrive."""
        job = os.urandom(8).hex()
        self.store.set(f"{self.prefix}/reference", f"{job} {self.id}")
        self.count("told", 1)
        self.enter(job)
        self.tell(self.id, job, clock(), 0, 0)
        hosts: list[_Host] = []
        highest, closing = 0, clock() + _PATIENCE
        while clock() < closing or hosts:
            if clock() < closing:
                came = self.count("hosts")
                hosts += [_Host(number) for number in range(highest + 1, came + 1)]
                highest = max(highest, came)
            due = min((host.due for host in hosts), default=closing)
            pause = 50_000_000 if clock() < closing else due - clock()
            if self.stop.wait(max(min(due - clock(), pause), 0) / 1e9):
                return
            due_now = [host for host in hosts if host.due <= clock()]
            if due_now and not self.accepts():
                return
            for host in due_now:
                self._meet(host)
                if host.missed >= _MISSES:
                    hosts.remove(host)

    def _meet(self, host: _Host) -> None:
        key = f"{host.number}/{host.meeting}"
        planned = host.due
        if not self.until(f"{key}/came", _LATER, 0.01):
            host.missed += 1
            host.next(planned)
            return
        self.count(f"{key}/go", 1)
        now = planned
        for trip in range(_TRIPS):
            self.store.wait([f"{self.prefix}/{key}/ask{trip}"], self.patience)
            now = clock()
            self.store.set(f"{self.prefix}/{key}/told{trip}", str(now))
        host.missed = 0
        host.next(now)

    # -- the other hosts -------------------------------------------------------------------

    def ask(self) -> None:
        """Measure the offset of this host's clock to that of rank 0, repeatedly."""
        if not self.until("told", _PATIENCE, 0.05):
            return
        met = self._first()
        if met is None:
            return
        number, job, reference = met
        if reference == self.id:
            self.tell(reference, job, clock(), 0, 0)
            return
        meeting, missed = 0, 0
        due = clock()
        while missed < _MISSES:
            key = f"{number}/{meeting}"
            if meeting:
                self.count(f"{key}/came", 1)
            if self.until(f"{key}/go", _LATER, 0.01):
                missed = 0
                best, due = self._trips(key)
                self.tell(reference, job, *best)
            else:
                missed += 1
            meeting += 1
            due += interval(meeting)
            if self.stop.wait(max(due - clock(), 0) / 1e9) or not self.accepts():
                return

    def _first(self) -> tuple[int, str, str] | None:
        """Return (own number, job, id of the reference clock) once rank 0 answers, else None.

        The published reference may be that of an earlier start of the job, which does not answer.
        """
        end, prefix, number, seen = clock() + _PATIENCE, self.prefix, 0, ""
        while True:
            now = self.store.get(f"{prefix}/reference").decode()
            job, _, reference = now.partition(" ")
            if now != seen:
                seen = now
                self.enter(job)
                if reference == self.id:
                    return 0, job, reference
                number = self.count("hosts", 1)
                self.count(f"{number}/0/came", 1)
            if self.count(f"{number}/0/go"):
                return number, job, reference
            if self.stop.wait(0.01) or clock() > end:
                return None

    def _trips(self, here: str) -> tuple[tuple[int, int, int], int]:
        """Return ((own clock, offset of the reference, round trip) of the shortest trip, end)."""
        trips, middle = [], 0
        for trip in range(_TRIPS):
            answer = f"{self.prefix}/{here}/told{trip}"
            start = clock()
            self.store.set(f"{self.prefix}/{here}/ask{trip}", "")
            self.store.wait([answer], self.patience)
            end = clock()
            answered = int(self.store.get(answer))
            middle = start + (end - start) // 2
            trips.append((end - start, middle, answered - middle))
        for trip in range(_TRIPS):
            for name in ("ask", "told"):
                self.store.delete_key(f"{self.prefix}/{here}/{name}{trip}")
        round_trip, time, offset = min(trips)
        return (time, offset, round_trip), middle

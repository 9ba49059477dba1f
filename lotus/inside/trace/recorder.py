"""The recorder of a process: collects what the hooks measure and writes it to the event log.

It packs the data once per batch and writes it in one system call (writer.py). It never raises into
the program: hooks call it through `guarded`, which switches recording off after an error in lotus.
"""

from __future__ import annotations

import struct
import threading

from ..common import urls
from ..common.clocks import clock, cpu_clock
from ..common.guard import ask, guarded, quiet
from ..distributed.clock_sync import Meetings
from . import beside_fetches
from .device_times import DeviceTimes
from .fetch_state import Fetch, Gate, Here, Rows
from .killed_workers import KilledWorkers
from .log import log_format, rusage, state_page
from .log.log_writer import append
from .log.writer import Writer
from .native import native_hooks
from .op_hooks import Timers
from .packing import no_packed, pack, pack_indices, pack_rows
from .profiler_ranges import ProfilerRanges, RangedTimers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeVar

    _Row = TypeVar("_Row")

    from .config import Config
    from .log.counter_groups import Counters

_SLOWEST = 32  # samples whose path is kept, per thread
_EMPTY: tuple[tuple[()], ...] = ((), (), (), (), (), ())  # for Recorder.buffers
# Places of fields of a BATCH frame that are known after the others; the last one is `n_sends`.
_NAMES = [name for name, _ in log_format.FRAMES[log_format.BATCH][1]]
_PUT, _SNAPSHOT = _NAMES.index("put_ns"), _NAMES.index("snapshot_ns")
_COUNTS = slice(_NAMES.index("n_samples"), _NAMES.index("n_sends"))
_BATCH_CODES = log_format.FIXED[log_format.BATCH].format
_NO_LOOSE = (0, 0, b"")
_LOOSE_ROW = struct.Struct("<QQIIiI")


def _nothing() -> None:
    pass


def _taken(rows: list[_Row]) -> list[_Row]:
    """Empty a list to which other threads append at any time; return its items."""
    # No call between the two, so no other thread or signal handler can run in between.
    taken, rows[:] = rows[:], ()
    return taken


class Recorder(Writer):
    """Buffers of this process, and its log."""

    def __init__(self, config: Config, stderr: tuple[int, int] | None) -> None:
        super().__init__(config, stderr, native_hooks.native_or(config, "append", append))
        native = native_hooks.extension_for(config)
        self.gate: Any = Gate()
        if native is not None:
            self.gate = native_hooks.gate_of(self, native)
        # The hooks have references to these lists, so they are emptied but never replaced.
        self.rows = Rows()
        if native is not None:
            self.rows.samples, self.rows.ops = self.gate.samples, self.gate.ops
        self.samples, self.ops, self.ops_cpu = self.rows.samples, self.rows.ops, self.rows.ops_cpu
        self.loose = self.rows.loose
        self.sends: list[tuple[int, ...]] = []
        self.later: list[tuple[int, bytes]] = []  # frames, each with a time of it
        self.counters: Counters | None = None
        if config.counters and config.level >= 2:
            from .log.counter_groups import Counters

            self.counters = Counters(config.counters)
        self.device_times = DeviceTimes(self)
        self.killed_workers = KilledWorkers()
        self.meetings = Meetings(self)  # with the other hosts of the job
        # The lists that a fetch inside another one must give back as they were. There are six also
        # where nothing is counted, so that `begin_fetch` and `fetch` need no condition.
        self.buffers: tuple[list[Any], ...] = (self.samples, self.ops, self.ops_cpu, [], [], [])
        if self.counters is not None:
            counted = (self.counters.readings, self.counters.edges, self.counters.marks)
            self.buffers = (*self.buffers[:3], *counted)
        # How to read what the kernel counts of this thread.
        self.read: Callable[[], tuple[int, ...]] = native_hooks.native_or(
            config, "readings", rusage.reading
        )
        self._spent: Callable[[tuple[int, ...]], tuple[int, ...]] = native_hooks.native_or(
            config, "spent", rusage.spent
        )
        self._record: Callable[..., bytes] = native_hooks.native_or(
            config, "record", log_format.record
        )
        self._pack_indices = native_hooks.native_or(config, "pack_indices", no_packed)
        self.ranges = ProfilerRanges(self) if config.ranges else None
        self.timers: Any = Timers(self)
        if native is not None:
            self.timers = native_hooks.NativeTimers(self, native)
        elif self.ranges is not None:
            self.timers = RangedTimers(self, self.ranges)
        self._clear()

    def _clear(self) -> None:
        """Start empty: at the start, and in a forked child."""
        self.worker_epoch = 0
        self.depth = 0  # fetches in hand: one inside the other with nested loaders
        # The thread of these fetches, under 0. It is claimed by `setdefault`, which is atomic, and
        # released by another dictionary, as an assignment is never interrupted.
        self.claims: dict[int, int] = {}
        self.beside: set[Fetch] = set()  # fetches of other threads that are recorded
        self.gate.owner = 0
        self.gate.shut = not self.on
        self.uncounted = 0  # fetches beside another thread's, whose counters were not read
        self.crowded = 0  # batches of which only the fixed fields were written
        del self.samples[:], self.ops[:], self.ops_cpu[:]
        del self.loose[:], self.sends[:], self.later[:]
        if self.counters is not None:
            self.counters.forked()
        self.settle: Callable[[], None] = _nothing  # waits for what the worker is still sending
        self.device_times.forked()
        self.killed_workers.clear()
        self.meetings.thread = None  # it stayed with the parent
        self._clear_fetch()

    def after_fork(self) -> None:
        super().after_fork()
        self.timers.reset()
        self._clear()

    def stop(self) -> None:
        super().stop()
        self.gate.owner = 0
        self.gate.shut = True

    def interrupted(self) -> None:
        super().interrupted()
        if self.counters is not None:
            self.counters.interrupted()

    def core_times(self) -> tuple[int, int, int]:
        """Return (CPU time of this thread, its run_delay_ns, CPU time of this process), in ns."""
        delay, process, cpu, *_ = self.read()
        return cpu, delay, process

    def _clear_fetch(self) -> None:
        self.here = Here()
        self.idle_start = self.idle_ns = 0  # of a worker, before the index that it got last
        self.snapshot_ns = 0  # of a worker's StatefulDataLoader, after the fetch in hand

    # -- what hooks add --------------------------------------------------------------------

    @guarded
    def add_loose(self, start: int, end: int, operation: int, cpu: tuple[int, ...] = ()) -> None:
        """Add an operation that `ops` cannot hold: outside a sample or on another thread."""
        fetch, tid = self.here.hand.fetch, threading.get_native_id()
        position = -1
        if fetch is not None and fetch.beside:
            beside_fetches.operation(fetch, start, end, operation, cpu)
            return
        if fetch is not None and not fetch.detail:
            return  # its batch is not recorded; another thread's is, so that the gate is open
        if self.depth and (fetch is not None or self._helps(tid)):
            position = len(self.samples) // 3
        self.loose.append(((start, end - start, operation, tid, position, 0), cpu))
        if self.depth == 0 and len(self.loose) >= 256:
            self.flush_loose()

    def _helps(self, tid: int) -> bool:
        """Return whether a thread without a fetch may work for the current one.

        It may not if it has work of its own. If several fetches are in progress, it is unknown.
        """
        return not (self.beside or self.here.hand.iterates or tid == self.pid)

    def _take_loose(self, loose: list[Any] | None = None) -> tuple[int, int, bytes]:
        """Return (number, number with CPU time, bytes) of the loose operations so far."""
        rows = self.loose if loose is None else loose
        if not rows:
            return _NO_LOOSE
        rows = _taken(rows)
        data = b"".join([_LOOSE_ROW.pack(*row) for row, _ in rows])
        cpus = [cpu for _, cpu in rows if cpu]
        if len(cpus) < len(rows):
            cpus = []  # the array has a row for each, or none
        data += b"".join([pack("Q", cpu) for cpu in cpus])
        return len(rows), len(cpus), data

    @guarded
    def flush_loose(self) -> None:
        count, with_cpu, data = self._take_loose()
        if count:  # another thread may have taken them
            fixed = log_format.FIXED[log_format.LOOSE].pack(count, with_cpu)
            self._write(self._definitions() + log_format.frame(log_format.LOOSE, fixed + data))

    @guarded
    def add_sync(self, step: int, start: int, ready: int, end: int, models: int) -> None:
        """Add a backward pass whose gradients were averaged."""
        tid = threading.get_native_id()
        self.add_later(log_format.SYNC, end, step, start, ready, end, tid, models)

    @guarded
    def add_later(self, kind: int, time: int, *fields: int) -> None:
        """Add a frame without arrays, to be written with the next `next`."""
        data = log_format.frame(kind, log_format.FIXED[kind].pack(*fields))
        self.later.append((time, data))
        # A program may have no loader, or none that we can hook.
        if len(self.later) >= 256 or time - self.later[0][0] > 1_000_000_000:
            self.flush_later()

    def _take_later(self) -> bytes:
        return b"".join([data for _, data in _taken(self.later)])

    @guarded
    def flush_later(self) -> None:
        if self.later:
            self._write(self._take_later())

    # -- a fetch ---------------------------------------------------------------------------

    @guarded
    def begin_fetch(self, fetch: Fetch, where: tuple[int, int, int]) -> None:
        """Enter a fetch; beside that of another thread if there is one."""
        me, claims = threading.get_ident(), self.claims
        if claims.setdefault(0, me) != me:
            self._begin_beside(fetch, where)
            return
        depth, gate = self.depth, self.gate
        released, hand = claims if depth else {}, self.here.hand
        outer = [buffer[:] for buffer in self.buffers] if depth else _EMPTY
        detail = self.config.selects(where[2])
        owner, counters = (me, self.counters) if detail else (0, None)
        if counters is not None:
            counters.prepare()
        samples, ops, ops_cpu, readings, edges, marks = self.buffers
        fetch.where, fetch.pid = where, self.pid
        if detail:
            cpu_clock()  # see rusage.reading
            fetch.begun = (self.read(), clock())
        # From here to the next call nothing but assignments, no call, no loop and no condition:
        # no other thread and no signal handler of the program can run in between.
        fetch.before = (depth, released, gate.owner, gate.shut, *outer)
        fetch.detail = detail
        fetch.rows = self.rows
        hand.fetch = fetch
        self.depth = depth + 1
        gate.owner = owner
        gate.shut = not detail
        samples[:] = ops[:] = ops_cpu[:] = readings[:] = edges[:] = marks[:] = ()
        if self.beside:
            gate.shut = False  # the other threads' batches are recorded
        if counters is not None:
            fetch.counted = True
            counters.begin()

    def _begin_beside(self, fetch: Fetch, where: tuple[int, int, int]) -> None:
        """Enter a fetch beside that of the thread that has our rows."""
        fetch.where, fetch.pid, fetch.rows = where, self.pid, Rows()
        if self.config.selects(where[2]):
            self.uncounted += self.counters is not None
            cpu_clock()  # see rusage.reading
            fetch.begun = (self.read(), clock())
            fetch.detail = fetch.beside = True
            self.beside.add(fetch)
            self.gate.shut = False
        self.here.hand.fetch = fetch

    @guarded
    def end_fetch(
        self,
        fetch: Fetch,
        indices: list[Any] | None,
        path_of: Callable[[Any], str | None],
        nbytes: int,
        flags: int,
    ) -> None:
        """End the fetch; the batch stays in `pending` until it is handed on.

        `path_of` finds the file of a sample by its index.
        """
        now = clock()
        if fetch.pid != self.pid:
            return  # a child that was forked in an operation leaves the fetch of its parent
        before, start = fetch.begun
        idle = (0, 0) if fetch.where[0] >= 0 else (self.idle_start, self.idle_ns)
        cpu = self._spent(before)
        size = fetch.samples if indices is None else len(indices)
        counts, arrays = self._detail(fetch.rows, indices, path_of, flags)
        fixed = [
            *fetch.where, self.worker, threading.get_native_id(), size, flags,
            *idle, start, now - start, fetch.collate_start, fetch.collate_ns, 0, *cpu, nbytes, 0,
            *counts, 0,
        ]  # fmt: skip
        if self.counters is not None and fetch.counted:
            self._add_counts(self.counters, start, fetch.collate_readings)
        hand = self.here.hand
        if hand.pending is not None:  # of a loader whose `next` we do not see
            self.flush_batch(now)
        if sum(map(len, arrays)) > log_format.MOST_ROWS:
            self.crowded += 1
            fixed[_COUNTS] = [0] * len(counts)
            arrays, hand.counts = (), b""
        hand.pending = (fixed, arrays)

    def _add_counts(self, counters: Counters, start: int, collate: tuple[int, int]) -> None:
        """Add the COUNTS frame of the current batch, which precedes its BATCH frame."""
        fields, arrays = counters.end(collate)
        for event in counters.take_events():
            self.here.hand.counts += self._event_frame(event)
        if fields:
            tid = threading.get_native_id()
            fixed = log_format.FIXED[log_format.COUNTS].pack(start, tid, *fields)
            self.here.hand.counts += log_format.frame(log_format.COUNTS, fixed + arrays)

    def _detail(
        self,
        rows: Rows,
        indices: list[Any] | None,
        path_of: Callable[[Any], str | None],
        flags: int,
    ) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        """Return counts and bytes of the current batch's arrays, up to `loose_cpu`."""
        index, index64 = pack_indices(indices, self._pack_indices)
        packed_samples, packed_ops, packed_cpu, longest = pack_rows(rows)
        loose, loose_cpu, packed_loose = self._take_loose(rows.loose) if rows.loose else _NO_LOOSE
        ops = len(packed_ops) // 12 if packed_ops else 0
        counts = (
            len(packed_samples) // 24 if packed_samples else 0, len(index) >> 2, len(index64) >> 3,
            ops, len(packed_cpu) // log_format.CPU_BYTES, loose, loose_cpu,
        )  # fmt: skip
        if indices and packed_samples and self.config.level and not flags & log_format.MANY:
            slowest = self.here.hand.slowest
            if len(slowest) < _SLOWEST or longest > slowest[0]:
                self._keep_slow(rows.samples[1::3], indices, path_of)
        return counts, (packed_samples, index, index64, packed_ops, packed_cpu, packed_loose)

    def _keep_slow(
        self, durations: list[int], indices: list[Any], path_of: Callable[[Any], str | None]
    ) -> None:
        """Log the path of samples that are among the slowest of this thread so far."""
        slowest = self.here.hand.slowest
        order = sorted(range(min(len(durations), len(indices))), key=durations.__getitem__)
        for position in order[-_SLOWEST // 4 :]:
            duration = durations[position]
            if len(slowest) == _SLOWEST and duration <= slowest[0]:
                continue
            slowest.append(duration)
            slowest.sort()
            del slowest[:-_SLOWEST]
            path = ask(path_of, indices[position])
            if path is not None:
                path = urls.without_secrets(path)
                sample = {"event": "sample_path", "sample": int(indices[position]), "path": path}
                self.here.hand.paths += self._event_frame({**sample, "duration_ns": duration})

    def _batch_frame(self, put_ns: int) -> bytes:
        """Return the pending batch and operations defined meanwhile; b"" if there is none."""
        hand = self.here.hand
        pending, hand.pending = hand.pending, None
        if pending is None:
            return b""
        fields, arrays = pending
        fields[_PUT] = put_ns
        fields[_SNAPSHOT] = self.snapshot_ns
        if self.sends:
            sends = self._take_sends()
            fields[-1] = len(sends) // 64
            arrays = (*arrays, sends)
        frame = self._record(log_format.BATCH, _BATCH_CODES, fields, arrays)
        before, hand.paths, hand.counts = hand.paths + hand.counts, b"", b""
        definitions = self._definitions()
        return definitions + before + frame if definitions or before else frame

    def _take_sends(self) -> bytes:
        return b"".join([pack("Q", row) for row in _taken(self.sends)])

    @guarded
    def flush_batch(self, put_ns: int) -> None:
        data = self._batch_frame(put_ns)
        if data:
            self._write(data)

    @guarded
    def wait(
        self,
        where: tuple[int, int, int],
        flags: int,
        start: int,
        end: int,
        arrival: int,
        core_times: tuple[int, ...],
        own_parts: tuple[int, int],
        pins: Sequence[tuple[int, int, int]],
    ) -> None:
        """Record one `next` of the training loop, and the batch if this process made it.

        `core_times` are those of rusage.core_times at its start and end.
        `own_parts`: how long snapshots of the loader's state, and drawing indices, took in it.
        """
        data = self._batch_frame(end)
        me = threading.get_ident()
        self.here.hand.iterates = True
        # Those of another thread's fetch wait for its batch.
        is_beside = self.claims.get(0, me) != me
        loose, loose_cpu, rows = self._take_loose([] if is_beside else None)
        if len(rows) > log_format.MOST_ROWS:
            self.crowded += 1
            loose, loose_cpu, rows = 0, 0, b""
        fixed = log_format.FIXED[log_format.WAIT].pack(
            *where,
            threading.get_native_id(),
            flags,
            start,
            end,
            arrival,
            *core_times,
            *own_parts,
            len(pins),
            loose,
            loose_cpu,
        )
        pinned = b"".join([pack("Q", row) for row in pins])
        data += self._take_later()
        if loose:
            data += self._definitions()
        self._write(data + log_format.frame(log_format.WAIT, fixed + pinned + rows))

    # -- life ------------------------------------------------------------------------------

    @guarded
    def iteration_started(self) -> None:
        self.iterations += 1
        self.look_around()

    def look_around(self) -> None:
        """Start comparing the clocks of a job with several hosts."""
        self.meetings.look()

    @guarded
    def iteration_ended(self) -> None:
        """Close the log after the last iterator."""
        self.iterations = max(self.iterations - 1, 0)
        if self.iterations == 0 and self.worker < 0:
            self.flush_loose()
            self.flush_later()
            self.log.close()

    @guarded
    def finish(self) -> None:
        """Write what is left: at the end of a worker, the program, or a `lotus.trace` block."""
        self.meetings.end()
        self.device_times.finish()
        for event in self.killed_workers.take(is_last=True):
            self.event(event)
        self.flush_loose()
        self.flush_later()
        if self.sends:
            self._write(self._sends_frame())
        for count, text in (
            (
                self.uncounted,
                "the counters of {} batches were not read, as another thread fetched a batch at "
                "the same time",
            ),
            (self.crowded, "{} batches had too many samples or operations to record each"),
            (self.broken, "exceptions of the program's signal handlers interrupted {} records"),
        ):
            if count:
                self.event({"event": "note", "text": text.format(count)})
        self.uncounted = self.crowded = self.broken = 0
        self.page.words[state_page.W_PHASE] = state_page.ENDED
        self.page.words[state_page.W_SINCE] = clock()
        with quiet(OSError):
            self.page.settle()
        self.log.close()
        if self.counters is not None:
            self.counters.close()

    def _sends_frame(self) -> bytes:
        """Return the last batch's send times in a batch frame without a batch (size 0)."""
        sends = self._take_sends()
        fixed = [
            -1,
            self.worker_epoch,
            0,
            self.worker,
            threading.get_native_id(),
            0,
            log_format.SENDS,
        ]
        fixed += [0] * 17 + [0] * 7 + [len(sends) // 64]
        return log_format.frame(
            log_format.BATCH, log_format.FIXED[log_format.BATCH].pack(*fixed) + sends
        )

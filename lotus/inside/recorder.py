"""The recorder: one a process, the only room inside the program that writes (writer.py).

It holds what the hooks append, packs it once a batch and writes it in one system call. It never
raises into the program: the hooks call it through `guarded`, which on a fault of ours switches
recording off.
"""

from __future__ import annotations

import struct
import sys
import threading
from array import array

from . import clock, layout, state, usage
from .guard import ask, guarded, is_number, quiet
from .rendezvous import Meetings
from .timers import Timers
from .writer import Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from .config import Config
    from .counters import Counters

_BIG_ENDIAN = sys.byteorder == "big"
_SLOWEST = 32  # samples whose path is kept, per process
# C longs, where they are 64 bits, are filled twice as fast.
_CODES = {"I": "I", "q": "q", "Q": "L" if array("L").itemsize == 8 else "Q"}
_LOOSE_ROW = struct.Struct("<QQIIiI")


def pack(code: str, values: Iterable[int]) -> bytes:
    """Little-endian bytes of `values`; OverflowError where one does not fit."""
    packed: array[int] = array(_CODES[code], values)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def _nothing() -> None:
    pass


class Recorder(Writer):
    """Buffers of this process, and its log."""

    def __init__(self, config: Config, stderr: tuple[int, int] | None) -> None:
        super().__init__(config, stderr)
        self.detail = True  # this batch is recorded
        # The hooks hold these lists: they are emptied, never replaced.
        self.samples: list[int] = []
        self.ops: list[int] = []
        self.ops_cpu: list[int] = []
        self.loose: list[tuple[int, ...]] = []
        self.loose_cpu: list[tuple[int, ...]] = []
        self.sends: list[tuple[int, ...]] = []
        self.syncs: list[tuple[int, ...]] = []
        self.counters: Counters | None = None
        if config.counters and config.level >= 2:
            from .counters import Counters

            self.counters = Counters(config.counters)
        self.meetings = Meetings(self)  # with the other hosts of the job
        # What a fetch inside another one must give back as it was.
        self.buffers: list[list[Any]] = [self.samples, self.ops, self.ops_cpu]
        if self.counters is not None:
            self.buffers += [self.counters.readings, self.counters.edges, self.counters.marks]
        self.timers = Timers(self)
        self._clear()

    def _clear(self) -> None:
        """Start empty: at the start, and in a forked child."""
        self._slowest: list[int] = []
        self.worker_epoch = 0
        self.depth = 0  # fetches in hand: one inside the other with nested loaders
        self.fetcher = 0  # the thread of these fetches
        self.owner = 0  # the same while a fetch is recorded in detail, else 0
        self.missed = 0  # fetches beside another thread's
        del self.samples[:], self.ops[:], self.ops_cpu[:]
        del self.loose[:], self.loose_cpu[:], self.sends[:], self.syncs[:]
        if self.counters is not None:
            self.counters.forked()
        self.settle: Callable[[], None] = _nothing  # waits for what the worker is still sending
        self.meetings.thread = None  # it stayed with the parent
        self._clear_fetch()

    def after_fork(self) -> None:
        super().after_fork()
        self.timers.reset()
        self._clear()

    def fault(self, error: BaseException) -> None:
        self.owner = 0
        super().fault(error)

    def interrupted(self) -> None:
        super().interrupted()
        if self.counters is not None:
            self.counters.interrupted()

    def _clear_fetch(self) -> None:
        self.pending: tuple[list[int], list[int], bytes] | None = None
        self.paths = b""  # frames to write with it
        self.counts = b""
        # Index -> path or None, of the data set in hand.
        self.path_of: Callable[[Any], str | None] | None = None
        self.here = threading.local()  # .where: loader, epoch, batch of the thread's next fetch
        self.fetched = 0
        self.idle_start = self.idle_ns = 0
        self.collate_start = self.collate_ns = 0

    # -- what hooks add --------------------------------------------------------------------

    @guarded
    def add_loose(
        self, start: int, end: int, operation: int, cpu: tuple[int, ...] | None = None
    ) -> None:
        """An operation that `ops` cannot hold: outside a sample or on another thread."""
        if not self.detail and self.depth:
            return
        position = len(self.samples) // 3 if self.depth else -1
        self.loose.append((start, end - start, operation, threading.get_native_id(), position, 0))
        if cpu is not None:
            self.loose_cpu.append(cpu)
        if self.depth == 0 and len(self.loose) >= 256:
            self.flush_loose()

    def _take_loose(self) -> tuple[int, int, bytes]:
        """(number, number with CPU, bytes) of the loose operations so far."""
        count = len(self.loose)
        if not count:
            return 0, 0, b""
        rows, cpus = self.loose[:count], self.loose_cpu
        del self.loose[:count]
        with_cpu = count if len(cpus) >= count else 0
        data = b"".join([_LOOSE_ROW.pack(*values) for values in rows])
        data += b"".join([pack("Q", values) for values in cpus[:with_cpu]])
        del cpus[:count]
        return count, with_cpu, data

    @guarded
    def flush_loose(self) -> None:
        if self.loose:
            count, with_cpu, data = self._take_loose()
            fixed = layout.FIXED[layout.LOOSE].pack(count, with_cpu)
            self._write(self._definitions() + layout.frame(layout.LOOSE, fixed + data))

    @guarded
    def add_sync(self, step: int, start: int, ready: int, end: int, models: int) -> None:
        """A backward pass whose gradients were averaged; written with the next `next`."""
        self.syncs.append((step, start, ready, end, threading.get_native_id(), models))
        # A program may have no loader, or none that we see.
        if len(self.syncs) >= 256 or end - self.syncs[0][3] > 1_000_000_000:
            self.flush_syncs()

    def _take_syncs(self) -> bytes:
        rows = self.syncs[:]
        del self.syncs[: len(rows)]
        pack_row = layout.FIXED[layout.SYNC].pack
        return b"".join([layout.frame(layout.SYNC, pack_row(*row)) for row in rows])

    @guarded
    def flush_syncs(self) -> None:
        if self.syncs:
            self._write(self._take_syncs())

    # -- a fetch ---------------------------------------------------------------------------

    @guarded
    def begin_fetch(self, token: list[Any], loader: int, epoch: int, batch: int) -> None:
        """Enter a fetch: fill the empty list `token`, or leave it where there is none to leave."""
        me = threading.get_ident()
        if self.depth and self.fetcher != me:
            self.missed += 1
            return  # another thread fetches in this process: its buffers are taken
        outer = [one[:] if self.depth else [] for one in self.buffers]
        before = (self.depth, self.owner, self.detail)
        detail = self.config.selects(batch)
        if detail and self.counters is not None:
            self.counters.prepare()
        begun = usage.now(), clock()
        # Only assignments from here: between them no signal handler of the program can run.
        token[:] = (before, outer, loader, epoch, batch, begun, self.pid)
        self.depth += 1
        self.fetcher = me
        self.detail = detail
        self.owner = me if detail else 0
        self.collate_start = self.collate_ns = 0
        for buffer in self.buffers:
            del buffer[:]
        if detail and self.counters is not None:
            self.counters.begin()

    @guarded
    def end_fetch(
        self, token: list[Any], indices: list[Any] | None, size: int, nbytes: int, flags: int
    ) -> None:
        """The fetch is over; the batch waits in `pending` until it was handed on."""
        now = clock()
        _, _, loader, epoch, batch, (before, start), pid = token
        if pid != self.pid:
            return  # a child that was forked in an operation leaves the fetch of its parent
        idle = (0, 0) if loader >= 0 else (self.idle_start, self.idle_ns)
        if self.detail:
            cpu = usage.batch_since(before)
            counts, arrays = self._detail(indices, flags)
            fixed = [
                loader, epoch, batch, self.worker, threading.get_native_id(), size, flags,
                *idle, start, now - start, self.collate_start, self.collate_ns, 0, *cpu, nbytes,
            ]  # fmt: skip
            if self.counters is not None:
                self._add_counts(self.counters, start)
            if self.pending is not None:  # of another thread, which has yet to return it
                self.flush_batch(now)
            self.pending = (fixed, counts, arrays)

    def _add_counts(self, counters: Counters, start: int) -> None:
        """The COUNTS frame of the batch in hand, to be written before its own."""
        fields, arrays = counters.end()
        for event in counters.take_events():
            self.counts += self._event_frame(event)
        if fields:
            tid = threading.get_native_id()
            fixed = layout.FIXED[layout.COUNTS].pack(start, tid, *fields)
            self.counts += layout.frame(layout.COUNTS, fixed + arrays)

    def _detail(self, indices: list[Any] | None, flags: int) -> tuple[list[int], bytes]:
        """Counts and bytes of the arrays of the batch in hand, up to `loose_cpu`."""
        samples, ops, ops_cpu = self.samples, self.ops, self.ops_cpu
        index = index64 = b""
        if indices and all(map(is_number, set(map(type, indices)))):
            # Neither is known of keys that are no integers.
            index = ask(pack, "I", indices, default=b"")
            index64 = b"" if index else ask(pack, "q", indices, default=b"")
        if samples and max(samples[1::3]) >= 1 << 32:
            self._ops_to_loose()
        # The lower half of each 64-bit number.
        packed_ops = memoryview(pack("Q", ops)).cast("I")[::2].tobytes()
        packed_cpu = pack("Q", ops_cpu)
        loose, loose_cpu, packed_loose = self._take_loose()
        counts = [
            len(samples) // 3, len(index) // 4, len(index64) // 8, len(packed_ops) // 12,
            len(packed_cpu) // 32, loose, loose_cpu,
        ]  # fmt: skip
        if indices and samples and self.config.level and not flags & layout.MANY:
            self._keep_slow(indices)
        return counts, pack("Q", samples) + index + index64 + packed_ops + packed_cpu + packed_loose

    def _ops_to_loose(self) -> None:
        """Move operations to `loose`, whose times are whole, where a sample takes over 4.3 s."""
        samples, ops, ops_cpu = self.samples, self.ops, self.ops_cpu
        tid, row = threading.get_native_id(), 0
        with_cpu = len(ops_cpu) // 4 == len(ops) // 3
        for position in range(len(samples) // 3):
            while row < samples[3 * position + 2]:
                start, end, operation = ops[3 * row : 3 * row + 3]
                self.loose.append((start, end - start, operation, tid, position, 0))
                if with_cpu:
                    self.loose_cpu.append(tuple(ops_cpu[4 * row : 4 * row + 4]))
                row += 1
            samples[3 * position + 2] = 0
        del ops[:], ops_cpu[:]

    def _keep_slow(self, indices: list[Any]) -> None:
        """Log the path of samples that are among the slowest of this process so far."""
        durations, slowest, path_of = self.samples[1::3], self._slowest, self.path_of
        if path_of is None:
            return
        if len(slowest) == _SLOWEST and max(durations) <= slowest[0]:
            return
        order = sorted(range(min(len(durations), len(indices))), key=durations.__getitem__)
        for position in order[-_SLOWEST // 4 :]:
            took = durations[position]
            if len(slowest) == _SLOWEST and took <= slowest[0]:
                continue
            slowest.append(took)
            slowest.sort()
            del slowest[:-_SLOWEST]
            path = ask(path_of, indices[position])
            if path is not None:
                sample = {"event": "sample_path", "sample": int(indices[position]), "path": path}
                self.paths += self._event_frame({**sample, "duration_ns": took})

    @guarded
    def batch_frame(self, put_ns: int) -> bytes:
        """Bytes of the pending batch and of operations defined meanwhile; b"" if there is none."""
        pending, self.pending = self.pending, None
        if pending is None:
            return b""
        fields, counts, arrays = pending
        fields[13] = put_ns
        sends = self._take_sends()
        fixed = layout.FIXED[layout.BATCH].pack(*fields, *counts, len(sends) // 64)
        before, self.paths, self.counts = self.paths + self.counts, b"", b""
        return self._definitions() + before + layout.frame(layout.BATCH, fixed + arrays + sends)

    def _take_sends(self) -> bytes:
        count = len(self.sends)  # the feeder thread appends at any time
        rows = self.sends[:count]
        del self.sends[:count]
        return b"".join([pack("Q", row) for row in rows])

    @guarded
    def flush_batch(self, put_ns: int) -> None:
        data = self.batch_frame(put_ns)
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
        pins: Sequence[tuple[int, int, int]],
    ) -> None:
        """One `next` of the consumer, with the batch it made itself, if it did."""
        data = self.batch_frame(end) or b""
        loose, loose_cpu, rows = self._take_loose() if self.loose else (0, 0, b"")
        fixed = layout.FIXED[layout.WAIT].pack(
            *where,
            threading.get_native_id(),
            flags,
            start,
            end,
            arrival,
            len(pins),
            loose,
            loose_cpu,
        )
        pinned = b"".join([pack("Q", row) for row in pins])
        data += self._take_syncs()
        if loose:
            data += self._definitions()
        self._write(data + layout.frame(layout.WAIT, fixed + pinned + rows))

    # -- life ------------------------------------------------------------------------------

    @guarded
    def iteration_started(self) -> None:
        self.iterations += 1
        self.look_around()

    def look_around(self) -> None:
        """Once there is a job of several hosts, compare their clocks."""
        self.meetings.look()

    @guarded
    def iteration_ended(self) -> None:
        """After the last iterator the log is closed."""
        self.iterations = max(self.iterations - 1, 0)
        if self.iterations == 0 and self.worker < 0:
            self.flush_loose()
            self.flush_syncs()
            self.log.close()

    @guarded
    def finish(self) -> None:
        """Write what is left: at the end of a worker, of the program, of a `lotus.trace` block."""
        self.meetings.end()
        self.flush_loose()
        self.flush_syncs()
        if self.sends:
            self._write(self._sends_frame())
        if self.missed:
            text = f"{self.missed} batches that one thread fetched beside another are not recorded"
            self.event({"event": "note", "text": text})
            self.missed = 0
        if self.broken:
            text = f"the program's signal handlers broke off {self.broken} records by exceptions"
            self.event({"event": "note", "text": text})
            self.broken = 0
        self.page.words[state.W_PHASE] = state.ENDED
        self.page.words[state.W_SINCE] = clock()
        with quiet(OSError):
            self.page.settle()
        self.log.close()
        if self.counters is not None:
            self.counters.close()

    def _sends_frame(self) -> bytes:
        """The last batch's send times, in a batch frame that holds no batch (size 0, no fetch)."""
        sends = self._take_sends()
        fixed = [-1, self.worker_epoch, 0, self.worker, threading.get_native_id(), 0, layout.SENDS]
        fixed += [0] * 14 + [0] * 7 + [len(sends) // 64]
        return layout.frame(layout.BATCH, layout.FIXED[layout.BATCH].pack(*fixed) + sends)

"""The recorder: one a process, the only room inside the program that writes.

It holds what the hooks append, packs it once a batch and writes it in one system call. It never
raises into the program: the hooks call it through `guarded`, which on a fault of ours switches
recording off with one line.
"""

import json
import os
import socket
import sys
import threading
import time
from array import array
from contextlib import suppress
from functools import wraps

from . import layout, state, usage

clock = time.monotonic_ns
_BIG_ENDIAN = sys.byteorder == "big"
_HERE = os.path.dirname(os.path.abspath(__file__))
_STDLIB = os.path.dirname(os.__file__)
# Code objects of hooks carry this file name. It holds the two words by which CPython's
# warnings module knows frames to leave out when it counts `stacklevel`, so that a warning
# from the user's code still names the user's line; and by it we know our frames.
HOOK_FILE = "<lotus hook, as importlib._bootstrap>"
LEVELS = ("batch", "sample", "op", "op+cpu")
_SLOWEST = 32  # samples whose path is kept, per process


def hook(function):
    """Mark a function as a hook: see HOOK_FILE."""
    function.__code__ = function.__code__.replace(co_filename=HOOK_FILE)
    return function


def ours(frame_or_traceback):
    code = getattr(frame_or_traceback, "tb_frame", frame_or_traceback).f_code
    return code.co_filename == HOOK_FILE or os.path.dirname(code.co_filename) == _HERE


def strip(traceback):
    """Return `traceback` without the frames of lotus."""
    while traceback is not None and ours(traceback):
        traceback = traceback.tb_next
    link = traceback
    while link is not None:
        after = link.tb_next
        while after is not None and ours(after):
            after = after.tb_next
        if after is not link.tb_next:
            link.tb_next = after
        link = after
    return traceback


def _of_the_program(error):
    """Whether a signal handler of the program raised `error` while we were at work."""
    traceback = error.__traceback__
    while traceback is not None:
        path = traceback.tb_frame.f_code.co_filename
        if not ours(traceback) and (not path.startswith(_STDLIB) or "-packages" in path):
            return True
        traceback = traceback.tb_next
    return False


def guarded(method):
    """A method of the recorder that the hooks call: does nothing once recording is off."""

    @wraps(method)
    def call(self, *args, **kwargs):
        if not self.on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if _of_the_program(error):
                raise
            self.fault(error)
            return None

    return call


def pack(code, values):
    """Little-endian bytes of `values`; OverflowError where one does not fit."""
    packed = array(code, values)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


class Config:
    """What the launcher asked for, from LOTUS_* in the environment."""

    def __init__(self, environ):
        self.run = environ["LOTUS_RUN"]
        level = environ.get("LOTUS_LEVEL") or "op"
        self.level = LEVELS.index(level if level in LEVELS else "op")
        first, _, last = (environ.get("LOTUS_BATCHES") or ":").partition(":")
        self.first = int(first) if first else 0
        self.last = int(last) if last else None
        self.every = int(environ.get("LOTUS_EVERY") or 1)
        self.max_log = int(environ.get("LOTUS_MAX_LOG") or 0)

    def selects(self, batch):
        return (
            batch >= self.first
            and (self.last is None or batch < self.last)
            and batch % self.every == 0
        )


def rank_of_process():
    """(rank, local rank, world size) from the job's environment or torch.distributed, or Nones."""
    found = []
    for names in (
        ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
        found.append(int(values[0]) if values else None)
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found[0], found[2] = distributed.get_rank(), distributed.get_world_size()
    except Exception:
        pass  # the program may be half-way through its own set-up
    return tuple(found)


class Recorder:
    """Buffers and log of this process. `on` is False before `start` and after a fault."""

    def __init__(self, config):
        self.config = config
        self.on = True
        self.detail = True  # this batch is recorded
        self.page = state.blank()
        self.operations = []  # definitions; an operation's id is its place here plus one
        self._ids = {}
        self._stderr = _identity(2)
        self._new_process()

    def _new_process(self):
        """Start empty: at the start, and in a forked child, which must not touch our file."""
        self._fd = -1
        self._file = None  # (device, inode) once created
        self._path = None
        self._lock = threading.Lock()
        self._defined = 0
        self._checked_ns = 0
        self._pss_due_ns = 0
        self._slowest = []
        self.worker = -1
        self.worker_epoch = 0
        self.page = state.blank()
        self.has_page = False
        self.depth = 0
        self.base = 0  # start of the sample in hand; 0: none
        self.owner = 0  # thread that fetches; only its operations go to `ops`
        self.samples, self.ops, self.ops_cpu = [], [], []
        self.loose, self.loose_cpu = [], []
        self.sends = []
        self.iterations = 0  # iterators alive: the log stays open while there are any
        self._clear_fetch()

    def after_fork(self):
        fd, mine = self._fd, self._file
        if self.on and fd >= 0 and _identity(fd) == mine:
            os.close(fd)
        self._new_process()

    def _clear_fetch(self):
        self.pending = None
        self.path_of = None  # index -> path or None, of the data set in hand
        self.where = (-1, 0, 0)  # loader, epoch, batch of the next fetch
        self.fetched = 0
        self.idle_start = self.idle_ns = 0
        self.collate_start = self.collate_ns = 0

    # -- the log ---------------------------------------------------------------------------

    def fault(self, error):
        """Switch recording off for good, and say so once."""
        if not self.on:
            return
        self.on = False
        self.base = 0
        text = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        with suppress(Exception):
            self.append_line("processes.jsonl", {"event": "fault", "error": text})
        with suppress(Exception):
            self._close()
        with suppress(Exception):
            # Only if descriptor 2 still is what it was: it may be a file of the program by now.
            if _identity(2) == self._stderr:
                os.write(2, f"lotus: tracing of process {os.getpid()} stopped: {text}\n".encode())

    def append_line(self, name, item):
        item = {**item, "pid": os.getpid(), "time_ns": clock()}
        data = (json.dumps(item) + "\n").encode()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(os.path.join(self.config.run, name), flags, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def file(self, folder, name):
        """Path of a file in a folder of the run, which is made where it is missing."""
        folder = os.path.join(self.config.run, folder)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # not its parents: a run that was removed stays removed
        return os.path.join(folder, name)

    def _open(self):
        with self._lock:
            if self._fd >= 0:
                return
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            if self._path is None:
                stem = f"{socket.gethostname()}-{os.getpid()}-{clock():x}"
                self._path = self.file("events", stem + ".ltr")
                fd = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o600)
                self._file = _identity(fd)
                _write(fd, self._header())
                self._fd = fd
                return
            fd = os.open(self._path, flags)
            if _identity(fd) != self._file:
                os.close(fd)
                raise OSError("the event log was replaced by another file")
            self._fd = fd

    def _header(self):
        rank, local_rank, world_size = rank_of_process()
        torch = sys.modules.get("torch")
        header = {
            "schema": layout.SCHEMA,
            "frames": layout.description(),
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "host": socket.gethostname(),
            "rank": rank,
            "local_rank": local_rank,
            "world_size": world_size,
            "executable": sys.executable,
            "argv": [str(arg) for arg in getattr(sys, "argv", [])[:1]],
            "python": sys.version.split()[0],
            "torch": str(getattr(torch, "__version__", "")) or None,
            "start_ns": clock(),
            "start_wall_ns": time.time_ns(),
            "boot_id": boot_id(),
            "level": LEVELS[self.config.level],
        }
        text = json.dumps(header).encode()
        return layout.FILE_HEADER.pack(layout.FILE_MAGIC, len(text)) + text

    def _write(self, data):
        if self._fd < 0:
            self._open()
        # The program may have closed our descriptor and opened a file of its own under the
        # number, or removed the run directory.
        try:
            status = os.fstat(self._fd)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._file:
            self._fd = -1
            self._open()
            status = os.fstat(self._fd)
        if status.st_nlink == 0:
            raise OSError("the run directory was removed")
        _write(self._fd, data)
        now = clock()
        if now - self._checked_ns > 1_000_000_000:
            self._checked_ns = now
            self._once_a_second()

    def _close(self):
        fd, self._fd = self._fd, -1
        if fd >= 0 and _identity(fd) == self._file:
            os.close(fd)

    def _once_a_second(self):
        config = self.config
        if config.max_log:
            with os.scandir(os.path.join(config.run, "events")) as entries:
                size = sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            if size >= config.max_log:
                stopped = {"event": "stopped", "why": "max-log", "bytes": size}
                _write(self._fd, self._event_frame(stopped))
                self.on = False
                self._close()
                return
        if self.worker >= 0:
            # The kernel walks all pages for the PSS: 12 ms for a small torch process. So it is
            # read once a second where that is cheap, and never for more than 0.1 % of the time.
            pss = 0
            if clock() >= self._pss_due_ns:
                pss, cost = usage.pss_and_cost()
                self._pss_due_ns = clock() + 1000 * cost
            _write(self._fd, layout.frame(layout.RESOURCES, usage.resources(self.worker, pss)))

    def _event_frame(self, event):
        text = json.dumps(event, default=str).encode()
        fixed = layout.FIXED[layout.EVENT].pack(clock(), len(text))
        return layout.frame(layout.EVENT, fixed + text)

    def _definitions(self):
        """Frame of operations not yet in the log, or b""."""
        fresh = self.operations[self._defined :]
        if not fresh:
            return b""
        self._defined += len(fresh)
        return self._event_frame({"event": "operations", "operations": fresh})

    @guarded
    def event(self, event):
        """Write one EVENT frame."""
        self._write(self._event_frame(event))

    # -- what hooks add --------------------------------------------------------------------

    def define(self, name, parent=0, index=0, kind="transform"):
        """Return the id of an operation, the same one for the same description."""
        key = (name, parent, index, kind)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self.operations) + 1
            self.operations.append(
                {"id": known, "name": name, "parent": parent, "index": index, "kind": kind}
            )
        return known

    @guarded
    def add_loose(self, start, end, operation, cpu=None):
        """An operation that `ops` cannot hold: outside a sample or on another thread."""
        if not self.detail and self.depth:
            return
        position = len(self.samples) // 3 if self.base and self.depth else -1
        self.loose.append((start, end - start, operation, threading.get_native_id(), position, 0))
        if cpu is not None:
            self.loose_cpu.append(cpu)
        if self.depth == 0 and len(self.loose) >= 256:
            self.flush_loose()

    def _take_loose(self):
        """(number, number with CPU, bytes) of the loose operations so far."""
        row = layout.struct.Struct("<QQIIiI")
        count = len(self.loose)
        rows, cpus = self.loose[:count], self.loose_cpu
        del self.loose[:count]
        with_cpu = count if len(cpus) >= count else 0
        data = b"".join([row.pack(*values) for values in rows])
        data += b"".join([pack("Q", values) for values in cpus[:with_cpu]])
        del cpus[:count]
        return count, with_cpu, data

    @guarded
    def flush_loose(self):
        if self.loose:
            count, with_cpu, data = self._take_loose()
            fixed = layout.FIXED[layout.LOOSE].pack(count, with_cpu)
            self._write(self._definitions() + layout.frame(layout.LOOSE, fixed + data))

    # -- a fetch ---------------------------------------------------------------------------

    @guarded
    def begin_fetch(self, loader, epoch, batch, selected):
        """Enter a fetch. Return what `end_fetch` wants, or None where it must not be called."""
        me = threading.get_ident()
        if self.depth and self.owner != me:
            return None  # another thread fetches in this process: its buffers are taken
        outer = None
        if self.depth:
            outer = (
                self.samples[:], self.ops[:], self.ops_cpu[:], self.base, self.detail,
                self.collate_start, self.collate_ns,
            )  # fmt: skip
        for buffer in (self.samples, self.ops, self.ops_cpu):
            del buffer[:]
        self.depth += 1
        self.owner = me
        self.base = 0
        self.detail = selected
        self.collate_start = self.collate_ns = 0
        return (outer, loader, epoch, batch, usage.now(), clock())

    @guarded
    def end_fetch(self, token, indices, size, nbytes, flags):
        """Leave a fetch; the batch waits in `pending` until it was handed on."""
        now = clock()
        outer, loader, epoch, batch, before, start = token
        idle = (0, 0) if loader >= 0 else (self.idle_start, self.idle_ns)
        if self.detail:
            counts, arrays = self._detail(indices)
            fixed = [
                loader, epoch, batch, self.worker, threading.get_native_id(), size, flags,
                *idle, start, now - start,
                self.collate_start, self.collate_ns, 0, *usage.since(before), nbytes,
            ]  # fmt: skip
            self.pending = (fixed, counts, arrays)
        self.depth -= 1
        self.base = 0
        if outer is not None:
            (
                self.samples[:], self.ops[:], self.ops_cpu[:], self.base, self.detail,
                self.collate_start, self.collate_ns,
            ) = outer  # fmt: skip

    def _detail(self, indices):
        """Counts and bytes of the arrays of the batch in hand, up to `loose_cpu`."""
        samples, ops, ops_cpu = self.samples, self.ops, self.ops_cpu
        index = index64 = b""
        if indices:
            try:
                index = pack("I", indices)
            except OverflowError:
                index64 = pack("q", indices)
            except TypeError:
                pass  # keys that are no integers
        try:
            packed_ops = pack("I", ops)
        except OverflowError:
            packed_ops = self._ops_to_loose()
        packed_cpu = pack("Q", ops_cpu) if packed_ops else b""
        loose, loose_cpu, packed_loose = self._take_loose()
        counts = [
            len(samples) // 3, len(index) // 4, len(index64) // 8, len(packed_ops) // 12,
            len(packed_cpu) // 32, loose, loose_cpu,
        ]  # fmt: skip
        if indices and samples and self.config.level:
            self._keep_slow(indices)
        return counts, pack("Q", samples) + index + index64 + packed_ops + packed_cpu + packed_loose

    def _ops_to_loose(self):
        """Move operations whose times pass 32 bits (4.3 s) to `loose`; return bytes of the rest."""
        samples, ops, ops_cpu = self.samples, self.ops, self.ops_cpu
        tid, done = threading.get_native_id(), 0
        with_cpu = len(ops_cpu) // 4 == len(ops) // 3 and ops_cpu
        for position in range(len(samples) // 3):
            start, until = samples[3 * position], samples[3 * position + 2]
            for row in range(done, until):
                offset, duration, operation = ops[3 * row : 3 * row + 3]
                self.loose.append((start + offset, duration, operation, tid, position, 0))
                if with_cpu:
                    self.loose_cpu.append(tuple(ops_cpu[4 * row : 4 * row + 4]))
            done = until
            samples[3 * position + 2] = 0
        return b""

    def _keep_slow(self, indices):
        """Log the path of samples that are among the slowest of this process so far."""
        durations = self.samples[1::3]
        worst = max(durations)
        slowest = self._slowest
        if len(slowest) == _SLOWEST and worst <= slowest[0]:
            return
        position = durations.index(worst)
        try:
            path = self.path_of(indices[position])
        except Exception:  # code of the data set
            path = None
        slowest.append(worst)
        slowest.sort()
        del slowest[:-_SLOWEST]
        if path is not None:
            sample = {"event": "sample_path", "sample": int(indices[position]), "path": path}
            self._write(self._event_frame({**sample, "duration_ns": worst}))

    @guarded
    def batch_frame(self, put_ns):
        """Bytes of the pending batch and of operations defined meanwhile; b"" if there is none."""
        pending, self.pending = self.pending, None
        if pending is None:
            return b""
        fixed, counts, arrays = pending
        fixed[13] = put_ns
        sends = self._take_sends()
        fixed = layout.FIXED[layout.BATCH].pack(*fixed, *counts, len(sends) // 64)
        return self._definitions() + layout.frame(layout.BATCH, fixed + arrays + sends)

    def _take_sends(self):
        count = len(self.sends)  # the feeder thread appends at any time
        rows = self.sends[:count]
        del self.sends[:count]
        return b"".join([pack("Q", row) for row in rows])

    @guarded
    def flush_batch(self, put_ns):
        data = self.batch_frame(put_ns)
        if data:
            self._write(data)

    @guarded
    def wait(self, where, flags, start, end, arrival, pins):
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
        if loose:
            data += self._definitions()
        self._write(data + layout.frame(layout.WAIT, fixed + pinned + rows))

    # -- life ------------------------------------------------------------------------------

    @guarded
    def open_page(self, worker):
        """Give this process its state page; it goes on without one where that fails."""
        if self.has_page:
            return
        self.has_page = True
        stem = f"{socket.gethostname()}-{os.getpid()}-{clock():x}.state"
        try:
            page = state.create(self.file("state", stem))
        except (OSError, AttributeError, ValueError):
            return
        page[state.W_PID] = os.getpid()
        page[state.W_WORKER] = worker
        page[state.W_START] = clock()
        page[state.W_LOADER] = page[state.W_EPOCH] = page[state.W_BATCH] = -1
        page[state.W_SAMPLE] = -1
        page[state.W_MAGIC] = state.MAGIC
        self.page = page

    @guarded
    def iteration_started(self):
        self.iterations += 1

    @guarded
    def iteration_ended(self):
        """The last iterator has ended: leave no descriptor open in the program."""
        self.iterations = max(self.iterations - 1, 0)
        if self.iterations == 0 and self.worker < 0:
            self.flush_loose()
            self._close()

    @guarded
    def finish(self):
        """Write what is left: at the end of a worker, of the program, of a `lotus.trace` block."""
        self.flush_loose()
        if self.sends:
            self._write(self._sends_frame())
        self.page[state.W_PHASE] = state.ENDED
        self.page[state.W_SINCE] = clock()
        self._close()

    def _sends_frame(self):
        """The last batch's send times, in a batch frame that holds no batch (size 0, no fetch)."""
        sends = self._take_sends()
        fixed = [-1, self.worker_epoch, 0, self.worker, threading.get_native_id(), 0, layout.SENDS]
        fixed += [0] * 12 + [0] * 7 + [len(sends) // 64]
        return layout.frame(layout.BATCH, layout.FIXED[layout.BATCH].pack(*fixed) + sends)


def _identity(fd):
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _write(fd, data):
    written = os.write(fd, data)
    if written != len(data):
        raise OSError("the disk is full (a write was cut short)")


def boot_id():
    """The kernel's id of this boot, by which clocks of two logs can be known to be the same."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None

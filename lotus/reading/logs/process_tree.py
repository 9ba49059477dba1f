"""Joins the logs of all processes of a run: the loader, epoch and rank of each record.

A worker knows only its pid and how often it was resumed. The `iterator` event of its parent lists
that pid, and gives the worker's records their loader, epoch and rank.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.common.storage import long_arrays
from lotus.common.text import decoder_name
from lotus.format import job_ranks
from lotus.reading.logs.event_log import EventLog, Lost
from lotus.reading.logs.frame_scanner import EXPECTED, Array, join

_PIDS = 1 << 22  # the kernel assigns no larger pids
_DRIFTED = 1_000_000  # ns
_MOST_ODD = 20  # kinds of events that are not understood and are reported by name

# Events and their required fields; all other fields are optional.
_Kind = type | range
_NUMBER = range(1 << 31)
_TIMES: dict[str, _Kind] = {"start_ns": int, "end_ns": int}
_LOADER: dict[str, _Kind] = {"loader": _NUMBER, "epoch": _NUMBER}
_NEEDED: dict[str, dict[str, _Kind]] = {
    "operations": {"operations": list},
    "loader": {"loader": _NUMBER},
    "iterator": {**_LOADER, **_TIMES, "workers": list, "resumed": bool},
    "epoch_end": {
        **_LOADER, "time_ns": int, "batches": range(1 << 53), "exhausted": bool, "last_next_ns": int
    },
    "shutdown": {**_LOADER, **_TIMES},
    "worker": {"worker": _NUMBER, "loop_ns": int},
    "worker_ready": {"worker": _NUMBER, "time_ns": int},
    "worker_threads": {"worker": _NUMBER},
    "worker_end": {"worker": _NUMBER, "time_ns": int},
    "worker_killed": {"worker": _NUMBER, "worker_pid": int, "signal": range(1, 65)},
    "full_collections": {"time_ns": int, "count": _NUMBER},
    "first_batch": {"worker": _NUMBER, "generators": list, "states": list},
    "sample_digests": {"worker": _NUMBER, "samples": range(1 << 31), "digests": list},
    "sample_path": {"sample": int, "path": str, "duration_ns": int},
    "unseen": {"what": str},
    "stopped": {"why": str},
    "note": {"text": str},
    "callback": _TIMES,
    "clock": {
        "reference": str, "job": str, "time_ns": int, "offset_ns": int, "round_trip_ns": int
    },
    "model": {"parameters": range(1 << 62), "shapes": str},
    "counters": {"tid": int, "events": list, "read_ns": int},
}  # fmt: skip
_OPERATION: dict[str, _Kind] = {
    "id": range(1, 1 << 20),  # they are assigned consecutively
    "name": str,
    "parent": range(1 << 20),
    "index": range(-1, 1 << 31),
    "kind": str,
}


def _fits(item: Any, needed: dict[str, _Kind]) -> bool:
    return isinstance(item, dict) and all(
        is_a(item.get(name), kind) for name, kind in needed.items()
    )


def is_a(value: Any, kind: _Kind) -> bool:
    """Return True if a JSON value has this type (an int: of 64 bits) or is in this range."""
    if isinstance(kind, range):
        return type(value) is int and value in kind
    if kind is int:
        return type(value) is int and -(2**63) <= value < 2**63
    return isinstance(value, kind)


class Process:
    """One log with its place among the others.

    place   its place in the job, as far as the log records it
    rank    for a worker, that of its parent; so are local_rank and world_size
            (lotus.format.job_ranks.settled)
    host    "" if the log does not say
    base    the number, in the run, of this process's loader 0
    origin  the iteration that started a worker; None for other processes, and if the parent's
            record is missing
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.pid = log.pid
        self.start_ns = log.start_ns
        # pids and clocks are valid on one machine only
        self.machine = (str(log.header.get("host")), str(log.header.get("boot_id")))
        self.host = job_ranks.host_of(log.header)
        self.base = 0
        self.origin: Origin | None = None
        self.lost: list[Lost] = list(log.lost)
        self.gapped = any(loss.what.startswith("corrupt") for loss in log.lost)
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        odd: Counter[str] = Counter()
        for event in log.events:
            if _fits(event, _NEEDED.get(event["event"], {"": int})):
                self.events[event["event"]].append(event)
            else:
                odd[event["event"][:50]] += 1
        for name, count in odd.most_common(_MOST_ODD):
            self.lost.append(Lost(f"event that is not understood: {name}", self.pid, count, 0))
        if more := sum(odd.values()) - sum(count for _, count in odd.most_common(_MOST_ODD)):
            self.lost.append(Lost("event that is not understood", self.pid, more, 0))
        batch = log.fixed["batch"]
        made_for_parent = batch["worker"][(batch["loader"] < 0) & (batch["worker"] >= 0)]
        self.worker = -1
        if self.events["worker"]:
            self.worker = self.events["worker"][0]["worker"]
        elif len(made_for_parent):
            self.worker = int(made_for_parent[0])
        self.place = job_ranks.place_of(log.header, self.events["loader"])
        self.rank, self.local_rank, self.world_size = job_ranks.settled([self.place])

    @property
    def is_worker(self) -> bool:
        """True if it is a worker of a loader."""
        return self.worker >= 0 or self.origin is not None

    def loaders(self) -> int:
        """Return the number of loaders that this process numbered."""
        numbers = [-1]
        for name in ("loader", "iterator"):
            numbers += [event["loader"] for event in self.events[name]]
        for name in ("batch", "wait"):
            frames = long_arrays.parts(self.log.fixed[name])
            numbers += [int(some["loader"].max(initial=-1)) for some in frames]
        return max(numbers) + 1

    def operations(self) -> list[dict[str, Any]]:
        """Return the valid definitions of operations in its log."""
        operations = []
        for event in self.events["operations"]:
            for operation in event["operations"]:
                if _fits(operation, _OPERATION):
                    decoder_name.note(operation)
                    operations.append(operation)
        return operations


@dataclass
class Origin:
    """The iteration that started a worker: process, loader (as numbered there), number, start."""

    process: Process
    loader: int
    worker: int
    start_ns: int
    first: int  # epoch in which the worker was started
    passed: list[int]  # later epochs known to have had other workers, ascending

    def epoch(self, resumed: Ints) -> Ints:
        """Return the epochs of records, given how often the worker had been resumed before each."""
        # Every iter() resumes persistent workers, unless it starts new ones.
        epoch = self.first + resumed
        for passed in self.passed:
            epoch = epoch + (epoch >= passed)
        return epoch


@dataclass(frozen=True)
class _Listing:
    """Return an entry of `workers` in an `iterator` event as a pid."""

    start_ns: int
    process: Process = field(repr=False)
    loader: int
    epoch: int
    worker: int
    resumed: bool


def _find_origins(processes: Sequence[Process]) -> list[Lost]:
    """Set the `origin` of every worker; return the workers that were started but left no log."""
    listings: dict[tuple[Any, ...], list[_Listing]] = defaultdict(list)
    for process in processes:
        for event in process.events["iterator"]:
            for place, pid in enumerate(event["workers"]):
                if is_a(pid, int):
                    listings[(process.machine, pid)].append(
                        _Listing(
                            event["start_ns"],
                            process,
                            event["loader"],
                            event["epoch"],
                            place,
                            event["resumed"],
                        )
                    )
    logs: dict[tuple[Any, ...], list[Process]] = defaultdict(list)
    for process in processes:
        logs[(process.machine, process.pid)].append(process)
    lost = []
    for key, entries in listings.items():
        entries.sort(key=lambda entry: entry.start_ns)
        unused = [entry for entry in entries if not entry.resumed]
        same_pid = sorted(logs.get(key, []), key=lambda process: process.start_ns)
        for process, following in zip_longest(same_pid, same_pid[1:]):
            until = following.start_ns if following else math.inf
            before = [entry for entry in unused if entry.start_ns <= process.start_ns]
            unused = unused[len(before) :]
            resumes = [
                entry
                for entry in entries
                if entry.resumed and process.start_ns <= entry.start_ns < until
            ]
            if before and _made(before[-1], process):
                _attach(process, before[-1], before[-1].epoch)
            elif resumes and _made(resumes[0], process):
                # The event of its first epoch is lost.
                _attach(process, resumes[0], resumes[0].epoch - 1)
        # A worker that was killed before its first record, or in which the hook was not installed.
        mine = [process.origin for process in same_pid if process.origin is not None]
        for entry in entries:
            known = any((o.process, o.start_ns) == (entry.process, entry.start_ns) for o in mine)
            if not entry.resumed and not known:
                lost.append(Lost("worker that left no log", key[1], 1, 0))
    return lost


def _made(entry: _Listing, process: Process) -> bool:
    return entry.process is not process and process.worker in (-1, entry.worker)


def _attach(process: Process, entry: _Listing, first: int) -> None:
    passed = []
    if any(some["epoch"].any() for some in long_arrays.parts(process.log.fixed["batch"])):
        passed = [
            event["epoch"]
            for event in entry.process.events["iterator"]
            if event["loader"] == entry.loader
            and event["epoch"] > first
            and process.pid not in event["workers"]
        ]
    process.worker = entry.worker
    process.origin = Origin(
        entry.process, entry.loader, entry.worker, entry.start_ns, first, sorted(set(passed))
    )


def _number_loaders(processes: Sequence[Process]) -> None:
    """Set ranks and `base`: in each rank, main processes by their start, then nested ones."""
    for process in processes:
        makers = [process]  # innermost first
        while (origin := makers[-1].origin) is not None and origin.process not in makers:
            makers.append(origin.process)
        settled = job_ranks.settled([maker.place for maker in reversed(makers)])
        process.rank, process.local_rank, process.world_size = settled
    used: dict[int, int] = defaultdict(int)
    for process in sorted(processes, key=lambda p: (p.is_worker, p.start_ns, p.pid)):
        process.base = used[process.rank]
        used[process.rank] += process.loaders()


def _tell_apart(processes: Sequence[Process]) -> None:
    """Change the pids of other hosts' processes that also occur on another host."""
    machines = list(dict.fromkeys(process.machine for process in processes))
    used: dict[int, tuple[str, str]] = {}
    for machine in machines:
        for process in processes:
            if process.machine == machine and used.setdefault(process.pid, machine) != machine:
                process.pid += machines.index(machine) * _PIDS


class Assembly:
    """All processes of a run and their batch and wait records, each with its keys.

    `batch` and `wait` are the fixed fields of all frames. Parallel arrays hold their keys:
    `*_process` (index into `processes`), `*_loader` and `*_epoch`.
    `slices[process]` are the process's rows of `batch`, `wait_slices[process]` those of `wait`.
    `places` has the rank, local_rank, world_size, host (an index into `hosts`) and pid of each
    process.
    """

    def __init__(
        self, logs: Sequence[EventLog], merged: bool = False, hosts: Mapping[str, str] | None = None
    ) -> None:
        """`merged`: the logs come from several runs, so different processes may have the same pid.

        `hosts`: the host of each clock (`lotus.format.job_ranks.names`).
        """
        self.processes = [Process(log) for log in logs]
        for process in self.processes:
            process.host = (hosts or {}).get(job_ranks.clock_of(process.log.header)) or process.host
        self.lost = _find_origins(self.processes)
        _number_loaders(self.processes)
        if merged:
            _tell_apart(self.processes)
        self.processes.sort(key=lambda p: (p.rank, p.is_worker, p.start_ns, p.pid))
        self.hosts = sorted({process.host for process in self.processes})
        self.places = {
            name: self.constant([getattr(process, name) for process in self.processes])
            for name in ("rank", "local_rank", "world_size")
        }
        self.places["host"] = self.constant([self.hosts.index(p.host) for p in self.processes])
        self.places["pid"] = self.constant([process.pid for process in self.processes])
        self.ranks = self.places["rank"]
        self.join_frames()
        for process in self.processes:
            self.lost += process.lost

    def join_frames(self) -> None:
        """Set `batch` and `wait`, and what is parallel to them, from the logs of the processes."""
        self.batch, self.slices = self._collect("batch")
        self.wait, self.wait_slices = self._collect("wait")
        self.batch_process = self._owner(self.slices)
        self.wait_process = self._owner(self.wait_slices)
        self.batch_loader: Array = np.full(len(self.batch), -1, np.int64)
        self.batch_epoch: Array = np.full(len(self.batch), -1, np.int64)
        for process, rows in zip(self.processes, self.slices, strict=True):
            loader, epoch = self.batch["loader"][rows], self.batch["epoch"][rows].astype(np.int64)
            own = loader >= 0
            self.batch_loader[rows] = np.where(own, process.base + loader.astype(np.int64), -1)
            self.batch_epoch[rows] = np.where(own, epoch, -1)
            origin = process.origin
            if origin is not None:
                number = origin.process.base + origin.loader
                self.batch_loader[rows] = np.where(own, self.batch_loader[rows], number)
                self.batch_epoch[rows] = np.where(own, epoch, origin.epoch(epoch))
        bases = self.constant([process.base for process in self.processes])
        self.wait_loader = bases[self.wait_process] + self.wait["loader"].astype(np.int64)
        self.wait_epoch = self.wait["epoch"].astype(np.int64)
        for name in ("batch_loader", "batch_epoch", "wait_loader", "wait_epoch"):
            setattr(self, name, long_arrays.kept(getattr(self, name)))
        long_arrays.let_go()

    def recorded(self) -> list[dict[str, Any]]:
        """Return the manifest's `ranks`: an entry for each process that is not a worker."""
        return [
            job_ranks.entry(
                (p.rank, p.local_rank, p.world_size),
                p.host,
                p.pid,
                job_ranks.cores_of(p.log.header),
            )
            for p in self.processes
            if not p.is_worker
        ]

    @staticmethod
    def constant(values: Sequence[int]) -> Ints:
        """Return a number per process, to be indexed with `batch_process` or `wait_process`."""
        return np.array(values, np.int64)

    def _collect(self, name: str) -> tuple[Array, list[slice]]:
        parts = [process.log.fixed[name] for process in self.processes]
        ends = np.cumsum([0, *map(len, parts)]).tolist()
        slices = [slice(first, last) for first, last in pairwise(ends)]
        joined = join(parts, EXPECTED[name].fixed)
        for process, rows in zip(self.processes, slices, strict=True):
            process.log.fixed[name] = joined[rows]  # one copy in memory, not two
        return joined, slices

    def _owner(self, slices: Sequence[slice]) -> Array:
        counts = [rows.stop - rows.start for rows in slices]
        return long_arrays.kept(np.repeat(np.arange(len(counts), dtype=np.int32), counts))

    @cached_property
    def sends(self) -> tuple[Array, Ints]:
        """Return (send records, the row of its send record or -1 for each row of `batch`)."""
        sends = join(
            [process.log.sends for process in self.processes],
            dict(EXPECTED["batch"].arrays)["sends"],
        )
        counts = [len(process.log.sends) for process in self.processes]
        owner = np.repeat(np.arange(len(counts)), counts)
        for process, first, count in zip(
            self.processes, np.cumsum([0, *counts]).tolist(), counts, strict=False
        ):
            process.log.sends = sends[first : first + count]  # one copy in memory, not two
        batch = self.batch
        row = match(
            (self.batch_process, batch["epoch"], batch["batch"]),
            (owner, sends["epoch"], sends["batch"]),
            last=True,
        )
        if len(sends):
            # Only workers send; a record that is older than the batch belongs to another batch.
            # (If clocks drift, converted times are less exact.)
            free = _DRIFTED if any(process.log.moved for process in self.processes) else 0
            sound = sends["start_ns"].astype(np.int64)[row] + free >= batch["put_ns"].astype(
                np.int64
            )
            row = np.where((row >= 0) & sound & (batch["loader"] < 0), row, -1)
        return sends, row


def match(left: Sequence[Array], right: Sequence[Array], last: bool = False) -> Ints:
    """Return for each row of `left` the row of `right` with the same values in all columns, or -1.

    If several rows of `right` match, return the first, or with `last` the last.
    """
    size, other = len(left[0]), len(right[0])
    code = np.zeros(size + other, np.int64)
    for mine, theirs in zip(left, right, strict=True):
        values = np.concatenate((np.asarray(mine, np.int64), np.asarray(theirs, np.int64)))
        long_arrays.let_go()
        places, distinct = pd.factorize(values)
        del values
        # Renumber at every step, so that the product of two numbers cannot overflow.
        code = pd.factorize(code * len(distinct) + places)[0]
    table = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    rows = np.arange(other)
    order = rows if last else rows[::-1]
    table[code[size:][order]] = order
    return table[code[:size]]


def groups(*columns: Array) -> Ints:
    """Return a number for each row; rows that are equal in all columns get the same number."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        places, distinct = pd.factorize(np.asarray(column, np.int64))
        code = pd.factorize(code * len(distinct) + places)[0]
    return code

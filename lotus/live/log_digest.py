"""The content of a running program's logs so far, in bounded memory.

`LogDigest.add` takes the new records of each reading (tailing.py). It keeps times of the last 300
s.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lotus.common.text import decoder_name, redaction
from lotus.inside.trace.log.log_format import SENDS
from lotus.live.loop_times import Loops
from lotus.live.snapshots import Names, Seen
from lotus.live.tailing import Fresh
from lotus.reading.logs.frame_scanner import Array, counts_of

NAN = float("nan")
# As lotus.analysis.batches.components has them, which would import pandas.
OWN, COLLATE, REST = "own code", "collate", "rest of fetch"
SECOND = 1_000_000_000
MOST_WINDOW_NS = 300 * SECOND  # for which records are kept, for rates and shares
_MOST_BATCHES = 100_000  # records kept for them per process
_RECENT = 200  # batches that the median is computed from
WANTED = (("batch", "samples"), ("batch", "ops"), ("batch", "loose"))

Key = tuple[str, int, int]  # host, pid, start of the log


@dataclass
class ProcessDigest:
    """The content of one process's log so far."""

    header: Mapping[str, Any]
    operations: dict[int, str] = field(default_factory=dict)
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    # loader -> (epoch, pids of its workers) of its last iterator
    iterators: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    ended: dict[tuple[int, int], int] = field(default_factory=dict)  # (loader, epoch) -> when
    loops: Loops = field(default_factory=Loops)
    stopped: bool = False  # it has stopped recording, and its page no longer changes
    waits: Array = field(default_factory=lambda: np.empty((0, 2), np.int64))  # start, end
    taken: int = 0
    waited_ns: int = 0
    first_ns: int = 0
    # loader (-1: that of this worker) -> samples, batches
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)
    made_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    last_ns: int = 0  # the latest time in a record
    put_ns: int = 0
    pss: float = NAN
    # second -> operation (a name) -> ns of fetching, and of the whole under ""
    parts: dict[int, dict[str, int]] = field(default_factory=dict)

    @property
    def period_ns(self) -> float:
        """Median of the time from one batch taken to the next; NaN before the second."""
        ends = self.waits[-_RECENT:, 1]
        return float(np.median(np.diff(ends))) if len(ends) > 1 else NAN


class LogDigest:
    """The content of one run's logs so far."""

    def __init__(self) -> None:
        self.logs: dict[Key, ProcessDigest] = {}
        self.notes: list[str] = []
        self._by_pid: dict[tuple[str, int], list[Key]] = defaultdict(list)
        # (host, pid) of a worker -> (log of the main process, loader, how often it was resumed)
        self._workers: dict[tuple[str, int], tuple[Key, int, int]] = {}
        self._workers_of: dict[Key, set[tuple[str, int]]] = defaultdict(set)
        # (host, pid) of a worker -> its resumes -> batches that it made and that were not taken yet
        self._made: dict[tuple[str, int], dict[int, set[int]]] = defaultdict(dict)
        # (log, loader, epoch) -> batches that were taken and not yet known to be made
        self._taken: dict[tuple[Key, int, int], set[int]] = {}

    def names(self) -> Names:
        """Return the names of operations in the form that `SnapshotTaker.take` expects."""
        names: dict[tuple[str, int], list[tuple[int, dict[int, str]]]] = defaultdict(list)
        for (host, pid, start), log in self.logs.items():
            names[host, pid].append((start, log.operations))
        return names

    def add(self, fresh: Sequence[Fresh]) -> None:
        """Add the new records of the logs."""
        for log_part in fresh:
            if log_part.key not in self.logs:
                self.logs[log_part.key] = ProcessDigest(log_part.header)
                self._by_pid[log_part.key[:2]].append(log_part.key)
            log = self.logs[log_part.key]
            for event in log_part.events:
                self._event(log_part.key, log, event)
            self._batches(log_part, log)
            self._waits(log_part, log)
            resources = log_part.rows["resources"]
            if len(resources):
                log.last_ns = max(log.last_ns, int(resources["time_ns"].max()))
                measured = resources["pss"][resources["pss"] > 0]
                if len(measured):
                    log.pss = float(measured[-1])

    def _event(self, key: Key, log: ProcessDigest, event: dict[str, Any]) -> None:
        name = event["event"]
        loader, epoch = _number(event.get("loader")), _number(event.get("epoch"))
        if name == "operations":
            for operation in _items(event.get("operations")):
                if isinstance(operation, dict) and isinstance(operation.get("id"), int):
                    log.operations[operation["id"]] = str(operation.get("name"))
                    decoder_name.note(operation)
        elif name == "loader" and loader >= 0:
            log.loaders[loader] = event
        elif name == "epoch_end" and loader >= 0:
            log.ended[loader, epoch] = max(_number(event.get("time_ns")), 0) or log.last_ns
            over = log.loops.of(loader, epoch)
            over.end_ns = log.ended[loader, epoch]
            over.batches = _number(event.get("batches"))
            over.exhausted = event.get("exhausted") is True
            over.last_next_ns = max(_number(event.get("last_next_ns")), 0)
        elif name == "shutdown" and loader >= 0:
            log.loops.of(loader, epoch).shutdown_ns = _span(event)
        elif name == "iterator" and loader >= 0 and epoch >= 0:
            self._iterator(key, log, loader, epoch, event)
        elif name == "stopped":
            log.stopped = True
            self.notes.append(
                "recording stopped at --max-log: what the processes did since is not known"
            )
        elif name == "note" and len(self.notes) < 10:
            self.notes.append(redaction.text(str(event.get("text"))))

    def _iterator(
        self, key: Key, log: ProcessDigest, loader: int, epoch: int, event: dict[str, Any]
    ) -> None:
        log.loops.of(loader, epoch).iter_ns = _span(event)
        before = log.iterators.get(loader, (-1, ()))
        self._taken.pop((key, loader, before[0]), None)
        pids = tuple(pid for pid in _items(event.get("workers")) if isinstance(pid, int))
        log.iterators[loader] = (epoch, pids)
        for pid in set(before[1]) - set(pids):
            self._made.pop((key[0], pid), None)
        for pid in pids:
            worker = (key[0], pid)
            known = self._workers.get(worker)
            again = event.get("resumed") is True and known is not None
            resumes = known[2] + 1 if again and known is not None else 0
            self._workers[worker] = (key, loader, resumes)
            self._workers_of[key].add(worker)

    def _batches(self, fresh: Fresh, log: ProcessDigest) -> None:
        rows = fresh.rows["batch"]
        complete = (rows["flags"] & SENDS) == 0
        finished = rows[complete]
        if not len(finished):
            return
        put = finished["put_ns"].astype(np.int64)
        log.put_ns = int(put[-1])
        log.last_ns = max(log.last_ns, log.put_ns)
        log.made_ns.extend(finished["fetch_ns"][-_RECENT:].tolist())
        for loader in np.unique(finished["loader"]).tolist():
            mine = finished["size"][finished["loader"] == loader]
            before = log.sizes.get(loader, (0, 0))
            log.sizes[loader] = before[0] + int(mine.sum()), before[1] + len(mine)
        worker = fresh.key[:2]
        own = finished[finished["loader"] < 0]
        if len(own):
            batches = self._made[worker]
            for epoch in np.unique(own["epoch"]).tolist():
                mine = own["batch"][own["epoch"] == epoch]
                batches.setdefault(epoch, set()).update(mine.tolist())
            for epoch in sorted(batches)[:-2]:
                del batches[epoch]
        latest = int(put.max())
        recent = complete & (rows["put_ns"].astype(np.int64) > latest - MOST_WINDOW_NS)
        _add_parts(log, fresh, recent)
        for second in [
            second for second in log.parts if second < (latest - MOST_WINDOW_NS) // SECOND
        ]:
            del log.parts[second]

    def _waits(self, fresh: Fresh, log: ProcessDigest) -> None:
        rows = fresh.rows["wait"]
        if not len(rows):
            return
        times = np.stack([rows["start_ns"], rows["end_ns"]], axis=1).astype(np.int64)
        log.first_ns = log.first_ns or int(times[0, 0])
        log.taken += len(times)
        log.waited_ns += int((times[:, 1] - times[:, 0]).sum())
        log.last_ns = max(log.last_ns, int(times[-1, 1]))
        recent = np.concatenate([log.waits, times])[-_MOST_BATCHES:]
        log.waits = recent[recent[:, 1] > log.last_ns - MOST_WINDOW_NS]
        places = rows["loader"].astype(np.int64) * (1 << 32) + rows["epoch"]
        for place in np.unique(places).tolist():
            loader, epoch = place >> 32, place & 0xFFFFFFFF
            if loader >= 0:
                mine, loop = times[places == place], log.loops.of(loader, epoch)
                loop.begin_ns = loop.begin_ns or int(mine[0, 0])
                loop.taken_ns = max(loop.taken_ns, int(mine[-1, 1]))
                loop.waited_ns += int((mine[:, 1] - mine[:, 0]).sum())
                loop.taken += len(mine)
            if log.iterators.get(loader, (-1, ()))[1]:
                taken = self._taken.setdefault((fresh.key, loader, epoch), set())
                taken.update(rows["batch"][places == place].tolist())

    def log_of(self, process: Seen) -> Key:
        """Return the key of a process's log, or a made-up key if it has no log."""
        host, pid, start = process.host, process.state.pid, process.state.start_ns
        keys = self._by_pid.get((host, pid), [])
        return min(keys, key=lambda key: abs(key[2] - start), default=(host, pid, start))

    def parent_of(self, key: Key) -> Key:
        """Return the process that started this one, or itself if that has no log."""
        log = self.logs.get(key)
        parent = log.header.get("ppid") if log else None
        keys = self._by_pid.get((key[0], parent), []) if isinstance(parent, int) else []
        return max(keys, key=lambda parent_key: parent_key[2], default=key)

    def made_by(self, process: Seen) -> tuple[Key, int] | None:
        """Return (log of the process that started this worker, its loader), if it is known."""
        key = self.log_of(process)
        place = self._workers.get(key[:2])
        if place is not None and (process.state.worker >= 0 or place[0] != key):
            return place[:2]
        if process.state.worker < 0:
            return None
        # The record of its start is missing: use its parent.
        return self.parent_of(key), -1

    def makers(self, key: Key, now: int) -> list[ProcessDigest]:
        """Return the log of a main process and the logs of all its workers, past and present."""
        makers = [self.logs[key]] if key in self.logs else []
        for worker in self._workers_of.get(key, ()):
            makers += [self.logs[worker_key] for worker_key in self._by_pid.get(worker, ())]
        for log in makers:
            if log.last_ns < now - MOST_WINDOW_NS:
                log.parts.clear()
        return makers

    def size(self, key: Key, loader: int, makers: Sequence[ProcessDigest]) -> float:
        """Return the mean batch size of this loader, or of all if none of its batches is known."""
        own = self.logs.get(key)
        mine, every = [], []
        for log in makers:
            every += list(log.sizes.values())
            if log is own:
                mine.append(log.sizes.get(loader, (0, 0)))
        for worker in self._workers_of.get(key, ()):
            if self._workers[worker][:2] == (key, loader):
                mine += [
                    self.logs[pair].sizes.get(-1, (0, 0)) for pair in self._by_pid.get(worker, ())
                ]
        for digests in (mine, every):
            batches = sum(pair[1] for pair in digests)
            if batches:
                return sum(pair[0] for pair in digests) / batches
        return NAN

    def ready(
        self, key: Key, loader: int, epoch: int, workers: set[int], awaited: int
    ) -> tuple[int, bool]:
        """Return (number of batches made and not taken, whether `awaited` is one of them)."""
        taken = self._taken.get((key, loader, epoch), set())
        ready: set[int] = set()
        for pid in workers:
            worker = (key[0], pid)
            place = self._workers.get(worker)
            if place is None or place[:2] != (key, loader):
                continue
            made = self._made[worker].get(place[2], set())
            both = made & taken
            made -= both
            taken -= both
            ready |= made
        return len(ready), awaited in ready


def _number(value: Any) -> int:
    """Return an integer field of an event; -1 for anything else."""
    return value if type(value) is int and 0 <= value < 1 << 63 else -1


def _span(event: Mapping[str, Any]) -> int:
    begin, end = (_number(event.get(name)) for name in ("start_ns", "end_ns"))
    return max(end - begin, 0) if begin >= 0 else 0


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _add_parts(log: ProcessDigest, fresh: Fresh, chosen: Array) -> None:
    """Add the times of the parts of the chosen batch frames to `log.parts`."""
    rows = fresh.rows["batch"]
    seconds = (rows["put_ns"] // SECOND).astype(np.int64)

    def add(names: Sequence[str], code: Array, second: Array, ns: Array) -> None:
        if not len(code):
            return
        places, at = np.unique(second * len(names) + code, return_inverse=True)
        sums = np.bincount(at, weights=ns.astype(np.float64))
        for place, total in zip(places.tolist(), sums.tolist(), strict=True):
            into = log.parts.setdefault(place // len(names), {})
            name = names[place % len(names)]
            into[name] = into.get(name, 0) + int(total)

    picked = rows[chosen]
    zeros = np.zeros(len(picked), np.int64)
    add([""], zeros, seconds[chosen], picked["fetch_ns"])
    add([COLLATE], zeros, seconds[chosen], picked["collate_ns"])
    samples, ops = (fresh.arrays["batch", name] for name in ("samples", "ops"))
    loose = fresh.arrays["batch", "loose"]
    of_sample = np.repeat(np.arange(len(rows)), counts_of(rows, "samples"))
    of_op = np.repeat(np.arange(len(rows)), counts_of(rows, "ops"))
    of_loose = np.repeat(np.arange(len(rows)), counts_of(rows, "loose"))
    outer = top_level(rows, samples, ops) & chosen[of_op]
    inside = chosen[of_loose] & (loose["position"] >= 0)
    of_chosen = chosen[of_sample]
    durations = samples["duration_ns"][of_chosen]
    add([OWN], np.zeros(len(durations), np.int64), seconds[of_sample[of_chosen]], durations)
    code = np.concatenate([ops["operation"][outer], loose["operation"][inside]]).astype(np.int64)
    when = np.concatenate([seconds[of_op[outer]], seconds[of_loose[inside]]])
    took = np.concatenate(
        [(ops["end_low"] - ops["start_low"])[outer].astype(np.int64),
         loose["duration_ns"][inside].astype(np.int64)]
    )  # fmt: skip
    if len(code):
        distinct, place = np.unique(code, return_inverse=True)
        names = [log.operations.get(number, f"operation {number}") for number in distinct.tolist()]
        add(names, place.astype(np.int64), when, took)
        add([OWN], np.zeros(len(code), np.int64), when, -took)


def top_level(rows: Array, samples: Array, ops: Array) -> Array:
    """Select operations outside all others of their sample, given in order of completion."""
    if not len(ops) or not len(samples):
        return np.ones(len(ops), np.bool_)
    base = np.cumsum(counts_of(rows, "ops")) - counts_of(rows, "ops")
    frame = np.repeat(np.arange(len(rows)), counts_of(rows, "samples"))
    ends = np.maximum.accumulate(base[frame] + samples["ops"].astype(np.int64))
    sample = np.searchsorted(ends, np.arange(len(ops)), side="right").clip(max=len(samples) - 1)
    # Differences modulo 2^32, as the times are.
    begun = samples["start_ns"].astype(np.uint32)[sample]
    key = sample * (1 << 32) + (ops["start_low"] - begun).astype(np.int64)
    later = np.minimum.accumulate(key[::-1])[::-1]
    outer = np.ones(len(ops), np.bool_)
    outer[:-1] = later[1:] > key[:-1]
    return outer

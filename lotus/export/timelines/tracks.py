"""The tracks of a timeline: their names, and which rows belong to which track."""

import heapq
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.common.text.formatting import plain
from lotus.export.timelines.whole_times import whole
from lotus.reading.logs.process_tree import Process, match

if TYPE_CHECKING:
    from lotus.reading.run import Run


@dataclass(frozen=True)
class Track:
    """A track. `process` is the id of its process's track, which may be itself.

    `pid` and `tid` are the real ones if these are unique in the timeline; counters have a unit.
    `owner` is the index of the shown process in Assembly.processes.
    """

    id: int  # from 1
    process: int
    name: str
    order: int  # among those of the process
    pid: int
    tid: int
    owner: int
    unit: str = ""
    counter: bool = False


class Tracks:
    """Makes tracks when they are first needed."""

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._a = run._assembly
        self.places: list[Track] = []
        self._written = 0
        self._known: dict[tuple[object, ...], int] = {}
        self._pids: set[int] = set()
        self._tids: set[tuple[int, int]] = set()
        # For a reused pid, the first process with it.
        processes = reversed(list(enumerate(self._a.processes)))
        self.numbers: dict[Any, int] = {(p.rank, p.host, p.pid): n for n, p in processes}
        self._sites = self._call_sites()
        self._roots = [self._root(process) for process in self._a.processes]
        for number in sorted(set(self._roots)):
            self._process(number)
        self.iterations = self._iterations()
        for number, process in enumerate(self._a.processes):
            if process.is_worker:
                self._worker(number)

    def new(self) -> list[Track]:
        """Return the tracks made since the last call."""
        places = self.places[self._written :]
        self._written = len(self.places)
        return places

    # -- which track a row is on ---------------------------------------------------------------

    def lanes(self, number: Ints, loader: Ints, epoch: Ints) -> Ints:
        """Return the tracks of iterations by process, loader and epoch; -1 for unknown ones."""
        iterations = self.iterations
        row = match(
            (number, loader, epoch),
            (
                iterations["number"].to_numpy(),
                iterations["loader"].to_numpy(),
                iterations["epoch"].to_numpy(),
            ),
        )
        tracks = iterations["track"].to_numpy(np.int64)
        return np.where(row >= 0, tracks[row], -1) if len(tracks) else np.full(len(row), -1)

    def makers(self, number: Ints, loader: Ints, epoch: Ints) -> Ints:
        """Return the tracks of batches and their parts: the process's iteration, or the worker."""
        lane = self.lanes(number, loader, epoch)
        for maker in np.unique(number[lane < 0]).tolist():
            lane[(lane < 0) & (number == maker)] = self._worker(maker)
        return lane

    def iterating_processes(self, rank: Ints, loader: Ints, epoch: Ints) -> Ints:
        """Return the process that iterates a loader of a rank, -1 if it is not known."""
        iterations = self.iterations
        row = match(
            (rank, loader, epoch),
            (
                iterations["rank"].to_numpy(),
                iterations["loader"].to_numpy(),
                iterations["epoch"].to_numpy(),
            ),
        )
        numbers = iterations["number"].to_numpy(np.int64)
        return np.where(row >= 0, numbers[row], -1) if len(numbers) else np.full(len(row), -1)

    def threads(self, number: int, tid: Ints) -> Ints:
        """Return the tracks of operations outside batches, by the thread that ran them."""
        distinct, place = np.unique(tid, return_inverse=True)
        tracks = [self._thread(number, thread) for thread in distinct.tolist()]
        return np.array(tracks, np.int64)[place.reshape(-1)] if tracks else np.empty(0, np.int64)

    def beside(self, number: Ints, task: str) -> Ints:
        """Return the track of each process's thread for one task, such as send or pin."""
        distinct, place = np.unique(number, return_inverse=True)
        tracks = [self._beside(owner, task) for owner in distinct.tolist()]
        return np.array(tracks, np.int64)[place.reshape(-1)] if tracks else np.empty(0, np.int64)

    def owners(self, frame: pd.DataFrame) -> Ints:
        """Return indices of processes by rank, host and pid; -1 for a process without a log."""
        keys = frame[["rank", "host", "pid"]].drop_duplicates()
        place = frame.groupby(["rank", "host", "pid"], sort=False, observed=True).ngroup()
        unique_keys = zip(keys["rank"].tolist(), keys["host"], keys["pid"].tolist(), strict=True)
        numbers = np.array([self.numbers.get(key, -1) for key in unique_keys], np.int64)
        return numbers[place.to_numpy(np.int64)] if len(numbers) else np.empty(0, np.int64)

    def worker(self, rank: int, host: str, pid: int) -> int:
        """Return the track of a worker, -1 without one."""
        number = self.numbers.get((rank, host, pid))
        return -1 if number is None else self._worker(number)

    def process_of(self, number: int) -> int:
        """Return the track of the process with this number."""
        return self._process(self._roots[number])

    def counter(self, number: int, name: str, unit: str) -> int:
        """Return the counter track with this name in process `number`."""
        return self._add(("counter", number, name), number, name, 900, unit=unit, counter=True)

    def label(self, number: int) -> str:
        """Return the name of a process within its rank: `worker 3 (pid 123)`."""
        process = self._a.processes[number]
        if process.is_worker:
            return f"worker {process.worker} (pid {process.pid})"
        return f"main process (pid {process.pid})"

    def loader(self, rank: int, loader: int) -> str:
        """Return the name of a loader: `loader 0 (train_loader, train.py:12)`."""
        site = self._sites.get((rank, loader))
        return f"loader {loader}" + (f" ({site})" if site else "")

    # -- making tracks ---------------------------------------------------------------------------

    def _root(self, process: Process) -> int:
        """Return the main process of a worker; the process itself if none is known."""
        seen = [process]
        while (origin := seen[-1].origin) is not None and origin.process not in seen:
            seen.append(origin.process)
        processes = self._a.processes
        if seen[-1].is_worker:
            for number, other in enumerate(processes):
                if not other.is_worker and (other.rank, other.host) == (process.rank, process.host):
                    return number
        return next(n for n, candidate in enumerate(processes) if candidate is seen[-1])

    def _process(self, number: int) -> int:
        key = ("process", number)
        if key not in self._known:
            process = self._a.processes[number]
            pid = process.pid
            # Processes on different machines or in different containers may have the same pid.
            while pid in self._pids or pid <= 0:
                pid = 1_000_000_000 + len(self._pids)
            self._pids.add(pid)
            where = f" on {plain(process.host)}" if process.host else ""
            name = f"rank {process.rank}{where} (pid {process.pid})"
            track = len(self.places) + 1
            self.places.append(Track(track, track, name, process.rank, pid, pid, number))
            self._known[key] = track
        return self._known[key]

    def _add(
        self, key: tuple[object, ...], number: int, name: str, order: int, tid: int = 0,
        unit: str = "", counter: bool = False,
    ) -> int:  # fmt: skip
        if key not in self._known:
            process = self.process_of(number)
            pid = self.places[process - 1].pid
            while not counter and ((pid, tid) in self._tids or tid <= 0):
                tid = 1_000_000_000 + len(self._tids)
            self._tids.add((pid, tid))
            track = len(self.places) + 1
            self.places.append(Track(track, process, name, order, pid, tid, number, unit, counter))
            self._known[key] = track
        return self._known[key]

    def _prefix(self, number: int) -> str:
        """Return the prefix of the names of tracks that do not belong to the main process."""
        return f"{self.label(number)}, " if self._a.processes[number].is_worker else ""

    def _worker(self, number: int) -> int:
        process = self._a.processes[number]
        order = 100 + 3 * max(process.worker, 0) if process.is_worker else 90
        return self._add(("maker", number), number, self.label(number), order, process.pid)

    def _thread(self, number: int, tid: int) -> int:
        process = self._a.processes[number]
        thread = "main thread" if tid == process.pid else f"thread {tid}"
        order = 100 + 3 * max(process.worker, 0) + 2 if process.is_worker else 50
        name = f"{self._prefix(number)}{thread}: spans"
        return self._add(("thread", number, tid), number, name, order)

    def _beside(self, number: int, task: str) -> int:
        process = self._a.processes[number]
        order = 100 + 3 * max(process.worker, 0) + 1 if process.is_worker else 80
        name = f"{self._prefix(number)}{task}"
        return self._add((task, number), number, name, order)

    def _call_sites(self) -> dict[tuple[int, int], str]:
        loaders = self._run.loaders
        rows = zip(*(loaders[key] for key in ("rank", "loader", "name", "call_site")), strict=True)
        return {
            (rank, loader): ", ".join(
                plain(text)
                for text in (name, PurePath(site).name if isinstance(site, str) else "")
                if isinstance(text, str) and text
            )
            for rank, loader, name, site in rows
        }

    def _iterations(self) -> pd.DataFrame:
        """Return all iterations of loaders: number (process), rank, loader, epoch, start_ns,
        end_ns, track. Overlapping iterations of one loader have different tracks.
        """
        a, run = self._a, self._run
        epochs = run.epochs
        keys = zip(*(epochs[name] for name in ("rank", "host", "pid")), strict=True)
        waits = run.waits
        taken = waits["start_ns"] + waits["wait_ns"]
        home = a.batch["loader"] >= 0
        fetch = a.batch["fetch_start_ns"][home].astype(np.int64)
        parts = [
            pd.DataFrame({
                "number": [self.numbers[key] for key in keys],
                "loader": epochs["loader"], "epoch": epochs["epoch"],
                "first": epochs["start_ns"], "last": epochs["end_ns"],
            }),
            pd.DataFrame({
                "number": a.wait_process, "loader": waits["loader"], "epoch": waits["epoch"],
                "first": waits["start_ns"].astype(np.float64),
                "last": taken + waits["step_ns"].fillna(0.0),
            }),
            pd.DataFrame({
                "number": a.batch_process[home], "loader": a.batch_loader[home],
                "epoch": a.batch_epoch[home], "first": fetch.astype(np.float64),
                "last": (fetch + a.batch["fetch_ns"][home].astype(np.int64)).astype(np.float64),
            }),
        ]  # fmt: skip
        every = pd.concat([part.astype(float) for part in parts if len(part)] or parts)
        iterations = every.groupby(["number", "loader", "epoch"], as_index=False).agg(
            start_ns=("first", "min"), end_ns=("last", "max")
        )
        iterations = iterations.sort_values(["number", "loader", "start_ns"], ignore_index=True)
        iterations["start_ns"] = iterations["start_ns"].fillna(iterations["end_ns"]).fillna(0)
        iterations["end_ns"] = iterations[["start_ns", "end_ns"]].max(axis=1)
        iterations = pd.DataFrame({name: whole(column) for name, column in iterations.items()})
        iterations["rank"] = a.ranks[iterations["number"]]
        iterations["track"] = self._spread(iterations)
        return iterations

    def _spread(self, iterations: pd.DataFrame) -> list[int]:
        """Assign each iteration the first lane of its loader that is free when it starts."""
        lanes: dict[tuple[int, int], tuple[list[tuple[int, int]], list[int]]] = {}
        tracks = []
        columns = ("number", "loader", "start_ns", "end_ns", "rank")
        for number, loader, start, end, rank in zip(
            *(iterations[name].tolist() for name in columns), strict=True
        ):
            lanes_of_iterations, free = lanes.setdefault((number, loader), ([], []))
            while lanes_of_iterations and lanes_of_iterations[0][0] <= start:
                heapq.heappush(free, heapq.heappop(lanes_of_iterations)[1])
            lane = heapq.heappop(free) if free else len(lanes_of_iterations)
            heapq.heappush(lanes_of_iterations, (end, lane))
            name = f"{self._prefix(number)}{self.loader(rank, loader)}"
            name += f", lane {lane + 1}" if lane else ""
            key = ("lane", number, loader, lane)
            tracks.append(self._add(key, number, name, 10 + min(loader, 30)))
        return tracks

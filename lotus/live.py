"""What is known of a run while it goes on, or of one that was killed: pure.

`Live` takes what the logs have more at each look (tailing.py) and what can be seen of the
processes (snapshots.py), and says what to show. It opens nothing.

Rates and shares are over the last `window_ns`: 10 s, or the last five batches where these take
longer, at most 300 s. They end at the look; in a run that is over, at its last sign of life.
"""

import math
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lotus import ranks
from lotus.frames import Array, counts_of
from lotus.inside.layout import SENDS
from lotus.snapshots import Names, Seen, Snapshot
from lotus.stuck import UNWATCHED, Doing, Loop, Verdict, judge
from lotus.tailing import Fresh

NAN = float("nan")
# As lotus.analysis.components has them, which would import pandas.
OWN, COLLATE, REST = "own code", "collate", "rest of fetch"
SECOND = 1_000_000_000
LEAST_WINDOW_NS, MOST_WINDOW_NS, WINDOW_BATCHES = 10 * SECOND, 300 * SECOND, 5
_MOST_BATCHES = 100_000  # kept for the window, of each process
_RECENT = 200  # batches of which the median is taken
WANTED = (("batch", "samples"), ("batch", "ops"), ("batch", "loose"))

Key = tuple[str, int, int]  # host, pid, start of the log


@dataclass(frozen=True)
class Rates:
    """How fast a consumer takes batches, and which share of the time it waits; NaN: not known."""

    span_ns: float = NAN
    batches: float = NAN  # a second
    samples: float = NAN  # a second
    wait_share: float = NAN


@dataclass(frozen=True)
class Group:
    """One main process with its workers.

    loader     the `loader` event of the one iterated now; empty where none is known
    workers    those of that loader first; `others` is how many of the others live
    ready      batches made and not taken; None where not known; at most `capacity` (0: not known)
    taken      batches that it took since the start; `epoch_batch` in the epoch in hand (-1: none)
    operations (name, share of the time in which batches were made), the largest first
    """

    rank: int
    host: str
    main: Doing
    workers: Sequence[Doing]
    others: int
    loader: Mapping[str, Any]
    loader_number: int
    epoch: int
    epoch_batch: int
    recent: Rates
    overall: Rates
    taken: int
    ready: int | None
    capacity: int
    operations: Sequence[tuple[str, float]]
    verdict: Verdict
    in_loop: bool


@dataclass(frozen=True)
class View:
    """What to show of a run.

    state    "absent" (no run there), "begun" (nothing iterated yet), "running", "ended" (run.json
             says so), "killed" (it does not, and no process of it lives), "elsewhere" (its
             processes are on other machines)
    seen_ns  the moment of the view: now, or the last sign of life (also where that is all that can
             be known), on the clock of the run's machine
    age_ns   from then to now
    """

    state: str
    command: str = ""
    elapsed_ns: float = NAN
    seen_ns: int = 0
    seen_wall_ns: int = 0
    age_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    groups: Sequence[Group] = ()
    finished: int = 0  # main processes that came to their end, not in `groups`
    notes: Sequence[str] = ()
    shm: int = 0
    shm_size: int = 0

    @property
    def verdict(self) -> Verdict | None:
        """That of the rank which holds up the others, the worst first; None without groups."""
        order = ("dead", "stopped", "storage", "hung", "lost", "slow", "step", "starting")
        verdicts = [group.verdict for group in self.groups]
        worst = {kind: place for place, kind in enumerate(order)}
        return min(verdicts, key=lambda one: worst.get(one.kind, len(order)), default=None)


@dataclass
class _Process:
    """What the log of one process told so far."""

    header: Mapping[str, Any]
    operations: dict[int, str] = field(default_factory=dict)
    loaders: dict[int, dict[str, Any]] = field(default_factory=dict)
    # loader -> its last iterator event
    iterators: dict[int, dict[str, Any]] = field(default_factory=dict)
    ended: dict[tuple[Any, Any], int] = field(default_factory=dict)  # (loader, epoch) -> when
    stopped: bool = False  # it records no more, and its page stands still
    waits: Array = field(default_factory=lambda: np.empty((0, 2), np.int64))  # start, end
    taken: int = 0
    waited_ns: int = 0
    first_ns: int = 0
    sizes: tuple[int, int] = (0, 0)  # samples, batches
    made_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_RECENT))
    last_ns: int = 0  # the latest time in a record
    put_ns: int = 0
    pss: float = NAN
    # second -> operation (a name) -> ns of fetching, and of the whole under ""
    parts: dict[int, dict[str, int]] = field(default_factory=dict)


class Live:
    """Follows one run."""

    def __init__(self) -> None:
        self._logs: dict[Key, _Process] = {}
        self._by_pid: dict[tuple[str, int], list[Key]] = defaultdict(list)
        # (host, pid) of a worker -> (log of the main process, loader, how often it was resumed)
        self._workers: dict[tuple[str, int], tuple[Key, int, int]] = {}
        # (host, pid) of a worker -> its resumes -> batches that it made and nobody took yet
        self._made: dict[tuple[str, int], dict[int, set[int]]] = defaultdict(dict)
        # (log, loader, epoch) -> batches that were taken and not yet known to be made
        self._taken: dict[tuple[Key, int, int], set[int]] = {}
        self._cpu: dict[tuple[int, int], tuple[int, int, float]] = {}
        self.notes: list[str] = []

    def names(self) -> Names:
        """As snapshots.take wants them."""
        names: dict[tuple[str, int], list[tuple[int, dict[int, str]]]] = defaultdict(list)
        for (host, pid, start), log in self._logs.items():
            names[host, pid].append((start, log.operations))
        return names

    # -- what the logs say -----------------------------------------------------------------

    def add(self, fresh: Sequence[Fresh]) -> None:
        """Take in what the logs have more."""
        for one in fresh:
            if one.key not in self._logs:
                self._logs[one.key] = _Process(one.header)
                self._by_pid[one.key[:2]].append(one.key)
            log = self._logs[one.key]
            for event in one.events:
                self._event(one.key, log, event)
            self._batches(one, log)
            self._waits(one, log)
            resources = one.rows["resources"]
            if len(resources):
                log.last_ns = max(log.last_ns, int(resources["time_ns"].max()))
                measured = resources["pss"][resources["pss"] > 0]
                if len(measured):
                    log.pss = float(measured[-1])

    def _event(self, key: Key, log: _Process, event: dict[str, Any]) -> None:
        name, loader, epoch = event["event"], event.get("loader"), event.get("epoch")
        if name == "operations":
            for one in event.get("operations") or ():
                if isinstance(one, dict) and isinstance(one.get("id"), int):
                    log.operations[one["id"]] = str(one.get("name"))
        elif name == "loader" and isinstance(loader, int):
            log.loaders[loader] = event
        elif name == "epoch_end":
            time = event.get("time_ns")
            log.ended[loader, epoch] = time if isinstance(time, int) else log.last_ns
        elif name == "iterator" and isinstance(loader, int) and isinstance(epoch, int):
            before = log.iterators.get(loader, {})
            self._taken.pop((key, loader, before.get("epoch", -1)), None)
            log.iterators[loader] = event
            pids = [pid for pid in event.get("workers") or () if isinstance(pid, int)]
            for pid in set(before.get("workers") or ()) - set(pids):
                self._made.pop((key[0], pid), None)
            for pid in pids:
                worker = (key[0], pid)
                known = self._workers.get(worker)
                again = event.get("resumed") is True and known is not None
                resumes = known[2] + 1 if again and known is not None else 0
                self._workers[worker] = (key, loader, resumes)
        elif name == "stopped":
            log.stopped = True
            self.notes.append(
                "recording stopped at --max-log: what the processes do since is not known"
            )
        elif name == "note" and len(self.notes) < 10:
            self.notes.append(str(event.get("text")))

    def _batches(self, fresh: Fresh, log: _Process) -> None:
        rows = fresh.rows["batch"]
        whole = (rows["flags"] & SENDS) == 0
        made = rows[whole]
        if not len(made):
            return
        put = made["put_ns"].astype(np.int64)
        log.put_ns = int(put[-1])
        log.last_ns = max(log.last_ns, log.put_ns)
        log.made_ns.extend(made["fetch_ns"][-_RECENT:].tolist())
        log.sizes = (log.sizes[0] + int(made["size"].sum()), log.sizes[1] + len(made))
        worker = fresh.key[:2]
        own = made[made["loader"] < 0]
        if len(own):
            batches = self._made[worker]
            for epoch in np.unique(own["epoch"]).tolist():
                mine = own["batch"][own["epoch"] == epoch]
                batches.setdefault(epoch, set()).update(mine.tolist())
            for epoch in sorted(batches)[:-2]:
                del batches[epoch]
        latest = int(put.max())
        recent = whole & (rows["put_ns"].astype(np.int64) > latest - MOST_WINDOW_NS)
        _add_parts(log, fresh, recent)
        for second in [one for one in log.parts if one < (latest - MOST_WINDOW_NS) // SECOND]:
            del log.parts[second]

    def _waits(self, fresh: Fresh, log: _Process) -> None:
        rows = fresh.rows["wait"]
        if not len(rows):
            return
        times = np.stack([rows["start_ns"], rows["end_ns"]], axis=1).astype(np.int64)
        log.first_ns = log.first_ns or int(times[0, 0])
        log.taken += len(times)
        log.waited_ns += int((times[:, 1] - times[:, 0]).sum())
        log.last_ns = max(log.last_ns, int(times[-1, 1]))
        kept = np.concatenate([log.waits, times])[-_MOST_BATCHES:]
        log.waits = kept[kept[:, 1] > log.last_ns - MOST_WINDOW_NS]
        places = rows["loader"].astype(np.int64) * (1 << 32) + rows["epoch"]
        for place in np.unique(places).tolist():
            loader, epoch = place >> 32, place & 0xFFFFFFFF
            if log.iterators.get(loader, {}).get("workers"):
                taken = self._taken.setdefault((fresh.key, loader, epoch), set())
                taken.update(rows["batch"][places == place].tolist())

    # -- what to show ----------------------------------------------------------------------

    def view(
        self,
        snapshot: Snapshot,
        manifest: Mapping[str, Any] | None,
        reports: Sequence[Mapping[str, Any]] = (),
    ) -> View:
        """Return what to show. `reports` are the lines of processes.jsonl."""
        if manifest is None:
            return View("absent")
        ended = manifest.get("state") == "ended"
        state = "ended" if ended else self._state(snapshot, manifest, reports)
        now = snapshot.now_ns
        if ended:
            now = int(manifest.get("end_ns") or self._last_sign(snapshot, manifest))
        elif state in ("killed", "elsewhere"):  # or the clock is another machine's
            now = self._last_sign(snapshot, manifest)
        start = int(manifest.get("start_ns") or now)
        faults = {one.get("pid") for one in reports if one.get("event") == "fault"}
        groups, finished = self._groups(snapshot, now, state, manifest, faults)
        notes = list(dict.fromkeys(self.notes))
        for report in reports:
            if report.get("event") == "fault":
                notes.append(f"recording was switched off: {report.get('error')}")
        wall = int(manifest.get("start_wall_ns") or 0) + now - start
        return View(
            state=state,
            command=" ".join(str(word) for word in manifest.get("command") or ()),
            elapsed_ns=max(now - start, 0),
            seen_ns=now,
            seen_wall_ns=wall,
            age_ns=max(snapshot.wall_ns - wall, 0),
            exit_code=manifest.get("exit_code"),
            signal=manifest.get("signal"),
            groups=groups,
            finished=finished,
            notes=notes,
            shm=snapshot.shm,
            shm_size=snapshot.shm_size,
        )

    def _state(
        self,
        snapshot: Snapshot,
        manifest: Mapping[str, Any],
        reports: Sequence[Mapping[str, Any]],
    ) -> str:
        if snapshot.alive:
            return "running" if snapshot.processes else "begun"
        if any(one.host != snapshot.host for one in snapshot.processes):
            return "elsewhere"
        return "killed" if snapshot.processes or reports else "begun"

    def _last_sign(self, snapshot: Snapshot, manifest: Mapping[str, Any]) -> int:
        times = [log.last_ns for log in self._logs.values()]
        times += [_latest(one) for one in snapshot.processes]
        return max(times, default=int(manifest.get("start_ns") or 0))

    def _groups(
        self,
        snapshot: Snapshot,
        now: int,
        state: str,
        manifest: Mapping[str, Any],
        faults: Collection[Any],
    ) -> tuple[list[Group], int]:
        mains: list[tuple[Key, Seen]] = []
        workers: dict[Key, list[tuple[int, Seen]]] = defaultdict(list)
        for one in snapshot.processes:
            key = self._log_of(one)
            place = self._workers.get(key[:2])
            if place is not None and (one.state.worker >= 0 or place[0] != key):
                workers[place[0]].append((place[1], one))
            elif one.state.worker < 0:
                mains.append((key, one))
            else:  # its maker's record is missing: its parent is as good
                parent = self._parent(key)
                workers[parent].append((-1, one))
        live = [main for main in mains if main[1].state.phase != "ended"]
        finished = len(mains) - len(live)
        if not live and mains and state != "running":
            live, finished = mains, 0  # the last state of what has ended
        whole = manifest.get("batches") is None and manifest.get("every", 1) == 1
        groups = [
            self._group(key, one, workers[key], now, whole, snapshot, faults) for key, one in live
        ]
        groups.sort(key=lambda group: (group.rank, group.host, group.main.pid))
        if state == "running":
            # One that was killed while others of the same rank go on: a restarted job.
            alive = [group for group in groups if group.main.alive is not False]
            finished += len(groups) - len(alive)
            groups = alive or groups
        return groups, finished

    def _log_of(self, one: Seen) -> Key:
        """The key of a process's log; a made-up one where there is none."""
        host, pid, start = one.host, one.state.pid, one.state.start_ns
        keys = self._by_pid.get((host, pid), [])
        return min(keys, key=lambda key: abs(key[2] - start), default=(host, pid, start))

    def _parent(self, key: Key) -> Key:
        log = self._logs.get(key)
        parent = log.header.get("ppid") if log else None
        keys = self._by_pid.get((key[0], parent), []) if isinstance(parent, int) else []
        return max(keys, key=lambda one: one[2], default=key)

    def _group(
        self,
        key: Key,
        one: Seen,
        workers: Sequence[tuple[int, Seen]],
        now: int,
        whole: bool,
        snapshot: Snapshot,
        faults: Collection[Any],
    ) -> Group:
        log = self._logs.get(key) or _Process({})
        main = self._doing(one, -1, now, snapshot)
        loader, epoch = one.state.loader, one.state.epoch
        described = log.loaders.get(loader, {})
        iterator = log.iterators.get(loader, {})
        in_hand = iterator.get("epoch") == epoch
        current = set(iterator.get("workers") or ()) if in_hand else set()
        mine, others = [], 0
        for number, seen in workers:
            doing = self._doing(seen, number, now, snapshot)
            if number in (loader, -1) and (not current or doing.pid in current):
                if doing.phase != "ended" or doing.pid in current:
                    mine.append(doing)
            elif doing.phase != "ended" and doing.alive is not False:
                others += 1
        mine.sort(key=lambda doing: (doing.worker, doing.pid))
        outside = loader < 0 or (loader, epoch) in log.ended
        if outside and loader >= 0 and main.phase not in ("step", "ended"):
            # The `next` that found the end is the last thing that the page tells.
            passed = max(now - log.ended[loader, epoch], 0)
            main = replace(main, phase="step", since_ns=passed, quiet_ns=passed)
        made, awaited_made = self._ready(key, loader, epoch, current, one.state.batch)
        ready = made if whole and current and not outside else None
        makers = [
            log,
            *(self._logs[k] for k in map(self._log_of, _seen(workers)) if k in self._logs),
        ]
        recent, overall = self._rates(log, makers, main, now, described)
        loop = Loop(
            main,
            [] if outside else mine,
            awaited=one.state.batch,
            awaited_made=awaited_made,
            outside=outside,
            in_order=described.get("in_order") is not False,
            typical_ns=_typical(log, makers),
        )
        gone = any(one.stopped for one in makers) or {main.pid, *(w.pid for w in mine)} & set(
            faults
        )
        verdict = UNWATCHED if gone else judge(loop)
        prefetch = described.get("prefetch_factor")
        capacity = prefetch * len(current) if isinstance(prefetch, int) else 0
        return Group(
            rank=self._rank(log),
            host=one.host,
            main=main,
            workers=mine,
            others=others,
            loader=described,
            loader_number=loader,
            epoch=epoch,
            epoch_batch=one.state.batch,
            recent=recent,
            overall=overall,
            taken=log.taken,
            ready=ready,
            capacity=capacity,
            operations=_shares(makers, now, recent.span_ns),
            verdict=verdict,
            in_loop=not outside,
        )

    def _rank(self, log: _Process) -> int:
        return ranks.settled([ranks.told(log.header, log.loaders.values())])[0]

    def _doing(self, one: Seen, loader: int, now: int, snapshot: Snapshot) -> Doing:
        state, kernel = one.state, one.kernel
        log = self._logs.get(self._log_of(one))
        since = state.since_ns or state.start_ns
        if state.phase == "idle":
            # torch asks for an index again every few seconds: it was idle before that.
            since = min(since, max(log.put_ns if log else 0, state.start_ns))
        active = max(since, state.sample_since_ns or 0, state.operation_since_ns or 0)

        def ago(time: int | None) -> int | None:
            return None if time is None else max(now - time, 0)

        cpu = NAN
        if kernel is not None:
            process = (state.pid, kernel.start_ns // SECOND)
            before = self._cpu.get(process)
            passed = snapshot.now_ns - before[0] if before else 0
            if before is not None and passed > 0:
                cpu = (kernel.cpu_ns - before[1]) / passed
            elif before is not None:
                cpu = before[2]
            self._cpu[process] = (snapshot.now_ns, kernel.cpu_ns, cpu)
        return Doing(
            pid=state.pid,
            worker=state.worker,
            alive=kernel is not None if one.here else None,
            phase=state.phase,
            since_ns=max(now - since, 0),
            quiet_ns=max(now - active, 0),
            batch=state.batch,
            sample=state.sample,
            sample_ns=ago(state.sample_since_ns),
            operation=state.operation,
            operation_ns=ago(state.operation_since_ns),
            cpu=cpu,
            status=kernel.status if kernel else "",
            asleep=kernel.asleep if kernel else "",
            rss=kernel.rss if kernel else NAN,
            shared=kernel.shared if kernel else NAN,
            pss=log.pss if log is not None and kernel else NAN,
            loader=loader,
        )

    def _ready(
        self, key: Key, loader: int, epoch: int, workers: set[int], awaited: int
    ) -> tuple[int, bool]:
        """(batches made and not taken, whether `awaited` is one of them)."""
        taken = self._taken.get((key, loader, epoch), set())
        ready: set[int] = set()
        for pid in workers:
            worker = (key[0], pid)
            place = self._workers.get(worker)
            if place is None or place[:2] != (key, loader):
                continue
            made = self._made[worker].get(place[2], set())
            done = made & taken
            made -= done
            taken -= done
            ready |= made
        return len(ready), awaited in ready

    def _rates(
        self,
        log: _Process,
        makers: Sequence[_Process],
        main: Doing,
        now: int,
        loader: Mapping[str, Any],
    ) -> tuple[Rates, Rates]:
        if not log.first_ns:
            return Rates(), Rates()
        samples, batches = (sum(one.sizes[place] for one in makers) for place in (0, 1))
        size = samples / batches if batches else float(loader.get("batch_size") or NAN)
        waiting_ns = main.since_ns if main.phase == "wait" else 0

        def rates(span: float, taken: int, waited: float) -> Rates:
            seconds = span / SECOND
            return Rates(span, taken / seconds, taken * size / seconds, min(waited / span, 1.0))

        whole = max(now - log.first_ns, 1)
        overall = rates(whole, log.taken, log.waited_ns + waiting_ns)
        ends = log.waits[:, 1]
        period = float(np.median(np.diff(ends[-_RECENT:]))) if len(ends) > 1 else 0.0
        span = min(max(WINDOW_BATCHES * period, LEAST_WINDOW_NS), MOST_WINDOW_NS, whole)
        begin = now - span
        inside = log.waits[ends > begin]
        waited = float((inside[:, 1] - np.maximum(inside[:, 0], begin)).sum())
        return rates(span, len(inside), waited + min(waiting_ns, span)), overall


def _seen(workers: Sequence[tuple[int, Seen]]) -> list[Seen]:
    return [one for _, one in workers]


def _latest(one: Seen) -> int:
    state = one.state
    return max(
        state.start_ns, state.since_ns, state.sample_since_ns or 0, state.operation_since_ns or 0
    )


def _typical(log: _Process, makers: Sequence[_Process]) -> float:
    made = [ns for one in makers for ns in one.made_ns]
    ends = log.waits[-_RECENT:, 1]
    found = [float(np.median(made))] if made else []
    if len(ends) > 1:
        found.append(float(np.median(np.diff(ends))))
    return max(found, default=NAN)


def _add_parts(log: _Process, fresh: Fresh, chosen: Array) -> None:
    """Add what the chosen batch frames were made of to `log.parts`."""
    rows = fresh.rows["batch"]
    seconds = (rows["put_ns"] // SECOND).astype(np.int64)

    def add(names: Sequence[str], code: Array, second: Array, ns: Array) -> None:
        if not len(code):
            return
        first = int(second.min())
        wide = len(names)
        sums = np.bincount((second - first) * wide + code, weights=ns.astype(np.float64))
        for place in np.flatnonzero(sums).tolist():
            into = log.parts.setdefault(first + place // wide, {})
            name = names[place % wide]
            into[name] = into.get(name, 0) + int(sums[place])

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
    add([OWN], zeros[:0], zeros[:0], zeros[:0])
    kept = chosen[of_sample]
    durations = samples["duration_ns"][kept]
    add([OWN], np.zeros(len(durations), np.int64), seconds[of_sample[kept]], durations)
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
    """Which operations are inside no other of their sample. They stand in order of completion."""
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


def _shares(makers: Sequence[_Process], now: int, span_ns: float) -> list[tuple[str, float]]:
    """Shares of the time in which batches were made, of those that ended in the window."""
    begin = (now - (LEAST_WINDOW_NS if math.isnan(span_ns) else span_ns)) // SECOND
    sums: dict[str, int] = defaultdict(int)
    for log in makers:
        for second, parts in log.parts.items():
            if second >= begin:
                for name, ns in parts.items():
                    sums[name] += ns
    whole = sums.pop("", 0)
    if whole <= 0:
        return []
    sums[REST] = whole - sum(sums.values())
    shares = [(name, ns / whole) for name, ns in sums.items() if ns > 0]
    return sorted(shares, key=lambda one: -one[1])

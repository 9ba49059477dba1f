"""The state of a run in progress, or of one that was killed.

At each look, `LiveRun` takes the new content of the logs (tailing.py) and a snapshot of the
processes (snapshots.py) and returns what to show. It opens no files.

Rates and shares are over the last `window_ns`, up to the look: 10 s, or the last five batches if
they took longer, but at most 300 s. In a run that is over (ended, killed) they are over the loops
over the loader that was iterated last, as in `lotus report`.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lotus.format import job_ranks
from lotus.live.hang_detection import UNWATCHED, Doing, HangVerdict, Loop, judge
from lotus.live.log_digest import MOST_WINDOW_NS, NAN, REST, SECOND, Key, LogDigest, ProcessDigest
from lotus.live.loop_times import Total
from lotus.live.snapshots import Seen, Snapshot
from lotus.live.tailing import Fresh

LEAST_WINDOW_NS, WINDOW_BATCHES = 10 * SECOND, 5


@dataclass(frozen=True)
class Rates:
    """The rate at which a training loop takes batches, and its share of waiting; NaN: not known.

    loops  number of whole loops over the loader that this describes: `span_ns` is their duration
           and `wait_share` the share of `iter()`, `next` and the shut-down; 0: a period of time
    """

    span_ns: float = NAN
    batches: float = NAN  # a second
    samples: float = NAN  # a second
    wait_share: float = NAN
    loops: int = 0


@dataclass(frozen=True)
class LoopView:
    """One main process with its workers.

    loader     the `loader` event of the loader that is iterated; empty if it is not known
    workers    those of that loader first; `others` is how many of the others are alive
    ready      batches made and not taken; None if not known; at most `capacity` (0: not known)
    taken      batches taken since the start; `epoch_batch` in the current epoch (-1: none)
    recent     over the last seconds; in a run that is over, over the last loop
    overall    since the first `next`; in a run that is over, over all loops over `loader`
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
    verdict: HangVerdict
    in_loop: bool


@dataclass(frozen=True)
class View:
    """The state of a run that is shown.

    state    "absent" (no run there), "begun" (nothing iterated yet), "running", "ended" (run.json
             says so), "killed" (it does not, and none of its processes is alive), "elsewhere" (its
             processes are on other machines)
    seen_ns  the time of the view on the clock of the run's machine: now, or the last activity if
             the run is over or nothing later is known
    age_ns   time since `seen_ns`
    """

    state: str
    command: str = ""
    elapsed_ns: float = NAN
    seen_ns: int = 0
    seen_wall_ns: int = 0
    age_ns: int = 0
    exit_code: int | None = None
    signal: int | None = None
    groups: Sequence[LoopView] = ()
    finished: int = 0  # number of main processes that have ended and are not in `groups`
    notes: Sequence[str] = ()
    shm: int = 0
    shm_size: int = 0

    @property
    def verdict(self) -> HangVerdict | None:
        """The verdict of the rank that blocks the others; None without groups."""
        order = ("dead", "stopped", "storage", "hung", "lost", "slow", "step", "starting")
        verdicts = [group.verdict for group in self.groups]
        worst = {kind: place for place, kind in enumerate(order)}
        return min(verdicts, key=lambda verdict: worst.get(verdict.kind, len(order)), default=None)


@dataclass(frozen=True)
class Moment:
    """The sources of a view of a run, besides its logs.

    now     nanoseconds on the clock of the run's machine
    over    whether the run has ended or was killed
    whole   whether every batch is recorded
    faults  the processes in which recording was switched off
    """

    snapshot: Snapshot
    now: int
    over: bool
    whole: bool
    faults: Collection[Any]


class LiveRun:
    """Follows one run."""

    def __init__(self) -> None:
        self.digest = LogDigest()
        # (pid, start) -> (time of the last look, CPU time then, cores since the one before)
        self._cpu: dict[tuple[int, int], tuple[int, int, float]] = {}

    def add(self, fresh: Sequence[Fresh]) -> None:
        """Add the new content of the logs."""
        self.digest.add(fresh)

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
        state = "ended" if ended else self._state(snapshot, reports)
        now = snapshot.now_ns
        if ended:
            now = int(manifest.get("end_ns") or self._last_sign(snapshot, manifest))
        elif state in ("killed", "elsewhere"):  # or the clock is that of another machine
            now = self._last_sign(snapshot, manifest)
        start = int(manifest.get("start_ns") or now)
        faults = {report.get("pid") for report in reports if report.get("event") == "fault"}
        groups, finished = self._groups(snapshot, now, state, manifest, faults)
        notes = list(dict.fromkeys(self.digest.notes))
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

    def _state(self, snapshot: Snapshot, reports: Sequence[Mapping[str, Any]]) -> str:
        if snapshot.alive:
            return "running" if snapshot.processes else "begun"
        if any(process.host != snapshot.host for process in snapshot.processes):
            return "elsewhere"
        return "killed" if snapshot.processes or reports else "begun"

    def _last_sign(self, snapshot: Snapshot, manifest: Mapping[str, Any]) -> int:
        times = [log.last_ns for log in self.digest.logs.values()]
        times += [_latest(process) for process in snapshot.processes]
        return max(times, default=int(manifest.get("start_ns") or 0))

    def _groups(
        self,
        snapshot: Snapshot,
        now: int,
        state: str,
        manifest: Mapping[str, Any],
        faults: Collection[Any],
    ) -> tuple[list[LoopView], int]:
        mains: list[tuple[Key, Seen]] = []
        workers: dict[Key, list[tuple[int, Seen]]] = defaultdict(list)
        for process in snapshot.processes:
            maker = self.digest.made_by(process)
            if maker is None:
                mains.append((self.digest.log_of(process), process))
            else:
                workers[maker[0]].append((maker[1], process))
        live = [main for main in mains if main[1].state.phase != "ended"]
        finished = len(mains) - len(live)
        if not live and mains and state != "running":
            live, finished = mains, 0  # the last states of processes that have ended
        moment = Moment(
            snapshot,
            now,
            over=state in ("ended", "killed"),
            whole=manifest.get("batches") is None and manifest.get("every", 1) == 1,
            faults=faults,
        )
        groups = [self._group(key, process, workers[key], moment) for key, process in live]
        groups.sort(key=lambda group: (group.rank, group.host, group.main.pid))
        if state == "running":
            # Processes that were killed while others of the same rank continue: a restarted job.
            alive = [group for group in groups if group.main.alive is not False]
            finished += len(groups) - len(alive)
            groups = alive or groups
        return groups, finished

    def _group(
        self,
        key: Key,
        process: Seen,
        workers: Sequence[tuple[int, Seen]],
        moment: Moment,
    ) -> LoopView:
        now, over, whole = moment.now, moment.over, moment.whole
        log = self.digest.logs.get(key) or ProcessDigest({})
        main = self._doing(process, -1, now, moment.snapshot)
        loader, epoch = process.state.loader, process.state.epoch
        described = log.loaders.get(loader, {})
        last, pids = log.iterators.get(loader, (-1, ()))
        current = set(pids) if last == epoch else set()
        mine, others = self._workers(workers, loader, current, moment)
        outside = loader < 0 or (loader, epoch) in log.ended
        if outside and loader >= 0 and main.phase not in ("step", "ended"):
            # The last state in the page is the `next` that raised StopIteration.
            passed = max(now - log.ended[loader, epoch], 0)
            main = replace(main, phase="step", since_ns=passed, quiet_ns=passed)
        made, awaited_made = self.digest.ready(key, loader, epoch, current, process.state.batch)
        ready = made if whole and current and not outside else None
        makers = self.digest.makers(key, 0 if over else now)
        size = self.digest.size(key, loader, makers)
        size = _size(described.get("batch_size")) if math.isnan(size) else size
        if over:
            recent, overall = (_of_loops(total, size) for total in log.loops.totals(loader))
        else:
            recent, overall = self._rates(log, main, now, size)
        window = MOST_WINDOW_NS if over else recent.span_ns
        loop = Loop(
            main,
            [] if outside else mine,
            awaited=process.state.batch,
            awaited_made=awaited_made,
            outside=outside,
            whole=whole,
            in_order=described.get("in_order") is not False,
            typical_ns=_typical(log, makers),
        )
        stopped = any(maker.stopped for maker in makers)
        faulty = not {main.pid, *(doing.pid for doing in mine)}.isdisjoint(moment.faults)
        verdict = UNWATCHED if stopped or faulty else judge(loop)
        prefetch = described.get("prefetch_factor")
        capacity = prefetch * len(current) if type(prefetch) is int else 0
        return LoopView(
            rank=self._rank(log),
            host=process.host,
            main=main,
            workers=mine,
            others=others,
            loader=described,
            loader_number=loader,
            epoch=epoch,
            epoch_batch=process.state.batch,
            recent=recent,
            overall=overall,
            taken=log.taken,
            ready=ready,
            capacity=capacity,
            operations=_shares(makers, log.last_ns if over else now, window),
            verdict=verdict,
            in_loop=not outside,
        )

    def _workers(
        self,
        workers: Sequence[tuple[int, Seen]],
        loader: int,
        current: Collection[int],
        moment: Moment,
    ) -> tuple[list[Doing], int]:
        """Return what the workers of a loader's epoch do, and how many others are alive."""
        mine, others = [], 0
        for number, seen in workers:
            doing = self._doing(seen, number, moment.now, moment.snapshot)
            if number in (loader, -1) and (not current or doing.pid in current):
                if doing.phase != "ended" or doing.pid in current:
                    mine.append(doing)
            elif doing.phase != "ended" and doing.alive is not False:
                others += 1
        return sorted(mine, key=lambda doing: (doing.worker, doing.pid)), others

    def _rank(self, log: ProcessDigest) -> int:
        return job_ranks.settled([job_ranks.place_of(log.header, log.loaders.values())])[0]

    def _doing(self, seen: Seen, loader: int, now: int, snapshot: Snapshot) -> Doing:
        state, kernel = seen.state, seen.kernel
        log = self.digest.logs.get(self.digest.log_of(seen))
        since = state.since_ns or state.start_ns
        if state.phase == "idle":
            # torch waits for an index in intervals of a few seconds: it was idle before that, too.
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
            alive=kernel is not None if seen.here else None,
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

    def _rates(
        self,
        log: ProcessDigest,
        main: Doing,
        now: int,
        size: float,
    ) -> tuple[Rates, Rates]:
        if not log.first_ns:
            return Rates(), Rates()
        waiting_ns = main.since_ns if main.phase == "wait" else 0

        def rates(span: float, taken: int, waited: float) -> Rates:
            seconds = span / SECOND
            return Rates(span, taken / seconds, taken * size / seconds, min(waited / span, 1.0))

        elapsed_ns = max(now - log.first_ns, 1)
        overall = rates(elapsed_ns, log.taken, log.waited_ns + waiting_ns)
        period = 0.0 if math.isnan(log.period_ns) else log.period_ns
        span = min(max(WINDOW_BATCHES * period, LEAST_WINDOW_NS), MOST_WINDOW_NS, elapsed_ns)
        begin = now - span
        inside = log.waits[log.waits[:, 1] > begin]
        waited = float((inside[:, 1] - np.maximum(inside[:, 0], begin)).sum())
        return rates(span, len(inside), waited + min(waiting_ns, span)), overall


def _of_loops(total: Total, size: float) -> Rates:
    if not total.taken or total.loop_ns <= 0:
        return Rates()
    rate, waits = total.taken * SECOND / total.loop_ns, total.blocked_ns / total.loop_ns
    return Rates(float(total.loop_ns), rate, rate * size, min(waits, 1.0), total.loops)


def _size(value: Any) -> float:
    return float(value) if type(value) is int and 0 < value < 1 << 53 else NAN


def _latest(process: Seen) -> int:
    state = process.state
    return max(
        state.start_ns, state.since_ns, state.sample_since_ns or 0, state.operation_since_ns or 0
    )


def _typical(log: ProcessDigest, makers: Sequence[ProcessDigest]) -> float:
    durations = [ns for maker in makers for ns in maker.made_ns]
    periods = [float(np.median(durations))] if durations else []
    return max(
        [*periods, *([log.period_ns] if log.period_ns == log.period_ns else [])], default=NAN
    )


def _shares(makers: Sequence[ProcessDigest], now: int, span_ns: float) -> list[tuple[str, float]]:
    """Return the shares of the time in which batches were made that ended in the window."""
    begin = (now - (LEAST_WINDOW_NS if math.isnan(span_ns) else span_ns)) // SECOND
    sums: dict[str, int] = defaultdict(int)
    for log in makers:
        if log.last_ns // SECOND < begin:
            continue
        for second, parts in log.parts.items():
            if second >= begin:
                for name, ns in parts.items():
                    sums[name] += ns
    fetching_ns = sums.pop("", 0)
    if fetching_ns <= 0:
        return []
    sums[REST] = fetching_ns - sum(sums.values())
    shares = [(name, ns / fetching_ns) for name, ns in sums.items() if ns > 0]
    return sorted(shares, key=lambda pair: -pair[1])

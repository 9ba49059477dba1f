"""Divides the sampled time of one loop: what it was spent on, and what the waits waited for."""

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.clock_offset import NONE, labels_of_looks, nearest
from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.evidence.ready_times import spread_back
from lotus.analysis.attached.shares.wait_interval import (
    WaitRow,
    first_left_out,
    reading_times,
    wait_rows,
)
from lotus.analysis.attached.shares.worker_pace import WorkerPace, pace_of
from lotus.analysis.attached.shares.worker_turns import WorkerTurns, turns_of
from lotus.analysis.common.columns import ratio
from lotus.common.numbers.array_types import Floats, Ints

# A component of the making of batches: (phase, name of the operation).
Component = tuple[str, str]
_STEADY = 0.2  # of waits and steps: then first batches are waited for like all others
_LEAST_REST_NS = 1_000_000_000  # of a loop, besides its start-up: less tells nothing of it
_NEAR = 2.0  # periods
_Key = TypeVar("_Key")


@dataclass
class LoopShares:
    """Nanoseconds of one loop of one or more ranks (one after the other in `ranks`).

    `phases`: time of the thread that iterates. `making`: waits, by what was being made meanwhile;
    `receiving`: time of receiving in which workers made batches; `by_worker`: `making` by worker's
    place, which workers of one epoch after the other share. `made`: time that whoever makes batches
    spent in each component. `idle_ns`: of the workers; `paces`: how long they made batches, by
    place. `rows`: of each sample of the thread that iterates.
    """

    loop: int
    phases: dict[str, float] = field(default_factory=dict)
    making: dict[Component, float] = field(default_factory=dict)
    receiving: dict[Component, float] = field(default_factory=dict)
    by_worker: dict[int, float] = field(default_factory=dict)
    made: dict[Component, float] = field(default_factory=dict)
    made_by: dict[int, float] = field(default_factory=dict)
    sending_ns: float = 0.0
    startup_ns: float = 0.0
    index_ns: float = 0.0
    idle_ns: float = 0.0
    idle_by: dict[int, float] = field(default_factory=dict)
    paces: dict[int, WorkerPace] = field(default_factory=dict)
    left_out_ns: float = 0.0  # the program's first start-up, which says nothing of its epochs
    begun: bool = False  # while it was watched, and little but its start-up was seen
    alone_ns: float = 0.0  # waits in which one worker of several made a batch
    rows: list[WaitRow] = field(default_factory=list)
    workers: int = 0
    starts: int = 1  # of workers, one after the other
    turns: list[WorkerTurns] = field(default_factory=list)  # of each rank

    def of(self, *names: str) -> float:
        """Return the nanoseconds in these phases."""
        return sum(self.phases.get(name, 0.0) for name in names)

    @property
    def loop_ns(self) -> float:
        """Nanoseconds of the whole loop."""
        return sum(self.phases.values())

    @property
    def wait_ns(self) -> float:
        """Nanoseconds in `next`."""
        return self.of(*phases.IN_NEXT)

    @property
    def made_ns(self) -> float:
        """Nanoseconds in which batches were made, summed over all who make them."""
        return sum(self.made.values())


@dataclass(frozen=True)
class Sampled:
    """The evidence; its `samples` and `looks` also have phase, name and loop.

    read_ns: when stacks were read, as far as that is known
    """

    evidence: AttachEvidence
    samples: pd.DataFrame
    looks: pd.DataFrame
    read_ns: Ints


def sampled(evidence: AttachEvidence) -> Sampled:
    """Join labels to samples, and to looks by time."""
    labels = evidence.labels
    samples = evidence.samples.join(labels, on="label")
    looks = spread_back(evidence.looks)
    number = labels_of_looks(looks, evidence.samples, evidence.facts["bound_ns"])
    known = labels.reindex(number)  # a row of NaN for NONE
    looks = looks.assign(
        label=number,
        phase=np.where(number == NONE, "", known["phase"].fillna("").to_numpy()),
        name=np.where(number == NONE, "", known["name"].fillna("").to_numpy()),
        loop=known["loop"].fillna(-1).to_numpy().astype(np.int64),
    )
    return Sampled(evidence, samples, looks, reading_times(evidence.samples))


def loops_of(seen: Sampled) -> list[int]:
    """Return the loops in which main processes were, the one with the most time first."""
    mains = seen.samples["pid"].isin(seen.evidence.mains)
    of_loops = seen.samples[mains & (seen.samples["loop"] >= 0)]
    weights = of_loops.groupby("loop")["weight_ns"].sum().sort_values(ascending=False)
    return [int(loop) for loop in weights.index]


def loop_shares(seen: Sampled, loop: int, main: int) -> LoopShares:
    """Return the shares of one loop in one main process."""
    shares = LoopShares(loop)
    processes = seen.evidence.processes
    mine = processes[processes["main"] == main]
    samples = seen.samples
    workers = _workers_of(samples, mine.loc[mine["worker"] >= 0, "pid"].tolist(), loop)
    main_samples = samples[(samples["pid"] == main) & (samples["loop"] == loop)]
    shares.phases = _sums(main_samples, "phase")
    of_workers = samples[samples["pid"].isin(workers)]
    shares.workers = _at_a_time(of_workers)
    in_main = main_samples[main_samples["phase"].isin(phases.MAKING)]
    _made(shares, in_main, -1)
    # Each epoch starts its workers in the same order.
    shares.starts = max(-(-len(workers) // max(shares.workers, 1)), 1)
    places = [place % max(shares.workers, 1) for place in range(len(workers))]
    span = int(samples["time_ns"].min()), int(samples["time_ns"].max())
    rank = int(mine["rank"].iloc[0])
    for place, pid in zip(places, workers, strict=True):
        own = of_workers[(of_workers["pid"] == pid) & (of_workers["tid"] == pid)]
        _made(shares, own[own["phase"].isin(phases.MAKING)], place)
        idle = float(own.loc[own["phase"] == phases.IDLE, "weight_ns"].sum())
        shares.idle_ns += idle
        shares.idle_by[place] = shares.idle_by.get(place, 0.0) + idle
        if len(own):
            pace = pace_of(own, seen.looks[seen.looks["pid"] == pid], span, rank)
            before = shares.paces.get(place)
            shares.paces[place] = before.joined(pace) if before else pace
    for component, ns in _components(in_main).items():
        shares.making[component] = shares.making.get(component, 0.0) + ns
    gone = bool((mine.loc[mine["worker"] >= 0, "ended"] == 1).all())
    if not workers or len(of_workers) or not gone:  # else nothing was being made, nor started
        _charge_waits(shares, main_samples, of_workers, workers, places)
    if seen.evidence.facts["state"] != "ended":
        _leave_out_start(shares, main_samples.sort_values("time_ns")["phase"].to_numpy())
    iterating = main_samples["tid"].mode()
    thread = samples[(samples["pid"] == main) & samples["tid"].isin(iterating)]
    thread = thread.sort_values("time_ns", kind="stable")
    rows = wait_rows(thread, (thread["loop"] == loop).to_numpy(), seen.read_ns)
    shares.rows = first_left_out(rows, shares.left_out_ns) if shares.left_out_ns else rows
    return shares


def _leave_out_start(shares: LoopShares, phase: np.ndarray) -> None:
    """Take a start-up out of the loop that was met once, where the loop began while it was watched.

    How long the epoch is that follows is not known, unless its workers were seen to end: then all
    of it was seen, and the start-up stays. So it does where next to nothing was seen (`begun`).
    """
    starts = (phase == phases.STARTUP) | (phase == phases.DRAW)
    count = int((starts[1:] & ~starts[:-1]).sum()) + int(starts[:1].sum())
    startup = shares.of(phases.STARTUP, phases.DRAW) + shares.startup_ns
    if count != 1 or not starts[0] or (phase == phases.SHUTDOWN).any():
        return
    if shares.loop_ns - startup < _LEAST_REST_NS:
        shares.begun = True
        return
    shares.left_out_ns = startup
    for part in (phases.STARTUP, phases.DRAW):
        shares.phases.pop(part, None)
    shares.phases[phases.WAIT] = max(shares.of(phases.WAIT) - shares.startup_ns, 0.0)
    shares.startup_ns = 0.0


def _workers_of(samples: pd.DataFrame, workers: list[int], loop: int) -> list[int]:
    """Return the workers that were forked in this loop, by the frames of their parent.

    If there are none, return those whose loop is unknown, as spawned workers.
    """
    loop_of = samples[samples["pid"].isin(workers)].groupby("pid")["loop"].max()
    own = [pid for pid in workers if loop_of.get(pid, -1) == loop]
    return own or [pid for pid in workers if loop_of.get(pid, -1) < 0]


def _at_a_time(of_workers: pd.DataFrame) -> int:
    """Return the number of workers at a time; those of one epoch may follow those of another."""
    seen = of_workers[of_workers["tid"] == of_workers["pid"]]
    if not len(seen):
        return 0
    spans = seen.groupby("pid")["time_ns"].agg(["min", "max"])
    middles = spans.mean(axis=1)
    return int(max(((spans["min"] <= at) & (spans["max"] >= at)).sum() for at in middles))


def _sums(samples: pd.DataFrame, name: str) -> dict[str, float]:
    return {str(key): float(ns) for key, ns in samples.groupby(name)["weight_ns"].sum().items()}


def _components(samples: pd.DataFrame) -> dict[Component, float]:
    sums: dict[Component, float] = {}
    rows = zip(samples["phase"], samples["name"], samples["weight_ns"], strict=True)
    for phase, name, ns in rows:
        sums[str(phase), str(name)] = sums.get((str(phase), str(name)), 0.0) + float(ns)
    return sums


def _made(shares: LoopShares, samples: pd.DataFrame, place: int) -> None:
    parts = _components(samples)
    for component, ns in parts.items():
        shares.made[component] = shares.made.get(component, 0.0) + ns
    if parts:
        shares.made_by[place] = shares.made_by.get(place, 0.0) + sum(parts.values())


def _charge_waits(
    shares: LoopShares,
    main: pd.DataFrame,
    of_workers: pd.DataFrame,
    workers: list[int],
    places: list[int],
) -> None:
    """Divide waits for the queue equally among the workers that made batches meanwhile."""
    ordered = main.sort_values("time_ns")
    phase = ordered["phase"].to_numpy()
    waits = phase == phases.WAIT
    weight = ordered["weight_ns"].to_numpy(np.float64)
    first = waits & _of_first_batches(phase, weight)
    shares.startup_ns += float(weight[first].sum())
    wanted = waits & ~first
    times, weight = ordered["time_ns"].to_numpy(np.float64)[wanted], weight[wanted]
    labels = of_workers[["label", "phase", "name"]].drop_duplicates("label")
    component_of: dict[int, Component] = {
        int(label): (str(phase), str(name))
        for label, phase, name in labels.itertuples(index=False, name=None)
    }
    phase_of = {label: phase for label, (phase, _) in component_of.items()}
    receiving = ordered[phase == phases.RECEIVE]
    _charge_receiving(shares, receiving, of_workers, workers, component_of)
    shares.turns = [
        turns_of(
            phase,
            ordered["weight_ns"].to_numpy(np.float64),
            first,
            [_phases_at(of_workers, pid, ordered, phase_of) for pid in workers],
            places,
        )
    ]
    states = [_states(of_workers, pid, times) for pid in workers]
    for k, ns in enumerate(weight.tolist()):
        _charge_wait(shares, ns, [main_of[k] for main_of, _ in states],
                     [feeds[k] for _, feeds in states], places, phase_of, component_of)  # fmt: skip


def _charge_receiving(
    shares: LoopShares,
    main: pd.DataFrame,
    of_workers: pd.DataFrame,
    workers: list[int],
    component_of: dict[int, Component],
) -> None:
    """Note what workers made while a batch was received, which one of their threads hands over."""
    times = main["time_ns"].to_numpy(np.float64)
    labels = [_states(of_workers, pid, times)[0] for pid in workers]
    for k, ns in enumerate(main["weight_ns"].tolist()):
        there = [component_of[int(label[k])] for label in labels if label[k] != NONE]
        for component in there:
            if component[0] in phases.MAKING:
                part = ns / len(there)
                shares.receiving[component] = shares.receiving.get(component, 0.0) + part


def _charge_wait(
    shares: LoopShares,
    ns: float,
    labels: list[int],
    sending: list[bool],
    places: list[int],
    phase_of: dict[int, str],
    component_of: dict[int, Component],
) -> None:
    making = [k for k, label in enumerate(labels) if phase_of.get(label) in phases.MAKING]
    if making:
        for k in making:
            component, place = component_of[labels[k]], places[k]
            shares.making[component] = shares.making.get(component, 0.0) + ns / len(making)
            shares.by_worker[place] = shares.by_worker.get(place, 0.0) + ns / len(making)
        idle = sum(phase_of.get(label) == phases.IDLE for label in labels)
        if len(making) == 1 and idle:
            shares.alone_ns += ns
    elif any(sending) or any(phase_of.get(label) == phases.SEND for label in labels):
        shares.sending_ns += ns
    elif any(phase_of.get(label) == phases.STARTUP for label in labels) or set(labels) <= {NONE}:
        shares.startup_ns += ns
    else:
        shares.index_ns += ns


def _of_first_batches(phase: np.ndarray, weight: Floats) -> np.ndarray:
    """Return which samples (n,) lie between a start-up and its first step.

    None do unless later batches are hardly waited for: else the first batch is like all others. If
    no step follows a start-up, steps are too short to be sampled, and most waits are later ones.
    """
    result = np.zeros(len(phase), np.bool_)
    starts = phase == phases.STARTUP
    begins = np.flatnonzero(starts & ~np.concatenate([[False], starts[:-1]]))
    for begin, end in zip(begins, np.append(begins, len(phase))[1:], strict=True):
        steps = np.flatnonzero(phase[begin:end] == phases.STEP)
        if not steps.size:
            continue
        first = begin + steps[0]
        later = phase[first:end]
        waited = float(weight[first:end][later == phases.WAIT].sum())
        stepped = float(weight[first:end][later == phases.STEP].sum())
        result[begin:first] = ratio(waited, waited + stepped) < _STEADY
    return result


def _states(of_workers: pd.DataFrame, pid: int, times: Floats) -> tuple[Ints, list[bool]]:
    """Return at each time the label of a worker's main thread (or NONE), and whether it sends."""
    own = of_workers[of_workers["pid"] == pid].sort_values("time_ns")
    is_main = (own["tid"] == own["pid"]).to_numpy()
    label = _at(own[is_main], times)
    feeds = own[~is_main & own["phase"].isin((phases.SEND, phases.FEEDER_IDLE)).to_numpy()]
    sending = set(feeds.loc[feeds["phase"] == phases.SEND, "label"].astype(int))
    return label, [number in sending for number in _at(feeds, times).tolist()]


def _phases_at(
    of_workers: pd.DataFrame, pid: int, main: pd.DataFrame, phase_of: dict[int, str]
) -> np.ndarray:
    """Return a worker's phase at each sample of the main process (n,); "": it did not run."""
    own = of_workers[(of_workers["pid"] == pid) & (of_workers["tid"] == pid)]
    labels = _at(own.sort_values("time_ns"), main["time_ns"].to_numpy(np.float64))
    return np.array([phase_of.get(label, "") for label in labels.tolist()], object)


def _at(samples: pd.DataFrame, times: Floats) -> Ints:
    if not len(samples) or not times.size:
        return np.full(len(times), NONE, np.int64)
    own = samples["time_ns"].to_numpy(np.float64)
    place = nearest(own, times)
    gap = _NEAR * float(np.median(np.diff(own))) if len(own) > 1 else 1e9
    labels = samples["label"].to_numpy(np.int64)[place]
    return np.asarray(np.where(np.abs(own[place] - times) <= gap, labels, NONE), np.int64)


def added(parts: list[LoopShares]) -> LoopShares:
    """Return the shares of all ranks together; their workers are numbered consecutively."""
    whole = LoopShares(parts[0].loop, workers=max(each.workers for each in parts))
    whole.starts = max(each.starts for each in parts)
    for part in parts:
        base = len(whole.idle_by)
        _add(whole.phases, part.phases)
        _add(whole.making, part.making)
        _add(whole.receiving, part.receiving)
        _add(whole.made, part.made)
        _add(whole.by_worker, _moved(part.by_worker, base))
        _add(whole.made_by, _moved(part.made_by, base))
        _add(whole.idle_by, _moved(part.idle_by, base))
        whole.paces |= {place + base: pace for place, pace in part.paces.items()}
        whole.sending_ns += part.sending_ns
        whole.startup_ns += part.startup_ns
        whole.index_ns += part.index_ns
        whole.idle_ns += part.idle_ns
        whole.alone_ns += part.alone_ns
        whole.left_out_ns += part.left_out_ns
        whole.begun |= part.begun
        whole.rows += part.rows
        whole.turns += part.turns
    return whole


def _add(sums: dict[_Key, float], more: dict[_Key, float]) -> None:
    for key, ns in more.items():
        sums[key] = sums.get(key, 0.0) + ns


def _moved(by_place: dict[int, float], base: int) -> dict[int, float]:
    return {place + base if place >= 0 else place: ns for place, ns in by_place.items()}


def idle_share(shares: LoopShares) -> float:
    """Return the share of the workers' time in which they had nothing to do."""
    return ratio(shares.idle_ns, shares.idle_ns + shares.made_ns)

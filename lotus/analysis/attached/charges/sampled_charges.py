"""Charges the sampled time of a loop to causes: the kinds, titles and advice of a recorded loop."""

import math
from dataclasses import dataclass

import pandas as pd

from lotus.analysis.attached.charges.inner_operations import inner_operations
from lotus.analysis.attached.charges.loader_settings import LoaderSettings
from lotus.analysis.attached.charges.sampled_stacks import stacks_of
from lotus.analysis.attached.charges.turn_evidence import (
    slow_batches,
    too_few_ahead,
    uneven_data,
    without_data,
)
from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.loop_shares import Component, LoopShares, Sampled, idle_share
from lotus.analysis.attached.shares.wait_interval import wait_spread
from lotus.analysis.attached.shares.worker_pace import slow_worker
from lotus.analysis.common.columns import float_column, ratio
from lotus.analysis.data.data_shares import DataShares
from lotus.analysis.machine.core_use import LEAST_DELAY, CoreUse, Threads
from lotus.analysis.machine.machine_readings import core_time, least_memory_share
from lotus.analysis.machine.memory_growth import MemoryGrowth, growth_of
from lotus.analysis.observations.looks import COMPUTING, LEAST_LOCKED, LEAST_LOOKS, LOCK
from lotus.analysis.observations.own_code import hot_callee, hot_functions, hot_lines
from lotus.analysis.verdict.account import Account
from lotus.analysis.verdict.advice.circumstances import Circumstances
from lotus.analysis.verdict.advice.resources import Resources
from lotus.analysis.verdict.causes.cause_row import Charge
from lotus.analysis.verdict.causes.cores.crowded_workers import WORKER_THREADS
from lotus.analysis.verdict.causes.cores.crowding import crowd_evidence
from lotus.analysis.verdict.causes.cores.few_cores import AFFINITY
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.causes.making.blocked_kinds import as_blocked
from lotus.analysis.verdict.causes.making.costly_batches import SLOW_BATCHES
from lotus.analysis.verdict.causes.making.outliers import SLOW_WORKER
from lotus.analysis.verdict.causes.making.prefetch import PREFETCH
from lotus.analysis.verdict.causes.making.storage import COLD_FILES
from lotus.analysis.verdict.causes.making.work import COLLATE, DATASET, OPERATION
from lotus.analysis.verdict.causes.memory import charges_of
from lotus.analysis.verdict.causes.repetition import STARVED
from lotus.analysis.verdict.causes.run.edges import REST, SHUTDOWN, STARTUP
from lotus.analysis.verdict.causes.run.loader_state import SNAPSHOTS
from lotus.analysis.verdict.causes.step.interpreter import INTERPRETER
from lotus.analysis.verdict.causes.step.training_step import TRAINING_STEP
from lotus.analysis.verdict.causes.transport import HANDOVER, INDEX, SENDING
from lotus.analysis.verdict.loop_time.ledger import COLD_SHARE

ASLEEP = "asleep"  # blocked, and the kernel did not say in what
_KINDS = {
    phases.OPERATION: OPERATION.kind,
    phases.DATASET: DATASET.kind,
    phases.COLLATE: COLLATE.kind,
}
_SNAPSHOT = (phases.SNAPSHOT, "")
_LEAST_NS = 1e6
_SETTLED_NS = 2e9  # since a worker was seen first


@dataclass(frozen=True)
class SampledAccount:
    """The account that `judge` takes, and the circumstances of its advice."""

    account: Account
    circumstances: Circumstances


def charged(seen: Sampled, shares: LoopShares, settings: LoaderSettings) -> SampledAccount:
    """Return the charges of one loop, which add up to its time."""
    use = _core_use(seen, shares)
    ledger = _Ledger(seen, shares, use, settings)
    charges = ledger.charges()
    empty = pd.DataFrame()
    account = Account(
        loop_ns=shares.loop_ns,
        iter_ns=0.0,
        wait_ns=shares.wait_ns,
        step_ns=shares.of(phases.STEP),
        own_ns=0.0,
        tail_ns=shares.of(phases.SHUTDOWN),
        epochs=empty,
        phases={},
        workers=empty,
        charges=sorted(charges, key=lambda charge: -charge.ns),
        use=use,
        shares=DataShares(empty=ledger.starved),
    )
    return SampledAccount(account, _circumstances(seen, shares, settings, account))


class _Ledger:
    def __init__(
        self, seen: Sampled, shares: LoopShares, use: CoreUse, settings: LoaderSettings
    ) -> None:
        self._seen, self._shares, self._use = seen, shares, use
        self._settings = settings
        self._making = dict(shares.making)
        self._pid_of = _makers(seen, shares)
        self.starved = without_data(shares)

    def charges(self) -> list[Charge]:
        """Return all charges, each from what those before it have left."""
        shares, step = self._shares, self._shares.of(phases.STEP)
        result = []
        if self._use.step.crowded and not self._interpreter():
            lost = step * self._use.step.lost_share
            step -= lost
            result.append(
                Charge(STEP_THREADS.kind, STEP_THREADS.title, lost, crowd_evidence(self._use.step))
            )
        result.append(Charge(TRAINING_STEP.kind, TRAINING_STEP.title, step))
        startup = shares.of(phases.STARTUP) + shares.startup_ns
        result.append(Charge(STARTUP.kind, STARTUP.title, startup, self._startup(startup)))
        result.append(Charge(SHUTDOWN.kind, SHUTDOWN.title, shares.of(phases.SHUTDOWN)))
        made = {
            SENDING.kind: shares.sending_ns + shares.of(phases.RECEIVE),
            HANDOVER.kind: shares.of(phases.SAMPLER, phases.DRAW, phases.NEXT),
            SNAPSHOTS.kind: shares.of(phases.STATE),
        }
        handed = made[HANDOVER.kind]
        sampler = {
            "drawn_ns": ratio(shares.of(phases.DRAW), handed),
            "sampler_ns": ratio(shares.of(phases.SAMPLER, phases.DRAW), handed),
        }
        made[SENDING.kind] -= self._handed_over()
        over = {"making_over_sending": ratio(shares.made_ns, made[SENDING.kind])}
        result += self._held(made)
        without = self._without_core(made)
        result.append(Charge(SENDING.kind, SENDING.title, made[SENDING.kind], over))
        ns = made[HANDOVER.kind]
        evidence = {name: ns * part for name, part in sampler.items()}
        result.append(Charge(HANDOVER.kind, HANDOVER.title, ns, evidence))
        result.append(Charge(INDEX.kind, INDEX.title, shares.index_ns))
        saved, evidence = too_few_ahead(self._shares)
        if saved:
            taken = self._take(saved)
            result.append(Charge(PREFETCH.kind, PREFETCH.title, taken, evidence))
        result += self._cores(without)
        result.append(self._snapshots(made[SNAPSHOTS.kind]))
        result += self._components()
        left = shares.loop_ns - sum(charge.ns for charge in result)
        if left > _LEAST_NS:
            result.append(Charge(REST.kind, REST.title, left, {"broken_off_ns": 0.0}))
        result = [charge for charge in result if charge.ns >= _LEAST_NS]
        return [*result, *charges_of(_growth(self._seen, shares))]

    def _take(self, share: float) -> float:
        """Take a share of the waits in which batches were being made."""
        taken = sum(self._making.values()) * share
        self._making = {key: ns * (1.0 - share) for key, ns in self._making.items()}
        return taken

    def _startup(self, whole: float) -> dict[str, float]:
        in_iter = self._shares.of(phases.STARTUP)
        return {
            "iter_ns": in_iter,
            "workers_ns": whole - in_iter,
            "first_batch_ns": 0.0,
            "first_send_ns": 0.0,
            "least_epochs": float(self._shares.starts),  # workers of short epochs may not be met
        }

    def _interpreter(self) -> dict[str, float]:
        """Return the evidence that another thread holds the interpreter; empty if none does."""
        looks = self._seen.looks
        mains = self._seen.evidence.mains
        processes = self._seen.evidence.processes
        threads = processes.loc[processes["pid"].isin(mains), "threads"].max()
        wanted = phases.IN_NEXT if self._shares.workers else phases.MAKING
        mine = looks[looks["pid"].isin(mains) & looks["phase"].isin(wanted)]
        held = ratio(float((mine["reason"] == LOCK).sum()), float(len(mine)))
        if threads < 1 or len(mine) < LEAST_LOOKS or held < LEAST_LOCKED:
            return {}
        if not self._busy_threads():
            return {}
        return {
            "held_looks_share": held,
            "held_looks": float(len(mine)),
            "python_threads": float(threads),
        }

    def _busy_threads(self) -> bool:
        samples = self._seen.samples
        mains = self._seen.evidence.mains
        others = samples[samples["pid"].isin(mains) & (samples["phase"] == phases.HELPER)]
        spent = float(others["weight_ns"].sum())
        return spent >= LEAST_LOCKED * self._shares.loop_ns

    def _held(self, made: dict[str, float]) -> list[Charge]:
        evidence = self._interpreter()
        if not evidence:
            return []
        held = evidence["held_looks_share"]
        taken = self._take(held)
        for kind, ns in made.items():
            made[kind] = ns * (1.0 - held)
            taken += ns * held
        return [Charge(INTERPRETER.kind, INTERPRETER.title, taken, evidence)]

    def _slow_worker(self) -> list[Charge]:
        """Charge one slow worker, or one with more data than the others."""
        found = slow_worker(self._shares.paces)
        if found is None:
            return []
        lost, evidence = uneven_data(self._shares, self._settings, found.place)
        if lost:
            return [Charge(STARVED.kind, STARVED.title, self._take(lost), evidence)]
        by_worker = self._shares.by_worker
        waited = ratio(by_worker.get(found.place, 0.0), sum(by_worker.values()))
        evidence = {
            "rank": float(max(found.rank, 0)),
            "worker": float(found.place - self._first_place(found.rank)),
            "own_making_ns": found.own_ns,
            "others_making_ns": found.others_ns,
            "times": found.times,
        }
        ns = self._take(waited * (1.0 - 1.0 / found.times)) if waited > 0 else 0.0
        return [Charge(SLOW_WORKER.kind, SLOW_WORKER.title, ns, evidence)]

    def _slow_batches(self) -> list[Charge]:
        """Charge batches that all workers wait for, whichever makes them."""
        lone, evidence = (0.0, {}) if self.starved else slow_batches(self._shares)
        ns = self._take(lone)
        return [Charge(SLOW_BATCHES.kind, SLOW_BATCHES.title, ns, evidence)] if lone else []

    def _first_place(self, rank: int) -> int:
        return min(place for place, pace in self._shares.paces.items() if pace.rank == rank)

    def _without_data(self) -> list[Charge]:
        """Charge workers without data."""
        if not self.starved:
            return []
        count = self._shares.workers
        ns = self._take(ratio(self.starved, count))
        evidence = {"workers_without_data": float(self.starved), "workers": float(count)}
        return [Charge(STARVED.kind, STARVED.title, ns, evidence)]

    def _snapshots(self, in_next: float) -> Charge:
        """Charge snapshots of the loader's state, in workers and in `next`."""
        part = ratio(self._shares.made.get(_SNAPSHOT, 0.0), self._shares.made_ns)
        ns = in_next + self._making.pop(_SNAPSHOT, 0.0)
        return Charge(SNAPSHOTS.kind, SNAPSHOTS.title, ns, {"snapshot_making_share": part})

    def _handed_over(self) -> float:
        """Charge to the making how long it delayed receiving; return how much that is.

        The main process is blocked until a thread of the worker hands over the memory of a batch:
        that thread waits for the worker's interpreter, as long as it makes the next one.
        """
        looks, mains = self._seen.looks, self._seen.evidence.mains
        receiving = looks[looks["pid"].isin(mains) & (looks["phase"] == phases.RECEIVE)]
        blocked = threads_of(receiving).blocked_share
        if not math.isfinite(blocked):
            return 0.0
        for component, ns in self._shares.receiving.items():
            self._making[component] = self._making.get(component, 0.0) + ns * blocked
        return sum(self._shares.receiving.values()) * blocked

    def _without_core(self, made: dict[str, float]) -> float:
        """Take the time for batches that were made, in which others had the cores."""
        if not self._use.rivals:
            return 0.0
        looks, mains = self._seen.looks, self._seen.evidence.mains
        receiving = looks["phase"].isin((phases.RECEIVE, phases.SAMPLER, phases.NEXT))
        main, maker = threads_of(looks[looks["pid"].isin(mains) & receiving]), self._use.fetch
        # Where it is blocked it waits for a thread of a worker, which has as few cores.
        wanting = ratio(maker.delay_share, 1.0 - maker.blocked_share)
        delay = min(main.delay_share + main.blocked_share * wanting, 1.0)
        delay = delay if math.isfinite(delay) else wanting
        taken = 0.0
        for kind, ns in made.items():
            made[kind] = ns * (1.0 - delay)
            taken += ns * delay
        return taken

    def _cores(self, without: float) -> list[Charge]:
        """Charge what workers lack, in the order of CAUSES.

        While threads compete for cores, it is chance which worker is slower.
        """
        use, facts, result = self._use, self._seen.evidence.facts, []
        if use.fetch.crowded and (self._shares.workers or not self._interpreter()):
            ns = self._take(use.fetch.lost_share)
            result.append(
                Charge(WORKER_THREADS.kind, WORKER_THREADS.title, ns, crowd_evidence(use.fetch))
            )
        of_worker = [] if self.starved else self._slow_worker()
        result += of_worker or self._slow_batches()
        delay = use.fetch.delay_share
        if facts["cores"] < facts["machine_cores"] and use.full and delay >= LEAST_DELAY:
            evidence = {
                "run_delay_share": delay,
                "cores": facts["cores"],
                "machine_cores": facts["machine_cores"],
            }
            result.append(Charge(AFFINITY.kind, AFFINITY.title, self._take(delay), evidence))
        result += self._without_data()
        result += self._cold()
        if use.rivals:
            ns = without + self._take(min(delay, 1.0))
            evidence = {"run_delay_share": delay, "others_share": use.others_share}
            result.append(Charge(OTHERS.kind, OTHERS.title, ns, evidence))
        return result

    def _cold(self) -> list[Charge]:
        processes = self._seen.evidence.processes
        read = float_column(processes, "read_bytes")
        read_bytes = float(read[read >= 0].sum())
        cold: dict[Component, float] = {}
        for component, ns in self._making.items():
            looks = self._looks(component)
            part = ratio(float(looks["reason"].isin(("storage", "page-fault")).sum()), len(looks))
            if len(looks) >= LEAST_LOOKS and part >= COLD_SHARE and read_bytes > 1e6:
                cold[component] = ns
        if not cold:
            return []
        for component in cold:
            self._making[component] = 0.0
        largest = max(cold, key=lambda component: cold[component])
        making = self._seen.looks[self._seen.looks["phase"].isin(phases.MAKING)]
        evidence = {
            "read_bytes": read_bytes,
            "major_faults": math.nan,
            "fetch_ns": float(making["wall_ns"].sum()),
            "cpu_ns": float(making["cpu_ns"].sum()),
        }
        return [Charge(COLD_FILES.kind, largest[1] or largest[0], sum(cold.values()), evidence)]

    def _looks(self, component: Component) -> pd.DataFrame:
        looks = self._seen.looks
        phase, name = component
        mine = (looks["phase"] == phase) & (looks["name"] == name)
        return looks[mine & looks["pid"].isin(self._pid_of)]

    def _components(self) -> list[Charge]:
        shares, result = self._shares, []
        for component, ns in self._making.items():
            phase, name = component
            looks = self._looks(component)
            made = shares.made.get(component, 0.0)
            count = len(looks)
            reasons = looks.loc[~looks["reason"].isin((COMPUTING, ASLEEP)), "reason"]
            parts = reasons.value_counts()
            wall = float(looks["wall_ns"].sum())
            on = float(looks["cpu_ns"].sum() + looks["delay_ns"].sum())
            reasons_known = not (looks["reason"] == ASLEEP).any()
            evidence = {
                "fetch_share": ratio(made, shares.made_ns),
                "waiting_share": max(1.0 - ratio(on, wall), 0.0) if wall > 0 else math.nan,
                "total_ns": made,
                "looks": float(count if reasons_known else 0),
            }
            if reasons_known:
                for reason, seen in parts.items():
                    evidence[f"{str(reason).replace('-', '_')}_looks_share"] = seen / count
            charge = Charge(_KINDS[phase], name, ns, evidence)
            result.append(as_blocked(charge, shares.workers, self._use))
        return result


def _makers(seen: Sampled, shares: LoopShares) -> list[int]:
    """Return the ids of processes that make batches."""
    processes = seen.evidence.processes
    in_main = -1 in shares.made_by
    return [int(pid) for pid in processes.loc[(processes["worker"] >= 0) | in_main, "pid"]]


def threads_of(looks: pd.DataFrame) -> Threads:
    """Return how threads spent their time, as shares; NaN if there are no looks."""
    if not len(looks):
        return Threads(math.nan, math.nan, math.nan, math.nan)
    wall, on, ready, whole = (
        float(looks[name].sum()) for name in ("wall_ns", "cpu_ns", "delay_ns", "process_ns")
    )
    return Threads(
        delay_share=ratio(ready, wall),
        blocked_share=ratio(max(wall - on - ready, 0.0), wall),
        helper_share=ratio(max(whole - on, 0.0), whole),
        cores=ratio(whole, wall),
    )


def _core_use(seen: Sampled, shares: LoopShares) -> CoreUse:
    looks, evidence = seen.looks, seen.evidence
    makers = _makers(seen, shares)
    making = looks[looks["pid"].isin(makers) & looks["phase"].isin(phases.MAKING)]
    stepping = looks[looks["pid"].isin(evidence.mains) & (looks["phase"] == phases.STEP)]
    cores_ns = evidence.elapsed_ns * evidence.facts["cores"]
    cpu = float_column(evidence.processes, "cpu_ns")
    children = float_column(evidence.processes, "children_ns")
    started = float(children[(children >= 0) & evidence.processes["pid"].isin(makers)].sum())
    kept = float_column(evidence.processes, "kept_ns")
    kept_ns = float(kept[kept >= 0].sum())
    own = ratio(float(cpu[cpu >= 0].sum()) + started + kept_ns, cores_ns)
    used, stolen = math.nan, 0.0
    machine = evidence.machine
    if len(machine) > 1:
        busy_ns, whole_ns = (float(times[-1] - times[0]) for times in core_time(machine))
        used = ratio(busy_ns, whole_ns)
        stolen = _grown(seen, "stolen_ns") / max(whole_ns, 1.0)
    ours = ratio(float(evidence.facts["cost_ns"]), cores_ns)
    others = max(used - own - ours, 0.0) if math.isfinite(used) else math.nan
    return CoreUse(
        fetch=threads_of(making),
        step=threads_of(stepping),
        own_share=own,
        others_share=others,
        children_share=ratio(started, started + float(making["cpu_ns"].sum())),
        stolen_share=stolen,
        used_share=used,
        kept_cores=kept_ns / evidence.elapsed_ns / len(evidence.mains),
    )


def _grown(seen: Sampled, name: str) -> float:
    """Return by how much a reading of the machine grew; 0.0 if it did not or is unknown."""
    values = float_column(seen.evidence.machine, name)
    values = values[values >= 0]
    return float(values[-1] - values[0]) if values.size > 1 else 0.0


def _growth(seen: Sampled, shares: LoopShares) -> MemoryGrowth:
    memory = seen.evidence.memory
    workers = memory[float_column(memory, "worker") >= 0].rename(columns={"time_ns": "time"})
    # As it starts, a worker copies pages of the modules that it uses, and the collection of garbage
    # copies others: none of that is the data set's.
    began = workers["pid"].map(seen.looks.groupby("pid")["time_ns"].min())
    workers = workers[workers["time"] - began > _SETTLED_NS]
    count, ranks = max(shares.workers, 1), max(len(seen.evidence.mains), 1)
    return growth_of(workers, seen.evidence.machine, count * ranks, count > 1, {})


def _sends_tensors(seen: Sampled) -> bool:
    samples = seen.samples
    sent = samples[samples["phase"].isin((phases.SEND, phases.RECEIVE))]
    return not len(sent) or bool((sent["name"] == phases.TENSORS).any())


def _input_share(shares: LoopShares) -> float:
    """Return the waits beyond the start-up, as a share of the loop."""
    owed = shares.of(phases.STEP, phases.STARTUP, phases.SHUTDOWN) + shares.startup_ns
    return ratio(shares.loop_ns - owed, shares.loop_ns)


def _circumstances(
    seen: Sampled, shares: LoopShares, settings: LoaderSettings, account: Account
) -> Circumstances:
    use = account.use
    step = shares.of(phases.STEP)
    of_step = stacks_of(seen, shares.loop, phases.STEP, "step")
    made = shares.made_ns * (1.0 - min(use.fetch.delay_share, 0.9) if use.rivals else 1.0)
    processes = seen.evidence.processes
    descriptors = float_column(processes, "descriptors")
    return Circumstances(
        workers=shares.workers,
        cores=seen.evidence.facts["cores"],
        needed=ratio(made, step) if step > 0 else math.nan,
        batches=math.inf,
        idle_share=idle_share(shares),
        shared=0.0,
        prefetch=2,
        pinned=bool((seen.samples["phase"] == phases.PIN).any()),
        persistent=bool(settings.persistent_workers),
        in_order=True,
        # Workers that are kept end with their loader.
        times_created=shares.starts if settings.persistent_workers else 1,
        call_site="",
        hot=hot_functions(stacks_of(seen, shares.loop, phases.DATASET, "fetch"), "fetch"),
        hot_in_sampler=hot_functions(
            stacks_of(seen, shares.loop, phases.SAMPLER, "sampler"), "sampler"
        ),
        hot_in_step=hot_lines(of_step, "step"),
        called_in_step=hot_callee(of_step, "step"),
        spawned=bool(settings.spawned),
        level="op",
        partial=True,
        # Sizes are not seen; of tensors and pickled objects, which they are.
        batch_bytes=math.inf,
        pipe_bytes=0.0 if _sends_tensors(seen) else math.inf,
        iterable=bool(settings.iterable),
        in_sequence=bool(settings.in_sequence),
        paths={},
        use=use,
        wait_spread=wait_spread(shares.rows, _input_share(shares)),
        resources=Resources(
            descriptors=float(descriptors.max(initial=-1.0)),
            swapped_bytes=_grown(seen, "swapped_bytes"),
            memory_stall_ns=_grown(seen, "memory_stall_ns"),
            memory_left=least_memory_share(
                seen.evidence.machine, seen.evidence.facts.get("memory_bytes") or math.nan
            ),
        ),
        shares=account.shares,
        inner=inner_operations(seen, shares),
    )

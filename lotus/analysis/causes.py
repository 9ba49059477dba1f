"""What the loop's time is owed to: causes with their share, ranked; pure accounting.

Every nanosecond of the loop is charged once: to the consumer, to the start-up, to the shut-down,
or, for each wait, to what kept its batch away. Outliers (a few slow samples, one slow worker,
files read from cold storage) take over what they cost beyond the ordinary.
"""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lotus.analysis.columns import Bools, Floats, flag, integer, number, ratio, total
from lotus.analysis.components import (
    Components,
    components,
    core_taken,
    first_excess,
    first_of_process,
    interpreter_held,
    off_cpu,
    slow_sample_parts,
    slow_samples,
    slow_workers,
    storage_parts,
)
from lotus.analysis.scope import Scope
from lotus.analysis.waits import loop_times, paced, wait_phases

CONSUMER, STARTUP, SHUTDOWN = "consumer", "start-up", "shut-down"
OPERATION, DATASET, COLLATE, FETCH = "operation", "dataset", "collate", "fetch"
SLOW_SAMPLES, SLOW_WORKER, COLD_FILES = "slow-samples", "slow-worker", "cold-files"
SEND, PIN, MAIN, INDEX, UNSEEN = "send", "pin", "main-process", "index", "unseen"
# An operation is cold where at least this much of its time went to storage; time in which others
# had its core does not count.
COLD_SHARE = 0.3
# Workers that use this much of the cores wait for a core, not for storage or a network.
CROWDED = 0.7
# Others had the cores where they did for more than this share of the time of the fetches.
SHARED = 0.2
# The slow samples that are counted are those that make up this share of what all outliers cost.
MOST_OF_EXCESS = 0.9


@dataclass(frozen=True)
class Charge:
    """`ns` of the loop's time that are owed to one thing; `evidence`: numbers, units in names."""

    kind: str
    name: str
    ns: float
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Account:
    """The loop of one loader, all epochs and ranks added up.

    `charges` add up to `loop_ns`. `phases` is `waits.wait_phases` per batch.
    """

    loop_ns: float
    iter_ns: float
    wait_ns: float
    step_ns: float
    tail_ns: float
    epochs: pd.DataFrame
    phases: pd.DataFrame
    components: Components
    slow_samples: Bools
    workers: pd.DataFrame
    charges: list[Charge]


def account(scope: Scope) -> Account:
    """Charge the time of the loader's loop."""
    batches, ops, samples = scope.batches, scope.ops, scope.samples
    loop = loop_times(scope.epochs, scope.waits)
    found = components(batches, samples, ops)
    first = first_of_process(batches, scope.workers)
    phases = wait_phases(batches, scope.workers)
    slow, typical = slow_samples(batches, samples, found.sample_rows, first)
    workers = slow_workers(batches, found.fetch, first)
    parts = _Parts(scope, found, first, _crowded(scope, loop))
    parts.outliers = slow_sample_parts(found, samples, ops, slow, typical)
    parts.lag = _lag(batches, workers)
    charges = _charges(scope, loop, phases, parts)
    charges = [_with_outlier_evidence(one, samples, slow, typical, workers) for one in charges]
    return Account(
        loop_ns=total(number(loop, "loop_ns")),
        iter_ns=total(number(loop, "iter_ns")),
        wait_ns=total(number(loop, "wait_ns")),
        step_ns=total(number(loop, "step_ns")),
        tail_ns=total(number(loop, "tail_ns")),
        epochs=loop,
        phases=phases,
        components=found,
        slow_samples=slow,
        workers=workers,
        charges=sorted(charges, key=lambda one: -one.ns),
    )


class _Parts:
    """Matrices and fractions per batch that the charges are made of."""

    def __init__(self, scope: Scope, found: Components, first: Bools, crowded: bool) -> None:
        self.found = found
        self.first = first
        fetch = found.fetch
        self.known = fetch > 0
        self.fetch = np.where(self.known, fetch, 1.0)
        self.excess = first_excess(scope.batches, fetch, first)
        self.held = np.minimum(interpreter_held(scope.batches, fetch), fetch - self.excess)
        kinds = scope.operations
        names: set[str] = set()
        if len(kinds):
            names = set(kinds.loc[kinds["kind"].astype(str) == "loader", "operation"].astype(str))
        self.storage = storage_parts(found, scope.batches, scope.ops, names, self.held, first)
        self.own_part = 1.0 - np.minimum(core_taken(scope.batches, fetch) / self.fetch, 1.0)
        self.crowded = crowded
        if crowded:
            self.storage = np.zeros_like(found.parts)
        self.outliers = np.zeros_like(found.parts)
        self.lag = np.zeros(len(fetch))


def _crowded(scope: Scope, loop: pd.DataFrame) -> bool:
    # Of a partly recorded loop the mean stands for all batches.
    used = _mean(number(scope.batches, "cpu_ns")) * len(scope.waits)
    return ratio(used, total(number(loop, "loop_ns")) * scope.cores) > CROWDED


def core_shared(scope: Scope) -> float:
    """How much of the workers' time off a core others had it; 0.0 where that is of no weight.

    Where the program itself keeps the cores busy, it is its own workers that wait for one another.
    """
    fetch = np.nan_to_num(number(scope.batches, "fetch_ns"))
    taken, off = (total(part(scope.batches, fetch)) for part in (core_taken, off_cpu))
    if taken < SHARED * total(fetch) or _crowded(scope, loop_times(scope.epochs, scope.waits)):
        return 0.0
    return ratio(taken, taken + off)


def _lag(batches: pd.DataFrame, workers: pd.DataFrame) -> Floats:
    """The fraction of each batch's making that is owed to its worker being a slow one (n,)."""
    slow = workers[workers["slow"]]
    if not len(slow):
        return np.zeros(len(batches))
    keys = pd.DataFrame({"rank": integer(batches, "rank"), "worker": integer(batches, "worker")})
    joined = keys.merge(slow, on=["rank", "worker"], how="left")
    return np.nan_to_num(1.0 - 1.0 / joined["times"].to_numpy(np.float64))


def _charges(scope: Scope, loop: pd.DataFrame, phases: pd.DataFrame, parts: _Parts) -> list[Charge]:
    found = parts.found
    charged = {
        name: column.to_numpy()
        for name, column in paced(phases, scope.batches, parts.first).items()
    }
    making = np.where(parts.known, charged["making"], 0.0)
    unseen = total(charged["unseen"]) + total(np.where(parts.known, 0.0, charged["making"]))
    lazily = making * parts.excess / parts.fetch
    making = making - lazily
    # The first pickling of a process imports what it needs.
    pickle_excess = first_excess(scope.batches, number(scope.batches, "pickle_ns"), parts.first)
    late = np.minimum(charged["sending"], pickle_excess)
    charged["sending"] = charged["sending"] - late

    # The first batch of an epoch is waited for whatever the pipeline: its making is start-up, but
    # for as much as later batches are waited for as well.
    first = flag(scope.batches, "first")
    rest = making + charged["sending"] + charged["pinning"] + charged["handover"]
    fill, steady = total(rest[first]), total(rest[~first] - charged["handover"][~first])
    weight = np.where(first, min(1.0, steady / fill) if fill > 0 else 1.0, 1.0)
    filling = total(rest * (1.0 - weight))
    making, sending, pinning, handover = (
        part * weight
        for part in (making, charged["sending"], charged["pinning"], charged["handover"])
    )

    held = making * parts.held / parts.fetch
    rate = ((making - held) / parts.fetch)[:, None]
    # The excess of a first batch is already charged: what is left is split in proportion.
    usual = found.parts
    outliers = rate * parts.outliers
    storage = rate * np.minimum(parts.storage, usual - parts.outliers)
    ordinary = rate * (usual - parts.outliers) - storage
    lagging = ordinary * parts.lag[:, None]
    ordinary = ordinary - lagging

    iter_ns, workers_ns = total(number(loop, "iter_ns")), total(charged["startup"])
    startup = {
        "iter_ns": iter_ns,
        "workers_ns": workers_ns,
        "first_batch_ns": total(lazily) + filling,
        "first_send_ns": total(late),
    }
    result = [
        Charge(CONSUMER, "the consumer's own step", total(number(loop, "step_ns"))),
        Charge(STARTUP, "start-up", sum(startup.values()), startup | {"epochs": float(len(loop))}),
        Charge(SHUTDOWN, "shut-down", total(number(loop, "tail_ns"))),
        Charge(SEND, "sending batches", total(sending) + total(held), _send_evidence(scope)),
        Charge(PIN, "pinning memory", total(pinning)),
        Charge(MAIN, "hand-over in the main process", total(handover)),
        Charge(INDEX, "nobody had asked for the batch", total(charged["index"])),
        Charge(SLOW_SAMPLES, "a few slow samples", total(outliers)),
        Charge(SLOW_WORKER, "one slow worker", total(lagging)),
        *_component_charges(scope, parts, ordinary, storage),
    ]
    waited = total(number(loop, "wait_ns"))
    # Waits of batches that have no record, and waits that could not be joined.
    seen = sum(one.ns for one in result if one.kind not in (CONSUMER, SHUTDOWN)) - iter_ns
    unseen = max(unseen, waited - seen, 0.0)
    if scope.partial and unseen > 0:
        result = _extrapolated(result, unseen)
    elif unseen >= 1:
        broken = total(number(scope.waits, "wait_ns")[flag(scope.waits, "failed")])
        evidence = {"broken_off_ns": min(broken, unseen)}
        result.append(Charge(UNSEEN, "waits without a record of their batch", unseen, evidence))
    return [one for one in result if one.ns >= 1]


def _extrapolated(charges: list[Charge], unseen: float) -> list[Charge]:
    """Only some batches were to be recorded: the others' waits are shared out like theirs."""
    fixed = (CONSUMER, STARTUP, SHUTDOWN)
    seen = sum(one.ns for one in charges if one.kind not in fixed)
    if seen <= 0:
        return [*charges, Charge(UNSEEN, "waits of batches that were not recorded", unseen)]
    scale = 1.0 + unseen / seen
    return [
        one if one.kind in fixed else Charge(one.kind, one.name, one.ns * scale, one.evidence)
        for one in charges
    ]


def _component_charges(
    scope: Scope, parts: _Parts, ordinary: Floats, storage: Floats
) -> list[Charge]:
    """One charge a component; components that wait for storage become one charge.

    `ordinary`, `storage`: nanoseconds per batch and component (n, c).
    """
    own = ((ordinary + storage) * parts.own_part[:, None]).sum(axis=0)
    ordinary, storage = ordinary.sum(axis=0), storage.sum(axis=0)
    found, batches = parts.found, scope.batches
    fetch, made = total(found.fetch), found.parts.sum(axis=0)
    off = np.maximum(off_cpu(batches, found.fetch) - parts.held, 0.0)
    result: list[Charge] = []
    cold: list[tuple[float, str]] = []
    for place, (name, kind) in enumerate(zip(found.names, found.kinds, strict=True)):
        ns = float(ordinary[place] + storage[place])
        if ns <= 0:
            continue
        if storage[place] > 0 and storage[place] >= COLD_SHARE * own[place]:
            cold.append((ns, name))
            continue
        others = found.fetch - found.parts[:, place]
        evidence = {
            "fetch_share": ratio(float(made[place]), fetch),
            "waiting_share": _waiting_share(scope, parts, place, np.maximum(off - others, 0.0)),
            "total_ns": float(made[place]),
        }
        result.append(Charge(kind, name, ns, evidence))
    if cold:
        ns, names = sum(one for one, _ in cold), sorted(cold, reverse=True)
        evidence = {
            "read_bytes": total(number(batches, "read_bytes")),
            "major_faults": total(number(batches, "major_faults")),
            "fetch_ns": fetch,
            "cpu_ns": total(number(batches, "cpu_ns")),
        }
        result.append(Charge(COLD_FILES, names[0][1], ns, evidence))
    return result


def _waiting_share(scope: Scope, parts: _Parts, place: int, at_least: Floats) -> float:
    """How much of a component's time it waited; a lower bound without its own CPU time.

    NaN where that is not known: time off the CPU may be waiting for one.
    """
    found = parts.found
    if parts.crowded:
        return float("nan")
    mine = (found.op_rows >= 0) & (found.op_codes == place)
    cpu = number(scope.ops, "cpu_ns")[mine]
    if found.kinds[place] == OPERATION and cpu.size and not np.isnan(cpu).any():
        duration = total(number(scope.ops, "duration_ns")[mine])
        return 1.0 - min(ratio(total(cpu), duration), 1.0)
    if np.isnan(number(scope.batches, "cpu_ns")).all():
        return float("nan")
    return ratio(total(at_least), total(found.parts[:, place]))


def _send_evidence(scope: Scope) -> dict[str, float]:
    batches = scope.batches
    means = {
        f"mean_{name}_ns": number(batches, f"{name}_ns") for name in ("pickle", "lock", "write")
    }
    evidence = {name: _mean(values) for name, values in means.items()}
    wanted = np.fmax(number(batches, "wait_start_ns"), number(batches, "ready_ns"))
    evidence["mean_receive_ns"] = _mean(np.maximum(number(batches, "arrival_ns") - wanted, 0.0))
    return {
        **evidence,
        "mean_pipe_bytes": _mean(number(batches, "send_bytes")),
        "mean_batch_bytes": _mean(number(batches, "bytes")),
    }


def _mean(values: Floats) -> float:
    measured = values[~np.isnan(values)]
    return float(measured.mean()) if measured.size else float("nan")


def _with_outlier_evidence(
    charge: Charge, samples: pd.DataFrame, slow: Bools, typical: Floats, workers: pd.DataFrame
) -> Charge:
    if charge.kind == SLOW_SAMPLES and slow.any():
        duration = number(samples, "duration_ns")
        worst = int(np.argmax(np.where(slow, duration, -1.0)))
        excess = np.where(slow, duration - typical, 0.0)
        by_excess = np.argsort(-excess, kind="stable")
        most = np.searchsorted(np.cumsum(excess[by_excess]), MOST_OF_EXCESS * excess.sum())
        index = integer(samples, "sample")[by_excess[: most + 1]]
        distinct = len(set(index.tolist())) if (index != -1).all() else len(index)
        evidence = {
            "samples": float(distinct),
            "times_fetched": float(len(index)),
            "slowest_sample": float(integer(samples, "sample")[worst]),
            "slowest_ns": float(duration[worst]),
            "typical_ns": float(typical[worst]),
        }
        return Charge(charge.kind, charge.name, charge.ns, evidence)
    if charge.kind == SLOW_WORKER:
        worst_worker = workers[workers["slow"]].sort_values("times").iloc[-1]
        evidence = {
            name: float(worst_worker[name])
            for name in ("rank", "worker", "own_ns", "others_ns", "times")
        }
        return Charge(charge.kind, charge.name, charge.ns, evidence)
    return charge

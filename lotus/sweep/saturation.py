"""Finds the resource that saturates, so that more workers do not help, from a sweep's numbers.

Each judgement includes the numbers that support it. Without such numbers the answer is "not known".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lotus.analysis.verdict.causes.transport import HANDOVER, INDEX, PINNING, SENDING
from lotus.analysis.verdict.loop_time.batch_making import CROWDED, SHARED
from lotus.analysis.verdict.parts_of_loop import HIGH, MODERATE
from lotus.common.numbers.statistics import t_quantile
from lotus.sweep.knee import Knee

GROWS = 1.15  # growth of a sample's cost with more workers that exceeds noise
OFF_CORE = 0.3  # share of fetches off the cores from which waiting limits the rate
IDLE = 0.2  # idle share of the workers from which they do not limit the rate
BUSY = 0.9  # share of all cores in use by the command from which they limit the rate
OTHERS = 0.5  # share of all cores below which the command does not compete with itself
CONSUMER, GROWING, MAIN_PROCESS, CORES = "consumer", "none yet", "main process", "cores"
FRONTEND, BACKEND, SHARED_CPU = "front end", "back end", "shared parts of the CPU"
OTHER_PROGRAMS = "cores used by something else"
STORAGE, WAITING, EDGES, UNKNOWN = "storage", "waiting", "start-up", "not known"

# Between the workers and the loop.
_ON_THE_WAY = {
    SENDING.kind: "sending batches from the workers (pickling, the queue)",
    PINNING.kind: "copying batches to pinned memory",
    HANDOVER.kind: "the main process taking batches off the queue and handing them out",
    INDEX.kind: "workers that were not asked early enough (prefetch_factor)",
}

Table = Mapping[int, Mapping[str, Sequence[float]]]  # workers -> measure -> each repeat's value


@dataclass(frozen=True)
class Limit:
    """The resource that saturates (`kind`), a sentence on it, and the numbers that support it."""

    kind: str
    text: str
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """The ratio of a measure at two settings, with its 95 % interval.

    The interval is NaN if no setting was run twice.
    """

    times: float
    low: float
    high: float

    @property
    def grows(self) -> bool:
        """True if the growth is significant and large enough to matter."""
        return self.times >= GROWS and not self.low <= 1


def limits(table: Table, knee: Knee | None, cores: float) -> list[Limit]:
    """Return what saturates beyond the knee, most relevant first; never empty.

    `table` has the runs of settings that differ only in the number of workers, `cores` is the
    number of cores that the program could use at once (NaN: not known).
    """
    if knee is None:
        return [Limit(UNKNOWN, "One number of workers does not show what saturates.")]
    at, most = _means(table[knee.workers]), max(table)
    top = _means(table[most])
    edges = at.get("edges_share", 0.0)
    if edges > HIGH and edges > at.get("input_share", 0.0):
        return [_edges(knee, at)]
    if at.get("input_share", math.nan) < MODERATE:
        return [_training_step(knee, at)]
    if knee.last and not knee.undecided:
        return [_growing(knee, at), *_cores(most, top, cores)]
    causes = [
        *_main(most, top),
        *_cores(most, top, cores),
        *_cpu(table),
        *_off_core(most, top),
    ]
    return causes or [
        Limit(
            UNKNOWN,
            "The measurements do not show what saturates."
            if knee.undecided
            else f"Throughput no longer grows beyond {knee.workers} workers, and the measurements "
            "do not show why.",
            _evidence(top, "fetch_utilisation", "off_share", "idle_share", "wait_share"),
        )
    ]


def change(table: Table, measure: str, first: int, last: int) -> Change:
    """Return the change of a measure from `first` to `last` workers, with the spread of all
    settings.
    """
    logs = {
        workers: np.log([value for value in values.get(measure, ()) if value > 0])
        for workers, values in table.items()
    }
    before, after = logs.get(first, np.zeros(0)), logs.get(last, np.zeros(0))
    if not len(before) or not len(after):
        return Change(math.nan, math.nan, math.nan)
    step = float(after.mean() - before.mean())
    freedom = sum(max(len(values) - 1, 0) for values in logs.values())
    if not freedom:
        return Change(math.exp(step), math.nan, math.nan)
    spread = sum(
        float(((values - values.mean()) ** 2).sum()) for values in logs.values() if len(values)
    )
    half = t_quantile(freedom) * math.sqrt(spread / freedom * (1 / len(before) + 1 / len(after)))
    return Change(math.exp(step), math.exp(step - half), math.exp(step + half))


def _means(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    means = {}
    for name, repeats in values.items():
        measured = [value for value in repeats if not math.isnan(value)]
        if measured:
            means[name] = sum(measured) / len(measured)
    return means


def _evidence(means: Mapping[str, float], *names: str) -> dict[str, float]:
    return {name: means[name] for name in names if name in means}


def _training_step(knee: Knee, at: Mapping[str, float]) -> Limit:
    return Limit(
        CONSUMER,
        f"The training step: with {_workers(knee.workers)}, it takes "
        f"{at.get('step_share', math.nan):.0%} of the loop, so more workers cannot help.",
        _evidence(at, "step_share", "input_share", "wait_share"),
    )


def _edges(knee: Knee, at: Mapping[str, float]) -> Limit:
    return Limit(
        EDGES,
        f"Start-up and shut-down: with {_workers(knee.workers)}, {at['edges_share']:.0%} of the "
        "loop passes before its first batch or after its last one; longer epochs or persistent "
        "workers would show what more workers gain.",
        _evidence(at, "edges_share", "startup_s", "input_share"),
    )


def _growing(knee: Knee, at: Mapping[str, float]) -> Limit:
    return Limit(
        GROWING,
        f"No limit seen: throughput still grows at {_workers(knee.workers)}, the most that was "
        "tried.",
        _evidence(at, "fetch_utilisation", "wait_share"),
    )


def _main(most: int, top: Mapping[str, float]) -> list[Limit]:
    """Return the limit by transport of batches, if workers are idle while the loop waits."""
    idle = top.get("idle_share", 0.0)
    shares = {kind: top.get(f"{kind}_owed_share", 0.0) for kind in _ON_THE_WAY}
    kind = max(shares, key=lambda kind: shares[kind])
    if idle < IDLE or shares[kind] < MODERATE:
        return []
    return [
        Limit(
            MAIN_PROCESS,
            f"Delivery to the main process: with {_workers(most)}, workers are idle {idle:.0%} of "
            f"the time, and {shares[kind]:.0%} of the loop is due to {_ON_THE_WAY[kind]}.",
            {"idle_share": idle, f"{kind}_owed_share": shares[kind],
             **_evidence(top, "wait_share")},
        )
    ]  # fmt: skip


def _cores(most: int, top: Mapping[str, float], cores: float) -> list[Limit]:
    queue, used = top.get("queue_share", 0.0), top.get("fetch_utilisation", 0.0)
    busy = top.get("utilisation", 0.0)
    if queue < SHARED and used < CROWDED and busy < BUSY:
        return []
    evidence = {**_evidence(top, "queue_share", "fetch_utilisation", "utilisation"), "cores": cores}
    if max(used, busy) < OTHERS:
        return [
            Limit(
                OTHER_PROGRAMS,
                f"Cores used by something else: with {_workers(most)}, fetches wait for a core "
                f"{queue:.0%} of their time, while the command uses {max(used, busy):.0%} of the "
                "cores. Unless its step keeps them busy, other programs do: sweep again on an idle "
                "machine.",
                evidence,
            )
        ]
    text = f"Cores: with {_workers(most)}, fetching alone uses {used:.0%} of "
    text += "the cores" if math.isnan(cores) else f"the {cores:g} cores" if cores != 1 else "1 core"
    if queue >= 0.01:
        text += f", and fetches wait for a core {queue:.0%} of their time"
    return [Limit(CORES, text + ".", evidence)]


def _cpu(table: Table) -> list[Limit]:
    """Return the limit by another resource, if more workers cost more CPU time per sample."""
    several = sorted(workers for workers in table if workers)
    if len(several) < 2:
        return []
    first, last = several[0], several[-1]
    cost = change(table, "cpu_us_per_sample", first, last)
    if not cost.grows:
        return []
    growth_text = (
        f"with {_workers(last)}, a sample takes {cost.times:.2f} times as much CPU time as with "
        f"{first}"
    )
    evidence = {"cpu_times": cost.times, "cpu_times_low": cost.low, "cpu_times_high": cost.high}
    ends = _means(table[first]), _means(table[last])
    grown = {}
    for side in ("frontend", "backend"):
        lost = [end.get(f"{side}_lost_per_sample", math.nan) for end in ends]
        share = [end.get(f"{side}_bound", math.nan) for end in ends]
        growth = lost[1] - lost[0] if not any(map(math.isnan, lost)) else share[1] - share[0]
        if not math.isnan(growth):
            grown[side] = growth
            evidence |= {f"{side}_bound_first": share[0], f"{side}_bound_last": share[1]}
    if grown and max(grown.values()) > 0:
        return [_slots(growth_text, evidence, max(grown, key=lambda side: grown[side]), ends)]
    why = "hardware counters would show which" if not grown else "the counters do not show which"
    return [
        Limit(
            SHARED_CPU,
            f"Shared parts of the CPU: {growth_text} (memory bandwidth, caches, hyper-threads, "
            f"clock frequency; {why}).",
            evidence,
        )
    ]


def _slots(
    growth_text: str, evidence: dict[str, float], side: str, ends: Sequence[Mapping[str, float]]
) -> Limit:
    first, last = (end.get(f"{side}_bound", math.nan) for end in ends)
    loads = [end.get("dram_loads_per_sample", math.nan) for end in ends]
    growth_text += (
        f", and the {'front' if side == 'frontend' else 'back'} end leaves {last:.0%} of the "
    )
    growth_text += f"slots empty instead of {first:.0%}"
    if not any(map(math.isnan, loads)):
        evidence |= {"dram_loads_first": loads[0], "dram_loads_last": loads[1]}
    if side == "frontend":
        return Limit(FRONTEND, f"The CPU's front end: {growth_text}.", evidence)
    return Limit(
        BACKEND, f"Memory, or whatever else the CPU's back end waits for: {growth_text}.", evidence
    )


def _off_core(most: int, top: Mapping[str, float]) -> list[Limit]:
    off, storage = top.get("off_share", 0.0), top.get("storage_share", 0.0)
    if off < OFF_CORE:
        return []
    evidence = _evidence(top, "off_share", "storage_share", "read_bytes", "major_faults")
    wait_text = f"with {_workers(most)}, fetches are blocked {off:.0%} of their time"
    if storage >= off / 2:
        return [
            Limit(STORAGE, f"Storage: {wait_text} and read from local storage meanwhile.", evidence)
        ]
    return [
        Limit(
            WAITING,
            f"Waiting, but not for local storage: {wait_text} (network, lock, interpreter or "
            "sleep).",
            evidence,
        )
    ]


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"

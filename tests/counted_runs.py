"""Whole runs with counters, of a made PMU: what each operation counts in a cycle is given."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from native_map.events import pmu
from native_map.events.generic import CYCLES, INSTRUCTIONS
from tests.logs import MS, START_NS, RunBuilder, Sample

CYCLES_A_NS = 3
Rates = Mapping[
    str, Mapping[str, float]
]  # by operation and event, in a cycle; "" is collate and own code

# Of the 6 slots of a cycle of Sapphire Rapids; a share is of level 1, or of level 2 below it.
_INTEL = {
    "Loader": {"retiring": 0.40, "bad_spec": 0.15, "fe_bound": 0.20, "be_bound": 0.25,
               "heavy_ops": 0.04, "br_mispredict": 0.13, "fetch_lat": 0.08, "mem_bound": 0.05},
    "RandomResizedCrop": {"retiring": 0.72, "bad_spec": 0.01, "fe_bound": 0.12, "be_bound": 0.15,
                          "heavy_ops": 0.02, "br_mispredict": 0.01, "fetch_lat": 0.05,
                          "mem_bound": 0.04},
    "Normalize": {"retiring": 0.18, "bad_spec": 0.02, "fe_bound": 0.30, "be_bound": 0.50,
                  "heavy_ops": 0.11, "br_mispredict": 0.01, "fetch_lat": 0.22, "mem_bound": 0.41},
    "": {"retiring": 0.05, "bad_spec": 0.05, "fe_bound": 0.30, "be_bound": 0.60,
         "heavy_ops": 0.01, "br_mispredict": 0.04, "fetch_lat": 0.20, "mem_bound": 0.55},
}  # fmt: skip
# Of the 8 slots of a cycle of Zen 5; waits are cycles.
_ZEN = {
    "Loader": {"slots_frontend": 0.24, "slots_backend": 0.37, "ops_retired": 0.29,
               "frontend_starved": 0.17, "retire_waits": 0.40, "retire_waits_load": 0.37},
    "RandomResizedCrop": {"slots_frontend": 0.32, "slots_backend": 0.13, "ops_retired": 0.53,
                          "frontend_starved": 0.19, "retire_waits": 0.10,
                          "retire_waits_load": 0.05},
    "Normalize": {"slots_frontend": 0.38, "slots_backend": 0.46, "ops_retired": 0.13,
                  "frontend_starved": 0.29, "retire_waits": 0.50, "retire_waits_load": 0.40},
    "": {"slots_frontend": 0.60, "slots_backend": 0.30, "ops_retired": 0.05,
         "frontend_starved": 0.50, "retire_waits": 0.20, "retire_waits_load": 0.19},
}  # fmt: skip
_IPC = {"Loader": 2.6, "RandomResizedCrop": 4.4, "Normalize": 1.2, "": 0.5}


def sapphire() -> tuple[Rates, list[list[str]]]:
    """What Sapphire Rapids counts with `--counters=topdown2`: one group, led by the slots."""
    rates = {
        name: {"slots": 6.0, "cycles": 1.0, "instructions": _IPC[name]}
        | {f"topdown_{event}": 6 * share for event, share in shares.items()}
        for name, shares in _INTEL.items()
    }
    group = ["slots", *(f"topdown_{event}" for event in _INTEL["Loader"])]
    return rates, [[*group, "cycles", "instructions"]]


def zen5() -> tuple[Rates, list[list[str]]]:
    """What Zen 5 counts with five counters: groups that take turns by batch."""
    slots = ("slots_frontend", "slots_backend", "ops_retired")
    rates = {
        name: {"cycles": 1.0, "instructions": _IPC[name], "branch_misses": 0.002, "resyncs": 0.001}
        | {event: part * (8 if event in slots else 1) for event, part in parts.items()}
        | {"ops_microcode": 0.02}
        for name, parts in _ZEN.items()
    }
    base = ["cycles", "instructions"]
    waits = ["frontend_starved", "retire_waits", "retire_waits_load"]
    return rates, [[*base, *slots], [*base, *waits],
                   [*base, "branch_misses", "resyncs", "ops_microcode"]]  # fmt: skip


class _Counting:
    """The readings of one batch, in which the groups other than number `turn` do not count."""

    def __init__(self, rates: Rates, groups: Sequence[Sequence[str]], turn: int) -> None:
        self.rates, self.turn, self.enabled = rates, turn, 0
        self.sums = [dict.fromkeys(group, 0.0) for group in groups]
        self.readings: list[list[int]] = []

    def read(self) -> int:
        words: list[int] = []
        for number, group in enumerate(self.sums):
            if number == self.turn:
                words += [len(group), self.enabled, self.enabled]
                words += [round(value) for value in group.values()]
            else:
                words += [0] * (3 + len(group))
        self.readings.append(words)
        return len(self.readings) - 1

    def work(self, name: str, took: int) -> None:
        self.enabled += took
        for group in self.sums:
            for event in group:
                group[event] += self.rates[name][event] * took * CYCLES_A_NS

    def around(self, name: str, took: int) -> tuple[int, int]:
        first = self.read()
        self.work(name, took)
        return first, self.read()


def counted_run(
    path: Path,
    uarch: str,
    model: str,
    counts: tuple[Rates, Sequence[Sequence[str]]],
    *,
    times_ns: Mapping[str, int],
    batches: int = 60,
    batch_size: int = 4,
    seed: int = 0,
) -> Path:
    """Write a run without workers, whose operations take about `times_ns`; return its path.

    Of several groups of events one is counted in each batch, in turn.
    """
    rates, groups = counts
    chance = random.Random(seed)
    cpu = {"model": model, "logical": 8, "affinity": 8, "quota": None}
    builder = RunBuilder(path, cpu=cpu, boot_id=model, host=uarch, start_wall_ns=10**18 + seed)
    main = builder.process(100)
    builder.report("torch", 100, torch="2.15.0")
    main.loader(0, num_workers=0, batch_size=batch_size, length=batches,
                dataset_length=batches * batch_size)  # fmt: skip
    main.iterator(0, 0, START_NS, START_NS + MS)
    main.operations(*times_ns)
    known = {each.name: each for form in pmu.table(uarch).sets["topdown2"] for each in form.events}
    known |= {each.name: each for each in (CYCLES, INSTRUCTIONS)}
    events = [
        {"name": name, "group": number, "read_count": 0, "type": 4, "flags": "u"}
        | {"config": known[name].config, "config1": known[name].config1}
        for number, group in enumerate(groups)
        for name in group
    ]
    main.event("counters", tid=100, read_ns=1000, pinned=True, events=events)
    now, collate_ns, own_ns = START_NS + MS, 200_000, 100_000
    for batch in range(batches):
        turn, start = batch % len(groups), now
        counters = _Counting(rates, groups, turn)
        samples, edges = [], []
        counters.read()
        for index in range(batch_size):
            ops = []
            for name, usual in times_ns.items():
                took = max(round(chance.gauss(usual, 0.05 * usual)), 1000)
                edges.append(counters.around(name, took))
                ops.append((name, took))
            whole = sum(took for _, took in ops)
            samples.append(Sample(batch * batch_size + index, whole, ops))
        collate = counters.around("", collate_ns)
        counters.work("", own_ns)
        counters.read()
        main.counts(start, counters.readings, edges, collate)
        took = sum(sample.duration_ns for sample in samples) + collate_ns + own_ns
        main.batch(batch, start_ns=start, samples=samples, collate_ns=collate_ns, fetch_ns=took,
                   cpu_ns=took, bytes=batch_size * 1000)  # fmt: skip
        now += took
        main.wait(0, 0, batch, start_ns=start, end_ns=now)
        now += 5 * MS
    main.epoch_end(0, 0, now, batches, True, now)
    return builder.end(end_ns=now, uarch=uarch)

"""A program as `lotus attach` sees it, made up: what each thread is at, tick by tick."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import SETTINGS, AttachEvidence

TICK = 20_000_000
MAIN = 100
At = tuple[str, str]  # phase, name of the operation
WAIT, STEP, IDLE = (phases.WAIT, ""), (phases.STEP, ""), (phases.IDLE, "")
START = 10**12


def operation(name: str) -> At:
    return phases.OPERATION, name


@dataclass
class Program:
    """`main` and `workers`: from the number of a tick to what the thread is at.

    `blocked`: reasons by (phase, name); what is not there computes. `ready`: share of the time that
    whoever computes has no core; `helpers`: CPU time of other threads over that of a maker's own.
    """

    main: Callable[[int], At]
    workers: Sequence[Callable[[int], At | None]] = ()
    ticks: int = 500
    blocked: dict[At, str] = field(default_factory=dict)
    ready: float = 0.0
    helpers: float = 0.0
    others: float = 0.0  # of the machine's cores
    cores: float = 4.0
    machine_cores: float = 4.0
    own_threads: int = 0
    kept: float = 0.0  # cores that processes of the program use beside its workers
    grows: float = 0.0  # private bytes of each worker, a second
    facts: dict[str, Any] = field(default_factory=dict)
    settings: Sequence[dict[str, Any]] = ()  # what frames told, each of the worker at its place

    def evidence(self, offset_ns: int = 0) -> AttachEvidence:
        """What is seen; `offset_ns`: by how much the clock of the stacks is behind."""
        labels: dict[tuple[str, str, int], int] = {}
        samples, looks, used = [], [], 0.0
        threads: list[Callable[[int], At | None]] = [self.main, *self.workers]
        for tick in range(self.ticks):
            for place, thread in enumerate(threads):
                pid, at = MAIN + place, thread(tick)
                if at is None:
                    continue
                outside = at[0] in (phases.OUTSIDE, phases.IMPORTS)
                number = labels.setdefault((*at, -1 if outside else 0), len(labels))
                time = START + tick * TICK
                samples.append((time - offset_ns, TICK, pid, pid, number))
                waits = at in (WAIT, IDLE)
                reason = self.blocked.get(at, "events" if waits else "computing")
                on = 0.0 if reason != "computing" else TICK * (1.0 - self.ready)
                delay = 0.0 if reason != "computing" else TICK * self.ready
                whole = on * (1.0 + self.helpers)
                used += whole
                look = (time + TICK // 2, pid, reason, TICK, int(on), int(delay), int(whole))
                looks.append(look)
        elapsed = self.ticks * TICK
        facts = {
            "schema": 1, "lotus": "0.1.0", "state": "watched", "host": "h", "pid": MAIN,
            "command": ["python", "train.py"], "start_ns": START, "end_ns": START + elapsed,
            "stacks": len(samples), "errors": 0, "torn": 0, "cost_ns": 0, "bound_ns": 50e6,
            "memory_bytes": 1 << 34, "cores": self.cores, "machine_cores": self.machine_cores,
        }  # fmt: skip
        busy = used + self.kept * elapsed + self.others * elapsed * self.machine_cores
        machine = [
            (START, 0, 0, 0, 0, 1 << 33),
            (START + elapsed, int(busy), int(elapsed * self.machine_cores - busy), 0, 0, 1 << 33),
        ]
        process = dict.fromkeys(("read_bytes", "children_ns"), 0)
        process |= {"main": MAIN, "rank": -1, "threads": self.own_threads}
        return AttachEvidence(
            facts=facts | self.facts,
            processes=pd.DataFrame(
                [
                    {**process, "pid": MAIN + place, "worker": place - 1, "cpu_ns": -1,
                     "descriptors": 20, "descriptor_limit": -1,
                     "ended": int(thread(self.ticks - 1) is None)}
                    for place, thread in enumerate(threads)
                ]
            ).assign(
                cpu_ns=int(used / len(threads)), kept_ns=int(self.kept * elapsed / len(threads))
            ),
            loops=pd.DataFrame(
                [("main", "/app/train.py", 59, 60, 61)],
                columns=["function", "file", "head", "first", "last"],
            ),
            labels=pd.DataFrame(list(labels), columns=["phase", "name", "loop"]),
            chains=pd.DataFrame(columns=["label", "depth", "function", "file", "line"]),
            samples=pd.DataFrame(
                samples, columns=["time_ns", "weight_ns", "pid", "tid", "label"]
            ),
            threads=pd.DataFrame([(MAIN, MAIN, "MainThread")], columns=["pid", "tid", "name"]),
            looks=pd.DataFrame(
                looks,
                columns=["time_ns", "pid", "reason", "wall_ns", "cpu_ns", "delay_ns", "process_ns"],
            ),
            machine=pd.DataFrame(
                machine,
                columns=["time_ns", "busy_ns", "idle_ns", "stolen_ns", "swapped_bytes",
                         "available_bytes"],
            ),
            memory=self._memory(),
            settings=pd.DataFrame(
                [
                    {**dict.fromkeys(SETTINGS, -1), "dataset": "", "pid": MAIN + 1 + place} | told
                    for place, told in enumerate(self.settings)
                ],
                columns=list(SETTINGS),
            ),
        )  # fmt: skip

    def _memory(self) -> pd.DataFrame:
        places = range(1, len(self.workers) + 1)
        rows = [
            _reading(START + tick * TICK, place, self.grows * tick * TICK / 1e9)
            for tick in range(0, self.ticks, 25)
            for place in places
        ]
        return pd.DataFrame(rows, columns=list(_reading(0, 0, 0)))


def _reading(time: float, place: int, grown: float) -> dict[str, float]:
    sizes = dict.fromkeys(("rss", "private", "anonymous"), (1 << 30) + grown)
    return {"time_ns": time, "pid": MAIN + place, "worker": place - 1, "shared": 0.0, **sizes}


def job(*programs: Program) -> AttachEvidence:
    """Ranks of one job, watched at once."""
    parts = [program.evidence() for program in programs]
    tables: dict[str, list[pd.DataFrame]] = {}
    labels = 0
    for rank, part in enumerate(parts):
        for name in ("processes", "samples", "looks", "labels", "memory"):
            table = getattr(part, name)
            more = {
                column: table[column] + 100 * rank
                for column in ("pid", "tid", "main")
                if column in table
            }
            if "label" in table:
                more["label"] = table["label"] + labels
            table = table.assign(**more)
            tables.setdefault(name, []).append(
                table.assign(rank=rank) if name == "processes" else table
            )
        labels += len(part.labels)
    joined: dict[str, Any] = {
        name: pd.concat(each, ignore_index=True) for name, each in tables.items()
    }
    return replace(parts[0], **joined)


def turns(*parts: tuple[At, int]) -> Callable[[int], At]:
    """A thread that is at each of these for so many ticks, again and again."""
    order = [at for at, count in parts for _ in range(count)]
    return lambda tick: order[tick % len(order)]


def between(first: int, last: int, thread: Callable[[int], At]) -> Callable[[int], At | None]:
    """A thread that is there from one tick to another."""
    return lambda tick: thread(tick) if first <= tick < last else None


def always(at: At) -> Callable[[int], At]:
    """A thread that is at the same all the time."""
    return lambda tick: at

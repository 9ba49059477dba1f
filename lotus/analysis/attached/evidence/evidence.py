"""Observations of a running program from outside, as tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

SETTINGS = (
    "pid", "workers", "iterable", "drop_last", "persistent", "spawned", "batch", "in_sequence",
    "dataset",
)  # fmt: skip


def _no_settings() -> pd.DataFrame:
    return pd.DataFrame(columns=list(SETTINGS))


@dataclass(frozen=True)
class FunctionEvidence:
    """The samples that perf took of a running program.

    event, frequency   what was sampled, and how often a second and core
    kernel             whether the kernel was sampled too
    lost               samples that the kernel dropped
    names              library, function
    samples            time_ns, pid, tid, function (row of `names`), by time
    moments            time_ns, pid, tid, label: Python stacks at times that are known, by time, on
                       a clock that is up to 20 ms behind that of `samples`
    notes              what has no name, and why
    """

    event: str
    frequency: int
    kernel: bool
    lost: int
    names: pd.DataFrame
    samples: pd.DataFrame
    moments: pd.DataFrame
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CounterEvidence:
    """The counts of the threads of a running program.

    uarch, metrics  what the events mean: the CPU's table, and metrics by perf's own tables
    events          their names
    counts          pid, tid, event (place in `events`), count, enabled_ns (time on a core since the
                    counter was opened), running_ns (of it counted)
    clocks          pid, clock_ns (time on cores meanwhile, by the scheduler; -1: it had ended),
                    before_ns (what a process that was met late had used before)
    notes           what is not counted, and why
    """

    uarch: str
    metrics: Mapping[str, str]
    events: tuple[str, ...]
    counts: pd.DataFrame
    clocks: pd.DataFrame
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttachEvidence:
    """The observations of one program: a main process and its workers, or all ranks of a job.

    facts      attach.json without its tables: command, start_ns, end_ns, cores, machine_cores, ...
    processes  pid, main (pid of its main process; its own for one), worker (-1: main), rank,
               threads (Python threads seen), cpu_ns, read_bytes, children_ns (CPU time of what it
               started and has ended), kept_ns (that of other processes that it started and keeps,
               such as a manager; -1: not known), descriptors, descriptor_limit, ended (1: while
               it was watched, or before; -1: not known)
    loops      function, file, head, first, last: the loops over loaders
    labels     phase, name, loop: what a thread was at
    chains     label, depth, function, file, line: the program's frames of a label
    samples    time_ns, weight_ns, pid, tid, label: stacks, by time, on a clock that may differ from
               that of `looks` by `bound_ns`
    threads    pid, tid, name
    looks      time_ns, pid, reason, wall_ns, cpu_ns, delay_ns, process_ns: a process's main thread,
               and what it did since the look before: on a core, ready without one; process_ns: the
               time on cores of all threads of the process
    machine    time_ns, busy_ns, idle_ns, stolen_ns, swapped_bytes, available_bytes,
               memory_limit_bytes
    memory     time_ns, pid, worker, rss, pss, private, shared, anonymous, descriptor_limit
    missing    sentences: what could not be seen
    functions  what perf sampled; None: nothing
    settings   SETTINGS: what torch's frames in a process told of its loader, once or more; see
               lotus.attach.stacks.frame_locals; -1 and "": not told
    counters   what was counted; None: not asked for
    """

    facts: Mapping[str, Any]
    processes: pd.DataFrame
    loops: pd.DataFrame
    labels: pd.DataFrame
    chains: pd.DataFrame
    samples: pd.DataFrame
    threads: pd.DataFrame
    looks: pd.DataFrame
    machine: pd.DataFrame
    memory: pd.DataFrame
    missing: tuple[str, ...] = ()
    functions: FunctionEvidence | None = None
    settings: pd.DataFrame = field(default_factory=_no_settings)
    counters: CounterEvidence | None = None

    @property
    def elapsed_ns(self) -> float:
        """The time for which the program was watched, in ns."""
        return float(self.facts["end_ns"] - self.facts["start_ns"])

    @property
    def mains(self) -> list[int]:
        """Main processes, by rank."""
        mains = self.processes[self.processes["worker"] < 0].sort_values(["rank", "pid"])
        return [int(pid) for pid in mains["pid"]]

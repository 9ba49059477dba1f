"""sweep.json as its classes declare it: its fields, their types and their values.

tools/schemas.py writes its JSON Schema from them. Fields that a newer lotus adds are ignored.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from lotus.settings.space import Setting

MOST = 100_000  # settings, runs
LARGE = 1 << 31  # above all numbers of settings and repeats
State = Literal["done", "failed", "pending"]
Words = list[Annotated[str, "A text."]]
Count = Annotated[int, Meta(ge=0, lt=LARGE)]
Large = Annotated[int, Meta(ge=0, lt=1 << 62)]
Cores = Annotated[int, Meta(ge=1, lt=1 << 20)]
Settings = Annotated[list[Setting], Meta(min_length=1, max_length=MOST)]


class ChosenLoader(Struct, frozen=True):
    """The loader that is set."""

    number: Annotated[Count | None, "Its number by first iteration."] = None
    dataset: Annotated[str | None, "The data set's class."] = None


class RecordedPlan(Struct, frozen=True):
    """The options of the sweep."""

    settings: Annotated[Settings, "Settings."]
    varied: Annotated[Words, "Parameters that are set."]
    repeat: Annotated[int, "Runs of each setting."]
    loader: Annotated[ChosenLoader | None, "Which loader is set; null: every one."]
    batches: Annotated[str | None, "Batches that are recorded, FIRST:LAST; null: all."]
    counters: Annotated[str | None, "What to count, as --counters takes it; null: nothing."]
    perf: Annotated[bool, "Whether functions are sampled."]
    iterable_safe: Annotated[
        bool, "Whether an iterable data set gives the same samples with any number of workers."
    ]
    max_log: Annotated[Large | None, "Bytes of a log at which recording stops."] = None


class CpuEvents(Struct, frozen=True):
    """The meaning of the counted events."""

    uarch: Annotated[str | None, "The CPU's micro-architecture."] = None
    metrics: Annotated[dict[str, Annotated[str, "Formula."]] | None, "Metrics by name."] = None


class HostProcessor(Struct, frozen=True):
    """The processor."""

    model: Annotated[str | None, "Its name."] = None
    logical: Annotated[Cores | None, "Cores that the system has."] = None
    affinity: Annotated[Cores | None, "Cores that the process may run on."] = None
    quota: Annotated[
        Annotated[float, Meta(gt=0, lt=1 << 20)] | None,
        "Cores that the cgroup allows at once; null: no limit.",
    ] = None


class SweptRun(Struct, frozen=True):
    """A planned run."""

    setting: Annotated[Count, "Its place in settings."]
    repeat: Annotated[Count, "Its round, from 0 on."]
    directory: Annotated[str, Meta(min_length=1), "Its directory, in the sweep's."]
    state: Annotated[State, "What became of it."]
    exit_code: Annotated[Count | None, "Exit code."]
    signal: Annotated[Count | None, "Signal that ended it."]
    elapsed_ns: Annotated[Large | None, "The whole command, nanoseconds."] = None
    cpu_s: Annotated[
        Annotated[float, Meta(ge=0, lt=1 << 62)] | None, "CPU time of all its processes, seconds."
    ] = None
    problem: Annotated[str | None, "Why it does not count."] = None
    refused: Annotated[bool, "Whether the loader refuses its setting."] = False


class SweepDocument(Struct, frozen=True):
    """A sweep's directory: what is planned and what became of each run."""

    schema: Annotated[int, "Number of this layout; fields are only ever added within one."]
    lotus: Annotated[str | None, "Version of lotus."]
    state: Annotated[str, "running, ended or stopped."]
    command: Annotated[Words, "Words of the command line, secrets replaced."]
    seed: Annotated[int, "Seed of the order of runs."]
    plan: Annotated[RecordedPlan, "What was asked for."]
    level: Annotated[str, "What is recorded: batch, sample, op or op+cpu."]
    counters: Annotated[str | None, "Events that are counted, as lotus spells them."]
    cpu_events: Annotated[CpuEvents, "What those events mean."]
    notes: Annotated[Words, "Remarks."]
    settings: Annotated[Settings, "Settings."]
    varied: Annotated[Words, "Parameters that are set."]
    runs: Annotated[
        list[SweptRun],
        Meta(min_length=1, max_length=MOST),
        "Runs in the order in which they are made.",
    ]
    torch: Annotated[str | None, "Version of torch; null: before the first run."] = None
    hidden: Annotated[bool, "Whether a secret of the command was replaced."] = False
    cwd: Annotated[str | None, "Working directory."] = None
    start_wall_ns: Annotated[Large | None, "Begin, nanoseconds since 1970."] = None
    boot_id: Annotated[str | None, "Boot of the machine, as /proc tells."] = None
    host: Annotated[str | None, "Host."] = None
    kernel: Annotated[str | None, "Version of Linux."] = None
    cpu: Annotated[HostProcessor | None, "The processor; null: not known."] = None
    memory_bytes: Annotated[Large | None, "Memory of the machine, bytes."] = None

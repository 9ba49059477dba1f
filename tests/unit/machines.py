"""Made machines: one that lacks nothing, from which tests take away, and the gaps found in them."""

import dataclasses
import errno

from lotus.doctor import examination
from lotus.doctor.checks import GAP, Finding, MachineFacts
from lotus.doctor.environment import Library, OptionalTools, PerfTool, Python, Room, System
from lotus.doctor.pmu_survey import Survey
from lotus.hardware.counter_probe import (
    CPU_CLOCK,
    CYCLES,
    GENERIC,
    SOFTWARE_EVENTS,
    Capacity,
    Cost,
    ProbeCount,
)
from lotus.hardware.event_selection import Chosen
from lotus.hardware.sampling_probe import ProbeSampling


def counted(events, count: int | None = 100_000, error: int = 0) -> tuple[ProbeCount, ...]:
    return tuple(ProbeCount(event, count, 0.0 if count is None else 1.0, error) for event in events)


# A machine that lacks nothing, from which each test takes away something.
WHOLE = MachineFacts(
    System(
        kernel="6.8.0",
        arch="x86_64",
        distribution=("debian",),
        cpu={"model": "EPYC", "logical": 8, "affinity": 8, "quota": None},
        paranoid=1,
        max_sample_rate=100_000,
        mlock_kb=516,
        kptr_restrict=0,
        watchdog=0,
        uid=1000,
        pmus=("cpu", "software"),
        rdpmc=1,
        clocksource="tsc",
    ),
    PerfTool("/usr/bin/perf", "6.1.187", recorded=True),
    Survey(
        counted(SOFTWARE_EVENTS),
        counted(GENERIC),
        Capacity(6, 6, (), 1.0, True),
        (
            ProbeSampling(CYCLES, 20, monotonic=True, interrupt_ns=1500.0),
            ProbeSampling(CPU_CLOCK, 20, monotonic=True),
        ),
        Cost(500.0, 40.0, {}),
        40.0,
    ),
    Chosen("amd_zen5", ((CYCLES,),), True, ()),
    ("cycles:u", 997, "hardware cycles"),
    Python("/usr/bin/python", "3.11.2", (Library("torch", "/t/libtorch_cpu.so", "all", True),)),
    OptionalTools("/usr/bin/py-spy", True),
    Room(8 << 30, 100 << 30, "/home/me"),
)
NO_PMU = dataclasses.replace(
    WHOLE.survey,
    hardware=counted(GENERIC, None, errno.ENOENT),
    capacity=Capacity(0, 0, (), 1.0, False),
    samplers=(
        ProbeSampling(CYCLES, error=errno.ENOENT),
        ProbeSampling(CPU_CLOCK, 20, monotonic=True),
    ),
)


def nothing_opens(code: int) -> Survey:
    return dataclasses.replace(
        NO_PMU,
        software=counted(SOFTWARE_EVENTS, None, code),
        hardware=counted(GENERIC, None, code),
        samplers=(ProbeSampling(CYCLES, error=code), ProbeSampling(CPU_CLOCK, error=code)),
        read=None,
    )


def machine(facts: MachineFacts = WHOLE, /, **system: object) -> MachineFacts:
    return dataclasses.replace(facts, system=dataclasses.replace(facts.system, **system))


def gaps(facts: MachineFacts) -> dict[str, Finding]:
    return {
        finding.topic: finding
        for finding in examination.report(facts).findings
        if finding.state == GAP
    }


def fixes(facts: MachineFacts, topic: str) -> str:
    return "\n".join(gaps(facts)[topic].fixes)

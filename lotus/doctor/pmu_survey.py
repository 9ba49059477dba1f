"""Tries the usual events on this machine, for `lotus doctor`."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lotus.hardware.counter_probe import (
    CPU_CLOCK,
    CYCLES,
    GENERIC,
    SOFTWARE_EVENTS,
    Capacity,
    Cost,
    OpenGroup,
    Probe,
    ProbeCount,
    clock_cost,
    cost,
)
from lotus.hardware.sampling_probe import (
    OpenSampler,
    ProbeSampling,
    Sampler,
    frequency,
    max_rate,
    sample,
    usual_cost,
)
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import Event


@dataclass(frozen=True)
class Survey:
    """The usual events that work on this machine, and their cost."""

    software: tuple[ProbeCount, ...]
    hardware: tuple[ProbeCount, ...]
    capacity: Capacity
    samplers: tuple[ProbeSampling, ...]  # of cycles and cpu_clock
    read: Cost | None  # of the largest group that counts correctly
    clock_ns: float


def survey(
    more: Sequence[Event] = (),
    open_group: OpenGroup = perf_event.EventGroup,
    open_sampler: OpenSampler = Sampler,
    root: Path = Path("/"),
) -> Survey:
    """Try the generic events, `more` hardware events and the software events; about a second."""
    probe = Probe(open_group)
    hardware = {(event.type, event.config, event.config1): event for event in (*GENERIC, *more)}
    counted = tuple(probe.alone(event) for event in hardware.values())
    software = tuple(probe.alone(event) for event in SOFTWARE_EVENTS)
    working = [probed.event for probed in counted if probed.state == "counts"]
    capacity = probe.largest(working)
    group = [working[place % len(working)] for place in range(capacity.right)]
    if not group:
        group = [probed.event for probed in software if probed.state == "counts"]
    samplers = []
    rate = frequency(root)
    for event in (CYCLES, CPU_CLOCK):
        sampled = sample(event, rate, open_sampler)
        if sampled.samples:
            with contextlib.suppress(OSError):
                # As many as the kernel allows: the cost of a few interrupts is below the noise.
                often = max(min(4000, max_rate(root, 4000) * 7 // 10), 1)
                price = usual_cost(event, often, open_sampler)
                sampled = replace(sampled, interrupt_ns=price)
        samplers.append(sampled)
    reading_cost = None
    if group:
        with contextlib.suppress(OSError, ValueError):
            reading_cost = cost(group, open_group)
    return Survey(software, counted, capacity, tuple(samplers), reading_cost, clock_cost())

"""Finds which workers made batches at each moment of a sampled loop."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lotus.analysis.attached.evidence import phases
from lotus.common.numbers.array_types import Bools, Floats, Ints

_EDGES = (phases.STARTUP, phases.DRAW, phases.SHUTDOWN)
_LONG_NS = 400_000_000  # a wait of more is for a batch that is slow, not for batches that are late


@dataclass
class WorkerTurns:
    """The turns of workers in a loop, in nanoseconds.

    `step_ns`, `loop_ns`: all. `lone`: in which one worker of several made batches and all others
    had nothing to do, by its place; `lone_step`: training steps that began and ended within that.
    `waited_ns`: waits while batches were made, but for first batches; `full_ns`: of them with all
    workers making some; `long_ns`: in long waits; `lone_waits`: with one making a batch, by place,
    but for the last batches of an epoch. `idle_ns`: in which no worker made batches;
    `idle_step_ns`: of it, training steps.
    """

    loop_ns: float = 0.0
    step_ns: float = 0.0
    lone: dict[int, float] = field(default_factory=dict)
    lone_step: dict[int, float] = field(default_factory=dict)
    waited_ns: float = 0.0
    full_ns: float = 0.0
    long_ns: float = 0.0
    lone_waits: dict[int, float] = field(default_factory=dict)
    idle_ns: float = 0.0
    idle_step_ns: float = 0.0


def turns_of(
    phase: np.ndarray,
    weight: Floats,
    first: Bools,
    workers: Sequence[np.ndarray],
    places: Sequence[int],
) -> WorkerTurns:
    """Return the turns, from the samples of the thread that iterates in order of time.

    `phase`, `weight`: of that thread (n,); `first`: whether it waits for a first batch (n,).
    `workers`: the phase of each worker meanwhile (n,), "" where it was not there.
    """
    steps = phase == phases.STEP
    turns = WorkerTurns(float(weight.sum()), float(weight[steps].sum()))
    if not workers:
        return turns
    making = np.stack([np.isin(each, phases.MAKING) for each in workers])
    idle = np.stack([each == phases.IDLE for each in workers])
    there = np.stack([each != "" for each in workers])
    makers, others = making.sum(axis=0), (there & ~making & ~idle).sum(axis=0)
    lone = (makers == 1) & (idle.sum(axis=0) >= 1) & (others == 0)
    for place, own in zip(places, making, strict=True):
        mine = lone & own
        turns.lone[place] = turns.lone.get(place, 0.0) + float(weight[mine].sum())
        part = float(weight[_within(steps, mine)].sum())
        turns.lone_step[place] = turns.lone_step.get(place, 0.0) + part
    resting = (makers == 0) & (others == 0)
    turns.idle_ns = float(weight[resting].sum())
    turns.idle_step_ns = float(weight[resting & steps].sum())
    waits = (phase == phases.WAIT) & ~first
    waited = waits & (makers > 0)
    turns.waited_ns = float(weight[waited].sum())
    turns.full_ns = float(weight[waited & (makers == there.sum(axis=0))].sum())
    turns.long_ns = float(weight[waited & (_lengths(waits, weight) >= _LONG_NS)].sum())
    later = _goes_on(phase, making)
    for place, own in zip(places, making, strict=True):
        ns = float(weight[waited & lone & own & later].sum())
        turns.lone_waits[place] = turns.lone_waits.get(place, 0.0) + ns
    return turns


def _goes_on(phase: np.ndarray, making: Bools) -> Bools:
    """Return whether another worker makes a batch later in the epoch, as far as it was seen."""
    count, last = len(phase), len(phase)
    ends = np.isin(phase, _EDGES)
    result = np.zeros(count, np.bool_)
    several, maker = last, -1  # where another one makes a batch next, who does last
    for place in range(count - 1, -1, -1):
        now = np.flatnonzero(making[:, place])
        if ends[place]:
            several, maker = last, -1
        elif len(now) > 1 or (len(now) == 1 and maker >= 0 and now[0] != maker):
            several = place
        if len(now):
            maker = int(now[-1])
        result[place] = several < last
    return result


def _within(steps: Bools, holds: Bools) -> Bools:
    """Return the samples of stretches of steps that hold throughout, as do their neighbours."""
    number = _stretches(steps)
    count = number[-1] + 1
    all_hold = np.bincount(number, ~holds, count) == 0
    before, after = np.concatenate([[False], holds[:-1]]), np.concatenate([holds[1:], [False]])
    first = np.searchsorted(number, np.arange(count))
    last = np.searchsorted(number, np.arange(count), side="right") - 1
    inside: Bools = (all_hold & before[first] & after[last])[number] & steps
    return inside


def _stretches(holds: Bools) -> Ints:
    """Return for each value (n,) the number of its stretch of equal values."""
    return np.cumsum(np.concatenate([[True], holds[1:] != holds[:-1]])) - 1


def _lengths(holds: Bools, weight: Floats) -> Floats:
    """Return for each sample (n,) the length of its stretch."""
    number = _stretches(holds)
    sums: Floats = np.bincount(number, weight).astype(np.float64)
    return sums[number]

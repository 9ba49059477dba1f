"""When an accelerator worked on each training step, on the run's clock.

Measured are distances on the device's clock: idle from the asking for a batch to its handing over,
busy at most from there to the next asking. An event is never reached before the program records it,
and a device that has nothing left to do reaches it at once. So a step begins when its batch is
handed over where the device was idle before, else when the step before it ends.
"""

from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import Floats
from lotus.reading.process_tree import Ints

# Less is what two events cost that follow each other in a busy device's queue.
_IDLE_NS = 50_000.0


@dataclass(frozen=True)
class DeviceSteps:
    """Steps in the order of their rows: `rows` of the waits, start and end in nanoseconds (n,)."""

    rows: Ints
    start_ns: Floats
    end_ns: Floats


def place_steps(start: Floats, wait: Floats, idle: Floats, busy: Floats) -> DeviceSteps:
    """Place the steps of one process.

    `start`, `wait`: begin and duration of each `next`; `idle`, `busy`: of the device, NaN where
    they were not measured; nanoseconds (n,).
    """
    in_time = np.argsort(start, kind="stable")
    places = np.flatnonzero(~np.isnan(busy[in_time]))
    rows = in_time[places]
    handed, took = (start + wait)[rows], busy[rows]
    gaps = np.where(np.isnan(idle[rows]), 0.0, idle[rows])
    queued = (np.diff(places, prepend=-2) == 1) & (gaps < _IDLE_NS)
    # With the clocks' drift, a busy device's queue is followed only until it is empty.
    begins, end = handed.copy(), -np.inf
    for place in range(len(rows)):
        if queued[place]:
            begins[place] = max(handed[place], end + gaps[place])
        end = begins[place] + took[place]
    ends = begins + took
    ends[:-1] = np.maximum(np.minimum(ends[:-1], begins[1:]), begins[:-1])
    return DeviceSteps(rows, begins, ends)

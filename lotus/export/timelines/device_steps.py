"""Places the work of an accelerator on each training step on the run's clock.

Events on the device are recorded when the program calls `next` and when it gets the batch. Their
distances on the device's clock bound its idle time (within `next`) and its busy time (until the
following `next`). A device never reaches an event before the program records it, and reaches it at
once if it has nothing left to do. So a step begins when its batch is returned if the device was
idle before, else when the previous step ends.
"""

from dataclasses import dataclass

import numpy as np

from lotus.common.numbers.array_types import Floats, Ints

# A shorter time is the cost of two consecutive events in a busy device's queue.
_IDLE_NS = 50_000.0


@dataclass(frozen=True)
class DeviceSteps:
    """Steps in the order of their rows: `rows` of the waits, start and end in nanoseconds (n,)."""

    rows: Ints
    start_ns: Floats
    end_ns: Floats


def place_steps(start: Floats, wait: Floats, idle: Floats, busy: Floats) -> DeviceSteps:
    """Place the steps of one process.

    `start`, `wait`: start and duration of each `next`; `idle`, `busy`: times of the device, NaN
    where they were not measured. All are nanoseconds (n,).
    """
    in_time = np.argsort(start, kind="stable")
    places = np.flatnonzero(~np.isnan(busy[in_time]))
    rows = in_time[places]
    returned, busy_ns = (start + wait)[rows], busy[rows]
    gaps = np.where(np.isnan(idle[rows]), 0.0, idle[rows])
    queued = (np.diff(places, prepend=-2) == 1) & (gaps < _IDLE_NS)
    # The clocks drift, so steps are chained only while the device's queue is not empty.
    begins, end = returned.copy(), -np.inf
    for place in range(len(rows)):
        if queued[place]:
            begins[place] = max(returned[place], end + gaps[place])
        end = begins[place] + busy_ns[place]
    ends = begins + busy_ns
    ends[:-1] = np.maximum(np.minimum(ends[:-1], begins[1:]), begins[:-1])
    return DeviceSteps(rows, begins, ends)

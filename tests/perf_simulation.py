"""Threads whose every count is known, and what a sampling kernel would have recorded of them."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

EVENT = "cycles"
# Name, median length in ns, counts per ns, times in a cycle: from many periods to a hundredth.
OPERATIONS = (
    ("Loader", 4_700_000, 3.0, 1),
    ("Crop", 1_100_000, 3.5, 2),
    ("ToTensor", 340_000, 2.0, 4),
    ("Flip", 60_000, 1.0, 12),
)
PERIOD = 3_000_000  # counts: about a millisecond


@dataclass
class Simulated:
    intervals: pd.DataFrame
    exact: pd.DataFrame
    samples: pd.DataFrame


def simulate(
    seed: int,
    cycles: int = 400,
    threads: int = 2,
    jitter: float = 0.05,
    throttled: float = 0.0,
    noise: float = 0.1,
) -> Simulated:
    """Workers that run OPERATIONS over and over; lengths, rates and gaps vary.

    `jitter`: how far the kernel's period wanders (frequency mode), each sample knowing its own;
    `throttled`: share of time, in ticks of 4 ms, in which samples are lost; `noise`: how
    far counts per ns differ between calls of one operation.
    """
    rng = np.random.default_rng(seed)
    intervals, exact, samples = [], [], []
    order = np.array([at for at, operation in enumerate(OPERATIONS) for _ in range(operation[3])])
    median = np.array([operation[1] for operation in OPERATIONS], float)
    rates = np.array([operation[2] for operation in OPERATIONS], float)
    for thread in range(threads):
        which = np.tile(order, cycles)
        took = (median[which] * np.exp(rng.normal(0, 0.4, len(which)))).astype(np.int64)
        gap = rng.integers(1_000, 20_000, len(which))
        start = 1_000_000 + np.cumsum(took + gap) - took
        rate = rates[which] * np.exp(rng.normal(0, noise, len(which)))
        counts = took * rate
        # The samples lie on an axis of counts: interval i is from edges[2i] to edges[2i + 1].
        edges = np.cumsum(np.column_stack((gap * 0.5, counts)).ravel())
        times = np.column_stack((start, start + took)).ravel()
        steps = PERIOD * np.exp(rng.normal(0, jitter, int(edges[-1] / PERIOD * 1.2)))
        steps[0] *= rng.random()
        at = np.cumsum(steps)
        inside = at < edges[-1]
        at, steps = at[inside], steps[inside]
        time_ns = np.interp(at, edges, times)
        ticks = rng.random(int(times[-1] // 4_000_000) + 1) >= throttled
        kept = ticks[(time_ns // 4_000_000).astype(np.int64)]
        tid = 100 + thread
        intervals.append(pd.DataFrame({"tid": tid, "start_ns": start, "end_ns": start + took}))
        intervals[-1]["operation"] = which
        exact.append(counts)
        samples.append(pd.DataFrame({"tid": tid, "time_ns": time_ns, "period": steps})[kept])
    table = pd.concat(intervals, ignore_index=True)
    table["pid"] = table["tid"]
    names = pd.Index([operation[0] for operation in OPERATIONS])
    table["operation"] = pd.Categorical.from_codes(table["operation"], names)
    table["kind"] = pd.Categorical(["operation"] * len(table))
    drawn = pd.concat(samples, ignore_index=True)
    drawn = drawn.astype({"time_ns": np.int64, "period": np.uint64})
    drawn["pid"], drawn["event"] = drawn["tid"], np.int16(0)
    truth = pd.DataFrame({"row": np.arange(len(table)), EVENT: np.concatenate(exact)})
    return Simulated(table, truth, drawn)

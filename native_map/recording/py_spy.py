"""Reads Python stacks with times from `py-spy record --format chrometrace --threads`.

What its events mean, `py_spy_events` says. Here they get the run's clock. The start of py-spy is
not in the file. The caller bounds it: it lies after the start of the process, before its first
line, and before its end by at least the last time in the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.errors import UnusableError
from native_map.recording import py_spy_events
from native_map.recording.py_spy_events import HINT, StackReader
from native_map.recording.python_frame import Frame

_MOST_EVENTS = 5_000_000  # 11 hours of 100 samples per second with one changed frame each
MOST_ROWS = 4_000_000  # of samples; in a longer recording each represents several


@dataclass(frozen=True)
class PySpyStacks:
    """Samples of Python stacks.

    `samples`: time_ns (CLOCK_MONOTONIC), weight_ns (time that the row represents), count (samples
    that it represents: 1, or more if there would be too many rows), pid, tid (the kernel's), node
    (row of `nodes`; -1: the thread was in no Python function), exact (False: the stack was the same
    as before, and py-spy's file does not say when it was sampled); sorted by time.
    `nodes`: parent (row or -1), function, file, line; a stack is a node with its ancestors.
    `threads`: pid, tid, name. The clocks differ by at most `bound_ns`. In addition, py-spy takes
    the time after sampling all processes, which on a busy machine may be milliseconds later.
    """

    samples: pd.DataFrame
    nodes: pd.DataFrame
    threads: pd.DataFrame
    bound_ns: int

    def frames(self, node: int) -> list[Frame]:
        """Return the frames of a stack, outermost first."""
        frames = []
        while node >= 0:
            row = self.nodes.iloc[node]
            frames.append(Frame(row["function"], row["file"], int(row["line"])))
            node = int(row["parent"])
        return frames[::-1]


def read(
    path: Path,
    start_ns: int,
    seen_ns: int,
    end_ns: int,
    period_ns: int,
    ends: Mapping[int, int] | None = None,
) -> PySpyStacks:
    """Read one file.

    py-spy was started at `start_ns` or later, had written its first line at `seen_ns` and had ended
    at `end_ns`, all of CLOCK_MONOTONIC; it samples every `period_ns`. `ends` has the times at which
    processes ended, by the kernel's id of their main threads. Raises UnusableError if it is not
    such a file, OSError if it cannot be read.
    """
    if period_ns < 1000:
        raise ValueError("a period below a microsecond")
    reader = StackReader(period_ns // 1000)
    for number, event in enumerate(py_spy_events.events(path)):
        if number == _MOST_EVENTS:
            raise UnusableError(f"{path} has more than {_MOST_EVENTS:,} events; {HINT}")
        reader.take(event)
    reader.settle()
    if any(thread.stack for thread in reader.threads.values()):
        raise UnusableError(f"{path} ends in the middle of a recording; {HINT}")
    latest_ns = min(seen_ns, end_ns - reader.last * 1000)
    if latest_ns < start_ns:
        raise UnusableError(f"the times in {path} do not fit the run's; {HINT}")
    origin_ns = (start_ns + latest_ns) // 2
    runs = {name: np.array(column, dtype=np.int64) for name, column in reader.columns.items()}
    nodes = pd.DataFrame(reader.tree.frames, columns=["function", "file", "line"])
    nodes.insert(0, "parent", np.array(reader.tree.parents, dtype=np.int64))
    threads = pd.DataFrame(
        [(pid, tid, name) for (pid, tid), name in reader.names.items()],
        columns=["pid", "tid", "name"],
    )
    samples = _samples(runs, origin_ns, period_ns, ends or {})
    return PySpyStacks(samples, nodes, threads, -(-(latest_ns - start_ns) // 2))


def _samples(
    runs: Mapping[str, np.ndarray], origin_ns: int, period_ns: int, ends: Mapping[int, int]
) -> pd.DataFrame:
    """Give each sampling period of a run a sample of its own; a run may span several."""
    start = runs["start"] * 1000 + origin_ns
    length = (runs["end"] - runs["start"]) * 1000
    if ends:
        last = pd.Series(runs["tid"]).map(pd.Series(ends, dtype="int64"))
        last = last.groupby(runs["pid"]).transform("min")  # of its main thread, for all threads
        limit = last.fillna(np.iinfo(np.int64).max).astype("int64").to_numpy()
        length = np.minimum(length, limit - start)
    keep = length > 0
    start, length = start[keep], length[keep]
    true = np.maximum(1, (length + period_ns // 2) // period_ns)
    # A small file with a long duration must not cost more memory than its size.
    step = -(-int(true.sum()) // max(MOST_ROWS, len(true)))
    count = -(-true // max(step, 1))
    row = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    weight = length / count
    table = pd.DataFrame(
        {
            "time_ns": start[row] + (within * weight[row]).astype(np.int64),
            "weight_ns": np.rint(weight[row]).astype(np.int64),
            "count": (within + 1) * true[row] // count[row] - within * true[row] // count[row],
            "pid": runs["pid"][keep][row].astype(np.int32),
            "tid": runs["tid"][keep][row].astype(np.int32),
            "node": runs["node"][keep][row],
            "exact": within == 0,
        }
    )
    return table.sort_values("time_ns", kind="stable", ignore_index=True)

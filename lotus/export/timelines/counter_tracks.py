"""Counter tracks of a timeline: ready batches, memory, and exact counts of events."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.export.timelines.tracks import Tracks
from lotus.export.timelines.whole_times import whole
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.tables import counter_tables
from lotus.reading.tables.batch_tables import signed

if TYPE_CHECKING:
    from lotus.reading.run import Run
_MS = 1e6
_ROWS = 1 << 18  # of Run.counters at once
_MEMORY = ("pss", "rss", "shm")


class Points(NamedTuple):
    """Values of counter tracks, each valid from its time on."""

    track: Ints
    time_ns: Ints
    value: Array  # float64


def points(run: "Run", tracks: Tracks) -> Iterator[Points]:
    """Yield all counters of a run in pieces; the values of one track are in order of time."""
    yield from _ready(run, tracks)
    yield from _memory(run, tracks)
    yield from _counted(run, tracks)


def _ready(run: "Run", tracks: Tracks) -> Iterator[Points]:
    """Yield the number of batches of each loader that were ready and not yet taken."""
    batches = run.batches
    batches = batches[batches["ready_ns"].notna()]
    keys = ["rank", "loader", "epoch"]
    numbers = tracks.iterating_processes(*(batches[name].to_numpy() for name in keys))
    last = tracks.iterations.groupby(keys)["end_ns"].max().rename("end_ns")
    ready = batches["ready_ns"].to_numpy()
    # A batch that nobody took is dropped when its epoch ends.
    ended = batches[keys].join(last, on=keys)["end_ns"].to_numpy(np.float64)
    taken = np.fmax(batches["taken_ns"].fillna(pd.Series(ended, batches.index)).to_numpy(), ready)
    loader = batches["loader"].to_numpy()
    for number, loader_number in sorted(set(zip(numbers.tolist(), loader.tolist(), strict=True))):
        if number < 0:
            continue
        mine = (numbers == number) & (loader == loader_number)
        times = np.concatenate((ready[mine], taken[mine][~np.isnan(taken[mine])]))
        change = np.ones(len(times), np.int64)
        change[int(mine.sum()) :] = -1
        order = np.lexsort((-change, times))
        name = f"loader {loader_number}: batches ready"
        yield _points(tracks.counter(number, name, "batches"), times[order], change[order].cumsum())


def _memory(run: "Run", tracks: Tracks) -> Iterator[Points]:
    for number, process in enumerate(run._outline.processes):
        rows = process.log.fixed["resources"]
        for name in _MEMORY if len(rows) else ():
            track = tracks.counter(number, f"{tracks.label(number)}: {name}", "bytes")
            # Every process uses memory, so 0 means that it was not read. /dev/shm may be empty.
            measured = rows if name == "shm" else rows[rows[name] > 0]
            yield _points(track, signed(measured["time_ns"]), signed(measured[name]))


def _counted(run: "Run", tracks: Tracks) -> Iterator[Points]:
    """Yield events per millisecond and instructions per cycle of each operation with counts.

    Between operations the rate is unknown and shown as zero.
    """
    counters = run.counters
    events = counter_tables.names_of(run._outline)
    for first in range(0, len(counters) if events else 0, _ROWS):
        rows = counters.iloc[first : first + _ROWS]
        rows = rows[(rows["kind"] == "operation") & ~rows["nested"] & (rows["duration_ns"] > 0)]
        for key, some in rows.groupby(["rank", "host", "pid"], observed=True):
            some = some.sort_values("start_ns")
            start, durations = some["start_ns"].to_numpy(), some["duration_ns"].to_numpy()
            rates = {f"{event} per ms": some[event] / (durations / _MS) for event in events}
            if {"instructions", "cycles"} <= set(events):
                rates["instructions per cycle"] = some["instructions"] / some["cycles"]
            label = tracks.label(tracks.numbers[key])
            for name, rate in rates.items():
                track = tracks.counter(tracks.numbers[key], f"{label}: {name}", "")
                values = np.stack((rate.to_numpy(np.float64), np.zeros(len(rate))), axis=1)
                good = np.isfinite(values[:, 0])
                times = np.stack((start, start + durations), axis=1)
                yield _points(track, times[good].reshape(-1), values[good].reshape(-1))


def _points(track: int, times: Array, values: Array) -> Points:
    return Points(np.full(len(times), track, np.int64), whole(times), values.astype(np.float64))

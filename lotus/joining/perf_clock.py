"""Converts samples recorded on another clock to the run's clock."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from lotus.joining.recorded_run import RecordedRun
from native_map.recording import clock_align
from native_map.recording.perf_recording import PerfRecording

COLUMNS = ["pid", "tid", "kind", "earliest_ns", "latest_ns"]
_FOREVER = np.iinfo(np.int64).max


def process_events(run: RecordedRun) -> pd.DataFrame:
    """Return starts and ends of the run's processes: pid, tid, kind, and the interval
    (earliest_ns, latest_ns) in which each happened."""
    rows: list[tuple[int, int, str, int, int]] = []
    first, last = clock_align.OPEN_BEFORE, clock_align.OPEN_AFTER
    begun = run.manifest.get("start_ns") or first
    ended = run.manifest.get("end_ns") or last
    epochs = run.epochs
    for worker in run.workers.to_dict("records"):
        pid, loop, end = int(worker["pid"]), worker["loop_ns"], worker["end_ns"]
        if loop == loop:  # its first record may be lost
            iterations = epochs[
                (epochs["loader"] == worker["loader"]) & (epochs["start_ns"] <= loop)
            ]
            earliest = int(iterations["start_ns"].max()) if len(iterations) else begun
            rows.append((pid, pid, "fork", earliest, int(loop)))
        if end == end:
            rows.append((pid, pid, "exit", int(end), ended))
    for main in run.manifest.get("ranks") or []:
        pid = int(main["pid"])
        seen = run.waits["start_ns"][run.waits["pid"] == pid]
        if len(seen):
            rows.append((pid, pid, "exit", int(seen.max()), ended))
    return pd.DataFrame(rows, columns=COLUMNS)


def aligned(run: RecordedRun, recording: PerfRecording) -> tuple[PerfRecording, str]:
    """Return (the recording on CLOCK_MONOTONIC, a note on the uncertainty).

    Raises UnusableError, with a command that records usable samples, if the clocks cannot be
    related.
    """
    theirs = clock_align.events_of(recording)
    times = [
        (int(chunk["time_ns"].min()), int(chunk["time_ns"].max())) for chunk in recording.chunks()
    ]
    span = (min(low for low, _ in times), max(high for _, high in times)) if times else None
    alignment = clock_align.align(process_events(run), theirs, span)

    def shifted(table: pd.DataFrame) -> pd.DataFrame:
        changed = {"time_ns": alignment.apply(table["time_ns"].to_numpy(np.int64))}
        if "until_ns" in table:
            until = table["until_ns"].to_numpy(np.int64)
            never = until >= _FOREVER - 1
            changed["until_ns"] = np.where(never, until, alignment.apply(np.where(never, 0, until)))
        return table.assign(**changed)

    def pieces() -> Iterator[dict[str, Any]]:
        for piece in recording.pieces():
            yield {**piece, "time_ns": alignment.apply(piece["time_ns"].astype(np.int64))}

    moved = dataclasses.replace(
        recording,
        mappings=shifted(recording.mappings),
        comms=shifted(recording.comms),
        forks=shifted(recording.forks),
        exits=shifted(recording.exits),
        lost=shifted(recording.lost),
        throttles=shifted(recording.throttles),
        clock="monotonic",
        pieces=pieces,
    )
    return moved, str(alignment)

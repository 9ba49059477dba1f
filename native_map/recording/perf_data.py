"""Reads perf.data: samples, mappings and processes, with numpy and in bounded memory.

Files that it cannot read (pipe mode, other byte order, layouts that do not identify events) are
read through `perf script`; `PerfRecording.reader` and `PerfRecording.notes` say so.

Source: Linux include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h.
"""

import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from native_map.errors import UnusableError
from native_map.plain_file import opened
from native_map.recording.perf_header import Header, NeedsPerfError, read_header
from native_map.recording.perf_recording import PerfRecording
from native_map.recording.perf_records import PERF_ONLY, SAMPLE, Kept, Reader
from native_map.recording.perf_script import read_script
from native_map.recording.perf_tasks import Tables, TaskRecords

KEPT = 512 << 20  # bytes of records up to which the samples stay in memory once read
RECORDS = dict(
    enumerate(
        "mmap lost comm exit throttle unthrottle fork read sample mmap2 aux itrace_start"
        " lost_samples switch switch_cpu_wide namespaces ksymbol bpf_event cgroup text_poke"
        " aux_output_hw_id".split(),
        1,
    )
) | dict(
    enumerate(
        "attr event_type tracing_data build_id finished_round id_index auxtrace_info auxtrace"
        " auxtrace_error thread_map cpu_map stat_config stat stat_round event_update time_conv"
        " feature compressed finished_init compressed2".split(),
        64,
    )
)


@dataclass
class RecordCounts:
    """The numbers of a file's records by kind, and of its samples by event."""

    kinds: Counter[int]
    sampled: npt.NDArray[np.int64]
    unreadable: int = 0  # samples of no known event, or too short

    def add_samples(self, events: npt.NDArray[np.int16]) -> None:
        """Count samples by the number of their event; -1: not known."""
        counts = np.bincount(events + 1, minlength=len(self.sampled) + 1)
        self.unreadable += int(counts[0])
        self.sampled += counts[1:]


def read(
    path: str | os.PathLike[str], perf: str = "perf", *, trusted: bool = True
) -> PerfRecording:
    """Read a perf.data file.

    `perf` is the binary that reads files which this reader does not support; it never gets a file
    that is not `trusted`. Raises UnusableError if nothing can be read.
    """
    try:
        return _read_direct(Path(path))
    except NeedsPerfError as reason:
        if not trusted:
            raise UnusableError(
                f"{path} can only be read by perf ({reason}), which is not run on files of others:"
                " trust it, or record into a file with `perf record -k CLOCK_MONOTONIC -o FILE ...`"
            ) from None
        return read_script(Path(path), reason, perf)
    except UnusableError as error:
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        again = "; record one with: perf record -k CLOCK_MONOTONIC -o FILE -- COMMAND"
        raise UnusableError(text + ("" if "record " in str(error) else again)) from None
    except OSError as error:
        raise UnusableError(
            f"cannot read {path}: {error.strerror or error}; name what perf record wrote"
        ) from error


def _read_direct(path: Path) -> PerfRecording:
    with opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        header = read_header(file, length)
    if sys.byteorder != "little":
        raise NeedsPerfError("this machine has the other byte order", header)
    for event in header.events:
        for wanted, option in (("tid", ""), ("ip", ""), ("time", " -T")):
            if wanted not in event.fields and event.type != 1 | 1 << 31:
                raise UnusableError(
                    f"the samples of {event.name} carry no {wanted}: record with"
                    f" `perf record{option} -k CLOCK_MONOTONIC ...`"
                )
    reader = Reader(path, header)
    counts = RecordCounts(Counter(), np.zeros(len(header.events), np.int64))
    tasks = TaskRecords(header, reader.lookup.events_of)
    smallest = 8 * min(1 + len(event.fields) for event in header.events)
    small = header.data[1] <= KEPT and not header.compressed  # unpacked, its size is not known
    kept = Kept(header.data[1] // smallest) if small else None
    for block in reader.blocks():
        for kind, number in enumerate(np.bincount(block.kinds).tolist()):
            if number and kind in PERF_ONLY:
                raise NeedsPerfError(PERF_ONLY[kind], header)
            counts.kinds[kind] += number
        is_sample = block.kinds == SAMPLE
        sample_rows, task_rows = np.flatnonzero(is_sample), np.flatnonzero(~is_sample)
        starts, heads = block.starts[sample_rows], block.heads[sample_rows]
        events = reader.sample_events(block.words, starts, heads)
        if kept:
            kept.add(reader.columns(block.words, starts, heads, events))
        counts.add_samples(events)
        tasks.add(block.words, block.starts[task_rows], block.kinds[task_rows])
    tables = tasks.tables(header.build_ids)
    damage = header.damage + reader.damage + tables.damage
    if counts.unreadable:
        damage.append(f"{counts.unreadable} samples have an unknown event or are too short")
    return _recording(path, header, tables, counts, damage, reader, kept)


def _recording(
    path: Path,
    header: Header,
    tables: Tables,
    counts: RecordCounts,
    damage: list[str],
    reader: Reader,
    kept: Kept | None,
) -> PerfRecording:
    clocks = {event.clock for event in header.events}
    return PerfRecording(
        path=str(path),
        events=[event.name for event in header.events],
        attrs=header.events,
        mappings=tables.mappings,
        comms=tables.comms,
        forks=tables.forks,
        exits=tables.exits,
        lost=tables.lost,
        throttles=tables.throttles,
        clock=clocks.pop() if len(clocks) == 1 else "other:several",
        facts=header.facts,
        counted={RECORDS.get(k, f"type {k}"): n for k, n in sorted(counts.kinds.items()) if n},
        sampled=counts.sampled.tolist(),
        unreadable=counts.unreadable,
        unread=reader.unread,
        damage=damage,
        pieces=kept.pieces if kept else reader.pieces,
    )

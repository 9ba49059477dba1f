"""perf.data → samples and what a profile needs to make sense of them (numpy, in bounded memory).

Files that it does not read (pipe mode, compressed, other byte order, layouts that tell no event
apart) go through `perf script`, and `Recording.reader` and `Recording.notes` say so.

Source: Linux include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.errors import Unusable
from native_map.perf_header import Event, Header, NeedsPerf, read_header
from native_map.perf_records import PERF_ONLY, SAMPLE, Columns, Kept, Reader, joined
from native_map.perf_tasks import Tables, TaskRecords

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
class Recording:
    """What a perf.data file holds. All times are ns of `clock`, addresses and counts uint64.

    samples     whole, in the file's order (see `chunks` and `in_time_order`): time_ns int64, pid
                int32, tid int32, event int16 (number in `events`), ip uint64, period uint64 (count
                that the sample stands for), cpu_mode int8 (perf's misc & 7: 1 kernel, 2 user,
                4 guest kernel, 5 guest user)
    mappings    pid int32 (-1: the kernel's own), start, end, offset uint64, time_ns int64 (valid
                from), until_ns int64 (valid before: an exec or the number's next process; the
                largest int64 if never), path, build_id (hex or ""), executable bool. What a forked
                process inherits is repeated for it. Later rows hide earlier ones that they overlap.
    comms       pid, tid, time_ns, comm, exec bool
    forks       pid, ppid, tid, ptid, time_ns; exits likewise. A thread's start has pid == ppid.
    lost        time_ns, event (-1: unknown), count, kind ("records" or "samples"). time_ns is
                when the kernel reported it, not when it happened.
    throttles   time_ns, pid, tid, cpu (-1: not recorded), event, throttle bool (False: it ended)
    clock       "monotonic", "other:NAME" or "default" (the kernel's own, not any that a program
                can read)
    facts       hostname, osrelease, arch, cpudesc, cpuid, cmdline, version, nr_cpus ... as far as
                the file has them
    counted     number of records by type. counted["sample"] = len(samples) + unreadable.
    sampled     number of samples that can be read, for each event
    unreadable  samples whose event is unknown or whose bytes are too few
    unread      bytes of records behind a damaged one; what they held is not known
    damage      texts: what of the file could not be read
    notes       texts: how it was read, where that is worth a word
    reader      "direct" or "perf script"
    """

    path: str
    events: list[str]
    attrs: list[Event]
    mappings: pd.DataFrame
    comms: pd.DataFrame
    forks: pd.DataFrame
    exits: pd.DataFrame
    lost: pd.DataFrame
    throttles: pd.DataFrame
    clock: str
    facts: dict[str, str | int]
    counted: dict[str, int]
    sampled: list[int]
    unreadable: int = 0
    unread: int = 0
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reader: str = "direct"
    pieces: Callable[[], Iterator[Columns]] = field(default=lambda: iter(()), repr=False)

    def __len__(self) -> int:
        """The number of samples, known without reading them again."""
        return sum(self.sampled)

    def chunks(self, rows: int = 1 << 20) -> Iterator[pd.DataFrame]:
        """The samples in tables of `rows` (the last has fewer), in the file's order.

        Unusable where the file changes meanwhile.
        """
        if rows < 1:
            raise ValueError("a chunk has at least one row")
        held: list[Columns] = []
        size = seen = 0
        for piece in self.pieces():
            held.append(piece)
            size += len(piece["tid"])
            while size >= rows:
                whole = joined(held)
                yield _frame({name: column[:rows] for name, column in whole.items()})
                seen += rows
                size -= rows
                held = [{name: column[rows:] for name, column in whole.items()}]
        if size:
            yield _frame(joined(held))
        if seen + size != len(self):
            raise Unusable(f"{self.path} changed while it was read: read it when perf has ended")

    @cached_property
    def samples(self) -> pd.DataFrame:
        """All samples at once: 34 bytes each. Use `chunks` where the file is large.

        Unusable where the file has changed.
        """
        pieces = list(self.pieces())
        whole = _frame(joined(pieces))
        if len(whole) != len(self):
            raise Unusable(f"{self.path} changed while it was read: read it when perf has ended")
        return whole


def in_time_order(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples by time; those of one time stay in the file's order.

    perf writes the buffers of the CPUs one after the other: the file's order is not that of time.
    """
    return samples.iloc[np.argsort(samples["time_ns"].to_numpy(), kind="stable")]


def read(path: str | os.PathLike[str], perf: str = "perf") -> Recording:
    """Read a perf.data file.

    perf is the binary that is asked where the file is not for our own reader. Raises Unusable where
    nothing can be read.
    """
    try:
        return _read_direct(Path(path))
    except NeedsPerf as reason:
        from native_map.perf_script import read_script

        return read_script(Path(path), reason, perf)
    except Unusable as error:
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        again = "; record one with: perf record -k CLOCK_MONOTONIC -o FILE -- COMMAND"
        raise Unusable(text + ("" if "record " in str(error) else again)) from None
    except OSError as error:
        raise Unusable(
            f"cannot read {path}: {error.strerror or error}; name what perf record wrote"
        ) from error


def _frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame(columns, copy=False)


def _read_direct(path: Path) -> Recording:
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        header = read_header(file, length)
    if sys.byteorder != "little":
        raise NeedsPerf("this machine's byte order is the other one", header)
    for event in header.events:
        for wanted, option in (("tid", ""), ("ip", ""), ("time", " -T")):
            if wanted not in event.fields and event.type != 1 | 1 << 31:
                raise Unusable(
                    f"the samples of {event.name} carry no {wanted}: record with"
                    f" `perf record{option} -k CLOCK_MONOTONIC ...`"
                )
    reader = Reader(path, header)
    counted: Counter[int] = Counter()
    sampled = np.zeros(len(header.events), np.int64)
    unreadable = 0
    tasks = TaskRecords(header, reader.lookup.events_of)
    smallest = 8 * min(1 + len(event.fields) for event in header.events)
    kept = Kept(header.data[1] // smallest) if header.data[1] <= KEPT else None
    for block in reader.blocks():
        for kind, number in enumerate(np.bincount(block.kinds).tolist()):
            if number and kind in PERF_ONLY:
                raise NeedsPerf(PERF_ONLY[kind], header)
            counted[kind] += number
        is_sample = block.kinds == SAMPLE
        mine, others = np.flatnonzero(is_sample), np.flatnonzero(~is_sample)
        starts, heads = block.starts[mine], block.heads[mine]
        events = reader.sample_events(block.words, starts, heads)
        if kept:
            kept.add(reader.columns(block.words, starts, heads, events))
        found = np.bincount(events + 1, minlength=len(sampled) + 1)  # first those of event -1
        sampled += found[1:]
        unreadable += int(found[0])
        tasks.add(block.words, block.starts[others], block.kinds[others])
    tables = tasks.tables(header.build_ids)
    damage = header.damage + reader.damage + tables.damage
    if unreadable:
        damage.append(f"{unreadable} samples are of no known event or too short")
    return _recording(path, header, tables, counted, sampled, unreadable, damage, reader, kept)


def _recording(
    path: Path,
    header: Header,
    tables: Tables,
    counted: Counter[int],
    sampled: npt.NDArray[np.int64],
    unreadable: int,
    damage: list[str],
    reader: Reader,
    kept: Kept | None,
) -> Recording:
    clocks = {event.clock for event in header.events}
    return Recording(
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
        counted={RECORDS.get(k, f"type {k}"): n for k, n in sorted(counted.items()) if n},
        sampled=sampled.tolist(),
        unreadable=unreadable,
        unread=reader.unread,
        damage=damage,
        pieces=kept.pieces if kept else reader.pieces,
    )

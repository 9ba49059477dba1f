"""The contents of a perf.data file, independent of the reader."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from native_map.errors import UnusableError
from native_map.recording.perf_header import EventAttr
from native_map.recording.perf_records import Columns, joined


@dataclass
class PerfRecording:
    """The contents of a perf.data file. All times are ns of `clock`, addresses and counts uint64.

    samples     all samples, in the order of the file, not of time (see `chunks`): time_ns int64,
                pid int32, tid int32, event int16 (index in `events`), ip uint64, period uint64
                (count that the sample represents), cpu_mode int8 (perf's misc & 7: 1 kernel, 2
                user, 4 guest kernel, 5 guest user)
    mappings    pid int32 (-1: the kernel's own), start, end, offset uint64, time_ns int64 (valid
                from), until_ns int64 (end of validity: an exec, or the next process of this pid;
                the largest int64 if none), path, build_id (hex or ""), executable bool. Mappings
                that a fork inherits are repeated. Later rows hide earlier ones that they overlap.
    comms       pid, tid, time_ns, comm, exec bool
    forks       pid, ppid, tid, ptid, time_ns; exits likewise. A thread's start has pid == ppid.
    lost        time_ns, event (-1: unknown), count, kind ("records" or "samples"). time_ns is
                when the kernel reported it, not when it happened.
    throttles   time_ns, pid, tid, cpu (-1: not recorded), event, throttle bool (False: it ended)
    clock       "monotonic", "other:NAME" or "default" (the kernel's, which programs cannot read)
    facts       hostname, osrelease, arch, cpudesc, cpuid, cmdline, version, nr_cpus ... if the file
                has them
    counted     number of records by type. counted["sample"] = len(samples) + unreadable.
    sampled     number of samples that can be read, for each event
    unreadable  number of samples with an unknown event or too few bytes
    unread      bytes of records after a damaged one, whose contents are unknown
    damage      texts: parts of the file that could not be read
    notes       texts: remarks on how it was read
    reader      "direct" or "perf script"
    """

    path: str
    events: list[str]
    attrs: list[EventAttr]
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
        """Return the number of samples, without reading them again."""
        return sum(self.sampled)

    def chunks(self, rows: int = 1 << 20) -> Iterator[pd.DataFrame]:
        """Yield the samples in tables of `rows` (the last may have fewer), in the file's order.

        Raises UnusableError if the file changes meanwhile.
        """
        if rows < 1:
            raise ValueError("a chunk has at least one row")
        pending: list[Columns] = []
        size = seen = 0
        for piece in self.pieces():
            pending.append(piece)
            size += len(piece["tid"])
            while size >= rows:
                columns = joined(pending)
                yield frame_of({name: column[:rows] for name, column in columns.items()})
                seen += rows
                size -= rows
                pending = [{name: column[rows:] for name, column in columns.items()}]
        if size:
            yield frame_of(joined(pending))
        if seen + size != len(self):
            raise UnusableError(
                f"{self.path} changed while it was read: read it when perf has ended"
            )

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Return all samples at once, 34 bytes each; for large files use `chunks`.

        Raises UnusableError if the file has changed.
        """
        pieces = list(self.pieces())
        samples = frame_of(joined(pieces))
        if len(samples) != len(self):
            raise UnusableError(
                f"{self.path} changed while it was read: read it when perf has ended"
            )
        return samples


def frame_of(columns: Columns) -> pd.DataFrame:
    """Return a table of these columns without copying them."""
    return pd.DataFrame(columns, copy=False)

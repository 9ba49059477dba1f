"""Reads files that `perf_data` does not support through `perf script`, which is slower.

perf prints the samples by time. Its text has neither throttle records nor the CPU; the rest is as
in `perf_data.read`. Source: Linux tools/perf/builtin-script.c and
tools/perf/util/event.c (the functions perf_event__fprintf_*).
"""

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from native_map.errors import UnusableError
from native_map.programs import LimitedProgram, ProgramLimits
from native_map.recording.perf_header import MOST_EVENTS, Header, NeedsPerfError
from native_map.recording.perf_recording import PerfRecording
from native_map.recording.perf_records import SAMPLE_COLUMNS, Columns
from native_map.recording.perf_tasks import inherit, table

ROWS = 1 << 16  # samples of one piece
MOST_FACTS = 10_000  # lines about the machine
KEPT = 8_000_000  # largest number of samples to keep in memory
MOST_ROWS = 1_000_000  # lines of processes and mappings; more are only counted
FIELDS = "misc,pid,tid,time,event,ip,period"
MODES = {"K": 1, "U": 2, "H": 3, "G": 4, "g": 5}

_WHO = rb"^\s*(-?\d+)/(-?\d+)\s+([A-Za-z]*)\s+(\d+)\.(\d{9}):\s+"
_SAMPLE = re.compile(_WHO + rb"(\d+)\s+(\S.*?):\s+([0-9a-f]+)\s*$")
_OTHER = re.compile(_WHO + rb"PERF_RECORD_(\w+)(.*)$", re.DOTALL)
_MMAP = re.compile(
    rb"^ (-?\d+)/(-?\d+): \[(?:0x)?([0-9a-f]+)\((?:0x)?([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)"
    rb"([^\]]*)\]: (\S+) (.*)$"
)
_COMM = re.compile(rb"^( exec)?: (.*):(-?\d+)/(-?\d+)$", re.DOTALL)
_TASK = re.compile(rb"^\((-?\d+):(-?\d+)\):\((-?\d+):(-?\d+)\)$")
_LOST = re.compile(rb"lost(?: samples)? (\d+)")


def limits_for(size: int) -> ProgramLimits:
    """Return the limits of `perf script` for a file of this size.

    perf maps the whole file, prints about 10 MB a second, and takes up to 5 s for a compressed MB.
    """
    mebibytes = -(-size >> 20)
    return ProgramLimits(
        wait_s=20.0 + 15 * mebibytes,
        cpu_s=5 + 5 * mebibytes,
        memory=(800 << 20) + 2 * size,
        output=(128 << 20) + 200 * size,
    )


def read_script(path: Path, needs: NeedsPerfError, perf: str = "perf") -> PerfRecording:
    """Read the recording from `perf script`. Raises UnusableError if perf cannot read it."""
    text = _Text(path, perf, needs)
    kept: list[Columns] | None = []
    sampled: Counter[int] = Counter()
    for piece in text.pieces():
        sampled.update(dict(enumerate(np.bincount(piece["event"].astype(np.int64)).tolist())))
        if kept is not None:
            kept.append(piece)
            if sum(sampled.values()) > KEPT:
                kept = None
    if not sampled and not text.counted and text.failure:
        raise UnusableError(
            f"{path} can only be read by perf ({needs}), which says: {text.failure}"
        )
    header = needs.header or text.facts()
    clocks = {event.clock for event in header.events} or {str(header.facts.pop("clock", "default"))}
    damage = [*header.damage]
    if text.failure:
        damage.append(f"perf script stopped: {text.failure}")
    if text.refused:
        damage.append(
            f"{text.refused} records of processes and mappings were too many and not read"
        )
    if text.strange:
        damage.append(f"{text.strange} lines of perf script were not understood")
    return PerfRecording(
        path=str(path),
        events=text.events,
        attrs=header.events,
        mappings=inherit(text.maps, text.forks, text.comms, header.build_ids, damage),
        comms=table("comms", text.comms),
        forks=table("forks", text.forks),
        exits=table("forks", text.exits),
        lost=table("lost", text.lost),
        throttles=table("throttles", {}),
        clock=clocks.pop() if len(clocks) == 1 else "other:several",
        facts=header.facts,
        counted=dict(text.counted),
        sampled=[sampled[number] for number in range(len(text.events))],
        damage=damage,
        notes=[f"read through `perf script`, which is slower: {needs}; throttling is not shown"],
        reader="perf script",
        pieces=text.again if kept is None else lambda: iter(kept),
    )


class _Text:
    """Parses the output of `perf script`: yields samples as pieces and collects the rest."""

    def __init__(self, path: Path, perf: str, needs: NeedsPerfError) -> None:
        self.path, self.perf = path, perf
        self.events = [event.name for event in needs.header.events] if needs.header else []
        self.counted: Counter[str] = Counter()
        self.strange = self.refused = self._rows = 0
        self.failure = ""
        self.maps: dict[str, list[object]] = {}
        self.forks: dict[str, list[object]] = {}
        self.exits: dict[str, list[object]] = {}
        self.comms: dict[str, list[object]] = {}
        self.lost: dict[str, list[object]] = {}

    def again(self) -> Iterator[Columns]:
        """Yields the samples again, from another run of perf."""
        reread = _Text(self.path, self.perf, NeedsPerfError(""))
        reread.events = list(self.events)
        return reread.pieces()

    def pieces(self) -> Iterator[Columns]:
        options = ["-f", "-G", "-i", str(self.path), "-F", FIELDS, "--ns"]
        options += ["--show-task-events", "--show-mmap-events", "--show-lost-events"]
        event_numbers = {name.encode(): at for at, name in enumerate(self.events)}
        rows: list[tuple[int, int, int, int, int, int, int]] = []
        with self._run(options) as program:
            for line in program.lines():
                match = _SAMPLE.match(line)
                if not match:
                    self._parse_other(line)
                    continue
                pid, tid, misc, seconds, nanos, period, name, ip = match.groups()
                if name not in event_numbers and len(event_numbers) == MOST_EVENTS:
                    self.strange += 1
                    continue
                if name not in event_numbers:
                    event_numbers[name] = len(self.events)
                    self.events.append(name.decode("utf-8", "backslashreplace"))
                time = signed(int(seconds) * 1_000_000_000 + int(nanos))
                mode = MODES.get(misc[:1].decode(), 0)
                rows.append(
                    (time, int(pid), int(tid), event_numbers[name], int(ip, 16), int(period), mode)
                )
                if len(rows) == ROWS:
                    self.counted["sample"] += len(rows)
                    yield _columns(rows)
                    rows = []
            if code := program.end():
                self.failure = program.stopped or program.complaint or f"exit code {code}"
        if rows:
            self.counted["sample"] += len(rows)
            yield _columns(rows)

    def _run(self, options: list[str]) -> LimitedProgram:
        try:
            return LimitedProgram(
                [self.perf, "script", *options],
                limits_for(self.path.stat().st_size),
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            raise UnusableError(
                f"{self.path} can only be read by perf, which is not here"
                f" ({self.perf}: {error.strerror}): install it, or record into a file with"
                " `perf record -k CLOCK_MONOTONIC -o FILE ...`"
            ) from error

    def _parse_other(self, line: bytes) -> None:
        match = _OTHER.match(line.rstrip(b"\n"))
        if not match:
            self.strange += bool(line.strip())
            return
        _, _, misc, seconds, nanos, kind, rest = match.groups()
        time = signed(int(seconds) * 1_000_000_000 + int(nanos))
        self.counted[kind.decode().lower()] += 1
        self._rows += 1
        if self._rows > MOST_ROWS:
            self.refused += 1
            return
        if kind in (b"MMAP", b"MMAP2") and (parts := _MMAP.match(rest)):
            pid, _, start, length, offset, middle, protection, name = parts.groups()
            hexes = middle.strip()
            add(
                self.maps,
                time_ns=time,
                pid=int(pid),
                start=int(start, 16),
                length=int(length, 16),
                offset=int(offset, 16),
                path=name.decode("utf-8", "backslashreplace"),
                build_id=hexes.strip(b"<>").decode() if hexes.startswith(b"<") else "",
                executable=b"x" in protection,
            )
        elif kind == b"COMM" and (parts := _COMM.match(rest)):
            is_exec, name, pid, tid = parts.groups()
            comm = name.decode("utf-8", "backslashreplace")
            add(self.comms, time_ns=time, pid=int(pid), tid=int(tid), comm=comm, exec=bool(is_exec))
        elif kind in (b"FORK", b"EXIT") and (parts := _TASK.match(rest)):
            pid, tid, ppid, ptid = (int(number) for number in parts.groups())
            into = self.forks if kind == b"FORK" else self.exits
            clones = b"F" not in misc
            add(into, time_ns=time, pid=pid, tid=tid, ppid=ppid, ptid=ptid, clones=clones)
        elif kind in (b"LOST", b"LOST_SAMPLES") and (parts := _LOST.search(rest)):
            word = "records" if kind == b"LOST" else "samples"
            add(self.lost, time_ns=time, event=-1, count=signed(int(parts[1])), kind=word)
        elif kind in (b"MMAP", b"MMAP2", b"COMM", b"FORK", b"EXIT", b"LOST", b"LOST_SAMPLES"):
            self.strange += 1

    def facts(self) -> Header:
        """Read the header from `perf script --header-only`, for headers that are not supported."""
        header = Header([], (0, 0))
        names = {b"hostname": "hostname", b"os release": "osrelease", b"perf version": "version"}
        names |= {b"arch": "arch", b"cpudesc": "cpudesc", b"cmdline": "cmdline", b"cpuid": "cpuid"}
        with self._run(["-f", "-i", str(self.path), "--header-only"]) as program:
            for line in itertools.islice(program.lines(), MOST_FACTS):
                name, _, value = line.lstrip(b"# ").partition(b":")
                text = value.strip().decode("utf-8", "backslashreplace")
                if name.strip() in names:
                    header.facts[names[name.strip()]] = text
                elif name.strip() == b"clockid":
                    is_ours = text.startswith("monotonic (")
                    header.facts["clock"] = (
                        "monotonic" if is_ours else f"other:{(text.split() or [text])[0]}"
                    )
        return header


def signed(number: int) -> int:
    """Convert an unsigned number of 64 bits, as perf prints it, to signed."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def add(columns: dict[str, list[object]], **row: object) -> None:
    """Append a row to lists by name."""
    for name, value in row.items():
        columns.setdefault(name, []).append(value)


def _columns(rows: list[tuple[int, int, int, int, int, int, int]]) -> Columns:
    return {
        name: np.array(column, kind)
        for (name, kind), column in zip(
            SAMPLE_COLUMNS.items(), zip(*rows, strict=True), strict=True
        )
    }

"""Feeds damaged and mad files to every reader: it answers, or refuses in one line, in bounds.

    PYTHONPATH=. python tools/bench/fuzz.py [--inputs 1000000] [--seed 0] [--processes 2]
        [--only READER ...] [--keep DIRECTORY] [--input READER:NUMBER]

An input is a valid file that was changed in one to four places: numbers become extreme ones, parts
are left out, doubled, exchanged and put elsewhere, JSON values become others; checksums and lengths
are then put right in most of them, as what has a wrong one is refused before anything is done with
it. A few are cut or have any bits flipped. Each input follows from the seed and its number alone.

"Past the header" are inputs whose first check (magic number, checksum, schema, form) passed, so
that their contents were read. Anything but a result or a refusal is a fault: another exception,
more than CPU_S of processor time, more than MEMORY of additional memory. Faults are printed with
what makes them again, kept with --keep, and make the exit code 1.
"""

import argparse
import contextlib
import copy
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotus import host
from lotus.errors import LotusError
from lotus.inside import layout
from native_map.errors import Unusable

CPU_S = 20.0  # of one input, the first ones with their imports too
MEMORY = 512 << 20  # bytes more than before the first input
REFUSED = (LotusError, Unusable)
TRACES = Path(__file__).resolve().parents[2] / "traces"
Passed = Callable[[], None]


@dataclass(frozen=True)
class Reader:
    """`make` gives an input; `read` reads it, and calls what it is given past the header check."""

    name: str
    share: float  # of all inputs
    make: Callable[[random.Random], bytes]
    read: Callable[[Path, bytes, Passed], None]


@dataclass
class Found:
    """What came of some inputs of one reader."""

    inputs: int = 0
    passed: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        self.inputs += other.inputs
        self.passed += other.passed
        self.refused += other.refused
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.reasons.update(other.reasons)
        self.faults += other.faults


class Slow(BaseException):
    """An input took too long."""


# -- changes -------------------------------------------------------------------------------------

_NUMBERS = [0, 1, 2, 3, 7, 100, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**53 + 1]
_NUMBERS += [2**62, 2**63 - 1, 2**63, 2**64 - 1]
_ODD: list[Any] = [None, True, False, -1, *_NUMBERS, 10**40, 0.5, -1.5, 1e308, float("nan")]
_ODD += [float("inf"), "", "x", "\x00\x1b[2J\x07", "\u202eabc\u2066", "\ud800", "[bold]<b>&", "0"]
_ODD += ["../../etc/passwd", "/etc/passwd", "n" * 3000, [], [[]], [None], {}, {"": None}, [1] * 50]


def flipped(data: bytes, dice: random.Random) -> bytes:
    """Any bytes changed, cut, doubled or put in."""
    content = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(content) + 1)
        how = dice.randrange(6)
        if how == 0:
            del content[at:]
        elif how == 1:
            content[at:at] = dice.randbytes(dice.randrange(1, 40))
        elif how == 2:
            content[at:at] = content[at : at + dice.randrange(1, 200)]
        elif how == 3:
            del content[at : at + dice.randrange(1, 200)]
        elif content and at < len(content):
            content[at] ^= 1 << dice.randrange(8)
    return bytes(content)


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _nodes(value[key])


def changed(value: Any, dice: random.Random, keep: frozenset[str] = frozenset()) -> Any:
    """A JSON value with one to four of its parts changed; what `keep` names mostly stays."""
    value = copy.deepcopy(value)
    for _ in range(dice.choice([1, 1, 2, 4])):
        places = [one for one in _nodes(value) if one[1] not in keep or dice.random() < 0.02]
        if not places:
            break
        holder, key = dice.choice(places)
        how = dice.randrange(8)
        if how == 0:
            del holder[key]
        elif how == 1:
            other, name = dice.choice(places)
            size = range(len(other)) if isinstance(other, list) else other
            if name not in size:  # it is gone by now
                continue
            holder[key] = copy.deepcopy(other[name])
        elif how == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif how == 3 and isinstance(holder, dict):
            holder[dice.choice(["", "x", "n\n", "\ud800", "schema", str(key) + "s"])] = holder[key]
        elif how == 4 and type(holder[key]) is int:
            holder[key] += dice.choice([-1, 1, -1000, 10**9])
        else:
            holder[key] = copy.deepcopy(dice.choice(_ODD))
    return value


def _json(value: Any, dice: random.Random) -> bytes:
    text = json.dumps(value, ensure_ascii=dice.random() < 0.5).encode("utf-8", "surrogatepass")
    return text if dice.random() < 0.92 else flipped(text, dice)


def _words(payload: bytes, start: int, dice: random.Random) -> bytes:
    """Some of the numbers from `start` on become others."""
    content = bytearray(payload)
    for _ in range(dice.randint(1, 3)):
        size = dice.choice([1, 2, 4, 4, 8, 8])
        if len(content) - start < size:
            break
        at = start + dice.randrange((len(content) - start) // size) * size
        content[at : at + size] = (dice.choice(_NUMBERS) & (1 << 8 * size) - 1).to_bytes(
            size, "little"
        )
    return bytes(content)


# -- event logs ----------------------------------------------------------------------------------


def _logs() -> dict[str, list[bytes]]:
    """Small valid logs: of the process that iterates, and of its worker, and a counted one."""
    from tests.logs import MS, START_NS, RunBuilder, Sample
    from tests.simulation import simulate

    with tempfile.TemporaryDirectory() as folder:
        path = simulate(Path(folder) / "run", workers=1, batches=2, batch_size=2)
        logs = [file.read_bytes() for file in sorted((path / "events").iterdir())]
        lines = (path / "processes.jsonl").read_bytes()
        manifest = (path / "run.json").read_bytes()
        run = RunBuilder(Path(folder) / "counted")
        main = run.process(pid=100)
        main.loader(0)
        main.counters({"cycles": 0, "task_clock": 1})
        at = START_NS + 10 * MS
        readings = [(2, 1000, 1000, count, count) for count in (0, 30, 70)]
        main.counts(at, readings, [(0, 1), (1, 2)], (1, 2))
        ops = [("Decode", 60), ("Flip", 30)]
        main.batch(0, start_ns=at, samples=[Sample(7, 100, ops)], collate_ns=20)
        main.event("note", text="a note")
        main.event("sample_path", sample=7, path="a.jpg", duration_ns=100)
        counted = run.end()
        logs += [file.read_bytes() for file in sorted((counted / "events").iterdir())]
    return {"logs": logs, "lines": [lines], "manifest": [manifest]}


def parted(data: bytes) -> tuple[dict[str, Any], list[tuple[int, bytes]]]:
    """The header and the frames (kind, payload) of a valid log."""
    _, length = layout.FILE_HEADER.unpack_from(data)
    at = layout.FILE_HEADER.size + length
    header = json.loads(data[layout.FILE_HEADER.size : at])
    header.pop("crc", None)
    frames = []
    while at < len(data):
        _, kind, _, length, _ = layout.FRAME_HEADER.unpack_from(data, at)
        at += layout.FRAME_HEADER.size
        frames.append((kind, data[at : at + length]))
        at += length
    return header, frames


def _fit(kind: int, payload: bytes, dice: random.Random) -> bytes:
    """Change numbers of a frame; where the counts of its arrays change, mostly its length too."""
    _, fields, arrays = layout.FRAMES[kind]
    fixed = layout.FIXED[kind]
    if dice.random() < 0.5 and len(payload) > fixed.size:
        return _words(payload, fixed.size, dice)
    values = list(fixed.unpack_from(payload))
    place = dice.randrange(len(fields))
    name, code = fields[place]
    if name.startswith("n_") and dice.random() < 0.8:
        # A row more or fewer of one array, where it stands.
        at = fixed.size
        for array, columns in arrays:
            size = struct.calcsize("<" + "".join(one for _, one in columns))
            count = values[[one for one, _ in fields].index(f"n_{array}")]
            if f"n_{array}" == name:
                row = dice.randbytes(size) if dice.random() < 0.5 else bytes(size)
                more = count == 0 or dice.random() < 0.5
                rest = payload[at:] if more else payload[at + size :]
                payload = payload[:at] + (row if more else b"") + rest
                values[place] += 1 if more else -1
                break
            at += size * count
    else:
        limit = 1 << 8 * struct.calcsize(code)
        value = dice.choice(_NUMBERS) % limit
        values[place] = value - limit if code in "iq" and value >= limit // 2 else value
    return fixed.pack(*values) + payload[fixed.size :]


def log_from(data: bytes, dice: random.Random) -> bytes:
    """An event log that was changed."""
    if dice.random() < 0.1:
        return flipped(data, dice)
    header, frames = parted(data)
    if dice.random() < 0.15:
        header = changed(header, dice, frozenset({"frames", "schema"}))
        if dice.random() < 0.2 and isinstance(header, dict) and "frames" in header:
            header["frames"] = changed(header["frames"], dice)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(frames))
        kind, payload = frames[place]
        how = dice.randrange(10)
        if how == 0:
            frames.insert(dice.randrange(len(frames)), frames[place])
        elif how == 1 and len(frames) > 1:
            del frames[place]
        elif how == 2:
            frames[place] = (dice.choice([*layout.FRAMES, 0, 99, 65535]), payload)
        elif kind == layout.EVENT:
            fixed = layout.FIXED[kind]
            with contextlib.suppress(ValueError, struct.error):
                event = changed(json.loads(payload[fixed.size :]), dice, frozenset({"event"}))
                text = json.dumps(event).encode()
                frames[place] = (kind, fixed.pack(0, len(text)) + text)
        elif kind in layout.FRAMES and len(payload) >= layout.FIXED[kind].size:
            with contextlib.suppress(struct.error):
                frames[place] = (kind, _fit(kind, payload, dice))
    parts = [layout.file_header(header)]
    for kind, payload in frames:
        whole = layout.frame(kind, payload, dice.choice([0, 0, 0, 1, 65535]))
        if dice.random() < 0.02:
            whole = flipped(whole, dice)
        parts.append(whole)
    return b"".join(parts)


def _read_log(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus import ranks
    from lotus.eventlog import EventLog, ForeignError
    from lotus.frames import EXPECTED

    events = folder / "events"
    events.mkdir(exist_ok=True)
    (events / "one.ltr").write_bytes(data)
    ranks.recorded(folder)
    try:
        log = EventLog(str(events), "one.ltr")
    except ForeignError as error:
        raise LotusError(str(error)) from None
    passed()
    for name, frame in EXPECTED.items():
        arrays = log.arrays(name, [array for array, _ in frame.arrays])
        for array, rows in arrays.items():
            if len(rows) != int(log.fixed[name][f"n_{array}"].astype("int64").sum()):
                raise AssertionError(f"{len(rows)} rows of {array}")
    if sum(loss.bytes for loss in log.lost) > len(data) or any(not loss.count for loss in log.lost):
        raise AssertionError(f"more lost than there was: {log.lost}")


# -- whole runs ----------------------------------------------------------------------------------

_TABLES = (
    "ops samples batches waits workers loaders epochs resources operations paths processes lost "
    "notes unseen counters intervals exact"
).split()
_SPLIT = struct.Struct("<I")


def _packed(*parts: bytes) -> bytes:
    """Several files in one input."""
    return b"".join(_SPLIT.pack(len(part)) + part for part in parts)


def _unpacked(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        (length,) = _SPLIT.unpack_from(data, at)
        parts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


def _run_from(known: dict[str, list[bytes]], dice: random.Random) -> bytes:
    """run.json, processes.jsonl and two logs, of which one or two were changed."""
    manifest, lines = known["manifest"][0], known["lines"][0]
    logs = known["logs"][2:] if dice.random() < 0.3 else known["logs"][:2]
    parts = [manifest, lines, *logs]
    for _ in range(dice.randint(1, 2)):
        place = dice.randrange(len(parts))
        if place == 0:
            with contextlib.suppress(ValueError):
                content = json.loads(parts[0])
                parts[0] = _json(changed(content, dice, frozenset({"schema"})), dice)
        elif place == 1:
            parts[1] = _lines_from(lines, dice)
        else:
            parts[place] = log_from(logs[place - 2], dice)
    return _packed(*parts)


def _lines_from(lines: bytes, dice: random.Random) -> bytes:
    found = []
    for line in lines.splitlines():
        event = json.loads(line)
        found.append(_json(changed(event, dice, frozenset({"event", "pid"})), dice))
    found += [b'{"event": "fault", "error": "x", "pid": 1}'] * dice.randrange(2)
    return b"\n".join(found) + b"\n" * dice.randrange(2)


def _lay_out(folder: Path, data: bytes) -> None:
    shutil.rmtree(folder / "R", ignore_errors=True)
    (folder / "R" / "events").mkdir(parents=True)
    manifest, lines, *logs = _unpacked(data)
    (folder / "R" / "run.json").write_bytes(manifest)
    (folder / "R" / "processes.jsonl").write_bytes(lines)
    for number, log in enumerate(logs):
        (folder / "R" / "events" / f"{number}.ltr").write_bytes(log)


def _read_tables(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.run import load

    _lay_out(folder, data)
    run = load(folder / "R")
    passed()
    for name in _TABLES:
        len(getattr(run, name))


def _read_report(folder: Path, data: bytes, passed: Passed) -> None:
    """All that `lotus report` and `lotus map` say of it, in words and for programs."""
    from lotus.analysis.functions import summarise_map
    from lotus.analysis.summary import summarise
    from lotus.reporters import tables, terminal
    from lotus.run import load

    _lay_out(folder, data)
    run = load(folder / "R")
    passed()
    summary = summarise(run)
    measured = summarise_map(run, None) if len(run.counters) else None
    json.loads(tables.text(summary, measured), parse_constant=_no_constant)
    out = io.StringIO()
    terminal.write(summary, out, None, measured)
    bad = {char for char in out.getvalue() if not char.isprintable() and char != "\n"}
    if bad:
        raise AssertionError(f"printed: {bad!r}")


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} in a document")


def _read_live(folder: Path, data: bytes, passed: Passed) -> None:
    """What `lotus top` follows while a run goes on: its log in two halves."""
    from lotus.live import tailing

    _lay_out(folder, data)
    if tailing.manifest_of(folder / "R") is None:
        raise LotusError("no run")
    logs = [(path, path.read_bytes()) for path in (folder / "R" / "events").iterdir()]
    tail = tailing.Tail(folder / "R", (("batch", "samples"), ("batch", "ops")))
    found = 0
    for share in (0.5, 1.0):
        for path, content in logs:
            path.write_bytes(content[: int(len(content) * share)])
        found += len(tail.read())
    tailing.Reports(folder / "R").read()
    if found:
        passed()


# -- other files ---------------------------------------------------------------------------------


def _page(dice: random.Random) -> bytes:
    from lotus.inside import state

    words = [state.MAGIC, 100, 0, state.FETCH, 1000, 0, 0, 3, 7, 1500, 500, *[0] * 501]
    words[state.OPERATIONS + 1] = 2000
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(24) if dice.random() < 0.9 else dice.randrange(512)
        if place or dice.random() < 0.02:
            value = dice.choice(_NUMBERS)
            words[place] = dice.choice([value, -value]) % (1 << 63)
            words[place] = -words[place] if dice.random() < 0.2 else words[place]
    data = struct.pack("<512q", *words)
    return data if dice.random() < 0.95 else flipped(data, dice)


def _read_page(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus import state

    (folder / "state").mkdir(exist_ok=True)
    (folder / "state" / "one.state").write_bytes(data)
    if state.read(folder):
        passed()


def _perf(dice: random.Random) -> bytes:
    """perf.data of a few hundred bytes, or one that perf wrote."""
    from tests.unit import perf_files as made

    if dice.random() < 0.03:
        name = dice.choice(["two_events", "mixed", "raw_clock", "paired_monotonic"])
        return flipped((TRACES / "perf" / f"{name}.data").read_bytes(), dice)
    records = [made.mmap(5, 5, 0x1000, "/lib/x.so"), made.comm(6, 5, "python"), made.fork(7, 8, 5)]
    records += [made.sample(10 + n, 0x1000 + n) for n in range(6)]
    records += [made.record(2, struct.pack("<QQ", 1, 5) + made.trailer(20))]
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(records))
        one = records[place]
        how = dice.randrange(10)
        if how == 0:
            records.insert(place, records[dice.randrange(len(records))])
        elif how == 1:
            records[place] = made.record(dice.choice([*range(22), *range(64, 84), 999]), one[8:])
        elif how == 2:
            records[place] = (
                one[:6] + struct.pack("<H", dice.choice([0, 7, 8, 16, 65535])) + one[8:]
            )
        elif how == 3:
            body = one[8 : dice.randrange(9, len(one) + 1)]
            kind, misc, _ = struct.unpack_from("<IHH", one)
            records[place] = made.record(kind, body + bytes(-len(body) % 8), misc)
        elif how == 4:
            records[place] = one[:4] + struct.pack("<H", dice.randrange(65536)) + one[6:]
        else:
            records[place] = one[:8] + _words(one[8:], 0, dice)
    body = b"".join(records)
    size = None if dice.random() < 0.95 else dice.choice([0, 1, len(body) // 2, 2**40, 2**64 - 1])
    attrs = [made.attr()] if dice.random() < 0.9 else [made.attr(), made.attr(1, period=9)]
    if dice.random() < 0.08:
        attrs[0] = _words(attrs[0], 8, dice)
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as folder:
        data = made.write(Path(folder) / "f", body, attrs=attrs, size=size).read_bytes()
    return flipped(data, dice) if dice.random() < 0.05 else data


def _read_perf(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map import perf_data

    path = folder / "perf.data"
    path.write_bytes(data)
    recording = perf_data.read(path, perf="no-such-perf")
    passed()
    samples = recording.samples
    if recording.counted.get("sample", 0) != len(samples) + recording.unreadable:
        raise AssertionError("samples are neither there nor told")


def _stacks(dice: random.Random) -> bytes:
    process, thread = 'process 5:"python"', "thread (5): MainThread"
    steps = [("B", 10, (process, thread, "f", "g")), ("E", 20_030, ("g",)), ("B", 20_030, ("h",))]
    steps += [("E", 50_000, ("h", "f", thread, process))]
    events: list[Any] = []
    for phase, at, names in steps:
        for name in names:
            args = {"filename": "a.py" if len(name) == 1 else "", "line": 3}
            one = {"name": name, "ph": phase, "pid": 5, "tid": 7, "ts": at, "args": args}
            events.append({**one, "cat": "py-spy"})
    if dice.random() < 0.5:  # else nearly all would be refused for an order that cannot be
        return _json(changed(events, dice, frozenset({"ph", "pid", "tid"})), dice)
    for one in dice.sample(events, dice.randint(1, 3)):
        numbers = [dice.choice(_NUMBERS), one["ts"] + dice.choice([-1, 1, 10_000, 10**9])]
        one["ts"] = dice.choice([*numbers, *[one["ts"]] * 3])
        one["pid"] = dice.choice([5, 6, *_NUMBERS])
        one["name"] = dice.choice([one["name"], "thread (5): x", "process 999999999:", "a\x1b[2J"])
        one["args"] = dice.choice([one["args"], {}, {"line": -1}, {"filename": "\ud800"}])
    return _json(events, dice)


def _read_stacks(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map import py_spy

    path = folder / "py-spy.json"
    path.write_bytes(data)
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(json.loads(data), list):
            passed()
    py_spy.read(path, 0, 10**9, 10**10, 10**7, {5: 10**9})


def _csv(dice: random.Random) -> bytes:
    from tests.unit.test_importers import HOTSPOTS, PROFILES, UARCH, UPROF

    if not _FORMS:
        _FORMS.extend([HOTSPOTS, UARCH, UPROF])
        _FORMS.extend(path.read_text() for path in sorted(PROFILES.iterdir()))
    text = dice.choice(_FORMS)
    if dice.random() < 0.1:
        return flipped(text.encode(), dice)
    lines = text.splitlines()
    cells = ["", "nan", "inf", "-3", "1,234,567", "1.234.567", "41.5%", "9" * 30, '"', "1e308"]
    cells += ["f<int, float>", "\x1b[2J", "\u202e\u2028", "n" * 5000, "[Unknown]", "0", ";;;;"]
    for _ in range(dice.randint(1, 4)):
        # Mostly not in the first lines, by which a form is known.
        at = max(dice.randrange(len(lines)), dice.randrange(len(lines)))
        how = dice.randrange(6)
        if how == 0:
            lines.insert(at, lines[dice.randrange(len(lines))])
        elif how == 1 and len(lines) > 1:
            del lines[at]
        elif how == 2:
            lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
        else:
            mark = dice.choice([mark for mark in ",;\t " if mark in lines[at]] or [" "])
            parts = lines[at].split(mark)
            parts[dice.randrange(len(parts))] = dice.choice(cells)
            lines[at] = mark.join(parts)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


_FORMS: list[str] = []


def _read_csv(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.importers import load, perf_report, uprof, vtune

    path = folder / "profile.csv"
    path.write_bytes(data)
    text = data.decode("utf-8", "replace")
    if any(one.detect(text) for one in (perf_report, uprof, vtune)):
        passed()
    profile = load(path)
    if not len(profile.functions):
        raise AssertionError("a profile without functions")


def _tuned(dice: random.Random) -> bytes:
    setting = {"num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "in_order": None}
    setting |= {"persistent_workers": True, "start_method": "fork", "threads": 1}
    target = {"number": 0, "call_site": "train.py:3", "dataset": "A", "dataset_length": 4}
    entry = {"loader": target, "setting": setting, "before": setting, "iterable_safe": False}
    whole = {"schema": 1, "loaders": [entry], "command": ["python", "train.py"], "host": "h"}
    whole |= {"cores": 2, "torch": "2.14.1", "evidence": {"trials": [1, 2.5, "x"]}}
    return _json(changed(whole, dice, frozenset({"schema", "loaders"})), dice)


def _read_tuned(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus import settings

    path = folder / "tuned.json"
    path.write_bytes(data)
    _passed_schema(data, passed)
    found = settings.read(path)
    settings.given(found, None)
    for word in settings.differences(found, ["python", "train.py"]):
        if not word.isprintable():
            raise AssertionError(f"{word!r} would be printed")


def _passed_schema(data: bytes, passed: Passed) -> None:
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict) and content.get("schema") == 1:
            passed()


def _mapping(dice: random.Random) -> bytes:
    if not _MAPPINGS:
        from native_map.importers import loads
        from native_map.mapping import build, rows_of, to_json
        from tests.unit.test_importers import HOTSPOTS

        text = to_json(build(rows_of(loads(HOTSPOTS), "Decode", 1), minimum_runs=1))
        _MAPPINGS.append(json.loads(text))
    return _json(changed(_MAPPINGS[0], dice, frozenset({"format", "version"})), dice)


_MAPPINGS: list[Any] = []


def _read_mapping(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map import mapping

    text = data.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        document = json.loads(text)
        if isinstance(document, dict) and document.get("format") == mapping.FORMAT:
            passed()
    mapping.to_json(mapping.from_json(text))


def _sweep(dice: random.Random) -> bytes:
    if not _SWEEPS:
        content = json.loads((TRACES / "classification" / "sweep.json").read_bytes())
        content["runs"], content["settings"] = content["runs"][:3], content["settings"][:]
        _SWEEPS.append(content)
    return _json(changed(_SWEEPS[0], dice, frozenset({"schema", "runs", "settings"})), dice)


_SWEEPS: list[Any] = []


def _read_sweep(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus import sweep

    (folder / sweep.NAME).write_bytes(data)
    _passed_schema(data, passed)
    found = sweep.load(folder)
    for setting in found.settings():
        for path in found.directories(setting, "done"):
            if not path.resolve().is_relative_to(folder.resolve()):
                raise AssertionError(f"{path} is outside")


def _torch(dice: random.Random) -> bytes:
    if not _TORCH:
        told = json.loads((TRACES / "torch_profiler" / "torch-2.14.1.json").read_bytes())
        trace = told["trace"]
        trace["traceEvents"] = trace["traceEvents"][:12]
        _TORCH.extend([trace, {**told["run"], "waits": told["run"]["waits"][:8]}])
    return _json(changed(_TORCH[0], dice, frozenset({"traceEvents", "ph", "pid"})), dice)


_TORCH: list[Any] = []


def _read_torch(folder: Path, data: bytes, passed: Passed) -> None:
    from types import SimpleNamespace

    import pandas as pd

    from lotus.export import torch_trace

    path = folder / "trace.json"
    path.write_bytes(data)
    trace = torch_trace.read(path)
    passed()
    told = _TORCH[1]
    rows = [(told["pid"], start, took) for start, took in told["waits"]]
    waits = pd.DataFrame(rows, columns=["pid", "start_ns", "wait_ns"])
    manifest = {**{name: told[name] for name in ("start_ns", "start_wall_ns", "end_ns")}}
    run: Any = SimpleNamespace(waits=waits, manifest={**manifest, "ranks": []})
    aligned = torch_trace.align(run, trace)
    json.dumps(list(torch_trace.shifted(trace, aligned, {told["pid"]})))


def _readers() -> list[Reader]:
    known = _logs()
    lines = known["lines"][0]

    def log(dice: random.Random) -> bytes:
        return log_from(dice.choice(known["logs"]), dice)

    def whole(dice: random.Random) -> bytes:
        return _run_from(known, dice)

    def manifest(dice: random.Random) -> bytes:
        content = json.loads(known["manifest"][0])
        return _packed(_json(changed(content, dice, frozenset({"schema"})), dice), lines)

    def processes(dice: random.Random) -> bytes:
        return _packed(known["manifest"][0], _lines_from(lines, dice))

    def read_small(folder: Path, data: bytes, passed: Passed) -> None:
        from lotus.run import _manifest, _reports

        (folder / "R").mkdir(exist_ok=True)
        for name, part in zip(("run.json", "processes.jsonl"), _unpacked(data), strict=True):
            (folder / "R" / name).write_bytes(part)
        _manifest(folder / "R")
        passed()
        _reports(folder / "R", [])

    return [
        Reader("event log", 0.30, log, _read_log),
        Reader("state page", 0.12, _page, _read_page),
        Reader("perf.data", 0.10, _perf, _read_perf),
        Reader("py-spy trace", 0.05, _stacks, _read_stacks),
        Reader("CSV profile", 0.10, _csv, _read_csv),
        Reader("mapping.json", 0.05, _mapping, _read_mapping),
        Reader("tuned.json", 0.13, _tuned, _read_tuned),
        Reader("sweep.json", 0.02, _sweep, _read_sweep),
        Reader("run.json", 0.05, manifest, read_small),
        Reader("processes.jsonl", 0.04, processes, read_small),
        Reader("torch trace", 0.03, _torch, _read_torch),
        Reader("live", 0.005, whole, _read_live),
        Reader("run: tables", 0.004, whole, _read_tables),
        Reader("run: report", 0.001, whole, _read_report),
    ]


# -- running them --------------------------------------------------------------------------------

_SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _too_long(number: int, frame: object) -> None:
    raise Slow


def input_of(reader: Reader, seed: int, number: int) -> bytes:
    """The input of that number."""
    return reader.make(random.Random(f"{seed} {reader.name} {number}"))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def tried(reader: Reader, folder: Path, seed: int, numbers: range, keep: Path | None) -> Found:
    """Read the inputs of these numbers, in a process of which they may use SIGPROF."""
    found = Found()
    signal.signal(signal.SIGPROF, _too_long)
    warnings.simplefilter("ignore")
    before = 0
    for number in numbers:
        data = input_of(reader, seed, number)
        passed: list[bool] = []
        fault = ""
        began = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            try:
                reader.read(folder, data, lambda passed=passed: passed.append(True))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except REFUSED as error:
            found.refused += 1
            found.reasons[type(error).__name__] += 1
            text = str(error)
            if "\n" in text or not text or len(text) > 2000:
                fault = f"refused in no line: {text!r:.300}"
        except (Exception, Slow) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error!s:.200} at {Path(place.filename).name}"
            fault = f"{what}:{place.lineno}"
            found.reasons[type(error).__name__] += 1
        if not before:  # what is imported at the first input is nobody's fault
            before = _peak()
        elif _peak() - before > MEMORY:
            fault = fault or f"memory grew by {(_peak() - before) >> 20} MiB"
            before = _peak()
        if fault:
            found.faults.append((number, fault))
            if keep is not None:
                keep.mkdir(exist_ok=True)
                name = reader.name.replace(" ", "-").replace(":", "")
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
        found.inputs += 1
        found.passed += bool(passed)
        found.slowest_s = max(found.slowest_s, time.process_time() - began)
    return found


def _part(job: tuple[str, int, int, int, str | None]) -> tuple[str, Found]:
    name, seed, first, last, keep = job
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    (reader,) = [one for one in _known() if one.name == name]
    with tempfile.TemporaryDirectory(dir=_SCRATCH, prefix="lotus-fuzz-") as folder:
        kept = None if keep is None else Path(keep)
        return name, tried(reader, Path(folder), seed, range(first, last), kept)


_KNOWN: list[Reader] = []


def _known() -> list[Reader]:
    if not _KNOWN:
        # Once, before the processes of the parts are forked.
        import lotus.export.torch_trace
        import lotus.reporters.terminal
        import lotus.sweep  # noqa: F401
        import native_map.importers
        import native_map.py_spy  # noqa: F401

        _KNOWN.extend(_readers())
    return _KNOWN


def fuzz(
    inputs: int,
    seed: int = 0,
    processes: int = 1,
    only: list[str] | None = None,
    keep: str | None = None,
) -> dict[str, Found]:
    """Read so many inputs, shared out over the readers; at least one of each."""
    chosen = [one for one in _known() if not only or one.name in only]
    whole = sum(one.share for one in chosen)
    jobs = []
    for one in chosen:
        count = max(1, round(inputs * one.share / whole))
        step = max(1000, min(20_000, -(-count // 4), round(20_000 * one.share)))
        for first in range(0, count, step):
            jobs.append((one.name, seed, first, min(first + step, count), keep))
    found = {one.name: Found() for one in chosen}
    # Readers take turns, so that a run that is stopped has tried all.
    jobs.sort(key=lambda job: (job[2] / max(1, inputs * _share(job[0])), job[0]))
    # A process for each part: its memory is then that of its inputs.
    context = multiprocessing.get_context("fork")
    # Stopped early (Ctrl-C, SIGTERM) it tells what it has found so far.
    with (
        contextlib.suppress(KeyboardInterrupt),
        context.Pool(processes, maxtasksperchild=1) as pool,
    ):
        done = 0
        for name, part in pool.imap_unordered(_part, jobs):
            found[name].add(part)
            done += part.inputs
            for number, fault in part.faults[:3]:
                print(f"FAULT {name}:{number} (seed {seed}): {fault}", flush=True)
            if done // 50_000 > (done - part.inputs) // 50_000:
                print(f"{done:,} inputs", file=sys.stderr, flush=True)
    return found


def _share(name: str) -> float:
    return next(one.share for one in _known() if one.name == name)


def table(found: dict[str, Found]) -> str:
    """A line a reader, and one for all."""
    rows = [
        f"{'reader':16} {'inputs':>10} {'past header':>18} {'refused':>10} {'slowest':>9} faults"
    ]
    whole = Found()
    for name, one in found.items():
        rows.append(_line(name, one))
        whole.add(one)
    rows.append(_line("all", whole))
    rows.append(f"raised: {dict(whole.reasons)}")
    return "\n".join(rows)


def _line(name: str, one: Found) -> str:
    share = f"{one.passed:,} ({one.passed / max(one.inputs, 1):.0%})"
    times = f"{one.slowest_s:.2f} s"
    return (
        f"{name:16} {one.inputs:>10,} {share:>18} {one.refused:>10,} {times:>9} {len(one.faults)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", metavar="READER")
    parser.add_argument("--keep", metavar="DIRECTORY", help="write inputs that make faults there")
    parser.add_argument("--input", metavar="READER:NUMBER", help="one input, with its traceback")
    args = parser.parse_args()
    if args.input:
        name, _, number = args.input.rpartition(":")
        (reader,) = [one for one in _known() if one.name == name]
        with tempfile.TemporaryDirectory() as folder:
            data = input_of(reader, args.seed, int(number))
            reader.read(Path(folder), data, lambda: print("past the header"))
        return 0
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    facts = host.facts()
    machine = f"{facts['cpu']['model']}, {facts['cpu']['affinity']} cores"
    print(f"{machine}; Python {sys.version.split()[0]}")
    print(f"commit {commit or 'unknown'}; {time.strftime('%Y-%m-%d')}; seed {args.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    found = fuzz(args.inputs, args.seed, args.processes, args.only, args.keep)
    print(table(found))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(one.faults for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

"""The inputs and readers of fuzz.py, except for those of event logs and runs (runs.py)."""

import contextlib
import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

from tools.fuzz.attacks import HOLE, elf, put, symbol
from tools.fuzz.changes import (
    NUMBERS,
    SCRATCH,
    TRACES,
    Passed,
    as_json,
    changed,
    flipped,
    words_changed,
)

LARGE = 1 << 16  # bytes of what is no changed file but an attack


def make_page(dice: random.Random) -> bytes:
    from lotus.inside.trace.log import state_page

    words = [state_page.MAGIC, 100, 0, state_page.FETCH, 1000, 0, 0, 3, 7, 1500, 500, *[0] * 501]
    words[state_page.OPERATIONS + 1] = 2000
    for _ in range(dice.randint(1, 6)):
        place = dice.randrange(24) if dice.random() < 0.9 else dice.randrange(512)
        if place or dice.random() < 0.02:
            value = dice.choice(NUMBERS)
            words[place] = dice.choice([value, -value]) % (1 << 63)
            words[place] = -words[place] if dice.random() < 0.2 else words[place]
    data = struct.pack("<512q", *words)
    return data if dice.random() < 0.95 else flipped(data, dice)


def read_page(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.reading.logs import process_states

    (folder / "state").mkdir(exist_ok=True)
    put(folder / "state" / "one.state", data)
    if process_states.read(folder):
        passed()


def make_perf(dice: random.Random) -> bytes:
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
        record = records[place]
        how = dice.randrange(10)
        if how == 0:
            records.insert(place, records[dice.randrange(len(records))])
        elif how == 1:
            records[place] = made.record(dice.choice([*range(22), *range(64, 84), 999]), record[8:])
        elif how == 2:
            records[place] = (
                record[:6] + struct.pack("<H", dice.choice([0, 7, 8, 16, 65535])) + record[8:]
            )
        elif how == 3:
            body = record[8 : dice.randrange(9, len(record) + 1)]
            kind, misc, _ = struct.unpack_from("<IHH", record)
            records[place] = made.record(kind, body + bytes(-len(body) % 8), misc)
        elif how == 4:
            records[place] = record[:4] + struct.pack("<H", dice.randrange(65536)) + record[6:]
        else:
            records[place] = record[:8] + words_changed(record[8:], 0, dice)
    body = b"".join(records)
    size = None if dice.random() < 0.95 else dice.choice([0, 1, len(body) // 2, 2**40, 2**64 - 1])
    attrs = [made.attr()] if dice.random() < 0.9 else [made.attr(), made.attr(1, period=9)]
    if dice.random() < 0.08:
        attrs[0] = words_changed(attrs[0], 8, dice)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        data = made.write(Path(folder) / "f", body, attrs=attrs, size=size).read_bytes()
    return flipped(data, dice) if dice.random() < 0.05 else data


def read_perf(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.recording import perf_data
    from native_map.symbols.symbolizer import Symbols

    path = folder / "perf.data"
    put(path, data)
    recording = perf_data.read(path, perf="no-such-perf")
    passed()
    symbols = Symbols(perf_maps="/nonexistent", debug_dirs=[])
    seen = 0
    for chunk in recording.chunks():
        symbols.resolve(recording.mappings, chunk, recording.forks, recording.comms)
        seen += len(chunk)
    if recording.counted.get("sample", 0) != seen + recording.unreadable:
        raise AssertionError("samples are neither there nor told")


def make_stacks(dice: random.Random) -> bytes:
    process, thread = 'process 5:"python"', "thread (5): MainThread"
    steps = [("B", 10, (process, thread, "f", "g")), ("E", 20_030, ("g",)), ("B", 20_030, ("h",))]
    steps += [("E", 50_000, ("h", "f", thread, process))]
    events: list[Any] = []
    for phase, at, names in steps:
        for name in names:
            args = {"filename": "a.py" if len(name) == 1 else "", "line": 3}
            event = {"name": name, "ph": phase, "pid": 5, "tid": 7, "ts": at, "args": args}
            events.append({**event, "cat": "py-spy"})
    if dice.random() < 0.5:  # else nearly all would be refused for an order that cannot be
        return as_json(changed(events, dice, frozenset({"ph", "pid", "tid"})), dice)
    for event in dice.sample(events, dice.randint(1, 3)):
        numbers = [dice.choice(NUMBERS), event["ts"] + dice.choice([-1, 1, 10_000, 10**9])]
        event["ts"] = dice.choice([*numbers, *[event["ts"]] * 3])
        event["pid"] = dice.choice([5, 6, *NUMBERS])
        event["name"] = dice.choice(
            [event["name"], "thread (5): x", "process 999999999:", "a\x1b[2J"]
        )
        event["args"] = dice.choice([event["args"], {}, {"line": -1}, {"filename": "\ud800"}])
    return as_json(events, dice)


def read_stacks(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.recording import py_spy

    path = folder / "py-spy.json"
    put(path, data)
    if len(data) < LARGE:
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(json.loads(data), list):
                passed()
    py_spy.read(path, 0, 10**9, 10**10, 10**7, {5: 10**9})


def make_csv(dice: random.Random) -> bytes:
    from tests.unit.native_map.paper.test_importers import HOTSPOTS, PROFILES, UARCH, UPROF

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


def read_csv(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.paper import perf_report, uprof, vtune
    from native_map.paper.importers import load

    path = folder / "profile.csv"
    put(path, data)
    text = data[:LARGE].decode("utf-8", "replace")
    if any(importer.detect(text) for importer in (perf_report, uprof, vtune)):
        passed()
    profile = load(path)
    if not len(profile.functions):
        raise AssertionError("a profile without functions")


def make_tuned(dice: random.Random) -> bytes:
    setting = {"num_workers": 4, "prefetch_factor": 2, "pin_memory": False, "in_order": None}
    setting |= {"persistent_workers": True, "start_method": "fork", "threads": 1}
    target = {"number": 0, "call_site": "train.py:3", "dataset": "A", "dataset_length": 4}
    entry = {"loader": target, "setting": setting, "before": setting, "iterable_safe": False}
    whole = {"schema": 1, "loaders": [entry], "command": ["python", "train.py"], "host": "h"}
    whole |= {"cores": 2, "torch": "2.14.1", "evidence": {"trials": [1, 2.5, "x"]}}
    return as_json(changed(whole, dice, frozenset({"schema", "loaders"})), dice)


def read_tuned(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.settings import settings_run, tuned_file

    path = folder / "tuned.json"
    put(path, data)
    _passed_schema(data, passed)
    tuned = tuned_file.read(path)
    settings_run.request(tuned, None)
    for word in tuned_file.differences(tuned, ["python", "train.py"]):
        if not word.isprintable():
            raise AssertionError(f"{word!r} would be printed")


def _passed_schema(data: bytes, passed: Passed) -> None:
    if len(data) >= LARGE:  # what is needed to look is not the reader's
        return
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict) and content.get("schema") == 1:
            passed()


def make_plan(dice: random.Random) -> bytes:
    from lotus.settings import share_plan
    from lotus.settings.tuned_file import Target

    target = Target(call_site="train.py:12", dataset="Points", dataset_length=640)
    predicted = share_plan.PlanPrediction(times_the_samples_per_second=1.2)
    made = share_plan.SharePlan(
        (20, 12), "lotus", target, share_plan.ModelSignature(83, "ab"), predicted, ("a note",)
    )
    return as_json(changed(share_plan.document(made), dice, frozenset({"format", "version"})), dice)


def read_plan(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.settings import settings_run, share_plan, tuned_file

    path = folder / "balance.json"
    put(path, data)
    if share_plan.is_plan(path):
        passed()
    plan = share_plan.read(path)
    settings_run.request(tuned_file.Tuned(()), None, settings_run.Shares(plan))
    for word in settings_run.shares_change(plan):
        if not word.isprintable():
            raise AssertionError(f"{word!r} would be printed")


def make_mapping(dice: random.Random) -> bytes:
    if not _MAPPINGS:
        from native_map.paper.importers import loads
        from native_map.paper.paper_mapping import build, rows_of, to_json
        from tests.unit.native_map.paper.test_importers import HOTSPOTS

        text = to_json(build(rows_of(loads(HOTSPOTS), "Decode", 1), minimum_runs=1))
        _MAPPINGS.append(json.loads(text))
    return as_json(changed(_MAPPINGS[0], dice, frozenset({"format", "version"})), dice)


_MAPPINGS: list[Any] = []


def read_mapping(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.paper import paper_mapping

    text = data.decode("utf-8", "replace")
    if len(data) < LARGE:
        with contextlib.suppress(ValueError, RecursionError):
            document = json.loads(text)
            if isinstance(document, dict) and document.get("format") == paper_mapping.FORMAT:
                passed()
    paper_mapping.to_json(paper_mapping.from_json(text))


def make_sweep(dice: random.Random) -> bytes:
    if not _SWEEPS:
        content = json.loads((TRACES / "classification" / "sweep.json").read_bytes())
        content["runs"], content["settings"] = content["runs"][:3], content["settings"][:]
        _SWEEPS.append(content)
    return as_json(changed(_SWEEPS[0], dice, frozenset({"schema", "runs", "settings"})), dice)


_SWEEPS: list[Any] = []


def read_sweep(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.sweep import sweep_record

    put(folder / sweep_record.NAME, data)
    _passed_schema(data, passed)
    sweep = sweep_record.load(folder)
    for setting in sweep.settings():
        for path in sweep.directories(setting, "done"):
            if not path.resolve().is_relative_to(folder.resolve()):
                raise AssertionError(f"{path} is outside")


def make_torch(dice: random.Random) -> bytes:
    if not _TORCH:
        content = json.loads((TRACES / "torch_profiler" / "torch-2.14.1.json").read_bytes())
        trace = content["trace"]
        trace["traceEvents"] = trace["traceEvents"][:12]
        _TORCH.extend([trace, {**content["run"], "waits": content["run"]["waits"][:8]}])
    return as_json(changed(_TORCH[0], dice, frozenset({"traceEvents", "ph", "pid"})), dice)


_TORCH: list[Any] = []


def read_torch(folder: Path, data: bytes, passed: Passed) -> None:
    from types import SimpleNamespace

    import pandas as pd

    from lotus.export.timelines import torch_trace

    path = folder / "trace.json"
    put(path, data)
    trace = torch_trace.read(path)
    passed()
    recorded = _TORCH[1]
    rows = [(recorded["pid"], start, took) for start, took in recorded["waits"]]
    waits = pd.DataFrame(rows, columns=["pid", "start_ns", "wait_ns"])
    manifest = {**{name: recorded[name] for name in ("start_ns", "start_wall_ns", "end_ns")}}
    run: Any = SimpleNamespace(waits=waits, manifest={**manifest, "ranks": []})
    aligned = torch_trace.align(run, trace)
    json.dumps(list(torch_trace.shifted(trace, aligned, {recorded["pid"]})))


def make_elf(dice: random.Random) -> bytes:
    """A small ELF file with symbols, PLT, relocations and frames, of which numbers were changed."""
    if not _ELFS:
        names = b"\0f\0g@@V1\0_Z1hv\0.symtab\0.plt\0.eh_frame\0.gnu_debuglink\0"
        symbols = b"".join(symbol(1 + n, 0x1000 + 8 * n, 8 * (n % 3)) for n in range(6))
        cie = struct.pack("<II", 12, 0) + b"\1\0\1\1\1\0\0\0"
        frames = cie + struct.pack("<IIQQ", 20, 20, 0x1000, 16) + bytes(4)
        note = struct.pack("<III4s4s", 4, 4, 3, b"GNU\0", b"abcd")
        parts = [(2, 0, symbols, 1, 24), (3, 0, names, 0, 0), (4, 2, bytes(24), 0, 24)]
        parts += [(1, 4, b"\xff\x25" + bytes(30), 0, 16), (1, 2, frames, 0, 0), (7, 0, note, 0, 0)]
        data = bytearray(elf([*parts, (1, 0, b"x.debug\0abcd", 0, 0)]))
        struct.pack_into("<H", data, 62, 1)
        at = struct.unpack_from("<Q", data, 40)[0]
        for number, name in ((0, b".symtab"), (3, b".plt"), (4, b".eh_frame"), (6, b".gnu_debug")):
            struct.pack_into("<I", data, at + 64 * number, names.index(name))
        _ELFS.append(bytes(data))
    data = words_changed(_ELFS[0], dice.choice([16, 64, 120, 264, 400]), dice)
    return data if dice.random() < 0.9 else flipped(data, dice)


_ELFS: list[bytes] = []


def read_elf(folder: Path, data: bytes, passed: Passed) -> None:
    import numpy as np

    from native_map.symbols.elf import Elf
    from native_map.symbols.elf_image import Image

    path = folder / "lib.so"
    put(path, data)
    file = Elf.open(str(path))
    passed()
    _ = file.build_id, file.debug_link, file.base, file.crc()
    debug = file.mini_debug()
    image = Image(file, [path for path in (debug, file) if path is not None])
    addresses = np.arange(0x1000, 0x1000 + 4 * max(100, min(len(data), 2_000_000)), 4, np.uint64)
    _, names = image.resolve(addresses)
    image.aliases(0x1000)
    if not all(name.isprintable() for name in [*names, *image.refused]):
        raise AssertionError("a name would be printed that cannot be")


def make_map(dice: random.Random) -> bytes:
    lines = [b"%x %x py::f%d:/a.py" % (16 * n, dice.choice([1, 8, 16, 99]), n) for n in range(9)]
    words = [b"", b"ffffffffffffffff", b"0", b"-1", b"x", b"\x1b[2J", b"f" * 17, b"10 10", b"\xff"]
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(lines))
        parts = lines[at].split(b" ")
        parts[dice.randrange(len(parts))] = dice.choice(words)
        lines[at] = b" ".join(parts)
    data = b"\n".join(lines) + b"\n" * dice.randrange(2)
    return data if dice.random() < 0.9 else flipped(data, dice)


def read_map(folder: Path, data: bytes, passed: Passed) -> None:
    import numpy as np

    from native_map.symbols.named_ranges import perf_map

    path = folder / "perf-1.map"
    put(path, data)
    ranges = perf_map(str(path))
    if ranges is None:
        raise AssertionError("not read")
    passed()
    names = ranges.names(np.arange(1000, dtype=np.uint64) * 3)
    if not all(name is None or name.isprintable() for name in names):
        raise AssertionError("a name would be printed that cannot be")


def make_list(dice: random.Random) -> bytes:
    entries = [
        {"EventName": "e", "Encoding": "cpu/event=1/", "EventAlias": "a", "BriefDescription": "b"},
        {"MetricName": "m", "MetricGroup": "TopdownL1;x", "MetricExpr": "e / a", "ScaleUnit": "1%"},
    ]
    return as_json(changed(entries, dice), dice)


def read_list(folder: Path, data: bytes, passed: Passed) -> None:
    from native_map.events import perf_list

    perf = folder / "perf"
    put(folder / "list", data)
    if data.startswith(HOLE) or len(data) >= LARGE:
        # As perf's own output would be read: from a program, up to a bound.
        perf.write_text(f"#!/bin/sh\ncat {folder}/list\n")
        perf.chmod(0o755)
        listing = perf_list.read(str(perf))
    else:
        listing = perf_list.parse_json(data.decode("utf-8", "replace"))
    if listing.events or listing.metrics:
        passed()
    perf_list.merge(_table(), listing)
    perf_list.top_down(_table(), listing, 8)


def _table() -> Any:
    from native_map.events import TABLES

    return TABLES["generic"]

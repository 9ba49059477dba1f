"""The inputs and readers of fuzz.py for event logs and whole runs."""

import contextlib
import io
import json
import random
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from tools.fuzz.attacks import put
from tools.fuzz.changes import NUMBERS, Passed, as_json, changed, flipped, words_changed


def valid_logs() -> dict[str, list[bytes]]:
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
    """Return the header and the frames (kind, payload) of a valid log."""
    _, length = log_format.FILE_HEADER.unpack_from(data)
    at = log_format.FILE_HEADER.size + length
    header = json.loads(data[log_format.FILE_HEADER.size : at])
    header.pop("crc", None)
    frames = []
    while at < len(data):
        _, kind, _, length, _ = log_format.FRAME_HEADER.unpack_from(data, at)
        at += log_format.FRAME_HEADER.size
        frames.append((kind, data[at : at + length]))
        at += length
    return header, frames


def _fit(kind: int, payload: bytes, dice: random.Random) -> bytes:
    """Change numbers of a frame; where the counts of its arrays change, mostly its length too."""
    _, fields, arrays = log_format.FRAMES[kind]
    fixed = log_format.FIXED[kind]
    if dice.random() < 0.5 and len(payload) > fixed.size:
        return words_changed(payload, fixed.size, dice)
    values = list(fixed.unpack_from(payload))
    place = dice.randrange(len(fields))
    name, code = fields[place]
    if name.startswith("n_") and dice.random() < 0.8:
        # A row more or fewer of one array, where it stands.
        at = fixed.size
        for array, columns in arrays:
            size = struct.calcsize("<" + "".join(code for _, code in columns))
            count = values[[field for field, _ in fields].index(f"n_{array}")]
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
        value = dice.choice(NUMBERS) % limit
        values[place] = value - limit if code in "iq" and value >= limit // 2 else value
    return fixed.pack(*values) + payload[fixed.size :]


def log_from(data: bytes, dice: random.Random) -> bytes:
    """Return an event log that was changed."""
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
            frames[place] = (dice.choice([*log_format.FRAMES, 0, 99, 65535]), payload)
        elif kind == log_format.EVENT:
            fixed = log_format.FIXED[kind]
            with contextlib.suppress(ValueError, struct.error):
                event = changed(json.loads(payload[fixed.size :]), dice, frozenset({"event"}))
                text = json.dumps(event).encode()
                frames[place] = (kind, fixed.pack(0, len(text)) + text)
        elif kind in log_format.FRAMES and len(payload) >= log_format.FIXED[kind].size:
            with contextlib.suppress(struct.error):
                frames[place] = (kind, _fit(kind, payload, dice))
    parts = [log_format.file_header(header)]
    for kind, payload in frames:
        whole = log_format.frame(kind, payload, dice.choice([0, 0, 0, 1, 65535]))
        if dice.random() < 0.02:
            whole = flipped(whole, dice)
        parts.append(whole)
    return b"".join(parts)


def read_log(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.format import job_ranks
    from lotus.reading.logs.event_log import EventLog, ForeignError
    from lotus.reading.logs.frame_scanner import EXPECTED

    events = folder / "events"
    events.mkdir(exist_ok=True)
    put(events / "one.ltr", data)
    job_ranks.recorded(folder)
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
    size = (events / "one.ltr").stat().st_size
    if sum(loss.bytes for loss in log.lost) > size or any(not loss.count for loss in log.lost):
        raise AssertionError(f"more lost than there was: {log.lost}")


_TABLES = (
    "ops samples batches waits workers loaders epochs resources operations paths processes lost "
    "notes unseen counters intervals exact"
).split()
_SPLIT = struct.Struct("<I")


def packed(*parts: bytes) -> bytes:
    """Several files in one input."""
    return b"".join(_SPLIT.pack(len(part)) + part for part in parts)


def unpacked(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        (length,) = _SPLIT.unpack_from(data, at)
        parts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


def run_from(known: dict[str, list[bytes]], dice: random.Random) -> bytes:
    """run.json, processes.jsonl and two logs, of which one or two were changed."""
    manifest, lines = known["manifest"][0], known["lines"][0]
    logs = known["logs"][2:] if dice.random() < 0.3 else known["logs"][:2]
    parts = [manifest, lines, *logs]
    for _ in range(dice.randint(1, 2)):
        place = dice.randrange(len(parts))
        if place == 0:
            with contextlib.suppress(ValueError):
                content = json.loads(parts[0])
                parts[0] = as_json(changed(content, dice, frozenset({"schema"})), dice)
        elif place == 1:
            parts[1] = lines_from(lines, dice)
        else:
            parts[place] = log_from(logs[place - 2], dice)
    return packed(*parts)


def lines_from(lines: bytes, dice: random.Random) -> bytes:
    written = []
    for line in lines.splitlines():
        event = json.loads(line)
        written.append(as_json(changed(event, dice, frozenset({"event", "pid"})), dice))
    written += [b'{"event": "fault", "error": "x", "pid": 1}'] * dice.randrange(2)
    return b"\n".join(written) + b"\n" * dice.randrange(2)


def _lay_out(folder: Path, data: bytes) -> None:
    shutil.rmtree(folder / "R", ignore_errors=True)
    (folder / "R" / "events").mkdir(parents=True)
    manifest, lines, *logs = unpacked(data)
    put(folder / "R" / "run.json", manifest)
    put(folder / "R" / "processes.jsonl", lines)
    for number, log in enumerate(logs):
        put(folder / "R" / "events" / f"{number}.ltr", log)


def read_tables(folder: Path, data: bytes, passed: Passed) -> None:
    from lotus.reading.run import load

    _lay_out(folder, data)
    run = load(folder / "R")
    passed()
    for name in _TABLES:
        len(getattr(run, name))


def read_report(folder: Path, data: bytes, passed: Passed) -> None:
    """All that `lotus report` and `lotus map` say of it, in words and for programs."""
    from lotus.analysis.counters.function_profile import summarise_map
    from lotus.analysis.summary import summarise
    from lotus.common.storage import files
    from lotus.reading.run import load
    from lotus.reporters.base.console import plain_console
    from lotus.reporters.run import run_document, terminal

    _lay_out(folder, data)
    run = load(folder / "R")
    passed()
    summary = summarise(run)
    measured = summarise_map(run, None) if len(run.counters) else None
    json.loads(
        files.json_text(run_document.document(summary, measured=measured)),
        parse_constant=_no_constant,
    )
    out = io.StringIO()
    terminal.write(plain_console(out), summary, measured=measured)
    bad = {char for char in out.getvalue() if not char.isprintable() and char != "\n"}
    if bad:
        raise AssertionError(f"printed: {bad!r}")


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} in a document")


def read_live(folder: Path, data: bytes, passed: Passed) -> None:
    """Read a log in two halves, as `lotus top` does while a run goes on."""
    from lotus.live import tailing

    _lay_out(folder, data)
    if tailing.manifest_of(folder / "R") is None:
        raise LotusError("no run")
    logs = [(path, path.read_bytes()) for path in (folder / "R" / "events").iterdir()]
    tail = tailing.Tail(folder / "R", (("batch", "samples"), ("batch", "ops")))
    frames = 0
    for share in (0.5, 1.0):
        for path, content in logs:
            path.write_bytes(content[: int(len(content) * share)])
        frames += len(tail.read())
    tailing.ReportTail(folder / "R").read()
    if frames:
        passed()

"""Synthetic runs for tests and benchmarks, written with the recorder's own layout.

Exact control, one call a record::

    run = RunBuilder(tmp_path / "run")
    main = run.process(pid=100)
    main.loader(0, num_workers=1)
    main.iterator(0, epoch=0, start_ns=1_000, end_ns=2_000, workers=[101])
    worker = run.process(pid=101, ppid=100, start_ns=1_500)
    worker.worker(0)
    worker.operations("Loader", "ToTensor")
    worker.batch(0, start_ns=5_000, samples=[Sample(7, 100, [("Loader", 60), ("ToTensor", 30)])])
    worker.sends((0, 0, 5_200, 10, 5, 80))  # epoch, batch, start, pickle, lock, write
    main.wait(0, 0, batch=0, start_ns=2_000, end_ns=5_400, arrival_ns=5_350)
    path = run.end()

tests/simulation.py makes a whole consistent run at once.
"""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lotus.format import run_claim
from lotus.format.run_directory import BLOCKING
from lotus.inside.trace.log import log_format
from lotus.reading.logs import frame_scanner

MS = 1_000_000
START_NS = 1_000_000_000  # default start of a run, on the monotonic clock


class Sample(NamedTuple):
    """One sample: its index (None: unknown), duration, and operations one after the other.

    An operation is (name, duration) or (name, duration, offset from the start of the sample).
    They stand in order of completion: with offsets, an inner one before the one around it.
    """

    index: int | None
    duration_ns: int
    ops: Sequence[tuple[Any, ...]] = ()


def as_recorded_here(path: Path) -> Path:
    """A run directory that a test has copied, as if it had been recorded there."""
    (path / run_claim.NAME).unlink(missing_ok=True)
    run_claim.take(path)
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, "made": run_claim.identity(path)}))
    return path


def pack_frame(
    kind: int, fixed: Mapping[str, int], arrays: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> bytes:
    """Bytes of one frame from field names; what is not named is 0, or UNMEASURED where logs of
    before lack it; counts are filled in."""
    arrays = arrays or {}
    _, fields, described = log_format.FRAMES[kind]
    later = frame_scanner.LATER_FIELDS.get(log_format.FRAMES[kind][0], ())
    values = {name: log_format.UNMEASURED if name in later else 0 for name, _ in fields}
    values |= dict(fixed)
    payload = b""
    for name, columns in described:
        rows = arrays.get(name, ())
        values[f"n_{name}"] = len(rows)
        row = struct.Struct("<" + "".join(code for _, code in columns))
        # Rows may end before the fields that logs of before lack.
        missing = [(log_format.UNMEASURED,) * (len(columns) - len(entry)) for entry in rows]
        filled = zip(rows, missing, strict=True)
        payload += b"".join(row.pack(*entry, *more) for entry, more in filled)
    return log_format.frame(kind, log_format.FIXED[kind].pack(*values.values()) + payload)


def pack_event(event: Mapping[str, Any], time_ns: int = 0) -> bytes:
    text = json.dumps(event).encode()
    fixed = log_format.FIXED[log_format.EVENT].pack(time_ns, len(text))
    return log_format.frame(log_format.EVENT, fixed + text)


def pack_header(**fields: Any) -> bytes:
    """Bytes of a file header; the given fields replace or add to those of a plain process."""
    header = {
        "schema": log_format.SCHEMA,
        "frames": log_format.description(),
        "pid": 100,
        "ppid": 1,
        "host": "host",
        "rank": None,
        "local_rank": None,
        "world_size": None,
        "executable": "/usr/bin/python3",
        "argv": ["train.py"],
        "python": "3.11.7",
        "torch": "2.14.1",
        "start_ns": START_NS,
        "start_wall_ns": 1_700_000_000_000_000_000,
        "boot_id": "boot",
        "level": "op",
    } | fields
    return log_format.file_header(header)


class ProcessLog:
    """The event log of one process; every method appends one frame to `data`."""

    def __init__(self, path: Path, **header: Any) -> None:
        self.path = path
        self.pid = int(header.get("pid", 100))
        self.data = bytearray(pack_header(**header))
        self.header_size = len(self.data)
        self.number = -1  # of the worker, once `worker` was called
        self.epoch = 0  # how often the worker was resumed, once `resume` was called
        self._ids: dict[str, int] = {}

    def save(self) -> None:
        self.path.write_bytes(bytes(self.data))

    def event(self, event: str, **fields: Any) -> None:
        self.data += pack_event({"event": event, **fields})

    def operations(
        self, *names: str, kind: str = "transform", index: int | None = None, parent: str = ""
    ) -> None:
        """Define operations, in the container `parent`; their index defaults to their ordinal."""
        rows = []
        for name in names:
            known = self._ids.setdefault(name, len(self._ids) + 1)
            place = known - 1 if index is None else index
            inside = self._ids.get(parent, 0)
            rows.append({"id": known, "name": name, "parent": inside, "index": place, "kind": kind})
        self.event("operations", operations=rows)

    def id_of(self, name: str) -> int:
        if name not in self._ids:
            self.operations(name)
        return self._ids[name]

    # -- the consumer's side ---------------------------------------------------------------

    def loader(self, loader: int = 0, **fields: Any) -> None:
        described: dict[str, Any] = {
            "call_site": "train.py:31",
            "class": "DataLoader",
            "dataset": "ImageFolder",
            "dataset_kind": "map",
            "dataset_length": 1000,
            "length": 10,
            "batch_size": 4,
            "num_workers": 0,
            "prefetch_factor": None,
            "pin_memory": False,
            "persistent_workers": False,
            "start_method": None,
            "drop_last": False,
            "in_order": True,
            "sampler": "RandomSampler",
            "batch_sampler": "BatchSampler",
            "collate_fn": "default_collate",
            "timeout": 0,
        }
        self.event("loader", loader=loader, **(described | fields))

    def iterator(
        self,
        loader: int = 0,
        epoch: int = 0,
        start_ns: int = START_NS,
        end_ns: int | None = None,
        workers: Sequence[int] = (),
        resumed: bool = False,
    ) -> None:
        self.event(
            "iterator",
            loader=loader,
            epoch=epoch,
            start_ns=start_ns,
            end_ns=start_ns + MS if end_ns is None else end_ns,
            workers=list(workers),
            resumed=resumed,
        )

    def epoch_end(
        self,
        loader: int = 0,
        epoch: int = 0,
        time_ns: int = 0,
        batches: int = 0,
        exhausted: bool = True,
        last_next_ns: int = 0,
        **more: Any,
    ) -> None:
        self.event(
            "epoch_end",
            **more,
            loader=loader,
            epoch=epoch,
            time_ns=time_ns,
            batches=batches,
            exhausted=exhausted,
            last_next_ns=last_next_ns,
        )

    def shutdown(self, loader: int = 0, epoch: int = 0, start_ns: int = 0, end_ns: int = 0) -> None:
        self.event("shutdown", loader=loader, epoch=epoch, start_ns=start_ns, end_ns=end_ns)

    def wait(
        self,
        loader: int = 0,
        epoch: int = 0,
        batch: int = 0,
        *,
        start_ns: int,
        end_ns: int,
        arrival_ns: int = 0,
        flags: int = 0,
        tid: int | None = None,
        pins: Sequence[tuple[int, int, int]] = (),
        loose: Sequence[tuple[Any, ...]] = (),
        loose_cpu: Sequence[Sequence[int]] = (),
    ) -> None:
        """One `next`. `pins`: (batch, start, end); `loose`: see `loose_rows`."""
        fixed = {
            "loader": loader,
            "epoch": epoch,
            "batch": batch,
            "tid": self.pid if tid is None else tid,
            "flags": flags,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "arrival_ns": arrival_ns,
        }
        arrays = {"pins": pins, "loose": self.loose_rows(loose), "loose_cpu": loose_cpu}
        self.data += pack_frame(log_format.WAIT, fixed, arrays)

    # -- the worker's side -----------------------------------------------------------------

    def worker(
        self,
        worker: int,
        *,
        num_workers: int = 1,
        loop_ns: int = START_NS,
        process_ns: int | None = None,
        imported_ns: int | None = None,
        ready_ns: int | None = None,
    ) -> None:
        """Enter the worker loop and, with `ready_ns`, ask for the first index."""
        self.number = worker
        self.event(
            "worker",
            worker=worker,
            num_workers=num_workers,
            loop_ns=loop_ns,
            process_ns=process_ns,
            imported_ns=imported_ns,
        )
        if ready_ns is not None:
            self.event("worker_ready", worker=worker, time_ns=ready_ns)

    def resume(self) -> None:
        """A persistent worker starts its next epoch: no frame, but its records count it."""
        self.epoch += 1

    def batch(
        self,
        batch: int = 0,
        *,
        start_ns: int,
        samples: Sequence[Sample] = (),
        collate_ns: int = 0,
        fetch_ns: int | None = None,
        loader: int | None = None,
        epoch: int | None = None,
        sends: Sequence[tuple[int, ...]] = (),
        loose: Sequence[tuple[Any, ...]] = (),
        ops_cpu: Sequence[Sequence[int]] = (),
        loose_cpu: Sequence[Sequence[int]] = (),
        index: Sequence[int] | None = None,
        **fixed: int,
    ) -> None:
        """One batch made: samples one after the other from `start_ns`, then collation.

        `fetch_ns` defaults to what they take; `loader` to -1 in a worker and 0 elsewhere;
        `fixed` sets any other field of the frame (idle_ns, cpu_ns, bytes, flags, ...).
        """
        at, rows, ops, indices = start_ns, [], [], []
        for sample in samples:
            offset = 0
            for name, duration, *where in sample.ops:
                begin = where[0] if where else offset
                low = [(at + begin + after) % (1 << 32) for after in (0, duration)]
                ops.append((*low, self.id_of(name)))
                offset = begin + duration
            rows.append((at, sample.duration_ns, len(ops)))
            indices.append(sample.index)
            at += sample.duration_ns
        known = [number for number in indices if number is not None] if index is None else index
        wide = any(number < 0 or number >= 1 << 32 for number in known)
        fetch = at - start_ns + collate_ns if fetch_ns is None else fetch_ns
        values = {
            "loader": (-1 if self.number >= 0 else 0) if loader is None else loader,
            "epoch": self.epoch if epoch is None else epoch,
            "batch": batch,
            "worker": self.number,
            "tid": self.pid,
            "size": len(samples),
            "fetch_start_ns": start_ns,
            "fetch_ns": fetch,
            "collate_start_ns": at if collate_ns else 0,
            "collate_ns": collate_ns,
            "put_ns": start_ns + fetch,
        }
        arrays = {
            "samples": rows,
            "index": [] if wide else [(number,) for number in known],
            "index64": [(number,) for number in known] if wide else [],
            "ops": ops,
            "ops_cpu": ops_cpu,
            "loose": self.loose_rows(loose),
            "loose_cpu": loose_cpu,
            "sends": [self.send_row(send) for send in sends],
        }
        self.data += pack_frame(log_format.BATCH, values | fixed, arrays)

    def counters(self, *groups: Mapping[str, float], tid: int | None = None) -> None:
        """Open groups of counters: of each event its name and what a reading adds to it."""
        events = [
            {"name": name, "group": number, "read_count": cost}
            for number, group in enumerate(groups)
            for name, cost in group.items()
        ]
        self.event("counters", tid=tid or self.pid, read_ns=1000, pinned=True, events=events)

    def counts(
        self,
        start_ns: int,
        readings: Sequence[Sequence[int]],
        edges: Sequence[tuple[int, int]] = (),
        collate: tuple[int, int] = (0, 0),
        **fixed: int,
    ) -> None:
        """The counts of the batch that is written next, whose fetch starts at `start_ns`."""
        values = {
            "fetch_start_ns": start_ns,
            "tid": self.pid,
            "words": len(readings[0]),
            "collate_first": collate[0],
            "collate_last": collate[1],
        }
        words = [(word,) for reading in readings for word in reading]
        arrays = {"readings": words, "edges": edges}
        self.data += pack_frame(log_format.COUNTS, values | fixed, arrays)

    def sends(self, *sends: tuple[int, ...]) -> None:
        """The last send times of a worker: a batch frame without a batch."""
        fixed = {"loader": -1, "worker": self.number, "tid": self.pid, "flags": log_format.SENDS}
        rows = [self.send_row(send) for send in sends]
        self.data += pack_frame(log_format.BATCH, fixed, {"sends": rows})

    def send_row(self, send: tuple[int, ...]) -> tuple[int, ...]:
        """(epoch, batch, start, pickle, lock, write[, bytes[, tid]]) with defaults filled in."""
        return (*send, *(1000, self.pid + 1)[len(send) - 6 :])

    def worker_end(self, time_ns: int) -> None:
        self.event("worker_end", worker=self.number, time_ns=time_ns)

    # -- either side -----------------------------------------------------------------------

    def loose_rows(self, rows: Iterable[tuple[Any, ...]]) -> list[tuple[int, ...]]:
        """(name, start, duration[, tid[, position]]) as rows of `loose`."""
        loose_rows = []
        for name, start, duration, *where in rows:
            tid = where[0] if where else self.pid
            position = where[1] if len(where) > 1 else -1
            loose_rows.append((start, duration, self.id_of(name), tid, position, 0))
        return loose_rows

    def loose(self, *rows: tuple[Any, ...]) -> None:
        """A frame of operations outside any batch."""
        self.data += pack_frame(log_format.LOOSE, {}, {"loose": self.loose_rows(rows)})

    def resources(self, time_ns: int, **fields: int) -> None:
        fixed = {"time_ns": time_ns, "worker": self.number} | fields
        self.data += pack_frame(log_format.RESOURCES, fixed)


def made(log: ProcessLog, batch: int, start_ns: int, **fields: Any) -> None:
    """Write a batch of one sample, which took 10 ns."""
    log.batch(batch, start_ns=start_ns, samples=[Sample(batch, 10)], **fields)


class RunBuilder:
    """A run directory in the making: `process` for each log, then `end`."""

    def __init__(self, path: Path, **manifest: Any) -> None:
        """Make the directory; `manifest` replaces or adds to the keys of run.json."""
        self.path = path
        (path / "events").mkdir(parents=True)
        (path / "state").mkdir()
        run_claim.take(path)  # the tests' own
        self.logs: list[ProcessLog] = []
        self.manifest: dict[str, Any] = {
            "schema": log_format.SCHEMA,
            "lotus": "0.1.0",
            "state": "running",
            "command": ["python", "train.py"],
            "cwd": "/home/me",
            "start_ns": START_NS - MS,
            "start_wall_ns": 1_700_000_000_000_000_000,
            "end_ns": None,
            "exit_code": None,
            "signal": None,
            "level": "op",
            "batches": None,
            "every": 1,
            "max_log": None,
            "ops": [],
            "clock": "CLOCK_MONOTONIC",
            "boot_id": "boot",
            "host": "host",
            "kernel": "6.1.0",
            "cpu": {"model": "A CPU", "logical": 8, "affinity": 8, "quota": None},
            "memory_bytes": 16 << 30,
            "environment": {},
            "rank": None,
            "local_rank": None,
            "world_size": None,
        } | manifest
        self.write_manifest()

    def write_manifest(self) -> None:
        self.manifest["made"] = run_claim.identity(self.path)
        (self.path / "run.json").write_text(json.dumps(self.manifest, indent=2))

    def process(self, pid: int = 100, *, ppid: int = 1, **header: Any) -> ProcessLog:
        """The log of one more process; `header` sets fields of its file header (rank, ...)."""
        path = self.path / "events" / f"host-{pid}-{len(self.logs):x}.ltr"
        log = ProcessLog(path, pid=pid, ppid=ppid, **header)
        self.logs.append(log)
        return log

    def report(self, event: str, pid: int = 100, **fields: Any) -> None:
        """Append one line to processes.jsonl."""
        line = {"event": event, "pid": pid, "time_ns": START_NS, **fields}
        with (self.path / "processes.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save(self) -> Path:
        """Write every log as it is now; the run stays "running"."""
        for log in self.logs:
            log.save()
        return self.path

    def end(self, exit_code: int = 0, end_ns: int | None = None, **manifest: Any) -> Path:
        """Write every log and a manifest that says the run has ended; return the directory."""
        self.manifest |= {"state": "ended", "exit_code": exit_code, "end_ns": end_ns} | manifest
        self.write_manifest()
        record = self.path / BLOCKING
        if not record.exists():
            record.write_text("{}")  # of a launcher that has observed nothing
        return self.save()

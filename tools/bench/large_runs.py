"""Writes large synthetic runs, for benchmarks and tests of what reads them.

An event is one row of `ops` or `samples`. The logs have five operations a sample and four workers,
in the recorder's own layout.
"""

import zlib
from pathlib import Path

import numpy as np

from lotus.inside.trace.log import log_format
from lotus.reading.logs.frame_scanner import dtype_of
from tests.logs import MS, START_NS, RunBuilder, pack_event

OPERATIONS = ("Loader", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize")
WORKERS = 4
BLOCK = 1 << 20  # events that are made at a time
OP_NS, SELF_NS, COLLATE_NS, SEND_NS = 400_000, 5_000, 2 * MS, MS


def frames(kind: int, count: int, rows: dict[str, int]) -> np.ndarray:
    """`count` frames of one kind, all zeros, whose arrays have the given numbers of rows."""
    _, fixed, arrays = log_format.FRAMES[kind]
    fields = [("magic", "<u4"), ("kind", "<u2"), ("flags", "<u2"), ("length", "<u4")]
    fields += [("crc", "<u4"), ("fixed", dtype_of(fixed))]
    fields += [(name, dtype_of(f), (rows[name],)) for name, f in arrays if rows.get(name)]
    made = np.zeros(count, np.dtype(fields))
    made["magic"], made["kind"] = log_format.FRAME_MAGIC, kind
    made["length"] = made.dtype.itemsize - log_format.FRAME_HEADER.size
    for name, number in rows.items():
        made["fixed"][f"n_{name}"] = number
    return made


def sealed(made: np.ndarray) -> bytes:
    """Return the bytes of the frames, each with its CRC."""
    width = made.dtype.itemsize
    data = memoryview(made.tobytes())
    made["crc"] = [
        zlib.crc32(data[at + 16 : at + width], zlib.crc32(data[at + 4 : at + 12]))
        for at in range(0, len(data), width)
    ]
    return made.tobytes()


def write_run(path: Path, events: int, size: int) -> int:
    """Write a run of so many events in batches of `size`; return its real number of events."""
    per_batch = size * (1 + len(OPERATIONS))
    each = -(-events // (per_batch * WORKERS))
    batches = each * WORKERS
    run = RunBuilder(path)
    main = run.process(100)
    main.loader(0, num_workers=WORKERS, batch_size=size, length=batches, prefetch_factor=2)
    main.iterator(0, 0, START_NS, START_NS + MS, list(range(101, 101 + WORKERS)))
    workers = []
    for worker in range(WORKERS):
        log = run.process(101 + worker, ppid=100, start_ns=START_NS + MS)
        log.worker(worker, num_workers=WORKERS, ready_ns=START_NS + 2 * MS)
        log.operations(*OPERATIONS)
        workers.append(log)
    number = np.arange(batches, dtype=np.int64)
    made = frames(log_format.WAIT, batches, {})
    fixed = made["fixed"]
    fixed["batch"], fixed["tid"] = number, 100
    arrival = START_NS + 3 * MS + (number // WORKERS + 1) * (_took(size) + SEND_NS)
    fixed["start_ns"], fixed["end_ns"], fixed["arrival_ns"] = arrival - MS, arrival, arrival
    main.data += sealed(made)
    main.data += pack_event({"event": "note", "text": f"{events} synthetic events"})
    run.end()
    rng = np.random.default_rng(0)
    block = max(BLOCK // per_batch, 1)  # batches that are made at a time
    for worker, log in enumerate(workers):
        with log.path.open("ab") as file:
            for first in range(0, each, block):
                number = np.arange(first, min(first + block, each), dtype=np.int64)
                file.write(sealed(_batches(worker, log.pid, number, size, rng)))
    return batches * per_batch


def _took(size: int) -> int:
    """Return nanoseconds of a fetch of so many samples."""
    return (OP_NS * len(OPERATIONS) + SELF_NS) * size + COLLATE_NS


def _batches(
    worker: int, pid: int, number: np.ndarray, size: int, rng: np.random.Generator
) -> np.ndarray:
    """Frames of the batches of a worker with these numbers, from 0."""
    counts = {"samples": size, "index": size, "ops": size * len(OPERATIONS), "sends": 1}
    made = frames(log_format.BATCH, len(number), counts)
    took = _took(size)
    start = START_NS + 3 * MS + number * (took + SEND_NS)
    fixed = made["fixed"]
    fixed["loader"], fixed["worker"], fixed["tid"] = -1, worker, pid
    fixed["batch"], fixed["size"] = number * WORKERS + worker, size
    fixed["fetch_start_ns"], fixed["fetch_ns"] = start, took
    fixed["collate_start_ns"], fixed["collate_ns"] = start + took - COLLATE_NS, COLLATE_NS
    fixed["put_ns"], fixed["cpu_ns"], fixed["bytes"] = start + took, took, size * 600_000
    fixed["idle_start_ns"], fixed["idle_ns"] = start - SEND_NS, SEND_NS
    within = np.arange(size)
    sample_ns = OP_NS * len(OPERATIONS) + SELF_NS
    made["samples"]["start_ns"] = start[:, None] + within * sample_ns
    made["samples"]["duration_ns"] = sample_ns
    made["samples"]["ops"] = (within + 1) * len(OPERATIONS)
    made["index"]["sample"] = rng.integers(0, 1 << 31, (len(number), size))
    ops = made["ops"]
    offset = np.tile(np.arange(len(OPERATIONS)) * OP_NS, size)
    begin = np.repeat(made["samples"]["start_ns"], len(OPERATIONS), axis=1) + offset
    ops["start_low"] = begin
    ops["end_low"] = begin + rng.integers(OP_NS // 2, OP_NS, begin.shape)
    ops["operation"] = np.tile(np.arange(len(OPERATIONS)) + 1, size)
    send = made["sends"][:, 0]
    send["batch"], send["start_ns"] = fixed["batch"], start + took
    send["pickle_ns"], send["write_ns"], send["bytes"] = SEND_NS, SEND_NS, size * 600_000
    return made

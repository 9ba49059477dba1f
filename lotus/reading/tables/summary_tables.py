"""The small tables of a run: workers, loaders, epochs, resources, operations, paths, losses."""

import bisect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lotus.common.text import redaction
from lotus.format import process_reports
from lotus.inside.trace.full_collections import FETCH
from lotus.inside.trace.log.log_format import FAILED, SENDS, STOPPED, UNMEASURED
from lotus.reading.logs.event_log import Lost
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import Assembly, Process, groups, is_a
from lotus.reading.missing_data import SEND_TIMES
from lotus.reading.tables import counter_tables
from lotus.reading.tables.batch_tables import frame, repeat, signed, whose

_CPUS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?){0,999}")
_MOST_FAULTS = 100  # reported by messages of their own
_REPORT = ("pid", "ppid", "time_ns", "executable", "argv", "python", "torch", "torch_ns")


_THREADS = ("threads", "torch_threads")

_OF_WORKER = ("size", "fetch_ns", "idle_ns", "cpu_ns")  # summed up for each worker


def workers(a: Assembly) -> pd.DataFrame:
    """Return one row per worker process that left a log."""
    rows, owners = [], []
    for number, (process, own) in enumerate(zip(a.processes, a.slices, strict=True)):
        if not process.is_worker:
            continue
        owners.append(number)
        batch = _of_worker(a.batch[own])
        entered, ready, made_first, end = (
            process.events[name][0] if process.events[name] else {}
            for name in ("worker", "worker_ready", "worker_threads", "worker_end")
        )
        origin = process.origin
        loop, ready_ns = entered.get("loop_ns"), ready.get("time_ns")
        began = entered.get("process_ns")
        imported, reading = _parts_of_start(began, entered.get("imported_ns"), loop)
        whole = (batch["flags"] & STOPPED == 0) | (batch["size"] > 0)
        startup = None
        if origin is not None and ready_ns is not None and ready_ns >= origin.start_ns:
            startup = ready_ns - origin.start_ns
        rows.append(
            (
                process.worker,
                -1 if origin is None else origin.process.base + origin.loader,
                began if is_a(began, int) else loop,
                loop,
                ready_ns,
                startup,
                *(_known_ns(ready.get(name)) for name in ("cpu_ns", "run_delay_ns")),
                imported,
                reading,
                end.get("time_ns"),
                int(whole.sum()),
                *(int(signed(batch[name]).sum()) for name in _OF_WORKER),
                _cpus(made_first) or _cpus(ready),
                *(_threads(made_first.get(name)) for name in _THREADS),
                end.get("reads_worker_info") if is_a(end.get("reads_worker_info"), bool) else None,
            )
        )
    parts = ("startup_cpu_ns", "startup_delay_ns", "import_ns", "unpickle_ns")
    maybe = ("start_ns", "loop_ns", "ready_ns", "startup_ns", *parts, "end_ns")
    sums = ("batches", "samples", "fetch_ns", "idle_ns", "cpu_ns")
    names = ["worker", "loader", *maybe, *sums, "cpus", *_THREADS, "reads_worker_info"]
    types = dict.fromkeys(maybe, "float64") | {"cpus": "object", "reads_worker_info": "boolean"}
    return _owned(a, owners, names, rows, types)


def _of_worker(frames: Array) -> dict[str, Array]:
    """Return the figures of the frames that a worker made for its parent."""
    chosen = ((frames["flags"] & SENDS) == 0) & (frames["loader"] < 0)
    return {name: frames[name][chosen] for name in ("flags", *_OF_WORKER)}


def _parts_of_start(
    began: object, imported: object, loop: object
) -> tuple[int, int] | tuple[None, None]:
    """Return how long a spawned worker imported the program, and read what was pickled for it.

    None for a worker that was forked; of one whose parent was spawned, `imported` is the parent's.
    """
    if not (isinstance(began, int) and isinstance(imported, int) and isinstance(loop, int)):
        return None, None
    return (imported - began, loop - imported) if began <= imported <= loop else (None, None)


def _threads(value: object) -> object:
    return value if is_a(value, range(1 << 31)) else -1


def _known_ns(value: object) -> object:
    """Return a time that the kernel reported; None for anything else."""
    return value if is_a(value, range(UNMEASURED)) else None


def _cpus(event: Mapping[str, Any]) -> str:
    """Return the CPUs that an event names; "" if it names none."""
    text = event.get("cpus")
    return text if isinstance(text, str) and _CPUS.fullmatch(text) else ""


def _owned(
    a: Assembly,
    owners: Sequence[int],
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    types: Mapping[str, str],
) -> pd.DataFrame:
    """Return a table of rows, after the columns of the processes `owners` of these rows."""
    numbers = np.array(owners, np.int64)
    owned = whose(a, lambda values: values[numbers], np.int64)
    return frame(owned | _columns(names, rows, types))


def _of_events(
    a: Assembly, kind: str, names: list[str]
) -> tuple[list[int], list[str], list[list[Any]]]:
    """Return the processes and the fields `names` of events of a kind, as `_owned` takes them."""
    found = [
        (number, [event[name] for name in names])
        for number, process in enumerate(a.processes)
        for event in process.events[kind]
    ]
    return [number for number, _ in found], names, [row for _, row in found]


def _columns(
    names: Sequence[str], rows: Sequence[Sequence[Any]], types: Mapping[str, str]
) -> dict[str, Any]:
    """Return the columns of rows with these types; columns without one are int64.

    None is a missing value. Not by pandas' `astype`, which takes milliseconds for a few rows.
    """
    values = zip(*rows, strict=True) if rows else iter([()] * len(names))
    return {
        name: _column(column, types.get(name, "int64"))
        for name, column in zip(names, values, strict=True)
    }


def _column(values: Sequence[Any], kind: str) -> Any:
    if kind == "object":  # a Series: from an array of texts, pandas would make another type
        return pd.Series(list(values), dtype=kind)
    if kind == "Int64":  # not through float64, which cannot hold large integers exactly
        return pd.array(list(values), dtype="Int64")
    if kind == "boolean":
        return pd.array(list(values), dtype="boolean")
    return np.array(values, kind)


_LOADER_TYPES = {
    "name": "object",
    "call_site": "object",
    "iterated_at": "object",
    "class": "object",
    "dataset": "object",
    "dataset_kind": "object",
    "dataset_length": "Int64",
    "length": "Int64",
    "batch_size": "Int64",
    "num_workers": "Int64",
    "prefetch_factor": "Int64",
    "pin_memory": "boolean",
    "persistent_workers": "boolean",
    "start_method": "object",
    "drop_last": "boolean",
    "in_order": "boolean",
    "sampler": "object",
    "batch_sampler": "object",
    "collate_fn": "object",
    "timeout": "float64",
    "snapshot_every_n_steps": "Int64",
    "threads_set_at": "object",
    "library_threads_set": "object",
    "workers_needed_at": "object",
}


def _sane(value: Any, kind: str) -> Any:
    """Return the value if it has this type, else None: programs may pass anything to a loader."""
    if kind == "object":
        return value if isinstance(value, str) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else pd.NA
    if isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdecimal():
        value = int(value)  # a numpy integer, which JSON does not know
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or abs(value) >= 2**62 or value != value:
        return np.nan if kind == "float64" else pd.NA
    return float(value) if kind == "float64" else int(value)


def loaders(a: Assembly) -> pd.DataFrame:
    """Return one row per loader and process that iterated it."""
    rows, owners = [], []
    for number, process in enumerate(a.processes):
        for event in process.events["loader"]:
            owners.append(number)
            settings = [_sane(event.get(name), kind) for name, kind in _LOADER_TYPES.items()]
            rows.append((process.base + event["loader"], *settings))
    return _owned(a, owners, ["loader", *_LOADER_TYPES], rows, _LOADER_TYPES)


def epochs(a: Assembly) -> pd.DataFrame:
    """Return one row per iteration of a loader that any record mentions."""
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}

    def row(number: int, loader: int, epoch: int) -> dict[str, Any]:
        return rows.setdefault((number, loader, epoch), {})

    for number, process in enumerate(a.processes):
        for event in process.events["iterator"]:
            entry = row(number, process.base + event["loader"], event["epoch"])
            entry["start_ns"] = event["start_ns"]
            entry["iter_ns"] = event["end_ns"] - event["start_ns"]
            entry["iter_run_delay_ns"] = _known_ns(event.get("run_delay_ns"))
            entry["iter_sampler_ns"] = _known_ns(event.get("sampler_ns"))
            ahead = event.get("ahead")
            entry["ahead"] = ahead if type(ahead) is int and 0 < ahead < 2**31 else 0
            entry["sanity"] = event.get("sanity") is True
            entry["cpus"] = _cpus(event)
        for event in process.events["epoch_end"]:
            entry = row(number, process.base + event["loader"], event["epoch"])
            entry["end_ns"], entry["batches"] = event["time_ns"], event["batches"]
            entry["exhausted"] = event["exhausted"]
            for name in _THREADS:
                entry[name] = _threads(event.get(name))
            entry["peak_rss"] = _sane(event.get("peak_rss") or None, "float64")
            for name in ("own_ns", "state_dict_ns"):
                entry[name] = _sane(event.get(name), "float64")
        for event in process.events["shutdown"]:
            entry = row(number, process.base + event["loader"], event["epoch"])
            entry["shutdown_ns"] = event["end_ns"] - event["start_ns"]
        begun = sorted(
            (entry["start_ns"], key)
            for key, entry in rows.items()
            if key[0] == number and "start_ns" in entry
        )
        for event in process.events["callback"]:
            before = bisect.bisect(begun, event["start_ns"], key=lambda epoch: epoch[0])
            if before and event["end_ns"] > event["start_ns"]:
                entry = rows[begun[before - 1][1]]
                took = event["end_ns"] - event["start_ns"]
                entry["callback_ns"] = entry.get("callback_ns", 0) + took
    group = groups(a.wait_process, a.wait_loader, a.wait_epoch)
    _, place = np.unique(group, return_index=True)
    count = np.bincount(group[(signed(a.wait["flags"]) & FAILED) == 0], minlength=len(place))
    for at, taken in zip(place.tolist(), count[group[place]].tolist(), strict=True):
        number = int(a.wait_process[at])
        entry = row(number, int(a.wait_loader[at]), int(a.wait_epoch[at]))
        if not a.processes[number].gapped:
            entry.setdefault("batches", taken)
            if "start_ns" in entry:
                entry["startup_ns"] = int(a.wait["end_ns"][at]) - entry["start_ns"]
    names = ("start_ns", "startup_ns", "iter_ns", "iter_run_delay_ns", "iter_sampler_ns", "end_ns",
             "batches", "exhausted", "shutdown_ns", "peak_rss", "ahead", "sanity", "cpus",
             "threads", "torch_threads", "own_ns", "state_dict_ns", "callback_ns")  # fmt: skip
    other = {"exhausted": False, "ahead": 0, "sanity": False, "cpus": "", "threads": -1}
    other |= {"torch_threads": -1, "callback_ns": 0.0}
    ordered = sorted(rows.items())
    table = [
        (loader, epoch, *(entry.get(name, other.get(name)) for name in names))
        for (_, loader, epoch), entry in ordered
    ]
    types = dict.fromkeys(names, "float64") | {"batches": "Int64", "exhausted": "bool"}
    types |= {"ahead": "int64", "sanity": "bool", "cpus": "object", "threads": "int64"}
    types["torch_threads"] = "int64"
    owners = [number for (number, _, _), _ in ordered]
    return _owned(a, owners, ["loader", "epoch", *names], table, types)


def resources(a: Assembly) -> pd.DataFrame:
    """Return the table `Run.resources`, with its columns; pss, rss and shm in bytes."""
    parts = [process.log.fixed["resources"] for process in a.processes]
    columns = whose(a, repeat([len(part) for part in parts]), np.int64)
    for name in ("worker", "time_ns", "pss", "rss", "descriptors", "shm"):
        columns[name] = np.concatenate(
            [np.empty(0, np.int64), *(signed(part[name]) for part in parts)]
        )
    return frame(columns)


def syncs(a: Assembly) -> pd.DataFrame:
    """Return one row per backward pass that averaged gradients, in the order of each process."""
    parts = [process.log.fixed["sync"] for process in a.processes]
    columns = whose(a, repeat([len(part) for part in parts]), np.int64)
    for name in ("step", "start_ns", "ready_ns", "end_ns"):
        columns[name] = np.concatenate(
            [np.empty(0, np.int64), *(signed(part[name]) for part in parts)]
        )
    columns["exposed_ns"] = columns["end_ns"] - columns["ready_ns"]
    return frame(columns)


def models(a: Assembly) -> pd.DataFrame:
    """Return one row per model that a process trained in DistributedDataParallel, in order."""
    names = ["parameters", "shapes"]
    return _owned(a, *_of_events(a, "model", names), {"shapes": "object"})


def killed_workers(a: Assembly) -> pd.DataFrame:
    """Return one row per worker that a signal ended, in the order in which that was seen."""
    names = ["worker", "worker_pid", "signal"]
    return _owned(a, *_of_events(a, "worker_killed", names), {})


def operations(processes: Iterable[Process]) -> pd.DataFrame:
    """Return one row per operation that was defined."""
    rows: dict[tuple[str, str, int, str], tuple[Any, ...]] = {}
    for process in processes:
        defined = process.operations()
        names = {operation["id"]: operation["name"] for operation in defined}
        for operation in defined:
            parent = names.get(operation["parent"], "")
            key = (operation["name"], parent, operation["index"], operation["kind"])
            lines = (operation.get("file"), operation.get("first"), operation.get("last"))
            valid = is_a(lines[0], str) and all(is_a(line, range(1 << 31)) for line in lines[1:])
            rows.setdefault(key, lines if valid else ("", -1, -1))
    columns = ["operation", "parent", "index", "kind", "file", "first", "last"]
    texts = ("operation", "parent", "kind", "file")
    table = [(*key, *lines) for key, lines in rows.items()]
    return frame(_columns(columns, table, dict.fromkeys(texts, "object")))


def paths(a: Assembly) -> pd.DataFrame:
    """Return file paths of samples that were among the slowest of their process."""
    events = [
        (number, event)
        for number, process in enumerate(a.processes)
        for event in process.events["sample_path"]
    ]
    rows = [
        (
            a.processes[number].worker,
            event["sample"],
            redaction.text(event["path"]),  # old runs have signed queries
            event["duration_ns"],
        )
        for number, event in events
    ]
    owners = [number for number, _ in events]
    names = ["worker", "sample", "path", "duration_ns"]
    return _owned(a, owners, names, rows, {"path": "object"})


_MOST_GENERATORS = 1000  # of a first batch
_OF_TENSORS = ("tensor_bytes", "storage_bytes", "double_bytes", "zero_share")


def first_batches(a: Assembly) -> pd.DataFrame:
    """Return the table `Run.first_batches`, with its columns."""
    rows: list[tuple[Any, ...]] = []
    owners = []
    for number, process in enumerate(a.processes):
        origin = process.origin
        loader = -1 if origin is None else origin.process.base + origin.loader
        for place, event in enumerate(process.events["first_batch"]):
            content = event.get("content")
            known = content if is_a(content, int) else None
            used = list(zip(event["generators"], event["states"], strict=False))[:_MOST_GENERATORS]
            epoch = place if origin is None else int(origin.epoch(np.array([place]))[0])
            sizes = [_sane(event.get(name), "float64") for name in _OF_TENSORS]
            states = [
                (redaction.text(name), state)
                for name, state in used
                if is_a(name, str) and is_a(state, int)
            ]
            for generator, state in [("", None), *states]:
                owners.append(number)
                rows.append((event["worker"], loader, epoch, known, generator, state, *sizes))
    columns = ["worker", "loader", "epoch", "content", "generator", "state", *_OF_TENSORS]
    types = {"content": "Int64", "generator": "object", "state": "Int64"}
    types |= dict.fromkeys(_OF_TENSORS, "float64")
    return _owned(a, owners, columns, rows, types)


def full_collections(a: Assembly) -> pd.DataFrame:
    """Return the table `Run.full_collections`, with its columns."""
    columns, found = ["worker", "during", "time_ns", "count"], []
    for number, process in enumerate(a.processes):
        for event in process.events["full_collections"]:
            during = str(event.get("during", FETCH))  # in older runs, those of fetches only
            found.append((number, [process.worker, during, event["time_ns"], event["count"]]))
    owners, rows = [number for number, _ in found], [row for _, row in found]
    return _owned(a, owners, columns, rows, {"during": "object"})


_MOST_DIGESTS = 1000  # of a worker


def sample_digests(a: Assembly) -> pd.DataFrame:
    """Return the table `Run.sample_digests`, with its columns."""
    rows, owners = [], []
    for number, process in enumerate(a.processes):
        origin = process.origin
        loader = -1 if origin is None else origin.process.base + origin.loader
        epoch = 0 if origin is None else int(origin.epoch(np.array([0]))[0])
        for event in process.events["sample_digests"]:
            for of, listed in (("sample", event["digests"]), ("series", event.get("series"))):
                values = listed[:_MOST_DIGESTS] if isinstance(listed, list) else []
                digests = [digest for digest in values if is_a(digest, int)]
                rows += [
                    (event["worker"], loader, epoch, event["samples"], of, digest)
                    for digest in digests
                ]
                owners += [number] * len(digests)
    columns = ["worker", "loader", "epoch", "samples", "of", "digest"]
    return _owned(a, owners, columns, rows, {"of": "object"})


def losses(a: Assembly) -> list[Lost]:
    """Return the losses of the processes, reported or inferred."""
    lost = list(a.lost)
    for process in a.processes:
        lost += counter_tables.losses(process)
        for event in process.events["stopped"]:
            size: Any = event.get("bytes")
            what = f"recording stopped: {event['why']}"
            lost.append(Lost(what, process.pid, 1, size if is_a(size, int) else 0))
    # It is not known how an unrecorded loader sends.
    sent = (signed(a.batch["loader"]) < 0) & (a.batch_loader >= 0)
    made = np.flatnonzero(((signed(a.batch["flags"]) & (SENDS | FAILED | STOPPED)) == 0) & sent)
    _, send = a.sends
    owner, count = np.unique(a.batch_process[made[send[made] < 0]], return_counts=True)
    for number, missing in zip(owner.tolist(), count.tolist(), strict=True):
        lost.append(Lost(SEND_TIMES, a.processes[number].pid, missing, 0))
    return lost


def lost(losses: Iterable[Lost]) -> pd.DataFrame:
    """Return losses as the table `Run.lost`."""
    rows = [(loss.what, loss.pid, loss.count, loss.bytes) for loss in losses]
    types = {"what": "object", "pid": "int64", "count": "int64", "bytes": "int64"}
    return pd.DataFrame(rows, columns=list(types)).astype(types)


def processes(path: Path, lost: list[Lost]) -> pd.DataFrame:
    """Return processes.jsonl as a table; faults that the tracers reported are added to `lost`."""
    try:
        reports = process_reports.read(path)
    except FileNotFoundError:
        reports = process_reports.NONE
    except OSError as error:
        reports = process_reports.NONE
        lost.append(Lost(f"processes.jsonl cannot be read: {error.strerror}", -1, 1, 0))
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    latest: dict[int, dict[str, Any]] = {}
    unreadable, unreadable_bytes, faults = reports.torn, reports.torn_bytes, 0
    for event in reports.lines:
        if not is_a(event.get("pid"), int):
            unreadable, unreadable_bytes = unreadable + 1, unreadable_bytes + len(json.dumps(event))
            continue
        pid = event["pid"]
        if event.get("event") == "python":
            latest[pid] = rows[(pid, len(rows))] = _report(event)
        elif event.get("event") == "torch":
            process = latest.setdefault(pid, _report({"pid": pid}))
            rows.setdefault((pid, -1), process) if process["time_ns"] is None else None
            process["torch"] = str(event.get("torch"))
            process["torch_ns"] = event["time_ns"] if is_a(event.get("time_ns"), int) else None
        elif event.get("event") == "fault":
            faults += 1
            what = f"{process_reports.FAULT}{event.get('error')}"[:400]
            lost.append(Lost(what if faults <= _MOST_FAULTS else "tracer fault", pid, 1, 0))
    if unreadable:
        lost.append(Lost("unreadable line of processes.jsonl", -1, unreadable, unreadable_bytes))
    if reports.left_bytes:
        what = "rest of processes.jsonl, which has more than lotus reads of it"
        lost.append(Lost(what, -1, 1, reports.left_bytes))
    table = pd.DataFrame(list(rows.values()), columns=list(_REPORT))
    for name in ("ppid", "time_ns", "torch_ns"):
        # Not through float64, which cannot hold large integers exactly.
        table[name] = pd.array([row[name] for row in rows.values()], dtype="Int64")
    return table.astype({"pid": "int64"})


def _report(event: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {
        name: event[name] if is_a(event.get(name), int) else None
        for name in ("pid", "ppid", "time_ns")
    }
    texts = {
        name: event[name] if isinstance(event.get(name), str) else None
        for name in ("executable", "python")
    }
    argv = event.get("argv")  # a list of texts, or None
    return {**numbers, **texts, "argv": argv or [], "torch": None, "torch_ns": None}

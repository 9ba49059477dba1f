"""A simulated DataLoader: tables as `Run` has them, of a loop whose cause is known."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

MS = 1_000_000
BASE = 5_000 * MS


@dataclass
class Plan:
    """What to simulate; times in milliseconds."""

    workers: int = 2
    batches: int = 40
    batch_size: int = 4
    epochs: int = 1
    prefetch: int = 2
    operations: dict[str, Any] = field(default_factory=lambda: {"Loader": 2.0, "Normalize": 0.5})
    own: Any = 0.05
    collate: float = 0.5
    pickle: float = 0.2
    write: float = 0.1
    unpickle: float = 0.1
    step: float | Callable[[int], float] = 1.0  # or of the batch
    first_step: float = 0.0  # extra in the first step of the process
    iter: float = 2.0
    spawn: float = 5.0
    first_sample: float = 0.0  # extra in the first sample of each process
    first_pickle: float = 0.0  # extra in the first sending of each process
    shutdown: float = 1.0
    sampler: float = 0.0  # in each `next`
    first_draws: float = 0.0  # of the sampler, in each `iter()`
    snapshot: float = 0.0  # of the loader's state, in the worker after each fetch
    main_snapshot: float = 0.0  # the same in each `next`
    pin: float = 0.0
    persistent: bool = False
    cpu: float = 1.0  # share of the fetch on a CPU
    read_bytes: int = 0  # per sample
    level: str = "op"
    rank: int = 0
    loader: int = 0
    cores: int = 8

    def run(self) -> SimpleNamespace:
        return _Simulation(self).run()


class _Simulation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rows: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("ops", "samples", "batches", "waits", "workers", "epochs")
        }
        self.time = float(BASE)

    def run(self) -> SimpleNamespace:
        plan = self.plan
        self.ready: list[float] = []
        for epoch in range(plan.epochs):
            self._epoch(epoch)
            self.time += 20 * MS
        tables = {name: _table(rows) for name, rows in self.rows.items()}
        kinds = ["loader" if name == "Loader" else "transform" for name in plan.operations]
        return SimpleNamespace(
            path="simulated",
            manifest={
                "schema": 1,
                "lotus": "0",
                "state": "ended",
                "command": ["train.py"],
                "exit_code": 0,
                "signal": None,
                "level": plan.level,
                "batches": None,
                "every": 1,
                "max_log": None,
                "start_ns": BASE,
                "end_ns": int(self.time),
                "ranks": [{"rank": plan.rank, "pid": 1}],
                "cpu": {"model": "simulated", "logical": plan.cores, "affinity": plan.cores},
            },
            loaders=pd.DataFrame([self._settings()]),
            operations=pd.DataFrame(
                {
                    "operation": list(plan.operations),
                    "parent": "",
                    "index": range(len(kinds)),
                    "kind": kinds,
                }
            ),
            paths=pd.DataFrame(
                [
                    {
                        "rank": plan.rank,
                        "pid": row["pid"],
                        "sample": row["sample"],
                        "path": f"/data/{row['sample']}.jpg",
                        "duration_ns": row["duration_ns"],
                    }
                    for row in sorted(self.rows["samples"], key=lambda row: -row["duration_ns"])[:8]
                ],
                columns=["rank", "pid", "sample", "path", "duration_ns"],
            ),
            resources=pd.DataFrame(
                columns=["rank", "pid", "worker", "time_ns", "pss", "rss", "descriptors", "shm"]
            ),
            lost=pd.DataFrame(columns=["what", "pid", "count", "bytes"]),
            notes=[],
            unseen=[],
            **tables,
        )

    def _settings(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "rank": plan.rank, "pid": 1, "loader": plan.loader, "call_site": "train.py:31",
            "class": "DataLoader", "dataset": "ImageFolder", "dataset_kind": "map",
            "dataset_length": plan.batches * plan.batch_size, "length": plan.batches,
            "batch_size": plan.batch_size, "num_workers": plan.workers,
            "prefetch_factor": plan.prefetch if plan.workers else None,
            "pin_memory": plan.pin > 0, "persistent_workers": plan.persistent,
            "start_method": "fork" if plan.workers else None, "drop_last": False,
            "in_order": True, "sampler": "RandomSampler", "collate_fn": "default_collate",
        }  # fmt: skip

    def _epoch(self, epoch: int) -> None:
        plan, start = self.plan, self.time
        fresh = epoch == 0 or not plan.persistent
        now = start + ((plan.iter if fresh else 0.1) + plan.first_draws) * MS
        iter_ns = now - start
        if fresh:
            self.pids = [100 + epoch * plan.workers + worker for worker in range(plan.workers)]
            self.ready = [now + plan.spawn * MS] * plan.workers
            self.lazy = [True] * max(plan.workers, 1)
            self.unsent = [True] * plan.workers
            for worker, pid in enumerate(self.pids):
                self._worker(worker, pid, now, start)
        free = list(self.ready)
        feeder = [0.0] * plan.workers
        asked_ns = [start + iter_ns] * (plan.prefetch * plan.workers)
        pipe = pinner = first_end = 0.0
        for batch in range(plan.batches):
            wait_start = now
            row: dict[str, Any] = {"epoch": epoch, "batch": batch, "first": batch == 0}
            if plan.workers:
                worker = batch % plan.workers
                begin = max(free[worker], asked_ns[batch])
                row |= self._fetch(epoch, batch, worker, begin) | {"idle_ns": begin - free[worker]}
                row["snapshot_ns"] = plan.snapshot * MS
                put = begin + row["fetch_ns"] + row["snapshot_ns"]
                free[worker] = put
                send = max(put, feeder[worker])
                pickle = plan.pickle + (plan.first_pickle if self.unsent[worker] else 0.0)
                self.unsent[worker] = False
                pickled = send + pickle * MS
                locked = max(pickled, pipe)
                pipe = feeder[worker] = locked + plan.write * MS
                arrival = max(pipe, wait_start) + plan.unpickle * MS
                ready = pickled
                if plan.pin:
                    row["pin_start_ns"] = max(pipe, pinner)
                    ready = pinner = row["pin_start_ns"] + plan.pin * MS
                    row["pin_ns"] = plan.pin * MS
                    arrival = max(ready, wait_start)
                row |= {
                    "put_ns": put, "send_start_ns": send, "pickle_ns": pickle * MS,
                    "lock_ns": locked - pickled, "write_ns": plan.write * MS,
                    "arrival_ns": arrival,
                }  # fmt: skip
                now = arrival + (plan.sampler + plan.main_snapshot) * MS
                asked_ns.append(now)
            else:
                row |= self._fetch(epoch, batch, -1, now + plan.sampler * MS)
                now = ready = row["fetch_start_ns"] + row["fetch_ns"]
            took = plan.step(batch) if callable(plan.step) else plan.step
            step_ns = (took + (0.0 if epoch or batch else plan.first_step)) * MS
            row |= {
                "ready_ns": ready, "wait_start_ns": wait_start, "wait_ns": now - wait_start,
                "taken_ns": now, "delay_ns": max(now - ready, 0), "step_ns": step_ns,
                "sampler_ns": plan.sampler * MS, "out_of_order": False, "order": "in turn",
            }  # fmt: skip
            first_end = first_end or now
            self._add("batches", row)
            self._add(
                "waits",
                {"pid": 1, "tid": 1, "epoch": epoch, "batch": batch, "start_ns": wait_start,
                 "wait_ns": now - wait_start, "step_ns": step_ns, "failed": False,
                 "snapshot_ns": plan.main_snapshot * MS, "sampler_ns": plan.sampler * MS},
            )  # fmt: skip
            now += step_ns
        shutdown = plan.shutdown * MS if plan.workers and not plan.persistent else 0.0
        self._add(
            "epochs",
            {"pid": 1, "epoch": epoch, "start_ns": start, "iter_ns": iter_ns,
             "iter_sampler_ns": plan.first_draws * MS, "startup_ns": first_end - start,
             "end_ns": now + shutdown, "batches": plan.batches, "exhausted": True,
             "shutdown_ns": shutdown},
        )  # fmt: skip
        self.time = now + shutdown

    def _worker(self, worker: int, pid: int, now: float, start: float) -> None:
        ready = self.ready[worker]
        self._add(
            "workers",
            {"pid": pid, "worker": worker, "start_ns": now, "loop_ns": now + MS, "ready_ns": ready,
             "startup_ns": ready - start, "end_ns": np.nan},
        )  # fmt: skip

    def _fetch(self, epoch: int, batch: int, worker: int, begin: float) -> dict[str, Any]:
        plan, now = self.plan, begin
        pid = self.pids[worker] if worker >= 0 else 1
        where = {"pid": pid, "worker": worker, "epoch": epoch, "batch": batch}
        samples = 0.0
        for position in range(plan.batch_size):
            sample, sample_start, done = batch * plan.batch_size + position, now, 0.0
            here = where | {"position": position, "sample": sample}
            for index, (name, cost) in enumerate(plan.operations.items()):
                duration = (cost(sample, worker) if callable(cost) else cost) * MS
                self._add(
                    "ops",
                    here | {"tid": pid, "operation": name, "parent": "", "index": index,
                            "nested": False, "start_ns": now, "duration_ns": duration},
                )  # fmt: skip
                now += duration
                done += duration
            own = (plan.own(sample, worker) if callable(plan.own) else plan.own) * MS
            if self.lazy[max(worker, 0)]:
                own += plan.first_sample * MS
                self.lazy[max(worker, 0)] = False
            now += own
            samples += now - sample_start
            self._add(
                "samples",
                here | {"start_ns": sample_start, "duration_ns": now - sample_start,
                        "ops_ns": done, "self_ns": own, "many": False},
            )  # fmt: skip
        collate_start = now
        now += plan.collate * MS
        return {
            **where, "size": plan.batch_size, "bytes": 1000, "flags": 0, "fetch_start_ns": begin,
            "fetch_ns": now - begin, "samples_ns": samples, "collate_start_ns": collate_start,
            "collate_ns": plan.collate * MS, "self_ns": 0, "cpu_ns": (now - begin) * plan.cpu,
            "minor_faults": 0, "major_faults": 0, "read_bytes": plan.read_bytes * plan.batch_size,
            "send_bytes": 500, "send_tid": pid,
        }  # fmt: skip

    def _add(self, name: str, row: dict[str, Any]) -> None:
        self.rows[name].append({"rank": self.plan.rank, "loader": self.plan.loader, **row})


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    for name in frame.columns:
        if name.endswith("_ns") and not frame[name].isna().any():
            frame[name] = frame[name].round().astype("int64")
        if name in ("operation", "parent"):
            frame[name] = frame[name].astype("category")
    return frame

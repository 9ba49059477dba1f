"""Tables as `Run` has them of a job whose ranks' costs are known: a barrier after every step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

MS = 1_000_000
LOADER: dict[str, Any] = {
    "call_site": "train.py:7",
    "dataset": "Images",
    "dataset_kind": "map",
    "dataset_length": 1000,
    "sampler": "DistributedSampler",
    "batch_sampler": "BatchSampler",
    "prefetch_factor": 2,
}


@dataclass
class Costs:
    """Of one rank, in milliseconds: fixed + slope x samples for a step; slope for a fetch."""

    slope: float = 1.0
    fixed: float = 0.0
    fetch: float = 0.1
    batch: int = 8
    workers: int = 1
    host: str = "a"
    memory: float = 0.0  # bytes of its worker
    peak: float = math.nan  # bytes that its main process held


def job(
    ranks: Sequence[Costs],
    *,
    steps: int = 60,
    noise: float = 0.02,
    collective: float = 1.0,
    synced: bool = True,
    partial: int = 0,
    epochs: int = 1,
    seed: int = 0,
    **loader: Any,
) -> SimpleNamespace:
    """`partial`: samples of each epoch's last batch; 0: all are whole."""
    random = np.random.default_rng(seed)
    batches: list[dict[str, Any]] = []
    syncs: list[dict[str, Any]] = []
    now, number = 1_000.0 * MS, 0
    for epoch in range(epochs):
        for step in range(steps):
            begin = now
            sizes = [partial if partial and step == steps - 1 else rank.batch for rank in ranks]
            rough = random.normal(1.0, noise, (2, len(ranks)))
            fetch = [
                rank.fetch * size * r for rank, size, r in zip(ranks, sizes, rough[0], strict=True)
            ]
            # The pipeline is simple here: a batch is waited for as long as it takes each worker.
            wait = [
                f
                * (
                    1
                    if not rank.workers
                    else max(f / rank.workers - max(0.0, _own(rank, n)), 0) / f
                )
                for f, rank, n in zip(fetch, ranks, sizes, strict=True)
            ]
            own = [_own(rank, n) * r for rank, n, r in zip(ranks, sizes, rough[1], strict=True)]
            ready = [begin + (w + o) * MS for w, o in zip(wait, own, strict=True)]
            end = max(ready) + collective * MS
            for rank, rank_costs in enumerate(ranks):
                who = {"rank": rank, "local_rank": rank, "world_size": len(ranks)}
                who |= {"host": rank_costs.host, "pid": 100 + rank}
                taken = begin + wait[rank] * MS
                batches.append(
                    who
                    | {
                        "pid": 200 + rank if rank_costs.workers else 100 + rank,
                        "worker": number % rank_costs.workers if rank_costs.workers else -1,
                        "loader": 0,
                        "epoch": epoch,
                        "batch": step,
                        "size": sizes[rank],
                        "flags": 0,
                        "bytes": 1000 * sizes[rank],
                        "fetch_start_ns": begin - 10 * MS,
                        "fetch_ns": fetch[rank] * MS,
                        "cpu_ns": fetch[rank] * MS,
                        "wait_start_ns": begin,
                        "wait_ns": wait[rank] * MS,
                        "taken_ns": taken,
                        "step_ns": end - taken,
                    }
                )
                syncs.append(
                    who
                    | {
                        "step": number,
                        "start_ns": int(taken),
                        "ready_ns": int(ready[rank]),
                        "end_ns": int(end),
                        "exposed_ns": int(end - ready[rank]),
                    }
                )
            now, number = end, number + 1
    rows = [
        LOADER
        | {"rank": rank, "loader": 0, "num_workers": profile.workers, "batch_size": profile.batch}
        | loader
        for rank, profile in enumerate(ranks)
    ]
    places = [{"rank": rank, "world_size": len(ranks)} for rank in range(len(ranks))]
    memory = [
        {"rank": rank, "pid": 200 + rank, "worker": 0, "pss": profile.memory, "rss": profile.memory}
        for rank, profile in enumerate(ranks)
        if profile.memory
    ]
    return SimpleNamespace(
        manifest={"host": "a", "memory_bytes": 64 << 30, "ranks": places},
        loaders=pd.DataFrame(rows),
        batches=pd.DataFrame(batches),
        syncs=pd.DataFrame(syncs if synced else syncs[:0]),
        resources=pd.DataFrame(memory),
        epochs=pd.DataFrame({"rank": range(len(ranks)), "peak_rss": [rank.peak for rank in ranks]}),
    )


def _own(costs: Costs, samples: int) -> float:
    return costs.fixed + costs.slope * samples

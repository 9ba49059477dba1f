"""Balance between workers, and between ranks."""

from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.memory_readings import NEVER_READ, memory_of_workers
from lotus.analysis.samples.operation_statistics import making_time
from lotus.analysis.verdict.account import Account
from lotus.common.numbers.array_types import Floats, Ints


def worker_table(scope: Scope, loop_account: Account) -> pd.DataFrame:
    """Return one row per worker and rank, all its processes together.

    Columns: rank worker processes batches samples fetch_ns (total) batch_mean_ns sample_ns (typical
    per sample) times (sample_ns over the other workers' typical) idle_ns idle_share cpu_share
    run_delay_share (of fetch_ns: ready to run, without a core) startup_ns (mean) pss_bytes
    growth_bytes growth_reason (as `memory_of_workers`). worker -1 is the main process.
    """
    keys = ["rank", "worker"]
    table = _sums(scope.batches)
    whole = table["fetch_ns"] + table.pop("snapshot_ns") + table["idle_ns"]
    table["idle_share"] = table["idle_ns"] / whole.where(whole > 0)
    spent = table["fetch_ns"].where(table["fetch_ns"] > 0)
    table["cpu_share"] = table.pop("cpu_ns") / spent
    table["run_delay_share"] = table.pop("run_delay_ns") / spent
    typical = loop_account.workers[["rank", "worker", "own_ns", "times"]]
    table = table.merge(typical.rename(columns={"own_ns": "sample_ns"}), on=keys, how="left")
    started = pd.DataFrame(
        {
            "rank": int_column(scope.workers, "rank"),
            "worker": int_column(scope.workers, "worker"),
            "startup_ns": float_column(scope.workers, "startup_ns"),
        }
    )
    mean = started.groupby(keys, as_index=False)["startup_ns"].mean()
    table = table.merge(mean, on=keys, how="left")
    table = table.merge(memory_of_workers(scope), on=keys, how="left")
    return table.assign(growth_reason=table["growth_reason"].fillna(NEVER_READ))


def _sums(batches: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank and worker, of the batches whose making was recorded.

    Columns are added one at a time: together their inputs take much memory.
    """
    made = ~np.isnan(float_column(batches, "fetch_ns"))
    keys = pd.DataFrame({name: int_column(batches, name)[made] for name in ("rank", "worker")})
    group = keys.groupby(["rank", "worker"])

    table = group.size().reset_index()[["rank", "worker"]]
    place = group.ngroup().to_numpy()

    def of(values: Floats | Ints) -> Any:
        """Group one column by rank and worker."""
        return pd.Series(values[made], copy=False).groupby(place)

    fetch = of(float_column(batches, "fetch_ns"))
    return table.assign(
        processes=of(int_column(batches, "pid")).nunique(),
        batches=fetch.count(),
        samples=of(float_column(batches, "size")).sum(),
        fetch_ns=fetch.sum(),
        batch_mean_ns=fetch.mean(),
        snapshot_ns=of(float_column(batches, "snapshot_ns")).sum(),
        idle_ns=of(float_column(batches, "idle_in_loop_ns")).sum(),
        cpu_ns=of(float_column(batches, "cpu_ns")).sum(min_count=1),
        run_delay_ns=of(float_column(batches, "run_delay_ns")).sum(min_count=1),
    )


def rank_table(scope: Scope, loop_account: Account) -> pd.DataFrame:
    """Return one row per rank: rank samples batches loop_ns wait_share step_share samples_per_s.

    wait_share: blocked in `iter()`, in `next` or at the end, of the rank's own loop.
    """
    names = ["loop_ns", "wait_ns", "iter_ns", "step_ns", "tail_ns", "waits"]
    table = loop_account.epochs.groupby("rank", as_index=False)[names].sum()
    taken = ~np.isnan(float_column(scope.batches, "wait_ns"))
    size = float_column(scope.batches, "size")
    # A batch that was taken but whose making was not recorded is as large as the others.
    usual = np.nanmean(size) if (~np.isnan(size)).any() else 0.0
    sizes = pd.DataFrame(
        {
            "rank": int_column(scope.batches, "rank")[taken],
            "samples": np.where(np.isnan(size), usual, size)[taken],
        }
    )
    table = table.merge(sizes.groupby("rank", as_index=False).sum(), on="rank", how="left")
    loop = table["loop_ns"].where(table["loop_ns"] > 0)
    blocked = table["wait_ns"] + table["iter_ns"] + table["tail_ns"]
    return pd.DataFrame(
        {
            "rank": table["rank"],
            "samples": table["samples"].fillna(0).round().astype(np.int64),
            "batches": table["waits"],
            "loop_ns": table["loop_ns"],
            "wait_share": blocked / loop,
            "step_share": table["step_ns"] / loop,
            "samples_per_s": table["samples"] / loop * 1e9,
        }
    )


def idle_share(scope: Scope) -> float:
    """Return the share of the workers' time in the loop in which they had nothing to do."""
    idle = total(float_column(scope.batches, "idle_in_loop_ns"))
    whole = idle + making_time(scope)
    return idle / whole if whole > 0 else float("nan")

"""What each rank did in each step, from tables whose numbers are known."""

from dataclasses import dataclass, field
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.ranks.rank_steps import (
    ALONE,
    UNDECIDED,
    RankSteps,
    binned,
    long_table,
    rank_steps,
)

MS = 1_000_000
BASE = 10_000 * MS


@dataclass
class Job:
    """Ranks that wait for data, step and wait for each other; times in milliseconds.

    wait, step   (R, K)
    average      from the last arrival to the end of each synchronisation
    takes_part   (R, K) bool; a rank without part in a step does nothing meanwhile
    """

    wait: Any
    step: Any
    average: float = 2.0
    hosts: list[str] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)  # ms
    takes_part: Any = None
    batch_size: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    sample: dict[str, list[float]] = field(default_factory=dict)  # operation: ms, by rank
    world_size: int = 0
    cpus: dict[int, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> SimpleNamespace:
        wait, step = np.asarray(self.wait, float) * MS, np.asarray(self.step, float) * MS
        ranks, steps = wait.shape
        there = np.ones((ranks, steps), bool) if self.takes_part is None else self.takes_part
        hosts = self.hosts or ["a"] * ranks
        sizes = self.batch_size or [4] * ranks
        workers = self.workers or [2] * ranks
        world = self.world_size or ranks
        free = np.full(ranks, float(BASE))
        rows: dict[str, list[dict[str, Any]]] = {"syncs": [], "waits": [], "batches": [], "ops": []}
        count = np.zeros(ranks, int)
        for k in range(steps):
            taking = np.flatnonzero(there[:, k])
            arrival = free + wait[:, k] + step[:, k]
            end = arrival[taking].max(initial=0.0) + self.average * MS
            for rank in taking.tolist():
                whose = {"rank": rank, "local_rank": rank, "world_size": world,
                         "host": hosts[rank], "pid": 100 + rank}  # fmt: skip
                batch = {"loader": 0, "epoch": 0, "batch": int(count[rank])}
                rows["waits"].append(
                    {**whose, "tid": 100 + rank, **batch, "start_ns": int(free[rank]),
                     "wait_ns": int(wait[rank, k]), "step_ns": step[rank, k],
                     "arrival_ns": np.nan, "failed": False}
                )  # fmt: skip
                rows["syncs"].append(
                    {**whose, "step": int(count[rank]),
                     "start_ns": int(arrival[rank] - step[rank, k] / 4),
                     "ready_ns": int(arrival[rank]), "end_ns": int(end),
                     "exposed_ns": int(end - arrival[rank])}
                )  # fmt: skip
                each = [times[rank] * MS for times in self.sample.values()]
                fetch = sum(each) * sizes[rank] if each else np.nan
                rows["batches"].append(
                    {**whose, **batch, "worker": 0, "size": sizes[rank], "fetch_ns": fetch}
                )
                for name, took in zip(self.sample, each, strict=True):
                    rows["ops"] += [
                        {**whose, **batch, "operation": name, "nested": False, "duration_ns": took}
                    ] * sizes[rank]
                count[rank] += 1
                free[rank] = end
        tables = {name: pd.DataFrame(some) for name, some in rows.items()}
        manifest: dict[str, Any] = {
            "host": hosts[0],
            "cpu": {"model": "simulated", "logical": 8, "affinity": 8},
            "ranks": [
                {"rank": rank, "host": hosts[rank], "pid": 100 + rank, "world_size": world}
                | ({"cpu": self.cpus[rank]} if rank in self.cpus else {})
                for rank in range(ranks)
            ],
        }
        if self.errors:
            manifest["hosts"] = [
                {"host": host, "offset_ns": 0, "drift_ppb": 0, "error_ns": error * MS}
                for host, error in self.errors.items()
            ]
        loaders = pd.DataFrame(
            {"rank": range(ranks), "loader": 0, "num_workers": workers, "batch_size": sizes}
        )
        return SimpleNamespace(
            path="job", manifest=manifest, loaders=loaders, workers=pd.DataFrame(), **tables
        )


def steps_of(run: SimpleNamespace, **options: Any) -> RankSteps:
    steps = rank_steps(run, **options)
    assert steps is not None
    return steps


def random_job(seed: int, ranks: int = 4, steps: int = 30, **options: Any) -> Job:
    rng = np.random.default_rng(seed)
    # Whole microseconds, which float32 milliseconds hold.
    wait = rng.integers(0, 4000, (ranks, steps)) / 1000
    return Job(wait, rng.integers(5000, 9000, (ranks, steps)) / 1000, **options)


def test_wait_step_and_synchronisation_are_those_of_the_loop() -> None:
    job = random_job(1)
    steps = steps_of(job.run())
    np.testing.assert_allclose(steps.wait, np.asarray(job.wait) * MS, rtol=1e-6, atol=2)
    np.testing.assert_allclose(steps.step, np.asarray(job.step) * MS, rtol=1e-6)
    whole = steps.wait + steps.step + steps.sync
    # From one synchronisation's end to the next all ranks take the same time.
    np.testing.assert_allclose(whole, np.broadcast_to(whole[0], whole.shape), rtol=1e-6)
    assert steps.loaders == [0]
    assert steps.size.tolist() == [4] * 4
    assert steps.warm.tolist() == [False] + [True] * 29


@pytest.mark.parametrize("seed", range(6))
def test_who_is_last_and_by_how_much(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 6))
    takes = rng.random((ranks, 40)) < 0.8
    run = random_job(seed, ranks, 40).run()
    gone = ~takes[run.syncs["rank"], run.syncs["step"]]
    run.syncs = run.syncs[~gone].reset_index(drop=True)
    steps = steps_of(run)
    numbered = np.unique(run.syncs["step"])  # steps that nobody took do not count
    for k, number in enumerate(numbered):
        arrivals = dict(
            run.syncs.loc[run.syncs["step"] == number, ["rank", "ready_ns"]].to_numpy().tolist()
        )
        ordered = sorted(arrivals, key=lambda rank: arrivals[rank])
        if len(arrivals) < 2:
            assert steps.last[k] == ALONE
            continue
        if arrivals[ordered[-1]] == arrivals[ordered[-2]]:
            assert steps.last[k] == UNDECIDED
            continue
        assert steps.ranks[steps.last[k]] == ordered[-1]
        assert steps.lead_second[k] == arrivals[ordered[-1]] - arrivals[ordered[-2]]
        for rank in arrivals:
            others = median(at for other, at in arrivals.items() if other != rank)
            row = int(np.searchsorted(steps.ranks, rank))
            assert steps.late[row, k] == pytest.approx(arrivals[rank] - others, rel=1e-6)
        others = median(arrivals[rank] for rank in ordered[:-1])
        assert steps.lead_median[k] == arrivals[ordered[-1]] - others
    assert steps.present.sum() == len(run.syncs)


def test_nobody_is_last_where_the_clocks_cannot_tell() -> None:
    step = np.array([[5.0, 5.0, 9.0], [5.5, 8.0, 5.0], [5.2, 5.2, 5.2]])
    job = Job(np.zeros((3, 3)), step, hosts=["a", "a", "b"], errors={"a": 0.1, "b": 0.5})
    steps = steps_of(job.run())
    # Of the first, rank 1 is 0.3 ms after rank 2 of the other host, whose clocks may be 0.6 apart.
    assert steps.last.tolist() == [UNDECIDED, 1, 0]
    assert np.isnan(steps.lead_second[0])
    # On one host the clock is one.
    assert steps_of(Job(np.zeros((3, 3)), step).run()).last.tolist() == [1, 1, 0]
    # Of a host whose clock was not aligned nothing is known.
    job.errors = {"a": 0.1}
    assert steps_of(job.run()).last.tolist() == [UNDECIDED] * 3


def extra_waits(run: SimpleNamespace, rows: list[dict[str, Any]]) -> None:
    like = run.waits.iloc[0].to_dict()
    more = pd.DataFrame([like | row for row in rows])
    run.waits = pd.concat([run.waits, more], ignore_index=True)


def test_validation_nested_loaders_and_workers_are_not_the_steps_waits() -> None:
    job = random_job(3, 2, 20)
    run = job.run()
    starts = run.waits[run.waits["rank"] == 0].sort_values("start_ns")
    inner = [
        {"loader": 5, "start_ns": start, "wait_ns": took // 2}
        for start, took in zip(starts["start_ns"], starts["wait_ns"], strict=True)
    ]
    ready = int(run.syncs["ready_ns"].iloc[0]) - 3 * MS
    validation = [{"loader": 1, "batch": n, "start_ns": ready + n, "wait_ns": 1} for n in range(99)]
    worker = [{"loader": 7, "pid": 900, "start_ns": at, "wait_ns": MS} for at in starts["start_ns"]]
    extra_waits(run, inner + validation + worker)
    run.workers = pd.DataFrame({"rank": [0], "pid": [900]})
    steps = steps_of(run)
    assert steps.loaders == [0]
    np.testing.assert_allclose(steps.wait, np.asarray(job.wait) * MS, rtol=1e-6, atol=2)


def test_batches_whose_gradients_are_accumulated_are_one_step() -> None:
    run = random_job(4, 2, 40).run()
    run.syncs = run.syncs[run.syncs["step"] % 2 == 1].assign(step=run.syncs["step"] // 2)
    steps = steps_of(run)
    each = run.waits.groupby(["rank", run.waits["batch"] // 2])["wait_ns"].sum().unstack()
    np.testing.assert_allclose(steps.wait, each.to_numpy(), rtol=1e-6)
    assert steps.size.tolist() == [8, 8]


def test_a_rank_without_a_loader_has_steps_and_no_waits() -> None:
    job = random_job(5, 3, 10)
    job.wait[2] = 0
    run = job.run()
    run.waits = run.waits[run.waits["rank"] != 2]
    steps = steps_of(run)
    assert np.isnan(steps.wait[2]).all()
    assert not np.isnan(steps.wait[:2]).any()
    np.testing.assert_allclose(steps.step[2, 1:], np.asarray(job.step)[2, 1:] * MS, rtol=1e-6)
    assert not np.isnan(steps.late).any()


def test_waits_that_were_not_to_be_recorded_are_not_zero() -> None:
    run = random_job(6, 2, 10).run()
    run.manifest["batches"] = "0:4"
    run.waits = run.waits[run.waits["batch"] < 4]
    steps = steps_of(run)
    assert np.isnan(steps.wait).sum(axis=1).tolist() == [6, 6]
    assert np.isnan(steps.step).sum(axis=1).tolist() == [6, 6]


def test_processes_that_replace_others_go_on_with_the_steps() -> None:
    first, again = random_job(7, 3, 12).run(), random_job(8, 3, 9).run()
    for name in ("waits", "syncs", "batches"):
        moved = getattr(again, name).copy()
        moved["pid"] += 1000
        if name == "waits":
            moved["tid"] += 1000
        for column in ("start_ns", "ready_ns", "end_ns"):
            if column in moved:
                moved[column] += 60_000 * MS
        setattr(first, name, pd.concat([getattr(first, name), moved], ignore_index=True))
    steps = steps_of(first)
    assert steps.late.shape == (3, 21)
    assert np.flatnonzero(~steps.warm).tolist() == [0, 12]
    # The pause between them is nobody's own time.
    assert np.nanmax(steps.step) < 10 * MS


def test_ranks_that_die_or_end_early_keep_what_they_did() -> None:
    there = np.ones((4, 30), bool)
    there[2, 17:] = False
    steps = steps_of(random_job(9, 4, 30, takes_part=there).run())
    assert (steps.present == there).all()
    assert np.isnan(steps.late[2, 17:]).all()
    assert not (steps.last[17:] == 2).any()


def test_without_synchronisations_steps_are_batches() -> None:
    job = random_job(10, 3, 25)
    run = job.run()
    run.syncs = run.syncs.iloc[:0]
    steps = steps_of(run)
    assert not steps.synced
    np.testing.assert_allclose(steps.wait, np.asarray(job.wait) * MS, rtol=1e-6, atol=2)
    np.testing.assert_allclose(steps.step, np.asarray(job.step) * MS, rtol=1e-6)
    assert np.isnan(steps.sync).all()
    assert np.isnan(steps.late).all()
    assert (steps.last == UNDECIDED).all()
    del run.syncs  # a run of an older lotus
    assert not steps_of(run).synced


def test_a_process_alone_has_nothing_to_compare() -> None:
    assert rank_steps(random_job(11, 1, 10).run()) is None
    # But one whose others are missing is part of a job.
    steps = steps_of(random_job(11, 1, 10, world_size=4).run())
    assert steps.world_size == 4
    assert (steps.last == ALONE).all()
    empty = SimpleNamespace(manifest={}, loaders=pd.DataFrame())
    assert rank_steps(empty) is None


def test_of_very_many_steps_every_nth_is_kept_as_it_was() -> None:
    run = random_job(12, 3, 50).run()
    whole, some = steps_of(run), steps_of(run, most_cells=40)
    assert some.thinned == 4
    np.testing.assert_array_equal(some.late, whole.late[:, ::4])
    np.testing.assert_array_equal(some.wait, whole.wait[:, ::4])
    assert long_table(some)["step"].max() == 48


def test_the_long_table_has_a_row_for_each_rank_and_step_taken() -> None:
    there = np.ones((3, 10), bool)
    there[1, 5:] = False
    steps = steps_of(random_job(13, 3, 10, takes_part=there, hosts=["a", "b", "a"]).run())
    table = long_table(steps)
    assert len(table) == 25
    assert table.groupby("rank", observed=True)["host"].first().tolist() == ["a", "b", "a"]
    assert table.groupby("step")["last"].sum().max() <= 1


def test_a_picture_has_the_mean_of_steps_and_the_largest_of_ranks() -> None:
    values = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)
    values[0, :3] = np.nan
    small = binned(values, most_rows=3, most_columns=4)
    assert (small.ranks_each, small.steps_each) == (2, 3)
    assert small.cells.shape == (3, 4)
    assert small.cells[0].tolist() == [11, 14, 17, 19]
    assert small.cells[2, 0] == np.mean([50, 51, 52])
    assert binned(values).cells is values
    many = binned(np.zeros((1024, 10_000), np.float32))
    assert many.cells.shape[0] <= 200
    assert many.cells.shape[1] <= 500


def test_damaged_numbers_are_no_crash() -> None:
    run = random_job(14, 3, 10).run()
    wild = run.syncs.iloc[:4].copy()
    wild["step"] = [-5, 1 << 40, 0, 3]
    wild["ready_ns"] = [1, 5, 0, (1 << 62)]
    wild["end_ns"] = [0, 1 << 62, 7, 3]
    run.syncs = pd.concat([run.syncs, wild], ignore_index=True)
    steps = steps_of(run)
    # What was sound is there all the same: the first of two rows of one step counts.
    assert steps.present[:, :10].all()

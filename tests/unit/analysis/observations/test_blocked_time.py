"""What operations were blocked in: shares, intervals, times, and what is not known."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.observations.blocked_time import blocked_time, not_known, noticeable
from tests.unit.simulated import MS, Plan

WORKERS, MAIN = (100, 101), 1
SLOW_NS = 40 * 4 * 20 * MS  # of Slow in all samples of `slow`


def slow(**plan: Any) -> SimpleNamespace:
    """A loop of 40 batches of 4 samples, each of which takes Slow 20 ms."""
    return Plan(**{"operations": {"Slow": 20.0}, **plan}).run()


def looked(run: SimpleNamespace, *rows: tuple[int, str, str, int], loader: int = 0) -> pd.DataFrame:
    """Return the table of a run with looks: (pid, operation, reason, how many)."""
    columns = ["pid", "operation", "reason", "looks"]
    run.blocking = pd.DataFrame(rows, columns=columns).assign(worker=0)
    return blocked_time(run, next(each for each in scopes(run) if each.loader == loader))


def of(blocked: pd.DataFrame, operation: str, reason: str = "") -> pd.Series:
    """Return the only row of an operation and a state."""
    rows = blocked[(blocked["operation"] == operation) & (blocked["reason"] == reason)]
    assert len(rows) == 1
    return rows.iloc[0]


def together(*runs: SimpleNamespace) -> SimpleNamespace:
    """Put loops of several loaders into one run, one after the other."""
    later = 0
    for run in runs:
        for frame in (run.waits, run.epochs, run.batches):
            for name in ("start_ns", "end_ns", "wait_start_ns", "fetch_start_ns"):
                if name in frame:
                    frame[name] += later
        later += 10_000 * MS
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        both = pd.concat([getattr(run, name) for run in runs], ignore_index=True)
        setattr(runs[0], name, both)
    return runs[0]


def test_shares_have_the_interval_of_half_as_many_looks() -> None:
    # Of both workers, 200 looks; Wilson's interval of 50 of 100 is 40.38 to 59.62 %.
    rows = [(100, "Slow", "sleep", 60), (101, "Slow", "sleep", 40)]
    table = looked(slow(), *rows, (100, "Slow", "computing", 100))
    sleep, computing = of(table, "Slow", "sleep"), of(table, "Slow", "computing")
    for row in (sleep, computing):
        assert (row["part"], row["looks"], row["missing"]) == ("making", 200, "")
        assert row["share"] == 0.5
        assert (row["low"], row["high"]) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert sleep["total_ns"] == pytest.approx(SLOW_NS)
    assert sleep["ns"] == pytest.approx(SLOW_NS / 2)
    assert sleep["low_ns"] == pytest.approx(0.4038 * SLOW_NS, rel=1e-3)
    assert sleep["high_ns"] == pytest.approx(0.5962 * SLOW_NS, rel=1e-3)


def test_states_of_an_operation_add_up_to_its_time() -> None:
    reasons = {"computing": 30, "sleep": 20, "storage": 10, "lock": 5}
    table = looked(slow(), *[(100, "Slow", name, count) for name, count in reasons.items()])
    rows = table[table["operation"] == "Slow"]
    assert rows["reason"].tolist() == list(reasons)  # the most frequent first
    assert rows["share"].sum() == pytest.approx(1)
    assert rows["ns"].sum() == pytest.approx(SLOW_NS)


def test_what_was_never_blocked_is_not_certainly_so() -> None:
    row = of(looked(slow(), (100, "Slow", "computing", 40)), "Slow", "computing")
    # 0 of 20 with an upper end of z^2 / (n + z^2).
    assert (row["share"], row["high"]) == (1, 1)
    assert row["low"] == pytest.approx(1 - 1.96**2 / (20 + 1.96**2), abs=1e-3)
    assert not len(noticeable(looked(slow(), (100, "Slow", "computing", 40))))


@pytest.mark.parametrize(("looks", "known"), [(19, False), (20, True)])
def test_few_looks_are_a_row_without_shares(looks: int, known: bool) -> None:
    table = looked(slow(), (100, "Slow", "sleep", looks))
    row = of(table, "Slow", "sleep" if known else "")
    assert row["looks"] == looks
    assert row["missing"] == ("" if known else "few")
    assert math.isnan(row["share"]) == math.isnan(row["ns"]) == (not known)
    assert row["total_ns"] == pytest.approx(SLOW_NS)
    assert ("Slow" in not_known(table)["operation"].tolist()) == (not known)


def test_what_took_time_and_was_never_looked_at_is_a_row() -> None:
    table = looked(slow(), (100, "Slow", "sleep", 50), (MAIN, "(next)", "events", 50))
    row = of(table, "collate")
    assert (row["looks"], row["missing"]) == (0, "few")
    assert row["total_ns"] == pytest.approx(40 * 0.5 * MS)
    assert math.isnan(row["share"])
    assert not len(not_known(table))  # it took little, which nobody misses


def test_far_more_looks_than_time_are_of_what_follows() -> None:
    rows = [(100, "Slow", "computing", 100), (100, "collate", "lock", 300)]
    row = of(looked(slow(), *rows), "collate", "lock")
    assert (row["missing"], row["share"]) == ("mixed", 1)
    assert math.isnan(row["ns"])
    assert row["total_ns"] == pytest.approx(40 * 0.5 * MS)


def test_the_time_of_an_operation_is_without_those_in_it() -> None:
    run = slow()
    inner = run.ops.assign(operation="Slow/Inner", parent="Slow", nested=True)
    inner["duration_ns"] = inner["duration_ns"] // 4
    run.ops = pd.concat([run.ops.astype({"operation": str, "parent": str}), inner])
    rows = [(100, "Slow", "sleep", 75), (100, "Slow/Inner", "computing", 25)]
    table = looked(run, *rows)
    assert of(table, "Slow", "sleep")["ns"] == pytest.approx(0.75 * SLOW_NS)
    assert of(table, "Slow/Inner", "computing")["ns"] == pytest.approx(0.25 * SLOW_NS)


def test_the_loop_has_its_own_time() -> None:
    run = slow(step=30.0)
    rows = [(MAIN, "(next)", "events", 60), (MAIN, "(step)", "lock", 10)]
    table = looked(run, *rows, (MAIN, "(step)", "computing", 30))
    step, wait = of(table, "(step)", "lock"), of(table, "(next)", "events")
    assert (step["part"], step["looks"], step["awaits"]) == ("loop", 40, False)
    assert step["total_ns"] == pytest.approx(40 * 30 * MS)
    assert step["ns"] == pytest.approx(10 * 30 * MS)
    assert wait["total_ns"] == pytest.approx(run.waits["wait_ns"].sum() + 1 * MS)  # the shut-down
    assert step["time_share"] + wait["time_share"] == pytest.approx(1)
    # That `next` waits for workers is no finding.
    assert wait["awaits"]
    assert noticeable(table)["operation"].tolist() == ["(step)"]


def test_without_workers_next_awaits_nobody_and_is_without_the_making() -> None:
    run = slow(workers=0, sampler=2.0)
    table = looked(run, (MAIN, "(next)", "socket", 30), (MAIN, "Slow", "computing", 60))
    wait = of(table, "(next)", "socket")
    assert not wait["awaits"]
    assert wait["total_ns"] == pytest.approx(40 * 2 * MS)
    assert of(table, "Slow", "computing")["total_ns"] == pytest.approx(SLOW_NS)


@pytest.mark.parametrize("pin", [0.0, 1.0])
def test_only_with_pinned_memory_next_awaits_at_a_lock(pin: float) -> None:
    wait = of(looked(slow(pin=pin), (MAIN, "(next)", "lock", 30)), "(next)", "lock")
    assert wait["awaits"] == (pin > 0)


def test_the_main_thread_is_shared_by_loaders_and_workers_are_not() -> None:
    run = together(slow(step=2.0), slow(loader=1, batches=20, step=5.0, workers=0))
    rows = [(100, "Slow", "sleep", 30), (MAIN, "Slow", "computing", 40)]
    rows += [(MAIN, "(step)", "lock", 50)]
    first, second = (looked(run, *rows, loader=loader) for loader in (0, 1))
    assert of(first, "Slow", "sleep")["ns"] == pytest.approx(SLOW_NS)
    assert of(second, "Slow", "computing")["ns"] == pytest.approx(SLOW_NS / 2)
    for table in (first, second):
        step = of(table, "(step)", "lock")
        assert (step["loaders"], step["ns"]) == (2, pytest.approx(40 * 2 * MS + 20 * 5 * MS))


def test_main_processes_that_make_batches_of_two_loaders_are_taken_together() -> None:
    run = together(*[slow(loader=loader, workers=0) for loader in (0, 1)])
    row = of(looked(run, (MAIN, "Slow", "sleep", 50)), "Slow", "sleep")
    assert (row["loaders"], row["ns"]) == (2, pytest.approx(2 * SLOW_NS))


def test_a_loop_in_another_thread_was_not_looked_at() -> None:
    run = slow(step=30.0)
    run.waits["tid"] = 99
    table = looked(run, (MAIN, "(step)", "lock", 50), (100, "Slow", "sleep", 50))
    row = of(table, "(step)")
    assert (row["missing"], row["looks"]) == ("elsewhere", 0)
    assert math.isnan(row["share"])
    assert set(not_known(table)["missing"]) == {"elsewhere"}
    assert of(table, "Slow", "sleep")["share"] == 1


@pytest.mark.parametrize(
    ("cpu", "contradicted"), [(0.5, False), (0.4, False), (0.2, True), (0.8, True)]
)
def test_cpu_clocks_may_contradict_looks(cpu: float, contradicted: bool) -> None:
    run = slow(cpu=cpu)
    run.batches["run_delay_ns"] = 0.0
    rows = [(100, "Slow", "sleep", 50), (100, "Slow", "computing", 50)]
    row = of(looked(run, *rows), "Slow", "sleep")
    assert row["clock_share"] == pytest.approx(1 - cpu)
    assert row["contradicted"] == contradicted


def test_time_ready_without_a_core_is_not_blocked() -> None:
    run = slow(cpu=0.2)
    run.batches["run_delay_ns"] = 0.3 * run.batches["fetch_ns"]
    row = of(looked(run, (100, "Slow", "sleep", 50)), "Slow", "sleep")
    assert row["clock_share"] == pytest.approx(0.5)


def test_clocks_that_were_not_read_contradict_nothing() -> None:
    row = of(looked(slow(cpu=0.0), (100, "Slow", "computing", 50)), "Slow", "computing")
    assert math.isnan(row["clock_share"])  # how long it had no core is not known
    assert not row["contradicted"]


def test_of_batches_that_were_not_all_recorded_shares_alone_are_known() -> None:
    run = slow()
    run.manifest["every"] = 10
    row = of(looked(run, (100, "Slow", "sleep", 50)), "Slow", "sleep")
    assert row["share"] == 1
    assert math.isnan(row["ns"])
    assert math.isnan(row["total_ns"])


def test_at_level_batch_all_but_collate_is_own_code() -> None:
    run = Plan(level="batch", own=10.0, operations={}).run()
    run.ops, run.samples = run.ops.iloc[:0], run.samples.iloc[:0]
    row = of(looked(run, (100, "", "sleep", 50)), "", "sleep")
    assert row["ns"] == pytest.approx(40 * 4 * 10 * MS)


@pytest.mark.parametrize("empty", [True, False])
def test_without_looks_there_is_no_row(empty: bool) -> None:
    run = slow()
    if empty:
        run.blocking = pd.DataFrame(columns=["pid", "worker", "operation", "reason", "looks"])
    assert not len(blocked_time(run, scopes(run)[0]))


def test_the_interval_holds_the_share_of_a_run_of_alternating_calls() -> None:
    """A thread that is blocked and computes in turn, looked at every 20 ms like a real one."""
    generator, run, held = np.random.default_rng(5), slow(), 0
    for _ in range(40):
        lengths = generator.exponential([15.0, 35.0], (400, 2))
        ends = np.cumsum(lengths)
        looks = np.arange(generator.uniform(0, 20), ends[-1], 20.0)
        blocked = int((np.searchsorted(ends, looks) % 2 == 0).sum())
        rows = [(100, "Slow", "sleep", blocked), (100, "Slow", "computing", len(looks) - blocked)]
        row = of(looked(run, *rows), "Slow", "sleep")
        held += row["low"] <= lengths[:, 0].sum() / ends[-1] <= row["high"]
    assert held >= 38  # of 40: 95 %

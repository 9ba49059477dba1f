"""The tables of a report, against numbers that are known beforehand."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.batch_times import batch_table, coverage, order
from lotus.analysis.batches.components import REST
from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.memory_readings import NEVER_READ, READ_ONCE
from lotus.analysis.samples.operation_statistics import (
    fetch_sums,
    has_helpers,
    operation_table,
    worker_time_table,
    workers_time,
)
from lotus.analysis.samples.slow_samples import slowest_samples
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.worker_balance import rank_table, worker_table
from tests.unit.simulated import MS, Plan


def test_operations_have_their_statistics() -> None:
    plan = Plan(operations={"A": lambda sample, _: 1.0 + sample % 4, "B": 0.5}, batches=25)
    table = operation_table(scopes(plan.run())[0]).set_index("operation")
    row = table.loc["A"]
    values = np.array([1, 2, 3, 4] * 25) * MS
    assert table.index.tolist() == ["A", "B"]
    assert row["count"] == 100
    assert row["mean_ns"] == values.mean()
    assert row["std_ns"] == pytest.approx(values.std())
    for name, percent in (("p50", 50), ("p95", 95), ("p99", 99)):
        assert row[f"{name}_ns"] == pytest.approx(np.percentile(values, percent))


def test_the_workers_time_is_shared_out_whole() -> None:
    scope = scopes(Plan(step=8).run())[0]
    table, rest = operation_table(scope), worker_time_table(scope)
    top = table[~table["nested"]]
    assert top["workers_share"].sum() + rest["workers_share"].sum() == pytest.approx(1)
    assert workers_time(scope) == pytest.approx(top["total_ns"].sum() + rest["total_ns"].sum())
    assert rest.set_index("part").loc["idle", "total_ns"] > 0


def test_snapshots_are_a_part_of_the_workers_time_beside_the_fetch() -> None:
    plain, scope = (scopes(Plan(step=1, snapshot=ms).run())[0] for ms in (0.0, 5.0))
    table, rest = operation_table(scope), worker_time_table(scope).set_index("part")["total_ns"]
    assert rest["snapshot of the state"] == 40 * 5 * MS
    assert rest["rest of fetch"] == worker_time_table(plain).set_index("part")["total_ns"][REST]
    assert workers_time(scope) == pytest.approx(table["total_ns"].sum() + rest.sum())


def test_time_between_two_epochs_is_no_idle_time() -> None:
    scope = scopes(Plan(epochs=2, persistent=True).run())[0]
    changed = scope.batches["idle_ns"].where(scope.batches["batch"] > 1, 10**10)
    run = Plan(epochs=2, persistent=True).run()
    run.batches = run.batches.assign(idle_ns=changed)
    idle = worker_time_table(scopes(run)[0]).set_index("part").loc["idle", "total_ns"]
    assert idle < 10**9


def test_the_books_close() -> None:
    table = fetch_sums(scopes(Plan().run())[0])
    assert table["whole"].tolist() == ["sample", "fetch"]
    assert (table["remainder_share"].abs() < 1e-6).all()


def test_the_books_show_what_is_missing() -> None:
    run = Plan().run()
    run.ops = run.ops[run.ops["operation"] != "Normalize"]
    table = fetch_sums(scopes(run)[0]).set_index("whole")
    assert table.loc["sample", "remainder_ns"] == 0.5 * MS * len(run.samples)
    assert table.loc["sample", "remainder_share"] == pytest.approx(0.5 / 2.55)


def test_parts_that_overlap_leave_no_share_below_zero_over() -> None:
    run = Plan().run()
    # As of operations on two threads at once.
    run.ops = run.ops.assign(duration_ns=run.ops["duration_ns"] * 2)
    run.samples = run.samples.assign(self_ns=-1000)
    scope = scopes(run)[0]
    table = fetch_sums(scope).set_index("whole")
    assert table.loc["sample", "remainder_ns"] < 0
    assert table.loc["sample", "remainder_share"] == 0
    assert (worker_time_table(scope)["workers_share"] >= 0).all()


def test_nested_operations_are_counted_once_in_the_books() -> None:
    run = Plan().run()
    inner = run.ops[run.ops["operation"] == "Loader"].assign(operation="Inner", nested=True)
    run.ops = pd.concat([run.ops, inner], ignore_index=True)
    assert (fetch_sums(scopes(run)[0])["remainder_share"].abs() < 1e-6).all()
    table = operation_table(scopes(run)[0]).set_index("operation")
    assert table["nested"].to_dict() == {"Loader": False, "Inner": True, "Normalize": False}


def test_cpu_time_is_shown_where_it_was_recorded() -> None:
    run = Plan().run()
    assert operation_table(scopes(run)[0])["waiting_share"].isna().all()
    run.ops = run.ops.assign(
        cpu_ns=run.ops["duration_ns"] // 4, minor_faults=0, major_faults=1, read_bytes=512
    )
    row = operation_table(scopes(run)[0]).iloc[0]
    assert row["waiting_share"] == pytest.approx(0.75)
    assert row["major_faults"] == row["count"]


def test_time_of_operations_on_a_core_without_one_and_blocked() -> None:
    run = Plan().run()
    wall = run.ops["duration_ns"]
    run.ops = run.ops.assign(
        cpu_ns=wall // 4, minor_faults=0, major_faults=0, read_bytes=0,
        run_delay_ns=wall // 2, process_cpu_ns=wall,
    )  # fmt: skip
    row = operation_table(scopes(run)[0]).iloc[0]
    shares = [row["cpu_ns"] / row["total_ns"], row["run_delay_share"], row["blocked_share"]]
    assert shares == pytest.approx([0.25, 0.5, 0.25])
    assert row["helper_cpu_ns"] == pytest.approx(0.75 * row["total_ns"])
    assert row["helper_share"] == pytest.approx(0.75)
    assert has_helpers(row)
    run.ops["process_cpu_ns"] = run.ops["cpu_ns"] + 5_000  # what the readings take
    assert not has_helpers(operation_table(scopes(run)[0]).iloc[0])
    run.ops.loc[run.ops.index[0], "run_delay_ns"] = np.nan
    table = operation_table(scopes(run)[0]).set_index("operation")
    assert table["run_delay_share"].isna().tolist() == table["blocked_share"].isna().tolist()
    assert table["blocked_share"].isna().sum() == 1  # not known of all of its calls
    assert table["helper_share"].notna().all()


def test_the_slowest_samples_come_with_path_and_operation() -> None:
    plan = Plan(operations={"Loader": lambda s, _: 100.0 + s if s in (5, 77) else 2.0, "B": 1.0})
    table = slowest_samples(scopes(plan.run())[0], 3)
    assert table["sample"].tolist()[:2] == [77, 5]
    assert table["path"][0] == "/data/77.jpg"
    assert table["operation"][0] == "Loader"
    assert table["operation_ns"][0] == 177 * MS
    assert table["batch"][0] == 77 // 4


def test_samples_fetched_many_at_once_are_no_slow_samples() -> None:
    run = Plan().run()
    run.samples = run.samples.assign(many=True)
    assert not len(slowest_samples(scopes(run)[0]))


def test_batches_above_the_threshold_are_counted() -> None:
    plan = Plan(step=6, operations={"Loader": lambda sample, _: 800.0 if sample == 53 else 2.0})
    table = batch_table(scopes(plan.run())[0], 500 * MS).set_index("measure")
    assert table.loc["fetch", "over_share"] == pytest.approx(1 / 40)
    assert table.loc["step", "over_share"] == 0
    assert {"fetch", "collate", "wait", "delay", "step"} <= set(table.index)


def test_order_is_of_what_arrived() -> None:
    run = Plan().run()
    names = ["early", "late", "in turn", "in turn"]
    run.batches = run.batches.assign(
        order=[names[place % 4] for place in run.batches["batch"]],
        out_of_order=run.batches["batch"] % 4 == 0,
    )
    arrivals = order(scopes(run)[0])
    assert arrivals["out_of_order_share"] == 0.25
    assert arrivals["in_turn_share"] == 0.5
    assert np.isnan(order(scopes(Plan(workers=0).run())[0])["early_share"])


def test_workers_are_balanced_against_each_other() -> None:
    plan = Plan(workers=4, operations={"Loader": lambda _, worker: 20.0 if worker == 2 else 2.0})
    scope = scopes(plan.run())[0]
    table = worker_table(scope, account(scope)).set_index("worker")
    assert table["batches"].tolist() == [10] * 4
    assert table["times"].idxmax() == 2
    assert table.loc[2, "idle_share"] < table.loc[0, "idle_share"]
    assert table["startup_ns"].tolist() == [7 * MS] * 4


def test_a_single_worker_is_compared_with_nobody() -> None:
    scope = scopes(Plan(workers=1).run())[0]
    assert worker_table(scope, account(scope))["times"].isna().all()


def test_memory_is_shown_where_it_was_recorded() -> None:
    run = Plan().run()
    run.resources = pd.DataFrame(
        {"rank": 0, "pid": 100, "worker": 0, "time_ns": [1, 2, 3], "pss": [100, 300, 200]}
    )
    scope = scopes(run)[0]
    row = worker_table(scope, account(scope)).iloc[0]
    assert (row["pss_bytes"], row["growth_bytes"]) == (300, 100)
    assert row["growth_reason"] == ""


def test_memory_that_was_read_once_has_not_grown_by_0() -> None:
    run = Plan().run()
    # Two processes of worker 0 were read once each; of a third reading the kernel told nothing.
    run.resources = pd.DataFrame(
        {"rank": 0, "pid": [100, 101, 101], "worker": 0, "time_ns": [1, 2, 3], "pss": [50, 300, 0]}
    )
    scope = scopes(run)[0]
    table = worker_table(scope, account(scope)).set_index("worker")
    assert table.loc[0, "pss_bytes"] == 300
    assert np.isnan(table.loc[0, "growth_bytes"])
    assert table["growth_reason"].tolist() == [READ_ONCE, NEVER_READ]


def test_of_one_value_no_deviation_is_known() -> None:
    row = operation_table(scopes(Plan(batches=1, batch_size=1).run())[0]).iloc[0]
    assert row["count"] == 1
    assert np.isnan(row["std_ns"])


def test_ranks_have_their_own_throughput() -> None:
    scope = scopes(Plan(epochs=2).run())[0]
    row = rank_table(scope, account(scope)).iloc[0]
    assert row["samples"] == 320
    assert row["samples_per_s"] == pytest.approx(320 / row["loop_ns"] * 1e9)
    assert row["wait_share"] + row["step_share"] == pytest.approx(1)


def test_batches_made_but_never_taken_are_told() -> None:
    run = Plan().run()
    taken = ["wait_start_ns", "wait_ns", "taken_ns", "step_ns"]
    run.batches[taken] = run.batches[taken].astype("float64")
    run.batches.loc[run.batches["batch"] >= 38, taken] = np.nan
    run.waits = run.waits[run.waits["batch"] < 38]
    table = coverage(scopes(run)[0])
    assert (table["batches_taken"], table["batches_made"], table["made_never_taken"]) == (38, 40, 2)


def test_the_loader_with_the_most_samples_comes_first() -> None:
    run, other = Plan(batches=4).run(), Plan(batches=20, loader=1).run()
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        both = [getattr(run, name), getattr(other, name)]
        setattr(run, name, pd.concat(both, ignore_index=True))
    assert [loader.scope.loader for loader in summarise(run).loaders] == [1, 0]
    assert [loader.times["batches"] for loader in summarise(run).loaders] == [20, 4]


def test_the_end_of_an_iterable_data_set_is_no_batch() -> None:
    run = Plan().run()
    taken = ["wait_start_ns", "wait_ns", "taken_ns", "step_ns"]
    run.batches[taken] = run.batches[taken].astype("float64")
    run.batches.loc[39, taken] = np.nan
    run.batches.loc[39, "flags"] = 4
    run.waits = run.waits[run.waits["batch"] < 39]
    table = coverage(scopes(run)[0])
    assert (table["batches_made"], table["made_never_taken"]) == (39, 0)


def test_a_batch_whose_making_was_not_recorded_counts_its_samples() -> None:
    run = Plan().run()
    run.batches["size"] = run.batches["size"].where(run.batches["batch"] % 10 == 0)
    scope = scopes(run)[0]
    assert rank_table(scope, account(scope))["samples"].tolist() == [160]


@pytest.mark.parametrize(("level", "wholes"), [("sample", ["fetch"]), ("batch", [])])
def test_lower_levels_have_the_books_that_can_be_kept(level: str, wholes: list[str]) -> None:
    run = Plan(level=level).run()
    run.ops = run.ops.iloc[:0]
    run.samples = run.samples.assign(self_ns=np.nan, ops_ns=np.nan)
    if level == "batch":
        run.samples = run.samples.iloc[:0]
    scope = scopes(run)[0]
    assert fetch_sums(scope)["whole"].tolist() == wholes
    assert worker_time_table(scope)["workers_share"].sum() == pytest.approx(1)


def test_thousands_of_loaders_are_counted_and_the_largest_shown() -> None:
    run = Plan(batches=2, workers=0).run()
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        frame = getattr(run, name)
        many = [frame.assign(loader=loader) for loader in range(40)] if len(frame) else [frame]
        setattr(run, name, pd.concat(many, ignore_index=True))
    summary = summarise(run)
    assert len(summary.loaders) == 32
    assert summary.loaders_left_out == 8
    assert 39 in [loader.scope.loader for loader in summarise(run, loader=39).loaders]

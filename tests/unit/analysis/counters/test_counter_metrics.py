"""Counters per operation: sums that add up to the fetch, and metrics from them."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.counters.counter_metrics import (
    REST,
    counter_table,
    events_of,
    helper_share,
    turn_shares,
)


def rows(*values):
    """(kind, operation, nested, duration, cycles, instructions) of one batch."""
    names = ["kind", "operation", "nested", "duration_ns", "cycles", "instructions"]
    table = pd.DataFrame(values, columns=names)
    constant = {"rank": 0, "local_rank": -1, "world_size": 1, "host": "a", "pid": 5, "tid": 5}
    constant |= {"worker": 0, "loader": 0, "epoch": 0, "batch": 0, "row": -1, "start_ns": 0}
    constant |= {"readings": 1, "enabled_ns": 10, "running_ns": 10, "scaled": False}
    table = table.assign(**constant, helper_ns=np.where(table["kind"] == "fetch", 50.0, np.nan))
    return table.astype({"cycles": float, "instructions": float})


BATCH = (
    ("operation", "Decode", False, 60, 600, 1200),
    ("operation", "Inner", True, 20, 200, 100),
    ("operation", "Flip", False, 10, 100, 400),
    ("collate", "", False, 5, 50, 5),
    ("fetch", "", False, 100, 1000, 1800),
)


def test_the_rows_that_are_not_nested_add_up_to_the_fetch():
    counters = rows(*BATCH)
    assert events_of(counters) == ["cycles", "instructions"]
    table = counter_table(counters, "generic").set_index("operation")
    assert table.index.tolist() == ["Decode", "Inner", "Flip", "collate", REST]
    assert table.loc[REST, ["cycles", "instructions", "total_ns"]].tolist() == [250, 195, 25]
    outer = table[~table["nested"]]
    assert outer["cycles"].sum() == 1000
    assert outer["total_ns"].sum() == 100
    assert table["ipc"]["Decode"] == 2.0
    assert table["ipc"]["collate"] == pytest.approx(0.1)


def test_what_was_not_counted_is_told_and_not_zero():
    counters = rows(*BATCH)
    counters.loc[0, ["cycles", "instructions"]] = np.nan
    table = counter_table(counters, "generic").set_index("operation")
    assert table["counted"].to_dict() == {
        "Decode": 0, "Inner": 1, "Flip": 1, "collate": 1, REST: 0
    }  # fmt: skip
    assert np.isnan(table["cycles"]["Decode"])
    assert np.isnan(table["cycles"][REST])  # a part of it is missing
    assert table["cycles"]["Flip"] == 100


def test_a_metric_whose_events_were_not_counted_is_absent():
    table = counter_table(rows(*BATCH).drop(columns="instructions"), "amd_zen5")
    assert "ipc" not in table.columns
    assert "frontend_bound" not in table.columns
    counters = rows(*BATCH).assign(slots_frontend=0.0)
    counters["slots_frontend"] = counters["cycles"] * 2  # of 8 slots a cycle
    table = counter_table(counters, "amd_zen5").set_index("operation")
    assert table["frontend_bound"].tolist() == pytest.approx([0.25] * 5)


def test_shared_counters_show_their_share_of_the_time():
    counters = rows(*BATCH)
    counters.loc[0, "running_ns"] = 5
    table = counter_table(counters, "generic").set_index("operation")
    assert table["running_share"].to_dict() == {
        "Decode": 0.5, "Inner": 1, "Flip": 1, "collate": 1, REST: 1
    }  # fmt: skip


def test_groups_that_take_turns_by_batch_give_each_ratio_of_their_own_batches():
    """GIVEN batches that count two groups in turns, the second ones twice as long
    THEN sums are scaled to all batches by cycles, ratios to cycles are those of the group's own
    batches, and the share of intervals that the rarer group has is told."""
    first = rows(*BATCH).assign(batch=0, slots_frontend=0.0, branch_misses=np.nan)
    first["slots_frontend"] = first["cycles"] * 2
    second = rows(*BATCH).assign(batch=1, slots_frontend=np.nan, branch_misses=0.0)
    second[["cycles", "instructions"]] *= 2
    second["branch_misses"] = second["cycles"] / 10
    metrics = counter_table(pd.concat([first, second], ignore_index=True), "amd_zen5")
    table = metrics.set_index("operation")
    assert table["counted"].tolist() == [2] * 5
    assert table["turn_share"].tolist() == [0.5] * 5
    assert table["cycles"]["Decode"] == 600 + 1200
    assert table["slots_frontend"]["Decode"] == pytest.approx(2 * 1800)
    assert table["branch_misses"]["Decode"] == pytest.approx(180)
    assert table["frontend_bound"].tolist() == pytest.approx([0.25] * 5)


def test_each_group_tells_in_what_share_of_batches_it_was_counted():
    batches = [rows(*BATCH).assign(batch=number, latency=1.0, waits=1.0) for number in range(4)]
    for number, counters in enumerate(batches):
        counters[["waits"] if number == 0 else ["latency"]] = np.nan
    assert turn_shares(pd.concat(batches)) == [(["latency"], 0.25), (["waits"], 0.75)]
    assert turn_shares(rows(*BATCH)) == []
    assert turn_shares(rows()) == []


def test_no_counters_no_rows():
    assert counter_table(rows(), "generic").empty


def test_helper_threads_are_a_share_of_all_cpu_time():
    counters = rows(*BATCH)
    assert np.isnan(helper_share(counters))
    counters["task_clock"] = np.where(counters["kind"] == "fetch", 150.0, 0.0)
    assert helper_share(counters) == 0.25

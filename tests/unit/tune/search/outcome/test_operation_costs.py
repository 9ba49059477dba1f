"""What operations cost in the workers of each setting, and the words for it."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.counters.counter_metrics import REST
from lotus.settings.space import Setting
from lotus.tune.search.outcome.operation_costs import operation_costs, words
from tests.unit.analysis.counters.test_counter_metrics import rows


def ops(*values):
    """(pid, batch, operation, nested, wall ms, CPU ms)"""
    table = pd.DataFrame(
        values, columns=["pid", "batch", "operation", "nested", "duration_ns", "cpu_ns"]
    )
    table[["duration_ns", "cpu_ns"]] *= 1_000_000
    return table.assign(loader=0, epoch=0)


FEWER, TWO = Setting(1), Setting(2)
OPS = ops(
    (7, 0, "Loader", False, 30, 10),
    (7, 0, "inside", True, 5, 5),
    (7, 0, "Flip", False, 10, 10),
    (7, 1, "Loader", False, 50, 20),
    (7, 1, "Flip", False, 10, 10),
    (8, 0, "Loader", False, 50, 30),
    (8, 0, "Flip", False, 10, 10),
    (9, 1, "Loader", False, 50, 30),
    (9, 1, "Flip", False, 10, 10),
    (66, 0, "Loader", False, 999, 999),
)
BATCHES = pd.DataFrame(
    # of 8 and 9 a batch of one each; 5 was not fetched
    [(7, 60, 20), (7, 60, 40), (8, 60, 40), (9, 60, 40), (7, float("nan"), float("nan"))],
    columns=["pid", "fetch_ns", "cpu_ns"],
) * [1, 1e6, 1e6]
SPENT = (
    "a worker's time goes to decode (default_loader) (67%), Flip (17%), the data set's "
    "own code with collate (17%)"
)
WORKERS = {TWO: (8, 9), FEWER: (7,), Setting(3): (99,)}


def run(counters=None):
    return SimpleNamespace(
        ops=OPS, batches=BATCHES, counters=rows() if counters is None else counters
    )


def test_costs_are_those_of_a_batch_in_the_workers_of_each_setting():
    costs = operation_costs(run(), WORKERS)
    table = costs[["workers", "operation", "batches", "time_ms", "cpu_ms"]].to_numpy().tolist()
    assert table == [
        [1, "Loader", 2, 40, 15],
        [1, "Flip", 2, 10, 10],
        [1, REST, 2, 10, 5],
        [2, "Loader", 2, 50, 30],
        [2, "Flip", 2, 10, 10],
        [2, REST, 2, 0, 0],
    ]
    assert costs["share"].tolist()[:3] == pytest.approx([4 / 6, 1 / 6, 1 / 6])


def test_words_say_where_time_goes_what_waits_and_what_grows():
    lines = words(operation_costs(run(), WORKERS))
    assert lines[0] == SPENT
    assert lines[1].startswith("decode (default_loader) is off the CPU for 62% of its time")
    assert "with 2 workers instead of 1 the" in lines[2]
    assert "decode (default_loader) 2.00 times:" in lines[2]
    assert "Flip" not in lines[2]
    assert len(lines) == 3


def test_cycles_per_instruction_stand_beside_the_growth():
    first = rows(("operation", "Loader", False, 30, 100, 200)).assign(pid=7)
    two = rows(("operation", "Loader", False, 30, 180, 200)).assign(pid=8)
    costs = operation_costs(run(pd.concat([first, two])), WORKERS)
    assert costs["ipc"].dropna().tolist() == pytest.approx([2.0, 200 / 180])
    assert (
        "decode (default_loader) 2.00 times (its cycles per instruction 1.80 times)"
        in words(costs)[2]
    )


def test_without_cpu_times_or_trials_nothing_is_said_of_them():
    plain = run()
    plain.ops, plain.batches = (t.drop(columns="cpu_ns") for t in (plain.ops, plain.batches))
    assert words(operation_costs(plain, WORKERS)) == [SPENT]
    none = operation_costs(run(), {})
    assert none.empty
    assert words(none) == []

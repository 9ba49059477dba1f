"""Exact counts: readings of the counters become counts of intervals."""

import numpy as np
import pytest

import lotus
from tests.logs import MS, START_NS, ProcessLog, RunBuilder, Sample

AT = START_NS + 10 * MS


def reading(*counts, enabled=None, running=None):
    """A group's reading in which it ran all the time, unless told otherwise."""
    enabled = 1000 if enabled is None else enabled
    return (len(counts), enabled, enabled if running is None else running, *counts)


def one_batch(main: ProcessLog, readings, edges, collate=(0, 0), samples=None, **fixed) -> None:
    main.counts(AT, readings, edges, collate, **fixed)
    plain = [Sample(7, 100, [("Decode", 60), ("Flip", 30)])]
    main.batch(0, start_ns=AT, samples=samples or plain, collate_ns=20)


@pytest.fixture
def builder(tmp_path):
    return RunBuilder(tmp_path / "run")


def table(builder, main):
    counters = lotus.load(builder.end()).counters
    named = counters["operation"].astype(str).where(counters["kind"] == "operation", "")
    return counters.assign(name=named + counters["kind"].astype(str).where(named == "", ""))


def test_counts_are_differences_of_readings_less_what_reading_costs(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 7, "instructions": 11})
    readings = [
        reading(1000, 5000),  # fetch
        reading(1107, 5211),  # Decode
        reading(1200, 5400),  # the end of Decode and the start of Flip
        reading(1500, 5900),  # Flip; collate
        reading(1600, 6000),  # collate; fetch
    ]
    one_batch(main, readings, [(1, 2), (2, 3)], (3, 4), helper_ns=42)
    counts = table(builder, main).set_index("name")
    assert counts["cycles"].to_dict() == {
        "Decode": 93 - 7, "Flip": 300 - 7, "fetch": 600 - 4 * 7, "collate": 100 - 7
    }  # fmt: skip
    assert counts["instructions"].to_dict() == {
        "Decode": 189 - 11, "Flip": 500 - 11, "fetch": 1000 - 4 * 11, "collate": 100 - 11
    }  # fmt: skip
    assert counts["readings"].to_dict() == {"Decode": 1, "Flip": 1, "fetch": 4, "collate": 1}
    assert not counts["scaled"].any()
    assert counts["helper_ns"].dropna().to_dict() == {"fetch": 42}
    assert counts["row"].to_dict() == {"Decode": 0, "Flip": 1, "fetch": -1, "collate": -1}
    assert counts["duration_ns"].to_dict() == {
        "Decode": 60, "Flip": 30, "fetch": 120, "collate": 20
    }  # fmt: skip


def test_shared_counters_are_scaled_and_marked(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    readings = [
        reading(0, enabled=0),
        reading(100, enabled=100, running=50),  # half of the time
        reading(100, enabled=200, running=50),  # not at all: unknown, not zero
        reading(150, enabled=250, running=100),
    ]
    one_batch(main, readings, [(0, 1), (1, 2)])
    counts = table(builder, main).set_index("name")
    assert counts["scaled"].to_dict() == {"Decode": True, "Flip": True, "fetch": True}
    assert counts["cycles"]["Decode"] == 200
    assert np.isnan(counts["cycles"]["Flip"])
    assert counts["cycles"]["fetch"] == 150 * 250 / 100
    assert counts["running_ns"].to_dict() == {"Decode": 50, "Flip": 0, "fetch": 100}


def test_groups_are_scaled_each_by_its_own_time(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 1, "instructions": 2}, {"misses": 3})
    readings = [
        (*reading(0, 0, enabled=0), *reading(0, enabled=0)),
        (*reading(11, 22, enabled=100, running=50), *reading(33, enabled=100, running=25)),
        (*reading(21, 42, enabled=200, running=150), *reading(43, enabled=200, running=125)),
    ]
    one_batch(main, readings, [(0, 1), (1, 2)])
    counts = table(builder, main).set_index("name")
    # A reading outside a group's turn cost it nothing: its cost is taken off what was scaled up.
    assert counts.loc["Decode", ["cycles", "instructions", "misses"]].tolist() == [21, 42, 129]
    assert counts.loc["Flip", ["cycles", "instructions", "misses"]].tolist() == [9, 18, 7]
    # What is told of both is of the one that ran least.
    assert counts.loc["Decode", ["enabled_ns", "running_ns"]].tolist() == [100, 25]


def test_a_reading_that_could_not_be_made_counts_nothing(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    readings = [reading(0), (0, 0, 0, 0), reading(30), reading(70)]
    one_batch(main, readings, [(0, 1), (2, 3)])
    cycles = table(builder, main).set_index("name")["cycles"]
    assert np.isnan(cycles["Decode"])
    assert cycles["Flip"] == 40
    assert cycles["fetch"] == 70


def test_operations_that_do_not_match_their_edges_are_not_counted(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    one_batch(main, [reading(0), reading(30)], [(0, 1)])  # two operations, one counted
    assert table(builder, main)["name"].tolist() == ["fetch"]


def test_edges_outside_of_the_readings_have_no_counts(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    one_batch(main, [reading(0), reading(30)], [(0, 9), (1, 0)])
    cycles = table(builder, main).set_index("name")["cycles"]
    assert np.isnan(cycles["Decode"])
    assert np.isnan(cycles["Flip"])
    assert cycles["fetch"] == 30


def test_rows_of_operations_go_over_processes_and_batches(builder):
    main = builder.process(pid=100)
    main.batch(0, start_ns=START_NS, samples=[Sample(1, 50, [("Decode", 5), ("Decode", 6)])])
    one_batch(main, [reading(0), reading(30), reading(70)], [(0, 1), (1, 2)])
    main.counters({"cycles": 0})
    other = builder.process(pid=200, start_ns=START_NS + 1)
    other.counters({"misses": 0})
    one_batch(other, [reading(0), reading(1), reading(2)], [(0, 1), (1, 2)])
    run = lotus.load(builder.end())
    counters = run.counters
    ops = counters[counters["kind"] == "operation"]
    assert ops["row"].tolist() == [2, 3, 4, 5]
    taken = run.ops.iloc[ops["row"]]
    assert taken["operation"].tolist() == ops["operation"].tolist()
    assert taken["start_ns"].tolist() == ops["start_ns"].tolist()
    assert taken["pid"].tolist() == ops["pid"].tolist()
    # What a process did not count is missing, not zero.
    assert ops["cycles"].isna().tolist() == [False, False, True, True]
    assert ops["misses"].isna().tolist() == [True, True, False, False]


def test_a_run_without_counters_has_an_empty_table(builder):
    main = builder.process(pid=100)
    main.batch(0, start_ns=AT, samples=[Sample(1, 50, [("Decode", 5)])])
    run = lotus.load(builder.end())
    assert run.counters.empty
    assert {"kind", "operation", "row", "helper_ns"} <= set(run.counters.columns)
    assert run.exact.columns.tolist() == ["scaled"]
    assert len(run.exact) == len(run.intervals) == 2


def test_intervals_carry_their_exact_counts(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    readings = [reading(0), reading(10), reading(30), reading(60), reading(100)]
    one_batch(main, readings, [(1, 2), (2, 3)], (3, 4))
    main.wait(0, 0, 0, start_ns=AT - 5, end_ns=AT + 200)
    run = lotus.load(builder.end())
    whole = run.intervals.assign(cycles=run.exact["cycles"])
    by_kind = whole.set_index(whole["kind"].astype(str) + ":" + whole["operation"].astype(str))
    assert by_kind["cycles"].dropna().to_dict() == {
        "operation:Decode": 20, "operation:Flip": 30, "collate:": 40, "fetch:": 100
    }  # fmt: skip
    wait = by_kind.loc["wait:"]
    assert (wait["start_ns"], wait["end_ns"]) == (AT - 5, AT + 200)

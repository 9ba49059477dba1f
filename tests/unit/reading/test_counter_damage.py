"""Damaged and hostile counts: no crash, no memory without end, and nothing left out in silence."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lotus
from tests.logs import MS, START_NS, RunBuilder, Sample

AT = START_NS + 10 * MS
BATCH = "counts of a batch that cannot be used"
EDGES = "counts that do not match their operations"
UNCOUNTED = 0xFFFFFFFF
SAMPLES = (Sample(7, 100, [("Decode", 60), ("Flip", 30)]),)


def reading(count, enabled=1000):
    return (1, enabled, enabled, count)


GOOD = [reading(0), reading(30), reading(70)]
PLACES = [(0, 1), (1, 2)]


@pytest.fixture
def builder(tmp_path):
    return RunBuilder(tmp_path / "run")


def lost(run):
    return dict(zip(run.lost["what"], run.lost["count"], strict=True))


def counted(builder, *frames, events=({"cycles": 0},)):
    """A run of one batch with these COUNTS frames: (readings, edges, collate, fixed)."""
    main = builder.process(pid=100)
    if events:
        main.counters(*events)
    for readings, edges, collate, fixed in frames:
        main.counts(fixed.pop("start", AT), readings, edges, collate, **fixed)
    main.batch(0, start_ns=AT, samples=list(SAMPLES), collate_ns=20)
    return lotus.load(builder.end())


def cycles(run):
    table = run.counters
    names = table["operation"].astype(str).where(table["kind"] == "operation", table["kind"])
    return dict(zip(names, table["cycles"], strict=True))


def test_whole_counts_lose_nothing(builder):
    run = counted(builder, (GOOD, PLACES, (1, 2), {}))
    assert lost(run) == {}
    assert cycles(run) == {"Decode": 30, "Flip": 40, "fetch": 70, "collate": 40}


@pytest.mark.parametrize(
    "fixed", [{"start": AT + 1}, {"tid": 101}, {"words": 5}, {"words": 0}], ids=str
)
def test_counts_that_fit_no_batch_or_no_reading_are_told(builder, fixed):
    run = counted(builder, (GOOD, PLACES, (0, 0), dict(fixed)))
    assert lost(run) == {BATCH: 1}
    assert run.counters.empty


def test_counts_without_the_description_of_their_events_are_told(builder):
    run = counted(builder, (GOOD, PLACES, (0, 0), {}), events=())
    assert lost(run) == {BATCH: 1}
    assert run.counters.empty


def test_counts_of_the_same_batch_count_once(builder):
    run = counted(builder, (GOOD, PLACES, (0, 0), {}), (GOOD, PLACES, (0, 0), {}))
    assert lost(run) == {BATCH: 1}
    assert len(run.counters) == 3


def test_edges_of_other_operations_are_told(builder):
    run = counted(builder, (GOOD, [(0, 1)], (0, 0), {}))
    assert lost(run) == {EDGES: 2}
    assert cycles(run) == {"fetch": 70}


@pytest.mark.parametrize("place", [3, 1 << 31, UNCOUNTED])
def test_readings_that_are_not_there_make_no_number(builder, place):
    run = counted(builder, (GOOD, [(0, place), (place, place)], (place, place), {}))
    counts = cycles(run)
    assert counts.pop("fetch") == 70
    assert set(counts) == {"Decode", "Flip", "collate"}
    assert np.isnan(list(counts.values())).all()
    assert not run.counters["scaled"].any()
    assert (run.counters["enabled_ns"] >= 0).all()
    assert run.exact["cycles"].isna().sum() == len(run.exact) - 1


def test_counters_that_run_backwards_make_no_number(builder):
    readings = [reading(50), reading(30), reading(2**64 - 1)]
    run = counted(builder, (readings, PLACES, (0, 0), {}))
    assert all(np.isnan(count) for count in cycles(run).values())


def test_a_reading_of_another_group_makes_no_number(builder):
    readings = [reading(0), (2, 1000, 1000, 30), reading(70)]
    counts = cycles(counted(builder, (readings, PLACES, (0, 0), {})))
    assert np.isnan([counts["Decode"], counts["Flip"]]).all()
    assert counts["fetch"] == 70


@pytest.mark.parametrize(
    "cost", [10**400, float("nan"), float("inf"), "7", None, True, [1]], ids=repr
)
def test_a_cost_that_is_no_number_costs_nothing(builder, cost):
    run = counted(builder, (GOOD, PLACES, (0, 0), {}), events=({"cycles": cost},))
    assert cycles(run)["fetch"] == 70


@pytest.mark.parametrize(
    "name", ["kind", "row", "scaled", "pid", "", "x" * 1000, "\x1b[31m"], ids=repr
)
def test_an_event_cannot_take_the_name_of_a_column(builder, name):
    run = counted(builder, (GOOD, PLACES, (0, 0), {}), events=({name: 0},))
    assert lost(run) == {BATCH: 1}
    assert run.counters.empty
    assert run.exact.columns.tolist() == ["scaled"]


def test_more_events_than_anybody_counts_are_damage(builder):
    names = {f"e{number}": 0 for number in range(5000)}
    run = counted(builder, ([(0,) * 5003], [(0, 0)] * 2, (0, 0), {}), events=(names,))
    assert lost(run) == {BATCH: 1}
    assert run.counters.empty


def test_events_that_are_told_again_with_other_names_add_no_columns(builder):
    main = builder.process(pid=100)
    main.counters({"cycles": 0})
    for number in range(300):
        main.counters({f"e{number}": 0})
    main.counts(AT, GOOD, PLACES)
    main.batch(0, start_ns=AT, samples=list(SAMPLES))
    run = lotus.load(builder.end())
    assert "e0" not in run.counters
    assert cycles(run)["fetch"] == 70


WORD = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
PLACE = st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    readings=st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=1, max_size=4),
    edges=st.lists(st.tuples(PLACE, PLACE), max_size=3),
    collate=st.tuples(PLACE, PLACE),
    helper=st.integers(0, 2**64 - 1),
)
def test_whatever_a_frame_holds_its_counts_are_told_or_in_the_table(
    tmp_path_factory, readings, edges, collate, helper
):
    builder = RunBuilder(tmp_path_factory.mktemp("run") / "R")
    run = counted(builder, (readings, edges, collate, {"helper_ns": helper}))
    table = run.counters
    assert (table["kind"] == "fetch").sum() == 1
    assert (table["kind"] == "operation").sum() == (2 if len(edges) == 2 else 0)
    assert lost(run) == ({} if len(edges) == 2 else {EDGES: max(2, len(edges))})
    assert (table["kind"] == "collate").sum() == (collate[1] > 0)
    assert len(run.exact) == len(run.intervals)

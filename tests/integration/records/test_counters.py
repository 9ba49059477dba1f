"""`lotus trace --counters`: the program is as without it, and the counts are what it knows."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from lotus.inside.common import perf_event
from lotus.recording import measurement_plan
from tests.integration.called import called
from tests.integration.conftest import ROOT
from tests.integration.records.shapes import IN_ORDER, forked

SOFTWARE = ("task_clock", "page_faults", "context_switches")
COUNTERS = ("--counters", ",".join(SOFTWARE))
# Ours among the program's descriptors: high numbers, and nothing else is a perf event.
OURS = re.compile(r"(, )?\([5-9]\d\d, 'anon_inode:\[perf_event\]'\)")


@pytest.fixture(scope="session")
def counted():
    """The events that the kernel lets us count; skips where there is none."""
    plan = measurement_plan.plan(COUNTERS[1])
    if plan.counters is None:
        pytest.skip(f"nothing can be counted here: {'; '.join(plan.notes)}")
    return [event.name for group in perf_event.parse_groups(plan.counters) for event in group]


def need(counted, event):
    if event not in counted:
        pytest.skip(f"{event} cannot be counted here")


def sections(out):
    parts = re.split(r"^== (\w+)\n", OURS.sub("", out.decode()), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("shape", [*IN_ORDER, "forkserver", "unordered", "kept"])
def test_batches_random_state_files_and_threads(pair, torch, shape):
    """Every bit of every batch, and afterwards random state, descriptors, threads, children."""
    if shape == "unordered" and torch < (2, 6):
        pytest.skip("in_order came with torch 2.6")
    options = (*COUNTERS, "--level", "op" if shape == "forkserver" else "op+cpu")
    shapes = [shape] if shape == "forkserver" else forked(torch)
    plain, traced = pair("shapes.py", *shapes, options=options)
    assert (plain.code, plain.err) == (0, b"")
    assert (traced.code, traced.err) == (0, b"")
    without, with_lotus = sections(plain.out), sections(traced.out)
    assert len(without[shape].splitlines()) >= 5
    assert with_lotus[shape].splitlines() == without[shape].splitlines()


def test_every_kind_of_pipeline(pair, torch, counted):
    plain, traced = pair("transforms/pipelines.py", "1", options=COUNTERS)
    assert (traced.code, traced.out, traced.err) == (0, plain.out, b"")
    counters = traced.run.counters
    # Each operation that is in the table of times is counted, and with it the one around it.
    ops = traced.run.ops
    rows = counters[counters["kind"] == "operation"]
    assert sorted(rows["row"]) == ops.index[ops["position"] >= 0].tolist()
    outer = rows.set_index("row")["task_clock"] if "task_clock" in counted else None
    if outer is None:
        return
    inner = rows[rows["nested"]].assign(
        around=lambda table: [around(ops, row) for row in table["row"]]
    )
    assert len(inner)
    sums = inner.groupby("around")["task_clock"].sum()
    # To what the clock of a reading is off from another.
    assert (sums <= outer.reindex(sums.index) + 50_000 * inner.groupby("around").size()).all()


def around(ops, row):
    """The row of the operation that most closely holds this one."""
    mine = ops.loc[row]
    same = ops[(ops["tid"] == mine["tid"]) & (ops["start_ns"] <= mine["start_ns"])]
    ends = same["start_ns"] + same["duration_ns"]
    holds = same[ends >= mine["start_ns"] + mine["duration_ns"]].drop(index=row)
    return holds["duration_ns"].idxmin()


@pytest.mark.parametrize("cases", [("op.0", "nested.0", "chain.0", "iterable.0", "interrupt.0"),
                                   ("op.1", "collate.1", "iterable.1", "killed.1")])  # fmt: skip
def test_failures_look_the_same(pair, torch, cases):
    """Exceptions, their lines, and what a killed worker leads to."""
    plain, traced = pair("failures.py", *cases, options=COUNTERS)
    assert (traced.code, traced.out) == (plain.code, plain.out)
    without, with_lotus = (re.sub(rb"pid(\(s\))? \d+", b"", ended.err) for ended in (plain, traced))
    assert with_lotus == without
    assert without.count(b"== ") == len(cases)


WAYS = [("0", "single"), ("2", "fork"), ("1", "spawn"), ("1", "forkserver"), ("2", "persistent"),
        ("0", "iterable"), ("1", "iterable")]  # fmt: skip


@pytest.fixture(scope="module")
def every_way(pair, torch, counted):
    """programs/counted/counted.py with a loader for each of WAYS."""
    plain, traced = pair(
        "counted/counted.py", *(word for way in WAYS for word in way), options=COUNTERS
    )
    assert plain.code == traced.code == 0
    assert traced.out == plain.out
    for ended in (plain, traced):
        assert ended.err == b""
    return traced


@pytest.fixture(params=range(len(WAYS)), ids=lambda number: "-".join(WAYS[number]))
def known(request, every_way):
    """(truth, run.counters with `sample`, run) of a loader of programs/counted/counted.py."""
    columns = ["loader", "epoch", "pid", "sample", "operation"]
    columns += ["cpu_ns", "faults", "switches", "helped"]
    truth = pd.DataFrame(json.loads(every_way.truth.read_text()), columns=columns)
    truth = truth[truth["loader"] == request.param].drop(columns="loader")
    run = every_way.run
    assert len(run.loaders) == len(WAYS)
    counters = run.counters[run.counters["loader"] == request.param]
    rows = counters[counters["kind"] == "operation"]
    # Operations of one name and one process in the order in which they ran, on either side.
    rows = rows.assign(operation=rows["operation"].astype(str))
    rows = rows.sort_values("start_ns", kind="stable")
    keys = ["pid", "operation"]
    both = truth.assign(turn=truth.groupby(keys).cumcount()).merge(
        rows.assign(turn=rows.groupby(keys).cumcount()), on=[*keys, "turn"], suffixes=("_told", "")
    )
    assert len(both) == len(truth) == len(rows)
    return both, counters, run


def test_rows_are_those_of_the_operations(known):
    both, counters, run = known
    ops = run.ops.loc[both["row"]]
    for column in ("start_ns", "duration_ns", "pid", "tid", "batch", "epoch", "worker"):
        assert ops[column].tolist() == both[column].tolist()
    assert ops["operation"].astype(str).tolist() == both["operation"].tolist()
    exact = run.exact
    where = run.intervals[run.intervals["kind"] == "operation"]
    for event in set(SOFTWARE) & set(exact.columns):
        by_row = exact[event].to_numpy()[where.index[where["row"].isin(both["row"])]]
        assert np.isfinite(by_row).all()
    assert not counters["scaled"].any()
    assert run.unseen == []


def test_cpu_time_is_what_the_operations_know(known, counted):
    """At least what each measured within itself, at most the time between its readings."""
    need(counted, "task_clock")
    both, _, _ = known
    names = ["task_clock", "cpu_ns", "duration_ns", "switches"]
    sums = both.groupby("operation")[names].sum()
    # The kernel's accounting of a thread goes on while it is switched; its counters do not.
    least = 0.97 * sums["cpu_ns"] - 50_000 * sums["switches"]
    assert (sums["task_clock"] >= least).all()
    # A reading begins before the operation's own clock does and ends after it.
    assert (sums["task_clock"] <= 1.03 * sums["duration_ns"] + 20_000 * len(both)).all()
    # Neither a thread's nor a child's time is the thread's own.
    pool = both[both["operation"] == "Pool"]
    assert pool["helped"].min() >= 6_000_000
    fork = both[both["operation"] == "Fork"]
    assert (fork["helped"] == 7 << 8).all()  # how the children ended
    # A child's 20 ms are not in it, whatever a fork itself takes here.
    assert (fork["task_clock"] - fork["cpu_ns"]).median() < 10_000_000


def test_page_faults_are_at_least_the_pages(known, counted):
    need(counted, "page_faults")
    both, _, _ = known
    assert (both["page_faults"] >= both["faults"]).all()
    touched = both[both["operation"] == "Touch"]
    assert (touched["page_faults"] >= 64).all()
    # Nearly all of them happen within what the operation itself looks at.
    assert touched["page_faults"].median() <= touched["faults"].median() + 32


def test_context_switches_of_what_sleeps(known, counted):
    need(counted, "context_switches")
    both, _, _ = known
    assert (both["context_switches"] >= both["switches"]).all()
    assert (both.loc[both["operation"] == "Sleep", "context_switches"] >= 1).all()


def test_a_fetch_is_its_operations_collate_and_the_rest(known, counted):
    from lotus.analysis.counters.counter_metrics import counter_table

    _, counters, _ = known
    table = counter_table(counters, "generic")
    fetches = counters[counters["kind"] == "fetch"]
    assert (table["counted"] == table["intervals"]).all()
    for event in counted:
        assert table[event].sum() == pytest.approx(fetches[event].sum())
        rest = table.loc[table["kind"] == "fetch", event].item()
        assert rest >= -0.02 * abs(fetches[event].sum()) - 20


def test_threads_that_an_operation_starts_are_the_helper_share(known):
    both, counters, _ = known
    keys = ["pid", "epoch", "batch"]
    helped = both[both["operation"] == "Pool"].groupby(keys)["helped"].sum()
    seen = counters[counters["kind"] == "fetch"].set_index(keys)["helper_ns"]
    seen = seen.reindex(helped.index)
    # What a thread ran on another core since the last tick is missing while it is still ending.
    assert (seen >= 0.6 * helped).all()
    assert seen.sum() >= 0.85 * helped.sum()
    others = counters[counters["kind"] != "fetch"]
    assert others["helper_ns"].isna().all()


@pytest.mark.parametrize(
    ("options", "batches"), [(("--batches", "2:5"), [2, 3, 4]), (("--every", "3"), [0, 3, 6])]
)
def test_only_batches_that_are_looked_at_are_counted(pair, torch, counted, options, batches):
    plain, traced = pair("plain.py", options=(*COUNTERS, *options))
    assert (traced.code, traced.out, traced.err) == (0, plain.out, b"")
    counters = traced.run.counters
    assert sorted(counters["batch"].unique()) == batches
    assert counters.groupby("batch").size().tolist() == [8 * 2 + 2] * len(batches)


@pytest.mark.parametrize("level", ["batch", "sample"])
def test_below_the_level_of_operations(pair, torch, counted, level):
    """Batches alone are not counted; a level of samples has the fetch and collate."""
    plain, traced = pair("plain.py", options=(*COUNTERS, "--level", level))
    assert (traced.code, traced.out, traced.err) == (0, plain.out, b"")
    assert "operation" not in set(traced.run.counters["kind"])


def test_both_levels_of_cpu_time_agree(traced, torch, counted):
    need(counted, "task_clock")
    got = traced("counted/counted.py", "0", "single", options=(*COUNTERS, "--level", "op+cpu"))
    assert (got.code, got.err) == (0, b"")
    run = got.run
    rows = run.counters[run.counters["kind"] == "operation"]
    assert (rows["page_faults"] >= 0).all() if "page_faults" in rows else True
    used = run.ops["cpu_ns"].to_numpy()[rows["row"]]
    counted_ns = rows.groupby(rows["operation"].astype(str))["task_clock"].sum()
    assert counted_ns["Burn"] >= 0.97 * used[(rows["operation"] == "Burn").to_numpy()].sum() - 1e6


def test_spans(traced, torch, counted):
    got = traced("transforms/labels.py", str(ROOT), options=COUNTERS)
    assert (got.code, got.out, got.err) == (0, b"272.0\n", b"")
    counters = got.run.counters
    ops = counters[counters["kind"] == "operation"]
    assert ops["operation"].astype(str).value_counts().loc[lambda n: n > 0].to_dict() == {
        "resize": 16, "augment": 16
    }  # fmt: skip
    # Outside of a fetch nothing is counted, and nothing is said to be.
    assert "train step" not in set(ops["operation"].astype(str))


def test_the_report_and_map_show_them(every_way, counted):
    for verb in ("report", "map"):
        ended = called(verb, every_way.path)
        assert (ended.returncode, ended.stderr) == (0, "")
        for name in ("Burn", "Touch", "Sleep", "Pool", "Fork"):
            assert name in ended.stdout
        if "page_faults" in counted:
            assert "page faults" in ended.stdout


def test_a_region_over_several_batches_is_not_counted(traced, torch, counted):
    """It is begun in one fetch and ended in the next: no two readings of one fetch are of it."""
    need(counted, "task_clock")
    got = traced("counted/counted_span.py", str(ROOT), options=COUNTERS)
    assert (got.code, got.err) == (0, b"")
    counters = got.run.counters
    ops = counters[counters["kind"] == "operation"]
    names = ops["operation"].astype(str)
    assert ops.loc[names == "around", "task_clock"].isna().all()
    # The kernel's accounting of a thread goes on while it is switched; its counters do not.
    known = ops["task_clock"] + 50_000 * ops["context_switches"].fillna(0)
    assert (known[names == "before"] >= 190_000).all()
    assert (names == "within").sum() == 3 * 8
    assert (known[names == "within"] >= 190_000).all()
    assert ops.loc[names == "within", "task_clock"].median() >= 190_000

"""What `lotus map` shows, from counts, from samples, and from times alone."""

import numpy as np
import pandas as pd
import pytest

import lotus
from lotus.analysis.counters.counter_metrics import REST
from lotus.analysis.counters.function_profile import (
    event_name,
    functions_by_operation,
    per_call,
    summarise_map,
)
from lotus.joining import sample_join
from tests.logs import MS, RunBuilder
from tests.unit.joining.test_sample_join import AT, batch, every_ms, recording


@pytest.fixture
def builder(tmp_path):
    return RunBuilder(tmp_path / "run")


def rows_of(summary):
    return summary.operations.set_index("operation")


def test_counts_alone(builder):
    batch(builder.process(pid=100))
    summary = summarise_map(lotus.load(builder.end()), None)
    rows = rows_of(summary)
    assert rows.index.tolist() == ["Decode", "Flip", "collate", REST]
    assert rows["task_clock"].tolist() == [40 * MS, 10 * MS, 5 * MS, 5 * MS]
    assert set(rows["source"]) == {"exact"}
    assert summary.sampled == []
    assert summary.functions.empty
    assert summary.outside.empty


def test_samples_alone_are_estimates(builder):
    batch(builder.process(pid=100), counted=False)
    run = lotus.load(builder.end())
    summary = summarise_map(run, sample_join.map_run(run, recording(every_ms(count=60))))
    rows = rows_of(summary)
    assert summary.sampled == ["cpu_clock"]
    assert rows["cpu_clock"].tolist() == pytest.approx([40 * MS, 10 * MS, 5 * MS, MS])
    assert set(rows["source"]) == {"sampled"}
    assert rows["total_ns"].tolist() == [40 * MS, 10 * MS, 5 * MS, MS]
    assert summary.functions["samples"].sum() == 60
    assert summary.functions["operation"].tolist()[:2] == ["Decode", "Flip"]


def test_counts_and_samples(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    times = [AT - MS, *every_ms(), AT + 70 * MS]
    summary = summarise_map(run, sample_join.map_run(run, recording(times)))
    rows = rows_of(summary)
    assert rows["source"].tolist() == ["exact"] * 4
    assert rows.loc["Decode", ["task_clock", "cpu_clock"]].tolist() == pytest.approx([40 * MS] * 2)
    assert summary.outside["samples"].sum() == 2
    assert summary.outside["share"].sum() == pytest.approx(2 / 52)


def test_times_alone(builder):
    batch(builder.process(pid=100), counted=False)
    summary = summarise_map(lotus.load(builder.end()), None)
    rows = rows_of(summary)
    assert rows["source"].tolist() == [""] * 4
    assert rows["counted"].tolist() == [0] * 4
    assert np.isnan(summary.helper_share)


def test_counts_are_shown_per_call_and_ratios_as_they_are(builder):
    batch(builder.process(pid=100))
    summary = summarise_map(lotus.load(builder.end()), None)
    table = summary.operations.assign(
        counted=[2, 0, 1, 1], intervals=[4, 4, 1, 1], page_faults=8.0, ipc=1.5
    )

    # The second was not counted: its sum is an estimate over all of its four calls.
    assert per_call(summary, table, "page_faults")[0].tolist() == [4, 2, 8, 8]
    values, unit = per_call(summary, table, "task_clock")
    assert (values.tolist(), unit) == ([20, 2.5, 5, 5], "ms a call")
    assert per_call(summary, table, "ipc")[0].tolist() == [1.5] * 4


def test_functions_of_an_operation_have_the_samples_of_all_their_rows():
    rows = [
        ("Loader", "", "libjpeg.so.62", "decode", 2),
        ("Loader", "", "libc.so.6", "memcpy", 3),
        ("Loader", "", "libjpeg.so.62", "decode", 4),
        ("Loader", "", "libjpeg.so.62", "upsample", 1),
        ("Loader", "OpenMP", "libgomp.so.1", "wait", 50),
        ("", "", "libpython.so", "collect", 50),
    ]
    columns = ["operation", "helper_of", "library", "function", "samples"]
    [loader] = functions_by_operation(pd.DataFrame(rows, columns=columns), most=2)
    assert (loader.operation, loader.samples, loader.left_out, loader.rest) == ("Loader", 10, 1, 1)
    assert loader.functions.to_numpy().tolist() == [
        ["libjpeg.so", "decode", 6, 0.6],
        ["libc.so", "memcpy", 3, 0.3],
    ]
    assert loader.libraries == {"libjpeg.so": 6, "libc.so": 3}
    assert functions_by_operation(pd.DataFrame(), most=2) == []


def test_why_nothing_was_counted_is_a_note(builder):
    main = builder.process(pid=100)
    main.event("unseen", what="counters", why="cycles: Operation not permitted")
    batch(main, counted=False)
    summary = summarise_map(lotus.load(builder.end(counters="cycles|0|0x0|0x0|u")), None)
    (note,) = summary.notes
    assert "cycles: Operation not permitted" in note


def test_counters_that_counted_no_batch_are_a_note(builder):
    batch(builder.process(pid=100), counted=False)
    summary = summarise_map(lotus.load(builder.end(counters="cycles|0|0x0|0x0|u")), None)
    assert summary.notes == ["counters were requested, but no batch was counted"]


@pytest.mark.parametrize(
    ("spelled", "name"),
    [("cpu-clock", "cpu_clock"), ("cpu-clock:u", "cpu_clock"), ("cycles:u", "cycles"),
     ("instructions", "instructions"), ("some/odd,thing/:u", None)],
)  # fmt: skip
def test_events_have_one_name_among_counts_and_samples(spelled, name):
    spelling = event_name(spelled, "generic")
    assert spelling == name if name else spelling

"""Every chart of a report is one that plotly knows, and shows the report's own numbers."""

import base64
import dataclasses
import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import lotus
from lotus.analysis.counters.function_profile import MapSummary, summarise_map
from lotus.analysis.summary import summarise
from lotus.analysis.timelines import lanes as lane_kinds
from lotus.analysis.timelines import time_series
from lotus.common.text.formatting import operation_name
from lotus.joining import sample_join
from lotus.reporters.base import chart_parts
from lotus.reporters.base.console import plain_console
from lotus.reporters.base.page import Chart, Details, Section, Table
from lotus.reporters.map import map_charts
from lotus.reporters.run import run_document, run_page, terminal
from lotus.reporters.run.charts import loader_charts, time_charts
from tests.logs import RunBuilder
from tests.unit.joining.test_sample_join import batch, every_ms, recording
from tests.unit.simulated import Plan

HOSTILE = "<script>alert(1)</script> & \x1b[31m" + "x" * 300


def of(plan: Plan) -> Any:
    """A simulated run with what lanes need."""
    run = plan.run()
    run.ops = run.ops.assign(tid=run.ops["pid"])
    columns = ["pid", "tid", "start_ns", "end_ns", "kind", "operation"]
    run.other_intervals = pd.DataFrame(columns=columns)
    return run


def contents(run: Any, measured: MapSummary | None = None) -> tuple[Section, list[Section]]:
    return run_page.contents(run, summarise(run), measured)


def test_the_first_chart_follows_the_verdict() -> None:
    heading, _ = contents(of(Plan(own=20.0)))
    first = next(place for place, part in enumerate(heading.parts) if isinstance(part, Chart))
    before = [str(part) for part in heading.parts[:first]]
    assert before[0].startswith("lotus report: train.py")
    assert before[1].startswith("The loop waits for data")
    after = [str(part) for part in heading.parts[first + 1 :]]
    assert after[0].startswith("First cause: ")
    # AND what is not needed to act is folded
    (details,) = (part for part in heading.parts if isinstance(part, Details))
    assert any(str(part).startswith("Loader 0: ") for part in details.parts)


def charts_in(sections: list[Section]) -> dict[str, Chart]:
    charts = [part for section in sections for part in section.parts if isinstance(part, Chart)]
    assert len({chart.id for chart in charts}) == len(charts)
    for chart in charts:
        go.Figure(chart.figure)  # raises ValueError for what plotly does not know
        assert chart.table.rows
        assert {len(row) for row in chart.table.rows} == {len(chart.table.columns)}
    return {chart.id: chart for chart in charts}


def numbers(packed: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(base64.b64decode(packed["bdata"]), packed["dtype"])
    return values.reshape(
        [int(length) for length in packed.get("shape", str(len(values))).split(",")]
    )


@pytest.mark.parametrize(
    "plan",
    [
        Plan(),
        Plan(workers=0),
        Plan(batches=1),
        Plan(epochs=3, workers=4),
        Plan(level="batch"),
        Plan(operations={HOSTILE: 2.0, "B" * 40: 1.0}),
        Plan(operations={f"Op{n}": 0.1 for n in range(60)}, batches=3),
    ],
    ids=["usual", "no workers", "one batch", "epochs", "level batch", "hostile", "many"],
)
def test_charts_of_all_kinds_of_runs(plan: Plan) -> None:
    heading, sections = contents(of(plan))
    charts = charts_in([heading, *sections])
    judged = set() if plan.batches < 3 else {"causes"}
    assert judged | {"batches", "throughput", "shares", "workers"} <= set(charts)
    for chart in charts.values():
        assert "<script" not in str(chart.figure)


def test_a_long_cause_is_named_without_its_brackets_and_whole_at_its_bar() -> None:
    heading, _ = contents(of(Plan(own=20.0)))
    figure = charts_in([heading])["causes"].figure
    names = figure["layout"]["yaxis"]["ticktext"]
    assert names[0] == "the data set's own code"
    assert figure["data"][0]["customdata"][0].endswith("(__getitem__, outside its operations)")


def test_slow_samples_have_paths_where_they_have_any() -> None:
    run = of(Plan())
    every = run.samples.assign(path="/data/one.jpg")
    for paths, last in ((every.iloc[:0], "epoch/batch"), (every, "path")):
        run.paths = paths
        table = next(
            section for section in contents(run)[1] if section.title == "Slowest samples"
        ).parts[0]
        assert isinstance(table, Table)
        assert table.columns[-1][0] == last


def test_a_run_without_a_loader_has_a_page() -> None:
    run = of(Plan(batches=1))
    for name in ("ops", "samples", "batches", "waits", "epochs", "loaders"):
        setattr(run, name, getattr(run, name).iloc[:0])
    heading, sections = contents(run)
    assert heading.title.startswith("No DataLoader was iterated")
    assert not charts_in([heading, *sections])


def test_the_charts_show_the_numbers_of_the_document() -> None:
    run = of(Plan(operations={"Loader": 2.0, "Slow": 20.0}))
    document = run_document.document(summarise(run))
    loader = document["loaders"][0]
    heading, sections = contents(run)
    charts = charts_in([heading, *sections])
    causes = sorted(document["verdict"]["causes"], key=lambda cause: -cause["share"])
    assert charts["causes"].figure["data"][0]["x"] == [100 * cause["share"] for cause in causes]
    shares = dict(zip(
        charts["shares"].figure["layout"]["yaxis"]["ticktext"],
        charts["shares"].figure["data"][0]["x"],
        strict=True,
    ))  # fmt: skip
    for row in loader["operations"]:
        assert shares[operation_name(row["operation"])] == pytest.approx(100 * row["workers_share"])
    fetching = charts["workers"].figure["data"][0]["x"]
    assert fetching == pytest.approx([row["fetch_ns"] / 1e9 for row in loader["workers"]])
    waits = numbers(charts["batches"].figure["data"][0]["y"]) * 1e6
    spread = next(row for row in loader["batches"] if row["measure"] == "wait")
    assert waits.sum() == pytest.approx(spread["total_ns"], rel=1e-5)


def test_the_shares_add_up_however_many_operations_there_are() -> None:
    run = of(Plan(operations={f"Op{n}": 0.1 for n in range(60)}, batches=3))
    loader = summarise(run).loaders[0]
    assert sum(loader_charts.shares(loader).figure["data"][0]["x"]) == pytest.approx(100)


def test_a_part_of_the_workers_time_has_the_colour_that_it_has_in_the_timeline() -> None:
    run = of(Plan(operations={"Blur": 3.0}, own=2.0, collate=1.0, step=50.0, batches=9))
    chart = loader_charts.shares(summarise(run).loaders[0])
    names = chart.figure["layout"]["yaxis"]["ticktext"]
    colours = dict(zip(names, chart.figure["data"][0]["marker"]["color"], strict=True))
    kinds = [lane_kinds.REST, "collate", "idle"]
    assert [colours[name] for name in ("(own code)", "(collate)", "(idle)")] == (
        time_charts.kind_colours(kinds)
    )


def test_of_many_ranks_those_are_drawn_that_waited_most() -> None:
    runs = [of(Plan(batches=3, rank=rank, step=30.0 - rank)) for rank in range(12)]
    run = runs[0]
    for name in ("ops", "samples", "batches", "waits", "epochs", "workers"):
        setattr(run, name, pd.concat([getattr(run, name) for run in runs], ignore_index=True))
    heading, sections = contents(run)
    charts = charts_in([heading, *sections])
    drawn = {trace["name"] for trace in charts["throughput"].figure["data"]}
    assert len(drawn) == 8
    assert any("of 12" in part for part in sections[0].parts if isinstance(part, str))


def test_ranks_that_are_left_out_are_counted() -> None:
    loader = summarise(of(Plan(batches=3))).loaders[0]
    rows = [[rank, 1e9, rank / 1000, 0.5, 10.0] for rank in range(70)]
    columns = ["rank", "loop_ns", "wait_share", "step_share", "samples_per_s"]
    many = dataclasses.replace(loader, ranks=pd.DataFrame(rows, columns=columns))
    chart = loader_charts.ranks(many)
    assert (len(chart.table.rows), chart.note) == (64, "6 more ranks: see --json.")
    file = io.StringIO()
    terminal._ranks(plain_console(file), many)
    *_, last = file.getvalue().splitlines()
    assert last.strip() == "and 54 more: see --json"
    few = dataclasses.replace(loader, ranks=many.ranks.head(16))
    assert loader_charts.ranks(few).note == ""
    terminal._ranks(plain_console(file := io.StringIO()), few)
    assert "more" not in file.getvalue()


def test_the_batches_beyond_a_screen_are_put_together_and_it_says_so() -> None:
    run = of(Plan(batches=100))
    loader = summarise(run).loaders[0]
    chart = time_charts.batches(
        loader, time_series.thinned(time_series.batch_series(loader.scope), 30)
    )
    assert "mean of 4 neighbouring batches" in chart.note
    names = [trace["name"] for trace in chart.figure["data"]]
    assert "longest wait" in names
    go.Figure(chart.figure)


def test_the_timeline_is_as_dense_as_the_work() -> None:
    share = np.zeros((1, 2, 4))
    share[0, 0] = [1.0, 0.5, 0.25, 0.0]
    share[0, 1] = [0.0, 0.5, 0.25, 0.0]
    table = pd.DataFrame({"rank": [0], "loader": 0, "worker": 1, "pid": -1})
    edges = np.linspace(0, 4e9, 5)
    made = lane_kinds.Lanes(0, edges, table, ["A<b>", "idle"], share, 0)
    chart = time_charts.timeline(made)
    go.Figure(chart.figure)
    cells = numbers(chart.figure["data"][0]["z"])[:20]
    assert [(cells[:, bin] == 0).mean() for bin in range(4)] == [1.0, 0.5, 0.25, 0.0]
    assert [(cells[:, bin] == 1).mean() for bin in range(4)] == [0.0, 0.5, 0.25, 0.0]
    assert (cells[10:, 1] == 0).all()  # the first kind at the bottom
    assert [name for name, _ in chart.keys] == ["A<b>", "idle"]
    assert chart.table.rows == [["worker 1", "1.75s", "750ms"]]


def test_memory_that_was_read_once_has_no_last_reading() -> None:
    table = pd.DataFrame(
        {"rank": 0, "worker": [0, 0, 1], "pid": [7, 7, 8], "time_ns": [0, 1e9, 0],
         "pss_bytes": [1024.0, 2048.0, 4096.0]}
    )  # fmt: skip
    rows = time_charts.memory(table).table.rows
    assert rows == [
        ["worker 0", "7", "1.00 KiB", "2.00 KiB", "2.00 KiB"],
        ["worker 1", "8", "4.00 KiB", "-", "4.00 KiB"],
    ]


def test_a_worker_that_is_made_anew_is_one_line_of_the_chart_of_memory() -> None:
    table = pd.DataFrame(
        {"rank": 0, "worker": [-1, 0, 0, 0, 1], "pid": [1, 9, 9, 7, 8],
         "time_ns": [0, 0, 1e9, 3e9, 0], "pss_bytes": 2.0**20}
    )  # fmt: skip
    chart = time_charts.memory(table)
    figure = go.Figure(chart.figure)
    assert [line.name for line in figure.data] == ["main", "worker 0", "worker 1"]
    times = numbers(chart.figure["data"][1]["x"])
    assert np.array_equal(times, [0.0, 1.0, np.nan, 3.0], equal_nan=True)
    assert [row[:2] for row in chart.table.rows[1:3]] == [["worker 0", "9"], ["worker 0", "7"]]
    assert "made anew" in chart.note


def test_lanes_are_named_as_briefly_as_they_differ() -> None:
    lanes = pd.DataFrame({"rank": [0, 0], "loader": [-1, 0], "worker": [-1, 3], "pid": [1, -1]})
    assert time_charts.lane_titles(lanes) == ["main", "worker 3"]
    two = pd.concat([lanes, lanes.assign(rank=1, loader=[-1, 1])], ignore_index=True)
    assert time_charts.lane_titles(two)[2:] == ["rank 1 main", "rank 1 loader 1 worker 3"]


@pytest.fixture
def measured(tmp_path: Any) -> MapSummary:
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100))
    run = lotus.load(builder.end(uarch="generic"))
    return summarise_map(run, sample_join.map_run(run, recording(every_ms())))


def test_counters_and_functions(measured: MapSummary) -> None:
    chart = map_charts.metrics(measured)
    assert chart is not None
    go.Figure(chart.figure)
    first = chart.figure["data"][0]
    assert first["name"] == "task clock"
    assert first["x"][:2] == [40.0, 10.0]  # ms a call
    assert [trace["visible"] for trace in chart.figure["data"]].count(True) == 1
    assert map_charts.top_down(measured) is None
    icicle = map_charts.functions(measured)
    assert icicle is not None
    data = icicle.figure["data"][0]
    go.Figure(icicle.figure)
    known = dict(zip(data["ids"], data["values"], strict=True))
    assert known["all"] == measured.functions["samples"].sum()
    for key in known:  # children never have more than their parent
        children = [v for k, v, p in zip(data["ids"], data["values"], data["parents"], strict=True)
                    if p == key]  # fmt: skip
        assert sum(children) <= known[key]


def test_top_down_shares_are_stacked(measured: MapSummary) -> None:
    shares = {"frontend_bound": 0.1, "backend_bound": 0.5, "retiring": 0.3, "bad_speculation": 0.1}
    operations = measured.operations.assign(**shares)
    chart = map_charts.top_down(SimpleNamespace(**{**vars(measured), "operations": operations}))
    assert chart is not None
    go.Figure(chart.figure)
    stacked = np.array([trace["x"] for trace in chart.figure["data"]])
    assert stacked.sum(axis=0) == pytest.approx(100)
    names = [trace["name"] for trace in chart.figure["data"]]
    assert names == ["front-end bound", "back-end bound", "bad speculation", "retiring"]
    heading, sections = contents(
        of(Plan()), SimpleNamespace(**{**vars(measured), "operations": operations})
    )
    assert "top-down" in charts_in([heading, *sections])


def test_labels_are_text_to_plotly() -> None:
    assert chart_parts.label("<b>a</b> & \x1b") == "&lt;b&gt;a&lt;/b&gt; &amp; \\x1b"
    axis = chart_parts.names_axis(["waiting for data, loader 1"])
    assert axis["ticktext"] == ["waiting for data,<br>loader\u00a01"]
    one_line = chart_parts.names_axis(["waiting for data"])
    assert chart_parts.bars_height(axis, 0) > chart_parts.bars_height(one_line, 0)
    axis = chart_parts.names_axis(["RandomResizedCropOfAVeryLongName " * 5])
    assert len(axis["ticktext"][0]) < 60

"""Figures: they draw what analysis computed, on the Axes they are given, whatever names hold."""

import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import lotus.reading.run
import lotus.sweep.sweep_record
from lotus import plot
from lotus.analysis.common.run_contents import RunContents, parts_of
from lotus.analysis.counters.function_profile import summarise_map
from lotus.analysis.samples import distributions
from lotus.analysis.summary import summarise
from lotus.analysis.timelines import time_series as series
from lotus.analysis.timelines.lanes import lanes
from lotus.common.errors import LotusError
from lotus.reporters.run import cached_results
from lotus.reporters.run.notebook_view import run_html
from lotus.settings.space import Measurement, Setting
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_runner import TrialRow
from tests.logs import MS, RunBuilder
from tests.unit.joining.test_sample_join import batch, every_ms, recording
from tests.unit.reporters.test_sweep_reports import RATES, summary_of
from tests.unit.simulated import Plan

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

OF_LOOPS = ["causes", "shares", "operations", "workers", "ranks", "batches", "throughput"]
OF_LOOPS += ["memory"]
OF_RUNS = [*OF_LOOPS, "timeline", "top_down", "counters", "functions"]
HOSTILE = r"$\frac{1}{$ _" + "<script>\n\x1b[31m%s{}\\" + "x" * 300


@pytest.fixture(autouse=True)
def _closed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Glyph")
        yield
    pyplot.close("all")


@pytest.fixture
def ax():
    return pyplot.figure(layout="constrained").subplots()


@pytest.fixture
def recorded(tmp_path):
    """A run directory with one batch of 60 ms: Decode 40, Flip 10, collate 5; all counted."""
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100))
    return lotus.reading.run.load(builder.end())


def texts(ax):
    """Everything that is written on the Axes' figure."""
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.figure.findobj(matplotlib.text.Text)]


def all_text(ax):
    return " ".join(" ".join(texts(ax)).split())


def bars(ax):
    """Widths of the bars, in the order in which they were drawn."""
    return [bar.get_width() for bar in ax.patches]


def simulated(**options):
    """A run in memory, with what a figure of all of it needs."""
    run = Plan(**options).run()
    run.ops = run.ops.assign(tid=run.ops["pid"])
    columns = ["pid", "tid", "start_ns", "end_ns", "kind", "operation"]
    run.other_intervals = pd.DataFrame(columns=columns)
    time = run.waits["start_ns"].iloc[0] + np.array([0, 10**9])
    row = {"rank": 0, "worker": 0, "pid": run.batches["pid"].iloc[0], "time_ns": time}
    run.resources = pd.DataFrame({**row, "pss": [50 * 2**20, 70 * 2**20], "rss": 0})
    return run


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_figure_is_drawn_on_the_axes_it_is_given_or_on_its_own(recorded, ax, name):
    draw = getattr(plot, name)
    assert draw(recorded, ax=ax) is ax
    assert ax.get_title(loc="left")
    own = draw(recorded)
    assert own.figure is not ax.figure
    own.figure.canvas.draw()


@pytest.mark.parametrize("name", OF_LOOPS)
@pytest.mark.parametrize("plan", [{}, {"workers": 0}, {"batches": 1}, {"epochs": 3}])
def test_runs_of_all_kinds_are_drawn(ax, name, plan):
    getattr(plot, name)(simulated(**plan), ax)
    assert len(texts(ax)) > 3


def test_the_package_has_them_all():
    assert set(OF_RUNS) <= set(plot.__all__)


def test_causes_and_shares_are_the_report_s(ax):
    run = simulated(operations={"Loader": 2.0, "Slow": 20.0})
    loader = summarise(run).loaders[0]
    plot.causes(run, ax)
    assert bars(ax) == sorted((100 * cause.share for cause in loader.verdict.causes), reverse=True)
    assert "Slow" in all_text(ax)
    axes = plot.shares(run)
    names = [label.get_text() for label in axes.get_yticklabels()]
    drawn = dict(zip(names, bars(axes), strict=True))
    shares = loader.operations.set_index("operation")["workers_share"]
    assert drawn["Slow"] == pytest.approx(100 * shares["Slow"])
    assert names[0] == "Slow"
    assert sum(drawn.values()) == pytest.approx(100, abs=0.1)


def test_the_box_of_an_operation_is_its_quartiles(ax):
    run = simulated(operations={"Loader": lambda sample, worker: 1.0 + sample % 7, "Flip": 0.5})
    table = distributions.quantiles(summarise(run).loaders[0].scope)
    plot.operations(run, ax)
    boxes = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert boxes[0] == pytest.approx(table[["p25_ns", "p75_ns"]].iloc[0] / 1e6)
    median, _, longest = ax.lines
    assert median.get_xdata() == pytest.approx(table["p50_ns"] / 1e6)
    assert longest.get_xdata() == pytest.approx(table["max_ns"] / 1e6)
    (whiskers,) = ax.collections
    ends = [path.vertices[:, 0].tolist() for path in whiskers.get_paths()]
    assert ends[0] == pytest.approx((table[["p5_ns", "p95_ns"]].iloc[0] / 1e6).tolist())
    assert ax.get_xscale() == "log"


def test_an_axis_of_less_than_a_decade_has_its_numbers_too(ax):
    plot.operations(simulated(operations={"Loader": lambda sample, worker: 2.0 + sample % 3}), ax)
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    labels = [*ax.get_xticklabels(), *ax.get_xticklabels(minor=True)]
    named = [float(label.get_text()) for label in labels if label.get_text()]
    assert sum(low <= number <= high for number in named) >= 2


def test_workers_and_ranks_are_those_of_the_tables(ax):
    run = simulated(workers=3)
    loader = summarise(run).loaders[0]
    plot.workers(run, ax)
    table = loader.workers
    wanted = [*table["fetch_ns"] / 1e9, *table["idle_ns"] / 1e9]
    assert bars(ax) == pytest.approx(wanted)
    lengths = bars(plot.ranks(run))
    assert lengths[0] == pytest.approx(100 * loader.ranks["wait_share"].iloc[0])
    assert sum(lengths) == pytest.approx(100)


def test_batches_and_throughput_are_those_of_the_series(ax):
    run = simulated()
    table = series.batch_series(summarise(run).loaders[0].scope)
    plot.batches(run, ax, delay=True)
    for line, measure in zip(ax.lines, ("wait", "step", "delay"), strict=True):
        assert line.get_ydata() == pytest.approx(table[f"{measure}_ns"] / 1e6)
        assert line.get_xdata() == pytest.approx(table["time_ns"] / 1e9)
    rates = series.throughput(table)
    (stairs,) = plot.throughput(run).patches
    values, edges, _ = stairs.get_data()
    assert list(values) == pytest.approx(rates["samples_per_s"].tolist())
    assert edges[-1] == pytest.approx(rates["end_ns"].iloc[-1] / 1e9)


def test_a_long_run_is_thinned_and_says_so(ax):
    plot.batches(simulated(batches=2000), ax)
    assert "mean of 4 neighbours" in all_text(ax)
    assert len(ax.lines) == 4  # means, and the longest of them


def test_the_timeline_holds_all_the_time_of_each_kind(recorded, ax):
    plot.timeline(recorded, ax, bins=50)
    ranks = pd.DataFrame(recorded.manifest["ranks"])
    contents = RunContents(parts_of(recorded))
    made = lanes(recorded.other_intervals, contents, recorded.workers, ranks)
    height, drawn = 0.84, {}
    keys = [text.get_text() for text in ax.get_legend().get_texts()]
    for name, part in zip(keys, ax.collections, strict=True):
        corners = part.get_paths()[0].vertices
        x, y = corners[:, 0], corners[:, 1]
        area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
        drawn[name] = area / height
    assert drawn == pytest.approx(made.seconds().iloc[0][keys].to_dict(), rel=1e-6)
    assert drawn["Decode"] == pytest.approx(0.040)


def test_memory_is_in_mib(ax):
    plot.memory(simulated(), ax)
    assert ax.lines[0].get_ydata().tolist() == [50, 70]
    few = simulated()
    few.resources = few.resources.iloc[:1]
    assert "no two readings" in all_text(plot.memory(few))


def test_counters_are_of_one_call(recorded, ax):
    plot.counters(recorded, "task_clock", ax)
    assert bars(ax) == [40, 10, 5, 5]
    assert "task clock (ms a call)" in texts(ax)
    assert bars(plot.counters(recorded)) == [40, 10, 5, 5]
    with pytest.raises(LotusError, match="no 'cycles' in this run; there are: task_clock"):
        plot.counters(recorded, "cycles")


def _measured(monkeypatch, run, mapped=None, **columns):
    summary = summarise_map(run, mapped)
    for name, values in columns.items():
        summary.operations[name] = values
    monkeypatch.setattr(cached_results, "measured", lambda run: summary)


def test_top_down_stacks_to_all_slots(recorded, ax, monkeypatch):
    parts = {
        "frontend_bound": [0.2, 0.3, 0.1, np.nan],
        "backend_bound": [0.3, 0.2, 0.8, 0.1],
        "bad_speculation": [0.1, -0.02, 0, 0.1],
        "retiring": [0.4, 0.52, 0.1, 0.1],
    }
    _measured(monkeypatch, recorded, **parts)
    plot.top_down(recorded, ax)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["Decode", "Flip", "collate"]  # the rest of the fetch was not counted whole
    table = np.array(bars(ax)).reshape(4, 3)
    assert table == pytest.approx(100 * np.array(list(parts.values()))[:, :3])
    right = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert right[-3:] == pytest.approx([100, 102, 100])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "front-end bound", "back-end bound", "bad speculation", "retiring"
    ]  # fmt: skip


def test_functions_are_shares_of_their_operation(recorded, ax, monkeypatch):
    from lotus.joining import sample_join as mapped

    _measured(monkeypatch, recorded, mapped.map_run(recorded, recording(every_ms(count=60))))
    plot.functions(recorded, ax)
    assert bars(ax) == [100] * 4  # one made function under each
    assert all_text(ax).count("libwork.so!") == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [("top_down", "lotus trace --counters"), ("counters", "lotus trace --counters"),
     ("functions", "lotus trace --perf")],
)  # fmt: skip
def test_what_was_not_measured_is_said_on_the_axes(tmp_path, ax, name, words):
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100), counted=False)
    assert getattr(plot, name)(lotus.reading.run.load(builder.end()), ax=ax) is ax
    assert words in all_text(ax)
    assert not ax.patches


def test_a_run_without_steps_says_that_they_are_missing(ax):
    run = simulated()
    run.waits["step_ns"] = np.nan
    plot.batches(run, ax)
    assert len(ax.lines) == 1
    assert "Not recorded in this run: step" in all_text(ax)


def test_a_run_without_a_loader_is_an_error_with_a_next_step():
    run = simulated()
    for name in ("ops", "samples", "batches", "waits", "epochs", "loaders"):
        setattr(run, name, getattr(run, name).iloc[:0])
    for name in OF_LOOPS:
        with pytest.raises(LotusError, match="lotus trace"):
            getattr(plot, name)(run)
    with pytest.raises(LotusError, match="no loader 5 in this run; there are: 0"):
        plot.causes(simulated(), loader=5)
    with pytest.raises(LotusError, match="drawn of a Run, and this is a str"):
        plot.causes("my-run")


@pytest.mark.parametrize("name", OF_LOOPS)
def test_names_of_a_trace_stay_text(ax, name):
    run = simulated(operations={HOSTILE: 2.0, "_under": 3.0, "$a_b$": 1.0, "": 1.0})
    getattr(plot, name)(run, ax)
    shown = texts(ax)
    assert not any("\x1b" in text for text in shown)
    if name in ("shares", "operations"):
        assert "$a_b$" in shown  # and not an a with a small b
        assert not any(label.get_parse_math() for label in ax.get_yticklabels())


def test_names_in_a_legend_stay_text_too(tmp_path, ax):
    builder = RunBuilder(tmp_path / "run")
    process = builder.process(pid=100)
    from tests.logs import Sample

    ops = [(HOSTILE, 3 * MS), ("_under", 2 * MS), ("$x^$", MS)]
    process.batch(0, start_ns=10**10, samples=[Sample(0, 7 * MS, ops)], collate_ns=MS)
    plot.timeline(lotus.reading.run.load(builder.end()), ax)
    shown = [text.get_text().strip() for text in ax.get_legend().get_texts()]
    assert {"_under", "$x^$"} <= set(shown)
    texts(ax)


def test_without_matplotlib_the_command_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(LotusError, match="pip install matplotlib"):
        plot.causes(simulated())


def test_a_notebook_shows_the_verdict_of_a_run(recorded):
    text = run_html(simulated(operations={"Loader": 2.0, "Slow": 20.0}))
    assert "<strong>HIGHLY INPUT-BOUND: The loop waits for data" in text
    assert "First cause: Slow, " in text
    assert "Next step: " in text
    assert "Slow</td>" in text
    assert "samples/s" in text
    # Of this one nobody took a batch.
    assert "NO VERDICT: No batch was taken" in lotus.load(recorded.path)._repr_html_()


def test_names_in_it_are_escaped():
    run = simulated(operations={"<script>alert(1)</script>": 20.0})
    run.manifest["command"] = ["python", "<img src=x onerror=alert(1)>", "$x$"]
    run.loaders["dataset"] = "<b>\x1b[0m"
    text = run_html(run)
    assert "&lt;script&gt;alert" in text
    assert "&lt;img" in text
    for part in ("<script", "<img", "<b>", "\x1b", "$x$"):
        assert part not in text


def test_it_says_what_is_missing():
    run = simulated()
    run.lost = pd.DataFrame({"what": ["end of a log"], "pid": 1, "count": 3, "bytes": 10})
    assert "end of a log: 3" in run_html(run)
    for name in ("ops", "samples", "batches", "waits", "epochs", "loaders"):
        setattr(run, name, getattr(run, name).iloc[:0])
    assert "It is not known whether a DataLoader was iterated" in run_html(run)
    run.lost = run.lost.iloc[:0]
    assert "No DataLoader was iterated" in run_html(run)


def test_what_is_shown_again_is_not_computed_again(recorded, monkeypatch):
    first = cached_results.summary(recorded)
    monkeypatch.setattr(cached_results, "summarise", pytest.fail)
    plot.causes(recorded)
    assert cached_results.summary(recorded) is first
    monkeypatch.undo()
    assert cached_results.summary(lotus.reading.run.load(recorded.path)) is not first
    assert cached_results.summary(SimpleNamespace(**vars(simulated()))).loaders


OF_SWEEPS = ["elapsed", "samples_per_second", "waits", "cores", "sample_cost", "cpu_seconds"]
HARDWARE = {"frontend": 20.0, "backend": 40.0, "ipc": 1.5}


@pytest.mark.parametrize("name", [*OF_SWEEPS, *HARDWARE, "dram_loads"])
@pytest.mark.parametrize("options", [{}, {"repeat": 1}, {"prefetch": (1, 4), "counted": True}])
def test_a_figure_of_a_sweep_is_drawn_whatever_was_swept(tmp_path, ax, name, options):
    assert getattr(plot, name)(summary_of(tmp_path, **options), ax) is ax
    assert ax.get_title(loc="left")
    assert not any("\x1b" in text for text in texts(ax))


def test_measures_stand_against_workers_with_their_intervals(tmp_path, ax):
    summary = summary_of(tmp_path)
    plot.samples_per_second(summary, ax)
    (drawn,) = ax.containers
    line, _, (bars,) = drawn.lines
    assert line.get_xdata().tolist() == [1, 2, 4, 8]
    assert line.get_ydata() == pytest.approx(list(RATES.values()))
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    wanted = [summary.of(place, "samples_per_s")[1:] for place in range(4)]
    assert np.array(ends) == pytest.approx(np.array(wanted))
    assert ax.get_xticks().tolist() == [1, 2, 4, 8]


def test_the_knee_is_marked(tmp_path, ax):
    plot.elapsed(summary_of(tmp_path), ax)
    assert "4\nknee" in texts(ax)
    (mark,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert mark.get_xdata() == [4, 4]


def test_cpu_seconds_are_stacked_per_operation_and_without_the_rest_of_the_command(tmp_path, ax):
    plot.cpu_seconds(summary_of(tmp_path), ax)
    assert [bar.get_height() for bar in ax.patches] == [9.0] * 4 + [1.0] * 4
    assert [bar.get_y() for bar in ax.patches] == [0.0] * 4 + [9.0] * 4
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4", "8"]


def test_bars_stand_in_the_order_of_workers_whatever_that_of_the_plan(tmp_path, ax):
    summary = summary_of(tmp_path)
    (series,) = summary.series
    plot.cpu_seconds(replace(summary, series=[replace(series, settings=[3, 1, 0, 2])]), ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["8", "2", "1", "4"]


@pytest.mark.parametrize("name", HARDWARE)
def test_what_the_cpu_counted_is_drawn_per_operation(tmp_path, ax, name):
    getattr(plot, name)(summary_of(tmp_path, counted=True), ax)
    assert len(ax.containers) == 2
    for drawn in ax.containers:
        assert drawn.lines[0].get_ydata() == pytest.approx([HARDWARE[name]] * 4)
    assert "Flip" in all_text(ax)


@pytest.mark.parametrize("name", [*HARDWARE, "dram_loads"])
def test_what_no_cpu_counted_is_said(tmp_path, ax, name):
    getattr(plot, name)(summary_of(tmp_path), ax)
    assert "Not counted in this sweep" in all_text(ax)
    assert not ax.containers


@pytest.mark.parametrize("counted", [True, False])
def test_figure_1_has_its_eight_parts(tmp_path, counted):
    figure = plot.figure_1(summary_of(tmp_path, counted=counted))
    figure.canvas.draw()
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert [title[:4] for title in titles] == [f"({letter}) " for letter in "abcdefgh"]
    assert titles[3] == "(d) CPU seconds per operation"


def test_what_is_no_sweep_or_empty_is_an_error_with_a_next_step(tmp_path):
    with pytest.raises(LotusError, match="lotus sweep --workers"):
        plot.elapsed(simulated())
    summary = summary_of(tmp_path)
    with pytest.raises(LotusError, match="lotus sweep --resume"):
        plot.figure_1(replace(summary, runs=summary.runs.iloc[:0]))


def test_the_recorded_sweep_is_drawn(ax):
    path = Path(__file__).resolve().parents[3] / "traces" / "classification"
    swept = lotus.sweep.sweep_record.load(path)
    plot.samples_per_second(swept, ax)
    assert ax.containers[0].lines[0].get_xdata().tolist() == [0, 1, 2, 4]
    summary = cached_results.swept(swept)
    assert summary is cached_results.swept(swept)
    assert not summary.failed
    assert not summary.counted  # that machine has no hardware counters


def _trial(workers, rate, spread=5.0, failed=""):
    measured = Measurement(Setting(workers), rate, rate - spread, rate + spread, 2.0, failed=failed)
    return TrialRow(measured, "because")


def test_trials_of_a_tuning(ax):
    rows = (_trial(0, 100.0), _trial(2, 180.0), _trial(4, 0.0, 0.0, "it died"))
    watched = SimpleNamespace()
    result = Result(
        best=Setting(2), own=Setting(0), speedup=None, predicted=None, benefit=True, measured=rows,
        ruled_out=(), seconds=6.0, budget_s=10.0, settings_tried=3, interrupted=False, notes=(),
        watched=watched, objective="throughput", strategy="lotus", reason="", cores=2.0,
        cores_why="",
    )  # fmt: skip
    plot.trials(result, ax)
    assert bars(ax)[:3] == [100, 180, 0]
    assert [bar.get_facecolor() == ax.patches[0].get_facecolor() for bar in ax.patches[:3]] == [
        True, False, True
    ]  # fmt: skip
    assert "failed" in texts(ax)
    assert any("(your own)" in text for text in texts(ax))
    assert "No setting was measured" in all_text(plot.trials(replace(result, measured=())))

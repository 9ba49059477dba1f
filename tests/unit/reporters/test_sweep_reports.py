"""What is shown of a sweep: tables over repeats, words, the document and the page."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from lotus.reporters.base import page
from lotus.reporters.base.console import plain_console
from lotus.reporters.sweep import sweep_page
from lotus.reporters.sweep import sweep_report as reporter
from lotus.settings.space import Setting
from lotus.sweep import sweep_record
from lotus.sweep.run_numbers import OPERATION_MEASURES
from lotus.sweep.sweep_summary import SweepSummary, built, label, summarise
from tests.unit.sweep.test_sweep_record import sweep_content

HOSTILE = "<script>alert(1)</script>\x1b[31m"
RATES = {1: 100.0, 2: 200.0, 4: 300.0, 8: 303.0}


def manifest(settings: list[Setting], repeat: int, varied: list[str]) -> dict[str, Any]:
    runs = [
        {"setting": place, "repeat": number, "directory": f"runs/{place}-{number}",
         "state": "done", "exit_code": 0}
        for number in range(repeat) for place in range(len(settings))
    ]  # fmt: skip
    whole = sweep_content([setting.as_json() for setting in settings], varied, runs)
    return {**whole, "command": ["python", HOSTILE], "host": "h", "torch": "2.14.1", "seed": 3,
            "cpu": {"model": "A CPU", "affinity": 16, "logical": 16}}  # fmt: skip


def summary_of(
    folder: Path,
    repeat: int = 3,
    counted: bool = False,
    prefetch: tuple[int, ...] = (),
    **more: Any,
) -> SweepSummary:
    settings = [Setting(workers, two) for two in prefetch or (None,) for workers in RATES]
    varied = ["num_workers", *(["prefetch_factor"] if prefetch else [])]
    content = {**manifest(settings, repeat, varied), **more}
    sweep_record.write(folder, content)
    sweep = sweep_record.load(folder)
    rows, operations = [], []
    for place, setting in enumerate(settings):
        for number in range(repeat):
            noise = 1 + 0.01 * (number - (repeat - 1) / 2)
            key = {"setting": place, "repeat": number}
            rate = RATES[setting.num_workers] * noise * (0.5 if setting.prefetch_factor == 1 else 1)
            row = {"elapsed_s": 3000 / rate, "loop_s": 2000 / rate, "samples_per_s": rate,
                   "wait_share": 0.8, "input_share": 0.8, "idle_share": 0.02, "cpu_s": 50.0,
                   "cpu_us_per_sample": 1000.0, "fetch_utilisation": 0.9, "queue_share": 0.3,
                   "memory_bytes": 2.0**30}  # fmt: skip
            parts = pd.DataFrame(
                {"kind": ["operation", "operation", "send"], "operation": ["Flip", HOSTILE, "send"],
                 "cpu_s": [1.0, 9.0, np.nan], "wall_s": [1.0, 10.0, 1.0]}
            ).reindex(columns=["kind", "operation", *OPERATION_MEASURES])  # fmt: skip
            if counted:
                row |= {"ipc": 1.5, "frontend_bound": 0.2, "backend_bound": 0.4}
                measured = {"ipc": 1.5, "frontend_bound": 0.2, "backend_bound": 0.4 * noise}
                for name, value in measured.items():
                    parts.loc[parts["kind"] == "operation", name] = value
            rows.append({**key, **row})
            operations.append(parts.assign(**key))
    frame = pd.DataFrame(rows)
    joined = pd.concat(operations, ignore_index=True)
    return built(sweep, frame, joined, [f"Data{HOSTILE} at train.py:3"], [], settings)


def text_of(summary: SweepSummary) -> str:
    file = io.StringIO()
    reporter.write(plain_console(file), summary)
    return file.getvalue()


def test_each_setting_has_its_mean_and_the_interval_of_it(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    mean, low, high = summary.of(0, "samples_per_s")
    assert mean == pytest.approx(100)
    # Repeats of 99, 100 and 101: 4.303 standard errors of 1 / sqrt(3).
    assert (mean - low, high - mean) == pytest.approx((2.484, 2.484), rel=1e-3)
    table = summary.operations.set_index(["setting", "operation", "measure"])
    assert table.loc[(1, "Flip", "cpu_s"), "mean"] == 1.0
    assert table.loc[(1, "Flip", "cpu_s"), "repeats"] == 3
    assert ("send", "cpu_s") not in table.loc[1].index  # not measured, so not there


def test_one_repeat_has_no_interval(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, repeat=1)
    mean, low, high = summary.of(0, "samples_per_s")
    assert mean == 100
    assert np.isnan(low)
    assert np.isnan(high)
    text = text_of(summary)
    assert "±" not in text.replace("mean ± 95 %", "")
    assert "No setting was run twice" in " ".join(text.split())


def switched(folder: Path, factors: list[float], repeat: int) -> SweepSummary:
    """A sweep of kept workers, on and off; `factors`: of on over off, by round."""
    settings = [Setting(2, persistent_workers=True), Setting(2)]
    whole = manifest(settings, repeat, ["num_workers", "persistent_workers"])
    sweep_record.write(folder, whole)
    rows = pd.DataFrame(
        {"setting": place, "repeat": number, "samples_per_s": 100.0 * (1 if place else factor)}
        for number, factor in enumerate(factors)
        for place in (0, 1)
    )
    return built(sweep_record.load(folder), rows, pd.DataFrame(), ["Data"], [], settings)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([1.5, 1.52, 1.48], "Persistent workers, 2 workers: on is 1.5 times as fast as off (95 %"),
        ([0.5, 0.52, 0.48], "Persistent workers, 2 workers: off is 2 times as fast as on (95 %"),
        ([1.2, 0.9, 1.0], "neither is shown to be faster (on: 1.03 times as fast; 95 % interval"),
        ([1.5], "on was 1.5 times as fast in the one round of both, which is too few to be sure"),
    ],
)
def test_of_a_switch_the_faster_side_comes_first(
    factors: list[float], words: str, tmp_path: Path
) -> None:
    text = " ".join(text_of(switched(tmp_path, factors, len(factors))).split())
    assert words in text


def test_a_sweep_that_is_not_done_ends_with_how_to_go_on(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    assert "--resume" not in text_of(summary)
    rest = dataclasses.replace(summary, pending=2)
    assert text_of(rest).rstrip().endswith(f"next: lotus sweep --resume {tmp_path}")


@pytest.mark.parametrize("counted", [False, True])
def test_tables_of_a_sweep_fit_in_80_columns(counted: bool, tmp_path: Path) -> None:
    file = io.StringIO()
    summary = summary_of(tmp_path, counted=counted, prefetch=(1, 2))
    reporter.write(plain_console(file, width=80), summary)
    tables = file.getvalue().partition("\nSettings (")[2]
    assert max(map(len, tables.splitlines())) <= 80


def test_an_interval_of_a_share_ends_at_1(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, repeat=2)
    summary.runs["utilisation"] = 0.9
    built_summary = built(
        sweep_record.load(tmp_path),
        summary.runs.assign(utilisation=[0.6, 1.0] * 4),
        pd.DataFrame(),
        [],
        [],
        summary.settings,
    )
    assert built_summary.of(0, "utilisation")[1:] == (0.0, 1.0)
    assert any("two rounds" in note for note in built_summary.notes)


def test_the_knee_and_what_saturates_come_first(tmp_path: Path) -> None:
    text = text_of(summary_of(tmp_path))
    lines = [line.strip() for line in text.splitlines()]
    verdict = " ".join(text.partition("Settings (")[0].split())
    assert "4 workers are enough: 99.0% of the best throughput, which 8 gave (95 %" in verdict
    assert "Cores: with 8 workers" in verdict
    assert [line.split()[0] for line in lines if " < " in line and "±" in line[10:]][-1:] == ["4"]
    assert sum(line.split()[1:2] == ["<"] for line in lines) == 1


def test_an_interval_of_all_that_was_tried_gives_no_verdict(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    rates = [50.0, 300.0, 90.0, 60.0, 100.0, 60.0, 350.0, 200.0, 400.0, 120.0, 70.0, 50.0]
    rows = summary.runs.sort_values("repeat").assign(samples_per_s=rates)
    none = pd.DataFrame()
    wide = built(sweep_record.load(tmp_path), rows, none, [], [], summary.settings)
    assert wide.series[0].knee is not None
    assert wide.series[0].knee.undecided
    text = " ".join(text_of(wide).split())
    assert "Repeats differ too much to tell how many workers are enough" in text
    best = max(RATES, key=lambda workers: wide.of(list(RATES).index(workers), "samples_per_s")[0])
    assert f"includes all that were tried. {best} worker" in text
    for claim in ("gain nothing", "are enough:", "is enough:", "still grows", "no longer grows"):
        assert claim not in text.replace("how many workers are enough:", "")
    assert " < " not in text.replace("; < the knee", "")


def test_a_first_run_that_filled_the_page_cache_is_told(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    for first, noted in ((5e9, True), (5e7, False)):
        rows = summary.runs.assign(read_bytes=[first, *[1e6] * (len(summary.runs) - 1)])
        built_summary = built(
            sweep_record.load(tmp_path), rows, pd.DataFrame(), [], [], summary.settings
        )
        assert any("page cache" in note for note in built_summary.notes) == noted


def test_lines_of_other_settings_are_judged_apart_the_best_first(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, prefetch=(1, 2))
    assert [series.name for series in summary.series] == ["prefetch 1", "prefetch 2"]
    assert summary.best is summary.series[1]
    assert reporter.sentences(summary)[0].startswith("prefetch 2: 4 workers are enough")
    document = reporter.document(summary)
    assert [series["name"] for series in document["series"]] == ["prefetch 2", "prefetch 1"]


def test_labels_say_what_was_set_and_nothing_else() -> None:
    assert label(Setting(1, 4), ("num_workers",)) == "1 worker"
    varied = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "start_method")
    full = label(Setting(2, 4, True, False, "spawn"), varied)
    assert full == "2 workers, prefetch 4, pinned, not persistent, spawn"
    assert label(Setting(0), varied) == "0 workers, not pinned"


def test_without_workers_a_setting_begins_every_line_that_pins_alike(tmp_path: Path) -> None:
    settings = [Setting(0), Setting(0, pin_memory=True)]
    settings += [Setting(2, 2), Setting(2, 4), Setting(2, 2, True)]
    varied = ["num_workers", "prefetch_factor", "pin_memory"]
    sweep_record.write(tmp_path, manifest(settings, 1, varied))
    rows = pd.DataFrame({"setting": range(5), "repeat": 0, "samples_per_s": 1.0})
    summary = built(sweep_record.load(tmp_path), rows, pd.DataFrame(), [], [], settings)
    lines = {series.name: series.settings for series in summary.series}
    assert lines == {
        "prefetch 2, not pinned": [0, 2],
        "prefetch 4, not pinned": [0, 3],
        "prefetch 2, pinned": [1, 4],
    }


def test_nothing_of_a_trace_steers_the_terminal(tmp_path: Path) -> None:
    text = text_of(summary_of(tmp_path, counted=True))
    assert "\x1b" not in text
    assert "\\x1b[31m" in text


def test_operations_have_a_column_per_setting_and_the_most_expensive_is_first(
    tmp_path: Path,
) -> None:
    summary = summary_of(tmp_path, counted=True)
    seconds = summary.per_operation("cpu_s")
    assert seconds["operation"].tolist() == [HOSTILE, "Flip"]  # "send" has no CPU seconds
    assert seconds[[0, 1, 2, 3]].to_numpy().tolist() == [[9.0] * 4, [1.0] * 4]
    low, high = (summary.per_operation("backend_bound", end)[0] for end in ("low", "high"))
    assert (low < 0.4).all()
    assert (high > 0.4).all()
    assert summary.per_operation("dram_loads").empty


def test_counted_slots_are_shown_per_operation(tmp_path: Path) -> None:
    text = text_of(summary_of(tmp_path, counted=True))
    assert "Slots lost to the front end" in text
    assert "Instructions a cycle" in text
    assert "Slots lost" not in text_of(summary_of(tmp_path))


def test_the_document_is_json_with_the_numbers_of_the_terminal(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, counted=True)
    document = json.loads(json.dumps(reporter.document(summary), allow_nan=False))
    assert document["sweep"]["cores"] == 16
    assert document["settings"][2]["setting"] == {"num_workers": 4}
    assert document["settings"][2]["measures"]["samples_per_s"]["mean"] == pytest.approx(300)
    operation = document["settings"][2]["operations"][0]
    assert operation["operation"] == "Flip"
    assert operation["measures"]["backend_bound"]["mean"] == pytest.approx(0.4)
    (line,) = document["series"]
    assert (line["knee"]["workers"], line["knee"]["best_workers"]) == (4, 8)
    assert line["limits"][0]["kind"] == "cores"
    assert len(document["runs"]) == 12


def test_failed_runs_and_runs_that_are_left_are_told(tmp_path: Path) -> None:
    content = manifest([Setting(workers) for workers in RATES], 3, ["num_workers"])
    content["runs"][0].update(state="failed", exit_code=3, problem=f"exit code 3 {HOSTILE}")
    content["runs"][1].update(state="pending")
    summary = summary_of(tmp_path, runs=content["runs"])
    text = text_of(summary)
    assert "10 of 12 runs done, 1 failed, 1 not made yet" in text
    assert "runs/0-0.log" in text
    assert "\x1b" not in text
    assert reporter.document(summary)["failed"][0]["exit_code"] == 3


def test_the_verdict_names_the_settings_that_failed(tmp_path: Path) -> None:
    content = manifest([Setting(workers) for workers in RATES], 3, ["num_workers"])
    for run in content["runs"]:
        if run["setting"] == 1 or run["directory"] == "runs/2-0":
            run.update(state="failed", exit_code=3, problem="exit code 3")
    summary = summary_of(tmp_path, runs=content["runs"])
    rows = summary.runs[summary.runs["setting"] != 1]
    built_summary = built(
        sweep_record.load(tmp_path), rows, pd.DataFrame(), [], [], summary.settings
    )
    sentences = reporter.sentences(built_summary)
    assert sentences[0].startswith("4 workers are enough")
    assert sentences[1] == "2 workers failed and are not compared."
    assert not any("not compared" in sentence for sentence in reporter.sentences(summary))


def test_a_sweep_without_a_run_that_counts_is_told(tmp_path: Path) -> None:
    content = manifest([Setting(1)], 1, ["num_workers"])
    content["runs"][0].update(state="pending")
    sweep_record.write(tmp_path, content)
    empty = pd.DataFrame(columns=["setting", "repeat"])
    summary = built(sweep_record.load(tmp_path), empty, pd.DataFrame(), [], [], [Setting(1)])
    assert "nothing to compare" in text_of(summary)
    assert json.dumps(reporter.document(summary), allow_nan=False)
    sweep_page.sections(summary)


def test_runs_that_cannot_be_read_are_told_and_the_others_count(tmp_path: Path) -> None:
    sweep_record.write(tmp_path, manifest([Setting(1)], 2, ["num_workers"]))
    seen: list[tuple[int, int]] = []
    summary = summarise(sweep_record.load(tmp_path), lambda done, whole: seen.append((done, whole)))
    assert len(summary.runs) == 0
    assert sum("there is no run at" in note for note in summary.notes) == 2
    assert seen[-1] == (2, 2)


@pytest.mark.parametrize("counted", [False, True])
def test_the_page_has_a_chart_for_each_measure_and_a_table_behind_it(
    tmp_path: Path, counted: bool
) -> None:
    summary = summary_of(tmp_path, counted=counted, prefetch=(1, 2))
    sections = sweep_page.sections(summary)
    charts = {
        part.id: part
        for section in sections
        for part in section.parts
        if isinstance(part, page.Chart)
    }  # fmt: skip
    hardware = {"frontend-bound", "backend-bound", "ipc"}
    assert hardware & set(charts) == (hardware if counted else set())
    assert {"elapsed", "throughput", "waits", "cpu", "cores", "memory"} <= set(charts)
    for chart in charts.values():
        go.Figure(chart.figure)  # refuses what plotly does not know
        assert chart.table.rows
    rates = charts["throughput"].figure["data"]
    assert [line["name"] for line in rates] == ["prefetch 1", "prefetch 2"]
    assert rates[1]["x"] == [1, 2, 4, 8]
    assert rates[1]["y"] == pytest.approx([100, 200, 300, 303])
    assert rates[1]["error_y"]["array"][0] == pytest.approx(2.484, rel=1e-3)


def test_the_knee_is_marked_with_its_interval(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)
    chart = next(
        part for section in sweep_page.sections(summary) for part in section.parts
        if isinstance(part, page.Chart) and part.id == "throughput"
    )  # fmt: skip
    assert summary.series[0].knee is not None
    assert [
        shape["x0"] for shape in chart.figure["layout"]["shapes"] if shape["type"] == "line"
    ] == [4]
    wide = summary_of(tmp_path)
    object.__setattr__(wide.series[0].knee, "high", 8)
    chart = next(
        part for section in sweep_page.sections(wide) for part in section.parts
        if isinstance(part, page.Chart) and part.id == "throughput"
    )  # fmt: skip
    (band,) = [shape for shape in chart.figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert (band["x0"], band["x1"]) == (4, 8)


def test_names_of_a_trace_stay_text_on_the_page(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, counted=True)
    target = tmp_path / "s.html"
    heading, sections = sweep_page.heading(summary), sweep_page.sections(summary)
    page.save(target, "sweep", heading, sections, reporter.document(summary))
    text = target.read_text("utf-8")
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text

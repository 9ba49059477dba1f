"""`lotus map` as words, as a document and as CSV."""

import csv
import dataclasses
import io
import json
import re
import subprocess
import sys

import pandas as pd
import pytest
from rich.console import Console

import lotus
from lotus.analysis.counters.function_profile import summarise_map
from lotus.analysis.summary import summarise
from lotus.joining import sample_join
from lotus.reporters.base.console import plain_console
from lotus.reporters.base.page import Section, Table, pieces
from lotus.reporters.map import map_charts, map_report, map_tables
from lotus.reporters.run import run_page
from tests.logs import MS, RunBuilder
from tests.unit.joining.test_sample_join import AT, batch, every_ms, recording


@pytest.fixture
def run(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    batch(builder.process(pid=100))
    return lotus.load(builder.end(uarch="generic"))


@pytest.fixture
def summary(run):
    times = [AT - MS, *every_ms(), AT + 70 * MS]
    return summarise_map(run, sample_join.map_run(run, recording(times)))


def words(summary, **options):
    file = io.StringIO()
    map_report.write(plain_console(file), summary, **options)
    return file.getvalue()


def test_words(summary):
    text = words(summary)
    sentence = "52 samples of cpu-clock: 50 in operations and other intervals, 2 outside"
    assert sentence in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "MISSING" not in text
    for name in ("Decode", "Flip", "collate", "libwork.so!", "task_clock"):
        assert name in text
    assert "libwork.so!" not in words(summary, top=0)


def test_estimates_of_too_few_samples_are_told_with_their_number(summary):
    text = " ".join(words(summary).split())
    assert "Estimates of fewer than 1,000 samples, not to trust: Decode 40, Flip 10" in text


def test_operations_that_a_chart_leaves_out_are_counted(summary):
    shares = dict.fromkeys(map_charts.TOP_DOWN, 0.25)
    table = summary.operations.assign(cycles=4e9, instructions=8e9, ipc=2.0, **shares)
    assert len(table) > 1
    many = pd.concat([table] * 30, ignore_index=True)
    measured = dataclasses.replace(summary, operations=many)
    for chart in (map_charts.top_down(measured), map_charts.metrics(measured)):
        assert len(chart.table.rows) == 25
        assert chart.note.endswith(f" {len(many) - 25} more operations: see --json.")
    for chart in (map_charts.top_down, map_charts.metrics):
        assert "more operation" not in chart(dataclasses.replace(summary, operations=table)).note


def test_cells_that_rest_on_too_few_samples_are_grey_with_their_number(summary):
    # GIVEN estimates of 40 samples beside exact counts
    table = summary.operations.assign(cycles=4e9, instructions=8e9, ipc=2.0)
    measured = dataclasses.replace(
        summary,
        operations=table,
        sampled=["instructions"],
        few_samples=[("Decode", 40)],
        estimated=frozenset({"instructions", "ipc"}),
    )
    # WHEN it is on a page, THEN these cells of that operation are grey, and no others
    page = "".join(pieces("map", Section("map", [map_charts.metrics(measured)]), [], {}))
    grey = re.findall(r'<td class="right grey" title="([^"]*)">([^<]*)</td>', page)
    why = "from 40 samples, of the 1,000 that it needs"
    assert sorted(grey) == [(why, "2"), (why, "8G")]
    # AND on a terminal with colour they are dim, in the text that is there without
    file = io.StringIO()
    coloured = Console(file=file, force_terminal=True, width=100, markup=False, highlight=False)
    map_report.write(coloured, measured)
    line = next(
        line for line in file.getvalue().splitlines() if "Decode" in line and "2.00" in line
    )
    assert re.findall(r"\x1b\[2m *([^ \x1b]*)\x1b", line) == ["8G", "2.00"]
    plain = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert line_of(plain) == line_of(words(measured))


def line_of(text):
    return next(line.split() for line in text.splitlines() if "Decode" in line and "2.00" in line)


def test_what_rests_on_samples_is_what_no_counter_counted(summary):
    assert summary.sampled == ["cpu_clock"]
    assert summary.estimated == {"cpu_clock"}


def test_books_that_do_not_close_are_shouted(summary):
    summary.mapped.books["missing"] = 3
    assert "3 MISSING" in words(summary)


def test_names_from_files_cannot_write_to_the_terminal(run):
    made = sample_join.map_run(run, recording(every_ms()))
    made.functions["function"] = "evil\x1b[31m\nname"
    text = words(summarise_map(run, made))
    assert "\x1b" not in text
    assert "evil" in text


def test_of_many_notes_those_on_few_samples_are_left_out(summary):
    small = [
        f"1 sample by the start of its function, as lib{number} is stripped" for number in range(3)
    ]
    large = ["1,000 samples without a name", "the clock is another one"]
    few = words(dataclasses.replace(summary, notes=small))
    assert "lib2" in few
    summary.mapped.books["recorded"] = 5000
    many = words(dataclasses.replace(summary, notes=[*small, *large]))
    assert "stripped" not in many
    assert all(note in many for note in large)
    assert "and 3 more: see --json" in many


def test_python_lines_stand_as_the_operations_do(summary):
    hook = "a_function_with_a_very_long_name_that_finds_no_room_on_a_line_of_eighty_columns"
    rows = [
        ("lotus", "", "Log._status", "/x/lotus/inside/trace/log/log_writer.py", 107),
        ("collate", "", "stack", "/x/collate.py", 5),
        ("operation", "Flip", hook, "/x/<frozen importlib._bootstrap_external>", 729),
        ("operation", "Other or Decode", "one", "/x/y.py", 1),
    ]
    columns = ["kind", "operation", "function", "file", "line"]
    python = pd.DataFrame(rows, columns=columns).assign(self_ns=MS, total_ns=MS, samples=1)
    text = words(dataclasses.replace(summary, python=python))
    text = text[text.index("Python lines") :]
    places = [text.index(word) for word in ("Other or Decode", "Flip", "stack", "Log._status")]
    assert places == sorted(places)
    assert "(<frozen importlib._bootstrap_external>:729)" in text
    assert "(log_writer.py:107)" in text
    assert "over-counts lotus's own hooks" in " ".join(text.split())


@pytest.fixture
def level_2(summary):
    """The shares of the Zen 5 run in docs/counters.md, and one operation that nothing binds."""
    table = summary.operations.copy()
    shares = {
        "frontend_bound": [0.24, 0.38, 0.10],
        "backend_bound": [0.37, 0.46, 0.10],
        "frontend_latency": [0.17, 0.29, 0.05],
        "backend_memory": [0.34, 0.37, 0.05],
        "smt_contention": [0.12, 0.0, 0.0],
    }
    table = table.head(3).assign(operation=["Loader", "Normalize", "Flip"], counted=9, **shares)
    turns = [(["frontend_starved"], 0.5), (["retire_waits", "retire_waits_load"], 0.5)]
    return dataclasses.replace(summary, operations=table, turns=turns)


def test_the_nodes_that_bind_are_on_the_terminal_the_page_and_in_the_document(run, level_2):
    text = " ".join(words(level_2).split())
    assert "decode (default_loader) back end: memory 34% * front end: latency 17%" in text
    assert "SMT contention 12%" in text
    assert "Flip no node crosses its threshold" in text
    assert "memory: data comes too late from caches or memory" in text
    assert "SMT contention: the core's other thread had the slots" in text
    turns = "frontend_starved in 50%; retire_waits, retire_waits_load in 50% of the batches"
    assert f"Groups of events took turns by batch: {turns}" in text
    (section,) = [section for section in run_page.contents(run, summarise(run), level_2, None)[1]
                  if section.title == "Down to the silicon"]  # fmt: skip
    rows, sentences = map_report.bound_by(level_2)
    assert next(part for part in section.parts if isinstance(part, Table)).rows == rows
    assert all(sentence in section.parts for sentence in sentences)
    document = map_tables.document(level_2)
    assert [row["node"] for row in document["bound_by"] if row["binding"]] == 2 * ["backend_memory"]
    assert document["turns"][1]["share"] == 0.5


def test_a_cpu_whose_events_were_not_tried_is_told(summary):
    cycles = {"name": "cycles", "type": 0, "config": 0, "config1": 0, "flags": "u"}
    for cpu, told in (("amd_zen5", False), ("intel_sapphire", True)):
        shown = words(dataclasses.replace(summary, cpu=cpu, counted=[cycles]))
        assert ("lotus has not been tried on this CPU" in " ".join(shown.split())) == told
    assert "not been tried" not in words(summary)  # the clock alone is the kernel's


def test_functions_of_one_short_name_are_one_row(run):
    made = sample_join.map_run(run, recording(every_ms()))
    of = made.functions[made.functions["operation"] == "Decode"]
    assert of["samples"].tolist() == [40]
    half = [
        of.assign(function=f"at::work<{kind}>(int)", samples=20, share=0.5)
        for kind in ("int", "float")
    ]
    twice = dataclasses.replace(made, functions=pd.concat(half, ignore_index=True))
    summary = summarise_map(run, twice)
    # Of 40 samples 40: Wilson's interval is 8.8 % wide.
    (line,) = [line for line in words(summary).splitlines() if "at::work" in line]
    assert line.split() == ["100%", "±4", "libwork.so!at::work"]
    assert len(json.loads(json.dumps(map_tables.document(summary)))["functions"]) == 2


def test_few_samples_have_no_interval_and_fewer_no_rows(run):
    made = sample_join.map_run(run, recording(every_ms(count=55)))
    text = words(summarise_map(run, made))
    # Of collate and of the rest of the fetch.
    assert "and 2 more operations with fewer than 10 samples" in text
    of = made.functions[made.functions["operation"] == "Decode"]
    parts = [
        of.assign(function=name, samples=count, share=count / 40)
        for name, count in (("many", 31), ("few", 9))
    ]
    two = dataclasses.replace(made, functions=pd.concat(parts, ignore_index=True))
    lines = {
        line.split("!")[-1].strip(): line for line in words(summarise_map(run, two)).splitlines()
    }
    assert "±" in lines["many"]
    assert lines["few"].split() == ["22%", "libwork.so!few"]


def test_the_document_is_json_and_closes(summary):
    got = json.loads(json.dumps(map_tables.document(summary)), parse_constant=pytest.fail)
    assert sum(row["samples"] for row in got["functions"]) == 52
    assert got["books"][0]["recorded"] == 52
    rows = {row["operation"]: row for row in got["operations"]}
    assert rows["Decode"]["task_clock"] == 40 * MS
    assert got["counted"][0]["name"] == "task_clock"


def test_what_was_not_measured_is_null_not_nan(run):
    got = json.loads(
        json.dumps(map_tables.document(summarise_map(run, None))), parse_constant=pytest.fail
    )
    assert got["functions"] == got["books"] == got["sampled"] == []


@pytest.mark.parametrize("table", ["operations", "functions"])
def test_csv(summary, table):
    rows = list(csv.DictReader(io.StringIO(map_tables.csv(summary, table=table))))
    expected = summary.operations if table == "operations" else summary.mapped.functions
    assert [row["operation"] for row in rows] == expected["operation"].astype(str).tolist()


def test_csv_has_the_same_head_without_samples(run, summary):
    empty = map_tables.csv(summarise_map(run, None), table="functions")
    assert empty == map_tables.csv(summary, table="functions").splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["R", "validate"], "did you mean: lotus map validate R"),
     (["--json", "build", "R"], "did you mean: lotus map build R"),
     (["R", "S"], "one run is mapped at a time: lotus map R"),
     (["R", "--json", "--csv", "functions"], "not allowed with argument")],
)  # fmt: skip
def test_words_that_do_not_go_together(arguments, message):
    run = [sys.executable, "-m", "lotus", "map", *arguments]
    ended = subprocess.run(run, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_without_samples_it_says_how_to_have_them(run):
    assert "lotus trace --perf" in words(summarise_map(run, None))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1234, "1.23k"), (999_900, "1M"), (4.5e9, "4.5G"),
     (2e13, "20T"), (float("nan"), "-"), (-1500, "-1.5k")],
)  # fmt: skip
def test_counts_have_three_digits(value, text):
    assert map_report.big(value) == text


@pytest.mark.parametrize(
    ("file", "name"),
    [("_imaging.cpython-311-x86_64-linux-gnu.so", "_imaging.so"),
     ("libjpeg-77ae51ab.so.62.4.0", "libjpeg.so"), ("libc.so.6", "libc.so"),
     ("[kernel]", "[kernel]"), ("_C.abi3.so", "_C.so")],
)  # fmt: skip
def test_libraries_are_short(file, name):
    assert map_report.library(file) == name

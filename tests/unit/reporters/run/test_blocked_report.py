"""What operations were blocked in, on the terminal, on the page and in the document."""

import io
import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from jsonschema import Draft202012Validator

from lotus.analysis.summary import summarise
from lotus.reporters.base.console import plain_console
from lotus.reporters.base.page import Chart, Table
from lotus.reporters.run import run_document, run_page, terminal
from lotus.reporters.run.charts import loader_charts
from lotus.schemas import documents
from tests.unit.simulated import MS, Plan

HOSTILE = "<b>\x1b[31m" + "x" * 90
TITLE = "\nBlocked"


def run_with(*rows: tuple[int, str, str, int], **plan: Any) -> SimpleNamespace:
    """A loop of 40 batches of 4 samples with looks: (pid, operation, reason, how many)."""
    run = Plan(**{"operations": {"Slow": 20.0}, "step": 30.0, **plan}).run()
    columns = ["pid", "operation", "reason", "looks"]
    run.blocking = pd.DataFrame(rows, columns=columns).assign(worker=0)
    run.other_intervals = pd.DataFrame(
        columns=["pid", "tid", "start_ns", "end_ns", "kind", "operation"]
    )
    run.ops = run.ops.assign(tid=run.ops["pid"])
    return run


BLOCKED = (
    (100, "Slow", "shared-lock", 60),
    (100, "Slow", "sleep", 36),
    (100, "Slow", "file", 4),
    (1, "(next)", "events", 50),
    (1, "(step)", "lock", 10),
    (1, "(step)", "computing", 30),
)


def shown(run: SimpleNamespace) -> str:
    file = io.StringIO()
    terminal.write(plain_console(file, width=80), summarise(run))
    return file.getvalue()


def section(run: SimpleNamespace) -> list[str]:
    """Return the lines of the section on the terminal, without its title."""
    _, title, rest = shown(run).partition(TITLE)
    return rest.partition("\n\n")[0].splitlines()[1:] if title else []


def on_page(run: SimpleNamespace) -> dict[str, Any]:
    """Return what the page has of it: the chart, and the tables and texts beside it."""
    _, sections = run_page.contents(run, summarise(run), None)
    parts = next(each for each in sections if each.title == "Operations").parts
    charts = [part for part in parts if isinstance(part, Chart) and part.id == "blocked"]
    for chart in charts:
        go.Figure(chart.figure)  # raises ValueError for what plotly does not know
    others = [part for part in parts if not isinstance(part, Chart)]
    return {"chart": charts[0] if charts else None, "others": others}


def test_the_terminal_shows_what_is_noticeable() -> None:
    # Neither 4 % at files nor what `next` waits for.
    assert " ".join(" ".join(section(run_with(*BLOCKED))).split()) == (
        "looks share 95% interval time "
        "Slow 100 60% 46% to 72% 1.92s waits for a lock that processes share "
        "Slow 100 36% 24% to 50% 1.15s sleeps "
        "(step) 40 25% 11% to 47% 300ms waits for other threads of its process"
    )


def test_lines_fit_and_names_do_no_harm() -> None:
    rows = ((100, HOSTILE, "shared-lock", 60), (1, "(step)", "lock", 40))
    lines = section(run_with(*rows, operations={HOSTILE: 20.0}))
    assert len(lines) >= 3
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_many_rows_are_cut() -> None:
    names = [f"Operation{number}" for number in range(12)]
    rows = [(100, name, "sleep", 40) for name in names]
    lines = section(run_with(*rows, operations=dict.fromkeys(names, 5.0)))
    assert sum("sleeps" in line for line in lines) == 8
    assert "  and 4 more: see --json" in lines


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [
            (100, "Slow", "computing", 90),
            (1, "(next)", "events", 50),
            (1, "(step)", "computing", 50),
        ],
    ],
)
def test_without_anything_noticeable_there_is_no_section(
    rows: list[tuple[int, str, str, int]],
) -> None:
    assert not section(run_with(*rows))


def test_too_few_looks_are_told_of_what_takes_long() -> None:
    lines = section(run_with((100, "Slow", "sleep", 5), (1, "(step)", "computing", 50)))
    assert lines == ["  Not known for Slow: seen fewer than 20 times."]


def test_threads_that_were_not_looked_at_are_told() -> None:
    run = run_with(*BLOCKED)
    run.waits["tid"] = 99
    text = " ".join(" ".join(section(run)).split())
    assert "Not known for (step): lotus looks at main threads, and it ran in others." in text


def test_what_clocks_say_instead_is_told() -> None:
    run = run_with(*BLOCKED)
    run.waits = run.waits.assign(step_cpu_ns=0.9 * run.waits["step_ns"], step_run_delay_ns=0.0)
    said = "By CPU clocks, which are exact, (step) was blocked for 10% of its time."
    assert any(said in line for line in section(run))
    assert said in on_page(run)["others"]


def test_the_bars_of_the_page_add_up_to_the_time_of_each_operation() -> None:
    run = run_with(*BLOCKED)
    chart = on_page(run)["chart"]
    bars = {bar["name"]: bar["x"] for bar in chart.figure["data"]}
    assert list(bars) == ["computing", "lock", "shared lock", "sleep", "file", "events"]
    times = [sum(each) for each in zip(*bars.values(), strict=True)]
    wait_ns = run.waits["wait_ns"].sum() + 1 * MS  # with the shut-down
    assert times == pytest.approx([40 * 4 * 20 / 1000, 40 * 30 / 1000, wait_ns / 1e9])
    assert bars["lock"] == pytest.approx([0, 0.3, 0])
    rows = {(row[0], row[-1]): row for row in chart.table.rows}
    assert rows["(step)", "computes, or is ready to"][2:4] == ["75%", "53% to 89%"]
    assert rows["(collate)", "not known: seen fewer than 20 times"][1:5] == ["0", "-", "", "-"]
    assert ("(next)", "waits for the workers, most likely (events)") in rows


def test_every_state_has_a_colour_of_its_own_and_words() -> None:
    from lotus.analysis.verdict.causes.making.waiting import REASONS
    from lotus.reading.launcher.blocking_table import REASONS as RECORDED

    assert set(loader_charts.STATE_COLOURS) == set(RECORDED) == {"computing", *REASONS}
    assert len(set(loader_charts.STATE_COLOURS.values())) == len(RECORDED)


def test_where_only_shares_are_known_the_page_has_a_table() -> None:
    run = run_with(*BLOCKED)
    run.manifest["every"] = 10
    page = on_page(run)
    assert page["chart"] is None
    (table,) = [part for part in page["others"] if isinstance(part, Table)]
    assert next(row for row in table.rows if row[-1] == "sleeps")[:5] == [
        *("Slow", "100", "36%", "24% to 50%", "-"),
    ]


def test_the_page_without_looks_says_nothing_of_it() -> None:
    assert on_page(run_with()) == {"chart": None, "others": []}


def test_the_document_has_every_row() -> None:
    run = run_with(*BLOCKED)
    run.waits["tid"] = 99
    document = run_document.document(summarise(run))
    rows = document["loaders"][0]["blocked"]
    schema = documents.schema("report")
    assert not [error.message for error in Draft202012Validator(schema).iter_errors(document)]
    assert [row["reason"] for row in rows if row["operation"] == "Slow"] == [
        *("shared-lock", "sleep", "file"),
    ]
    step = next(row for row in rows if row["operation"] == "(step)")
    assert (step["missing"], step["share"], step["ns"]) == ("elsewhere", None, None)
    assert math.isclose(step["total_ns"], 40 * 30 * MS)


WHERE = (100, "Slow", "file", "/data/" + "train/" * 12, "ext4", 36)


def with_place(*place: Any) -> SimpleNamespace:
    run = run_with((100, "Slow", "file", 40), (1, "(step)", "computing", 30))
    columns = ["pid", "operation", "reason", "place", "file_system", "looks"]
    run.places = pd.DataFrame([place], columns=columns)
    return run


def test_the_terminal_shows_where() -> None:
    text = " ".join(" ".join(section(with_place(*WHERE))).split())
    assert text.endswith(f"Slow, file: 90% at {WHERE[3]} (ext4)")


def test_the_page_shows_where() -> None:
    table = on_page(with_place(*WHERE))["chart"].table
    assert ("where", "left") in table.columns
    (row,) = [row for row in table.rows if row[-1] == "waits for files"]
    assert row[-2] == f"90% at {WHERE[3]} (ext4)"
    assert ("where", "left") not in on_page(run_with(*BLOCKED))["chart"].table.columns


def test_the_document_has_the_place() -> None:
    document = run_document.document(summarise(with_place(*WHERE)))
    schema = documents.schema("report")
    assert not [error.message for error in Draft202012Validator(schema).iter_errors(document)]
    loader = document["loaders"][0]
    row = next(row for row in loader["blocked"] if row["reason"] == "file")
    assert (row["place"], row["file_system"], row["place_share"]) == (WHERE[3], "ext4", 0.9)
    (cause,) = [each for each in loader["verdict"]["causes"] if each["kind"] == "operation"]
    assert cause["place"] == {
        "reason": "file", "name": WHERE[3], "file_system": "ext4", "share": 0.9,
    }  # fmt: skip


def test_places_do_no_harm() -> None:
    run = with_place(100, "Slow", "file", f"/data/{HOSTILE}\n/", HOSTILE, 36)
    assert "\x1b" not in shown(run)
    assert sum("90% at" in line for line in section(run)) == 1

"""A column of the report is one row of a list: its title, its cell and where it is shown."""

import io

import pytest

from lotus.analysis.summary import LoaderSummary, summarise
from lotus.common.text.formatting import duration
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import terminal
from lotus.reporters.run.charts import loader_charts
from lotus.reporters.run.parts import report_columns
from lotus.reporters.run.parts.report_columns import BOTH, PAGE, TERMINAL, Column
from tests.unit.simulated import Plan


def shown(loader: LoaderSummary) -> tuple[str, list[str]]:
    """The terminal's table of workers, and the titles of the page's."""
    run = Plan().run()
    file = io.StringIO()
    terminal.write(plain_console(file), summarise(run))
    table = file.getvalue().partition("\nWorkers")[2].partition("\n\n")[0]
    return table, [title for title, _ in loader_charts.workers(loader).table.columns]


@pytest.mark.parametrize("where", [(TERMINAL,), (PAGE,), BOTH])
def test_a_column_more_is_shown_where_its_row_says(
    where: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = summarise(Plan().run()).loaders[0]
    before, page_before = shown(loader)
    more = Column("all of it", lambda row: duration(row["fetch_ns"]), where)
    monkeypatch.setattr(report_columns, "WORKERS", (*report_columns.WORKERS, more))
    table, page = shown(loader)
    assert ("all of it" in table) == (TERMINAL in where)
    assert ("all of it" in page) == (PAGE in where)
    if TERMINAL in where:
        assert duration(loader.workers["fetch_ns"][0]) in table
    else:
        assert (table, page[:-1]) == (before, page_before)


def test_columns_are_shown_for_the_loaders_that_they_are_of() -> None:
    one_rank = summarise(Plan().run()).loaders[0]
    titles = [
        title
        for title, _ in report_columns.shown(report_columns.WORKERS, one_rank, TERMINAL).headings
    ]
    assert titles[0] == "worker"
    assert "memory" not in titles
    for where in BOTH:
        for table in (
            report_columns.WORKERS,
            report_columns.SLOWEST_SAMPLES,
            report_columns.CAUSES,
            report_columns.RANKS,
        ):
            rows = report_columns.shown(table, one_rank, where)
            assert len({title for title, _ in rows.headings}) == len(rows.headings)


def test_a_row_without_a_value_has_an_empty_cell() -> None:
    loader = summarise(Plan().run()).loaders[0]
    table = report_columns.shown(report_columns.OPERATIONS, loader, TERMINAL)
    assert table.cells({}) == [""] * len(table.headings)
    assert table.cells({"workers_share": 0.5}).count("50%") == 1


def test_what_operations_were_doing_fits_into_eighty_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "RandomResizedCropWithAVeryLongName"
    run = Plan(workers=2, operations={name: 123.456, "Flip": 345.678}).run()
    wall, helped = run.ops["duration_ns"], run.ops["operation"].astype(str) == name
    run.ops = run.ops.assign(
        cpu_ns=wall // 10, minor_faults=0, major_faults=0, read_bytes=0, run_delay_ns=wall // 5,
        process_cpu_ns=wall // 10 + helped * wall // 2,
    )  # fmt: skip
    tables = {}
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        file = io.StringIO()
        terminal.write(plain_console(file), summarise(run))
        tables[columns] = file.getvalue().partition("\nOperations")[2].partition("\n\n")[0]
        assert max(map(len, tables[columns].splitlines())) <= int(columns)
    rows = {line.split()[0]: line.split() for line in tables["120"].splitlines() if line.strip()}
    assert rows["count"][-5:] == ["share", "no", "core", "blocked", "helpers"]
    assert rows[name][-3:] == ["20%", "70%", "83%"]
    assert rows["Flip"][-2:] == ["20%", "70%"]
    assert "std" in rows["count"]
    assert "Left out, as lines are short here: std" in tables["80"]
    for table in tables.values():
        assert "off CPU" not in table
        assert "no core" in table
        assert "ready to run with no core, or blocked" in " ".join(table.split())
    chart = loader_charts.shares(summarise(run).loaders[0])
    page = {row[0]: row[3:] for row in chart.table.rows}
    assert [title for title, _ in chart.table.columns[3:]] == ["no core", "blocked", "helpers"]
    assert page["Flip"] == ["20%", "70%", ""]
    assert page["(own code)"] == ["", "", ""]
    assert "ready to run with no core, or blocked" in chart.note

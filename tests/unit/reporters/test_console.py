"""Tables of the reports on narrow terminals: nothing that is to be read or copied is cut."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from lotus.reporters.base.console import (
    LEFT,
    RIGHT,
    plain_console,
    print_paragraph,
    print_table,
)

PATH = "/data/train/a long folder/" + "deep/" * 20 + "42.jpg"


def lines(width: int, columns: list[tuple[str, str]], rows: list[list[str]]) -> list[str]:
    file = io.StringIO()
    print_table(Console(file=file, width=width), "Title", columns, rows)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [10, 40, 60, 80, 200])
def test_numbers_headings_and_paths_are_never_cut(width: int) -> None:
    columns = [("", LEFT), ("share of it", RIGHT), ("mean", RIGHT), ("path", LEFT)]
    name = "RandomResizedCrop with a very long name"
    shown = lines(width, columns, [[name, "12.345%", "123.4ms", PATH], ["", "1%", "2", "/b"]])
    assert "share of it" in shown[2]
    assert shown[3].endswith("12.345% 123.4ms " + PATH) or shown[3].endswith("ms  " + PATH)
    assert "Random" in shown[3]
    assert len(shown) == 5
    assert all(line == line.rstrip() for line in shown)


def test_spare_columns_are_left_out_where_there_is_no_room() -> None:
    columns, rows = [("worker", LEFT), ("share", RIGHT), ("memory", RIGHT)], [["0", "1%", "2MiB"]]
    wide, narrow = io.StringIO(), io.StringIO()
    for file, width in ((wide, 40), (narrow, 20)):
        print_table(Console(file=file, width=width), "T", columns, rows, spare=("grew", "memory"))
    assert "2MiB" in wide.getvalue()
    assert "Left out" not in wide.getvalue()
    table, _, left_out = narrow.getvalue().partition("Left out")
    assert "2MiB" not in table
    assert left_out.split()[-1] == "memory."


def test_a_name_is_shortened_between_words() -> None:
    columns = [("", LEFT), ("share", RIGHT)]
    rows = [["(rest of fetch and more)", "12.3%"]]
    assert lines(24, columns, rows)[3] == "  (rest of fetch…  12.3%"
    assert lines(22, columns, rows)[3] == "  (rest of…      12.3%"


def test_a_label_goes_on_in_the_next_line_where_that_is_wanted() -> None:
    rows = [["(rest of fetch and more)", "12.3%", "worse"]]
    file = io.StringIO()
    columns = [("", LEFT), ("share", RIGHT), ("", LEFT)]
    print_table(Console(file=file, width=30), "T", columns, rows, wrap_labels=True)
    assert file.getvalue().splitlines()[3:] == ["  (rest of fetch  12.3%  worse", "  and more)"]


def test_gaps_go_before_a_line_gets_longer() -> None:
    columns = [("name", LEFT), ("a", RIGHT), ("b", RIGHT)]
    assert lines(20, columns, [["Loader", "12345", "123"]])[3] == "  Loader  12345  123"
    assert lines(18, columns, [["Loader", "12345", "123"]])[3] == "  Loader 12345 123"
    assert lines(10, columns, [["Loader", "12345", "123"]])[3] == "  Loader 12345 123"


def test_prose_in_the_last_column_is_wrapped_between_words() -> None:
    columns = [("share", RIGHT), ("", LEFT)]
    shown = lines(30, columns, [["60%", "reading cold files from storage"]])
    assert shown[3:] == ["    60%  reading cold files", "         from storage"]


def test_wide_characters_keep_the_columns() -> None:
    columns = [("", LEFT), ("n", RIGHT)]
    assert lines(40, columns, [["日本", "1"], ["abcd", "2"]])[3:] == ["  日本  1", "  abcd  2"]


def test_no_text_steers_the_terminal() -> None:
    steers = "\x1b]0;owned\x07\x1b[2J\u202ename"
    file = io.StringIO()
    shown = plain_console(file, width=80)
    shown.print(steers, style="bold")
    shown.print(Text(steers, style="dim"))
    print_paragraph(shown, "note", f"of {steers}")
    print_table(shown, "title", [("name", LEFT)], [[steers]])
    text = file.getvalue()
    assert text.replace("\n", "").isprintable()
    assert text.count("name") == 5
    assert "\\x1b]0;owned" in text

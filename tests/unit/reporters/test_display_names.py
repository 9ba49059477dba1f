"""Names of operations in tables: each below the one around it, and never two alike."""

import io
import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lotus.analysis.summary import summarise
from lotus.common.text.formatting import operation_name
from lotus.reporters.base.console import LEFT, RIGHT, plain_console, print_table
from lotus.reporters.base.display_names import shorten_apart, tree
from lotus.reporters.run import run_document, short_report, terminal
from tests.unit.simulated import Plan

PRESET = "ClassificationPresetTrainForImageNet"


def drawn(names: list[str], nested: list[bool] | None = None) -> list[str]:
    lines = tree(names, nested or ["/" in name for name in names])
    assert sorted(line.row for line in lines if line.row is not None) == list(range(len(names)))
    return [line.name for line in lines]


def test_each_operation_is_below_the_one_around_it_by_its_own_name() -> None:
    names = ["B", "A/Crop", "A", "A/Flip", "A/Flip/Inner", "B/Crop"]
    assert drawn(names) == ["B", "  Crop", "A", "  Crop", "  Flip", "    Inner"]


def test_a_parent_without_a_row_is_a_heading_where_it_has_several_children() -> None:
    assert drawn(["A/x", "B", "A/y", "C/z"], [False] * 4) == ["A", "  x", "  y", "B", "C/z"]


def test_what_others_call_comes_last() -> None:
    names = ["decode", "A", "A/x"]
    assert drawn(names, [True, False, True]) == ["A", "  x", "(inside others)", "  decode"]


def test_two_rows_of_one_name_are_both_there() -> None:
    assert drawn(["collate", "collate", "collate/x"], [False, False, True]) == [
        "collate", "  x", "collate",
    ]  # fmt: skip


def test_names_that_differ_where_the_middle_is_left_out() -> None:
    names = [f"RandomResizedCrop{size}WithAntialiasing" for size in ("224", "256", "288")]
    shown = shorten_apart(names, 16)
    assert len(set(shown)) == 3
    assert all(len(text) <= 16 for text in shown)
    assert shorten_apart(["short", f"    {'n' * 60}"], 20)[1] == "    nnnnn…nnnnnnnnnn"


@given(
    st.lists(st.text("ab/[0]", min_size=1, max_size=40), min_size=1, max_size=20),
    st.integers(12, 40),
)
def test_no_two_names_become_equal(names: list[str], width: int) -> None:
    shown = shorten_apart(names, width)
    assert len(set(shown)) == len(set(names))
    assert all(len(text) <= width for text in shown)


@given(st.lists(st.text("ab/ x", min_size=1, max_size=30), min_size=1, max_size=12))
def test_any_names_make_a_tree(names: list[str]) -> None:
    drawn(names)


def preset() -> object:
    """A run of one preset with five transforms inside, as torchvision's reference script has it."""
    run = Plan(operations={"Loader": 2.0, PRESET: 5.0}).run()
    outer = run.ops[run.ops["operation"] == PRESET]
    inner = ("RandomResizedCrop", "RandomHorizontalFlip", "PILToTensor", "ToDtype", "Normalize")
    parts = [
        outer.assign(
            operation=f"{PRESET}/{name}", parent=PRESET, nested=True, duration_ns=900_000 - at
        )
        for at, name in enumerate(inner)
    ]
    names = [*run.ops["operation"].cat.categories, *(f"{PRESET}/{name}" for name in inner)]
    run.ops = pd.concat([run.ops.astype({"operation": object, "parent": object}), *parts])
    run.ops["operation"] = pd.Categorical(run.ops["operation"], names)
    run.ops = run.ops.reset_index(drop=True).assign(cpu_ns=1000.0)
    return run


def test_the_report_names_a_parent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = io.StringIO()
    terminal.write(plain_console(file), summarise(preset()))
    text = file.getvalue()
    table = text.partition("\nOperations (")[2].splitlines()[2:9]
    assert max(map(len, text.splitlines())) <= 80
    names = [line.split()[0] for line in table]
    assert len(set(names)) == 7
    place = next(k for k, name in enumerate(names) if name.startswith("Class"))
    inside = [line for line in table if line.startswith("    ")]
    assert table[place + 1 : place + 6] == inside
    assert not any("Class" in line for line in inside)
    document = run_document.document(summarise(preset()))["loaders"][0]["operations"]
    assert f"{PRESET}/RandomHorizontalFlip" in {row["operation"] for row in document}


def test_a_table_shortens_a_name_once() -> None:
    console = Console(file=io.StringIO(), width=60, highlight=False)
    names = [f"torchvision.transforms.v2.{name}.forward" for name in ("Resize", "Normalize")]
    columns = [("", LEFT), *((f"column {k}", RIGHT) for k in range(3))]
    print_table(console, "T", columns, [[name, "1.00 ms", "2", "3"] for name in names], (0,))
    rows = console.file.getvalue().splitlines()[3:]
    shown = [row[2:].split("  ")[0] for row in rows]
    assert all(text.count("…") == 1 and text.endswith("forward") for text in shown)
    assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("Loader", "decode (default_loader)"),
        ("Loader/read", "decode (default_loader)/read"),
        ("Outer/Loader", "Outer/decode (default_loader)"),
        ("Flip or Loader", "Flip or decode (default_loader)"),
        ("MyLoader", "MyLoader"),
        ("Loader2", "Loader2"),
        ("", ""),
    ],
)
def test_the_decoder_of_a_folder_is_never_shown_as_loader(stored: str, shown: str) -> None:
    assert operation_name(stored) == shown


def test_no_form_of_the_report_shows_the_stored_name_of_the_decoder() -> None:
    run = Plan(operations={"Loader": 20.0, "Flip": 2.0}).run()
    file = io.StringIO()
    summary = summarise(run)
    terminal.write(plain_console(file), summary)
    text = file.getvalue() + "\n".join(short_report.short_report(run))
    assert "decode (default_loader)" in text
    assert not re.search(r"\bLoader\b(?! \d)", text)  # "Loader 0" is a DataLoader
    stored = run_document.document(summary)["loaders"][0]["operations"]
    assert {row["operation"] for row in stored} == {"Loader", "Flip"}

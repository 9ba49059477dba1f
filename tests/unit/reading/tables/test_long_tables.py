"""Long tables are what short ones are: columns of one value, and columns in files."""

import json
from pathlib import Path

import pandas as pd
import pytest

from lotus.analysis.common import columns
from lotus.analysis.summary import summarise
from lotus.common.storage import long_arrays
from lotus.reading.run import load
from lotus.reading.tables import batch_tables, frame_cache
from lotus.reporters.run import run_document
from tests.simulation import simulate

TABLES = ("batches", "waits", "samples", "ops")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return simulate(tmp_path / "run", workers=2, batches=20, batch_size=4, epochs=2)


@pytest.mark.parametrize("table", TABLES)
def test_the_table_is_the_same(table, path, monkeypatch):
    expected = getattr(load(path), table)
    monkeypatch.setattr(batch_tables, "LONG", 1)
    pd.testing.assert_frame_equal(getattr(load(path), table), expected)


def test_columns_of_one_value_take_no_memory(path, monkeypatch):
    def strides(name: str) -> int:
        return int(load(path).batches[name].to_numpy().strides[0])

    assert strides("pin_ns")
    monkeypatch.setattr(batch_tables, "LONG", 1)
    assert not strides("pin_ns")  # nothing was pinned: all are NaN
    assert not strides("rank")
    assert strides("fetch_start_ns")


def test_the_report_is_the_same(path, monkeypatch):
    def report() -> str:
        return json.dumps(run_document.document(summarise(load(path))))

    expected = report()
    monkeypatch.setattr(batch_tables, "LONG", 1)
    assert report() == expected


def test_the_report_is_the_same_with_all_arrays_in_files(path, monkeypatch):
    def report() -> str:
        return json.dumps(run_document.document(summarise(load(path))))

    expected = report()
    files = []
    region = long_arrays._Region
    monkeypatch.setattr(long_arrays, "_Region", lambda size: files.append(size) or region(size))
    monkeypatch.setattr(long_arrays, "_open", [])
    monkeypatch.setattr(long_arrays, "LEAST", 1)
    monkeypatch.setattr(batch_tables, "LONG", 7)
    monkeypatch.setattr(frame_cache, "MANY", 5)
    monkeypatch.setattr(columns, "_BLOCK", 9)
    assert report() == expected
    assert files


def test_what_is_read_in_pieces_is_written_to_no_file(path, monkeypatch):
    monkeypatch.setattr(batch_tables, "LONG", 1)
    run = load(path)
    assert len(run._outline.batch)  # what the pieces are made of
    monkeypatch.setattr(long_arrays, "LEAST", 1)
    files = []
    region = long_arrays._Region
    monkeypatch.setattr(long_arrays, "_Region", lambda size: files.append(size) or region(size))
    monkeypatch.setattr(long_arrays, "_open", [])
    pieces = run.pieces
    for place in range(len(pieces)):
        assert len(pieces[place].ops)
        assert len(pieces.times(place))
    assert not files
    assert len(run.ops)
    assert files

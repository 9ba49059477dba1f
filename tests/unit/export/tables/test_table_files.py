"""Tables of a run as files: the same as `Run` gives them."""

import itertools

import numpy as np
import pandas as pd
import pytest

from lotus.common.errors import LotusError
from lotus.export import formats
from lotus.export.export_request import ExportRequest
from lotus.export.tables import spreadsheet_cells, table_files
from lotus.reading.run import load
from lotus.reading.tables import table_pieces
from tests.logs import MS, START_NS, RunBuilder, Sample
from tests.simulation import simulate

ALL = ["samples", "ops", *table_files.SMALL, *table_files.MEASURED]


def quiet(done, whole):
    pass


@pytest.fixture(params=["simulated", "loose"])
def run(request, tmp_path):
    if request.param == "simulated":
        return load(simulate(tmp_path / "run", workers=2, epochs=2))
    # Operations in samples, of other threads and outside of batches, of two processes.
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=1)
    main.iterator(0, 0, START_NS, START_NS + MS, [101])
    main.operations("forward")
    main.wait(
        0, 0, 0, start_ns=START_NS, end_ns=START_NS + 9 * MS, loose=[("forward", START_NS, 5)]
    )
    main.loose(("forward", START_NS + 10 * MS, 7))
    worker = builder.process(101, ppid=100, start_ns=START_NS)
    worker.worker(0, ready_ns=START_NS + MS)
    worker.operations("A", "B", "C")
    for batch in range(5):
        at = START_NS + (2 + batch) * MS
        loose = [("C", at + 5, 20, 777, 0)] if batch % 2 else []
        sample = Sample(batch, 500, [("A", 30), ("B", 50)])
        worker.batch(batch, start_ns=at, samples=[sample], loose=loose)
    worker.loose(("B", START_NS + 20 * MS, 3))
    builder.report("python", 100, ppid=1, argv=["a\udcff", 'b,\n"c'], executable="x", python="3")
    return load(builder.end())


def export(run, format, folder, **options):
    path = folder / format
    done = formats.export(run, ExportRequest(format, path, **options), quiet)
    assert done.path == path
    return path


@pytest.mark.parametrize("rows", [3, 1 << 18])
def test_csv(run, tmp_path, monkeypatch, rows):
    monkeypatch.setattr(table_pieces, "ROWS", rows)
    path = export(run, "csv", tmp_path)
    for name in ALL:
        table = getattr(run, name)
        written = pd.read_csv(path / f"{name}.csv", keep_default_na=True)
        assert written.columns.tolist() == table.columns.tolist(), name
        assert len(written) == len(table), name
        for column in table.columns:
            if pd.api.types.is_numeric_dtype(table[column].dtype) and len(table):
                mine = table[column].astype(float).to_numpy()
                assert np.array_equal(written[column].astype(float), mine, equal_nan=True), column
    ops = pd.read_csv(path / "ops.csv")
    assert ops["operation"].tolist() == run.ops["operation"].astype(str).tolist()
    assert pd.read_csv(path / "unseen.csv").columns.tolist() == ["what", "why"]


@pytest.mark.parametrize("rows", [3, 1 << 18])
def test_parquet_keeps_types(run, tmp_path, monkeypatch, rows):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(table_pieces, "ROWS", rows)
    path = export(run, "parquet", tmp_path)
    for name in ALL:
        table = getattr(run, name)
        written = pd.read_parquet(path / f"{name}.parquet")
        assert written.columns.tolist() == table.columns.tolist(), name
        assert len(written) == len(table), name
        for column in table.columns:
            dtype, mine = table[column].dtype, table[column]
            if isinstance(dtype, pd.CategoricalDtype):
                assert isinstance(written[column].dtype, pd.CategoricalDtype), column
                assert written[column].astype(str).tolist() == mine.astype(str).tolist(), column
            elif isinstance(dtype, np.dtype) and dtype.kind in "iufb":
                assert written[column].dtype == dtype, (name, column)
                assert np.array_equal(written[column], mine, equal_nan=dtype.kind == "f"), column
            elif len(mine) and pd.api.types.is_numeric_dtype(dtype):  # may lack values
                assert written[column].astype("Float64").equals(mine.astype("Float64")), column


def test_what_has_no_rows_keeps_its_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    builder = RunBuilder(tmp_path / "run")
    builder.process(100)
    run = load(builder.end())
    path = export(run, "parquet", tmp_path)
    schema = pyarrow.read_schema(path / "ops.parquet")
    assert str(schema.field("start_ns").type) == "int64"
    assert str(schema.field("nested").type) == "bool"
    assert "dictionary" in str(schema.field("operation").type)


def test_an_earlier_export_is_replaced_only_when_told(run, tmp_path):
    path = export(run, "csv", tmp_path)
    (path / "ops.csv").write_text("old")
    with pytest.raises(LotusError, match="-f"):
        export(run, "csv", tmp_path)
    assert (path / "ops.csv").read_text() == "old"
    export(run, "csv", tmp_path, force=True)
    assert (path / "ops.csv").read_text() != "old"


def test_a_directory_with_other_files_is_left_as_it_is(run, tmp_path):
    path = tmp_path / "csv"
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(LotusError, match=r"thesis\.tex"):
        export(run, "csv", tmp_path, force=True)
    assert (path / "thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["csv", "run"]


def test_nothing_is_left_of_an_export_that_fails(run, tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_files, "_write_tables", broken)
    with pytest.raises(LotusError, match="No space left"):
        export(run, "csv", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_pieces_are_the_tables_in_order(run, monkeypatch):
    monkeypatch.setattr(table_pieces, "ROWS", 3)
    ops, samples = [], []
    for number in range(len(run._assembly.processes)):
        for piece in table_pieces.of_process(run, number, loose=False):
            ops.append(piece.ops)
            samples.append(piece.samples)
        ops.append(table_pieces.loose_of(run, number))
    both = [((ops, run.ops), (samples, run.samples))]
    for rows in (3, 300, 1 << 17):  # small processes are together in a piece
        pieces = list(table_pieces.Pieces(run, rows))
        both.append(
            (
                ([each.ops for each in pieces], run.ops),
                ([each.samples for each in pieces], run.samples),
            )
        )
    assert len(pieces) == 1
    for parts, whole in itertools.chain(*both):
        joined = pd.concat([part.astype({"host": str}) for part in parts if len(part)])
        joined = joined.reset_index(drop=True)
        for column in whole.columns:
            assert joined[column].astype(str).tolist() == whole[column].astype(str).tolist(), column
    assert len([piece for piece in ops if len(piece)]) > 2


FORMULAS = ["=cmd|'/c x'!A0", "+1+1", "-2+3+cmd", "@SUM(A1)", "\t=1+1", "\r=1+1", "=1\r=2"]
FORMULAS += ["\uff1d1+1"]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_of_csv_is_a_formula(tmp_path, formula):
    # GIVEN a run whose names are formulas: of an operation, a command line, a note
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=0, dataset=formula)
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    main.operations(formula)
    main.batch(0, start_ns=START_NS, samples=[Sample(-3, 500, [(formula, 30)])])
    main.wait(0, 0, 0, start_ns=START_NS, end_ns=START_NS + MS)
    main.event("note", text=formula)
    builder.report("python", 100, ppid=1, argv=["a"], executable=formula, python="3")
    run = load(builder.end())
    # WHEN its tables are written as CSV
    path, kept = export(run, "csv", tmp_path), "'" + formula.replace("\r", "\\r")
    # THEN each of them is text by an apostrophe in front
    written = {
        name: pd.read_csv(path / f"{name}.csv", dtype=str, keep_default_na=False)
        for name in ("ops", "operations", "loaders", "notes", "processes", "samples")
    }
    assert written["ops"]["operation"].tolist() == [kept]
    assert written["operations"]["operation"].tolist() == [kept]
    assert written["loaders"]["dataset"].tolist() == [kept]
    assert written["notes"]["text"].tolist() == [kept]
    assert written["processes"]["executable"].tolist() == [kept]
    # AND numbers are numbers
    assert written["samples"]["sample"].tolist() == ["-3"]
    assert written["samples"]["worker"].tolist() == ["-1"]


def test_what_is_no_formula_is_written_as_it_is():
    table = pd.DataFrame({
        "text": ["-1", "+2.5e3", "a=b", "", None, 7],
        "number": [-1, -2, -3, -4, -5, -6],
        "kind": pd.Categorical(["-x", "b", "-x", "b", None, "b"]),
        "=event": 0.5,
    })  # fmt: skip
    written = spreadsheet_cells.table(table)
    assert written["text"].tolist() == ["-1", "+2.5e3", "a=b", "", None, 7]
    assert written["number"].tolist() == table["number"].tolist()
    assert written["kind"].tolist()[:2] == ["'-x", "b"]
    assert written.columns.tolist() == ["text", "number", "kind", "'=event"]
    assert table.columns.tolist() == ["text", "number", "kind", "=event"]

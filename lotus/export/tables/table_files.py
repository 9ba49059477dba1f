"""Exports all tables of a run to files in a directory, as Parquet or CSV.

Columns have the names and order that `lotus.Run` documents. Long tables are written in pieces as
they are read.
"""

import contextlib
import json
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.ranks.rank_steps import long_table, rank_steps
from lotus.common.errors import LotusError
from lotus.common.terminal.progress import Advance
from lotus.export.export_request import ExportRequest
from lotus.export.tables import spreadsheet_cells
from lotus.reading.tables import table_pieces

if TYPE_CHECKING:
    from lotus.reading.run import Run
SMALL = (
    "batches", "waits", "workers", "loaders", "epochs", "resources", "operations", "paths",
    "processes", "lost", "syncs", "models", "blocking",
    "places",
)  # fmt: skip
RANK_STEPS = (
    "rank_steps"  # of lotus.analysis.ranks.rank_steps.long_table, where there are several ranks
)
MEASURED = ("counters", "functions", "python_functions")
_ROWS = 1 << 18
_LISTS = {"notes": ["text"], "unseen": ["what", "why"]}


def fill(run: "Run", request: ExportRequest, notes: list[str], progress: Advance) -> None:
    """Make the directory; tables that cannot be read are added to `notes`. Raises LotusError."""
    path = request.output
    if path is None:
        raise LotusError("this makes a directory, which cannot go to the standard output")
    beside = path.absolute().with_name(f".{path.absolute().name[:200]}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        try:
            if path.exists():
                _check_replaceable(path, request.force)
            _write_tables(run, beside, request.format, notes, progress)
            if path.exists():
                _check_replaceable(path, request.force)
                shutil.rmtree(path)
            os.replace(beside, path)
        finally:
            with contextlib.suppress(OSError):
                shutil.rmtree(beside)
    except OSError as error:
        why = error.strerror or str(error)
        raise LotusError(f"cannot write {path}: {why}; -o names another directory") from None


def _check_replaceable(path: Path, force: bool) -> None:
    """Raise LotusError if the directory contains anything but an earlier export."""
    names = {f"{name}.{ending}" for name in _names() for ending in ("csv", "parquet")}
    foreign = sorted(set(os.listdir(path)) - names)
    if foreign:
        raise LotusError(
            f"{path} holds {foreign[0]}, which lotus export did not write, and is left as it is; "
            "-o names another directory"
        )
    if not force:
        raise LotusError(f"{path} exists: overwrite it with -f, or name another with -o")


def _names() -> tuple[str, ...]:
    return ("samples", "ops", *SMALL, *MEASURED, *_LISTS, RANK_STEPS)


def _write_tables(
    run: "Run", folder: Path, format: str, notes: list[str], progress: Advance
) -> None:
    kind: type[_File] = _Csv if format == "csv" else _Parquet
    total, done = table_pieces.whole(run), 0
    none = table_pieces.empty(run)
    with kind(folder, "samples", none.samples) as samples, kind(folder, "ops", none.ops) as ops:
        for number in range(len(run._outline.processes)):
            for piece in table_pieces.of_process(run, number, loose=False):
                samples.add(piece.samples)
                ops.add(piece.ops)
                done += table_pieces.size(piece)
                progress(done, total)
            ops.add(table_pieces.loose_of(run, number))
    for name in (*SMALL, *MEASURED, *_LISTS):
        try:
            table = getattr(run, name, None)
        except LotusError as error:
            notes.append(f"{name} is left out: {error}")
            continue
        if table is None:
            continue
        if name in _LISTS:
            table = pd.DataFrame(table, columns=_LISTS[name])
        _add(kind, folder, name, table)
    steps = rank_steps(run)
    if steps is not None:
        _add(kind, folder, RANK_STEPS, long_table(steps))


def _add(kind: type["_File"], folder: Path, name: str, table: pd.DataFrame) -> None:
    with kind(folder, name, table.iloc[:0]) as file:
        for first in range(0, len(table), _ROWS):
            file.add(table.iloc[first : first + _ROWS])


class _File(ABC):
    """A table that is written piece by piece."""

    @abstractmethod
    def __init__(self, folder: Path, name: str, none: pd.DataFrame) -> None:
        """Begin the file; `none` is the table with no rows."""

    @abstractmethod
    def add(self, table: pd.DataFrame) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *failed: object) -> None:
        self.close()


class _Csv(_File):
    def __init__(self, folder: Path, name: str, none: pd.DataFrame) -> None:
        # A command line may contain bytes that are not UTF-8.
        self._file = (folder / f"{name}.csv").open(
            "w", encoding="utf-8", errors="backslashreplace", newline=""
        )
        self._file.write(spreadsheet_cells.table(none).to_csv(index=False))

    def add(self, table: pd.DataFrame) -> None:
        if "argv" in table:
            table = table.assign(argv=[json.dumps(words) for words in table["argv"]])
        spreadsheet_cells.table(table).to_csv(self._file, header=False, index=False)

    def close(self) -> None:
        self._file.close()


class _Parquet(_File):
    def __init__(self, folder: Path, name: str, none: pd.DataFrame) -> None:
        import pyarrow.parquet

        fields = [(str(column), _type(none, str(column))) for column in none.columns]
        self._schema = pyarrow.schema(fields)
        self._file = pyarrow.parquet.ParquetWriter(folder / f"{name}.parquet", self._schema)

    def add(self, table: pd.DataFrame) -> None:
        import pyarrow

        columns = [_array(table[field.name], field.type) for field in self._schema]
        self._file.write_table(pyarrow.table(columns, schema=self._schema))

    def close(self) -> None:
        self._file.close()


def _type(none: pd.DataFrame, column: str) -> Any:
    """Return the Arrow type of a column, which must not depend on the first piece."""
    import pyarrow

    dtype = none[column].dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    if column == "argv":
        return pyarrow.list_(pyarrow.string())
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        return pyarrow.array(none[column]).type
    return pyarrow.string()


def _array(values: pd.Series, kind: Any) -> Any:
    import pyarrow

    if isinstance(values.dtype, pd.CategoricalDtype):
        names = pyarrow.array([_utf8(name) for name in values.cat.categories], pyarrow.string())
        codes = values.cat.codes.to_numpy().astype("int32")
        return pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes, mask=codes < 0), names)
    if kind == pyarrow.list_(pyarrow.string()):
        return pyarrow.array([[_utf8(word) for word in words] for words in values], kind)
    if kind == pyarrow.string():
        texts = [None if pd.isna(value) else _utf8(value) for value in values]
        return pyarrow.array(texts, kind)
    return pyarrow.array(values, kind)


def _utf8(text: object) -> str:
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")

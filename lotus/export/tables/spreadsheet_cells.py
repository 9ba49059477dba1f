"""Keeps text in cells of a spreadsheet from being evaluated.

Spreadsheets treat a cell of a CSV file that begins with certain characters as a formula, and a
formula can send data elsewhere. Names in a run are not trusted, so such text is prefixed with an
apostrophe, which marks text in spreadsheets. Numbers are unchanged. The length of text that repeats
from row to row is limited: a run of one megabyte may have a million calls of an operation whose
name has 200 kB.
"""

import re
from collections import Counter
from typing import Any

import pandas as pd

from lotus.common.text.formatting import shorten

LONGEST_REPEATED = 1000  # characters, as many as lotus records of an operation's name
# In normal and full width; spreadsheets skip a tab or a line end before them.
_FORMULA = re.compile(r"[\t\r\n=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+|inf|nan)([eE][+-]?\d+)?")


def text(value: Any) -> Any:
    """Return text that no spreadsheet evaluates; other values are returned unchanged."""
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = "'" + value
    # CSV writers do not quote it, but readers end the row there.
    return value.replace("\r", "\\r") if "\r" in value else value


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONGEST_REPEATED


def _repeated(value: Any) -> Any:
    return text(shorten(value, LONGEST_REPEATED) if _is_long(value) else value)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Apply `text` to each cell and column name of `rows`, except for numeric columns.

    The middle of long text that a column repeats is left out.
    """
    changed = rows.rename(columns=text)
    for at in range(rows.shape[1]):
        column = rows.iloc[:, at]
        if isinstance(column.dtype, pd.CategoricalDtype):
            texts = [_repeated(value) for value in column.cat.categories]
            if texts != list(column.cat.categories):
                changed.isetitem(at, column.astype(object).map(_repeated).array)
        elif not pd.api.types.is_numeric_dtype(column.dtype):
            long = Counter(filter(_is_long, column))
            texts = [
                _repeated(value) if _is_long(value) and long[value] > 1 else text(value)
                for value in column
            ]
            if any(new is not old for new, old in zip(texts, column, strict=True)):
                changed.isetitem(at, pd.array(texts, dtype=object))
    return changed

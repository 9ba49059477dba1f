"""Text that goes into cells of a spreadsheet, where it must stay text.

A spreadsheet takes a cell of a CSV file for a formula that begins with one of a few characters, and
a formula can send the sheet elsewhere. Names in a run may be anybody's, so such a text gets the
apostrophe in front by which spreadsheets know text. What is a number stays one.
"""

import re
from typing import Any

import pandas as pd

# As spreadsheets have them, in full width also; a tab or a line end in front is passed over.
_FORMULA = re.compile(r"[\t\r\n=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d[\d_]*\.?\d*|\.\d+|inf|nan)([eE][+-]?\d+)?")


def text(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula; anything else as it is."""
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        value = "'" + value
    # Writers of CSV do not quote it, and for readers a row ends there.
    return value.replace("\r", "\\r") if "\r" in value else value


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """`rows` with `text` of each cell and each column's name; numeric columns are not touched."""
    changed = rows.rename(columns=text)
    for at in range(rows.shape[1]):
        column = rows.iloc[:, at]
        if isinstance(column.dtype, pd.CategoricalDtype):
            texts = [text(one) for one in column.cat.categories]
            if texts != list(column.cat.categories):
                changed.isetitem(at, column.astype(object).map(text).array)
        elif not pd.api.types.is_numeric_dtype(column.dtype):
            texts = [text(one) for one in column]
            if any(new is not old for new, old in zip(texts, column, strict=True)):
                changed.isetitem(at, pd.array(texts, dtype=object))
    return changed

"""Checks the values in files of `lotus attach`, which others may have changed."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

MOST_ROWS = 2_000_000
_LONGEST = 2000  # characters of a text


def columns(content: Mapping[str, Any], name: str, kinds: Mapping[str, range]) -> pd.DataFrame:
    """Return `content[name]`, a table of whole numbers; `kinds` are the valid ranges by column.

    Raises ValueError if a column is missing, has another length or a value out of range.
    """
    table = content.get(name)
    if not isinstance(table, dict):
        raise ValueError(f"{name} is not a table")
    arrays = {}
    for column, sound in kinds.items():
        values = table.get(column)
        if not isinstance(values, list) or len(values) > MOST_ROWS:
            raise ValueError(f"{name}.{column} is not a list")
        if any(type(value) is not int or value not in sound for value in values):
            raise ValueError(f"{name}.{column} has a value that lotus does not write")
        arrays[column] = np.array(values, dtype=np.int64)
    if len({len(values) for values in arrays.values()}) > 1:
        raise ValueError(f"{name} has columns of several lengths")
    return pd.DataFrame(arrays)


def items(content: Mapping[str, Any], name: str) -> list[Any]:
    """Return `content[name]`. Raises ValueError if it is not a list."""
    value = content.get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    return value


def whole(value: Any, sound: range, name: str) -> int:
    """Return `value`. Raises ValueError if it is not a whole number in the range `sound`."""
    if type(value) is not int or value not in sound:
        raise ValueError(f"{name} is {value!r:.50}")
    return value


def text(value: Any) -> str:
    """Return `value`. Raises ValueError if it is not a text that pandas can store."""
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError(f"a text is {value!r:.50}")
    return re.sub(r"[\ud800-\udfff]", "\ufffd", value)

"""Lets functions of several scopes share a variable.

The variable that functions within one function share lies in a cell, which costs a hook less to
read and set than any attribute or item. Python shares cells within one function only.
"""

from __future__ import annotations

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def with_cell(function: Any, name: str, cell: types.CellType) -> Any:
    """Return `function`, whose variable `name` is of an enclosing function, with another cell.

    Functions that it defines get the same cell. Raises ValueError if it has no such variable.
    """
    code = function.__code__
    cells = list(function.__closure__ or ())
    cells[code.co_freevars.index(name)] = cell
    shared = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    shared.__qualname__ = function.__qualname__
    return shared

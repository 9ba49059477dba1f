"""Finds the objects to which a function of the program refers, without running its code."""

from __future__ import annotations

import functools
import types

from ...common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

KINDS = (types.FunctionType, types.MethodType, functools.partial)
_DEEPEST = 4


def of(function: Any, depth: int = 0) -> list[Any]:
    """Return the objects in a function's closure, globals and defaults, each once.

    Includes the attributes of a method's object and the arguments of a `partial`; [] for anything
    else.
    """
    objects = {id(value): value for value in _held(function, depth)}
    return list(objects.values())


def _held(function: Any, depth: int) -> Iterator[Any]:
    kind = type(function)
    if depth > _DEEPEST:
        return
    if kind is functools.partial:
        yield from function.args
        yield from function.keywords.values()
        yield from _held(function.func, depth + 1)
    elif kind is types.MethodType:
        yield from list(attributes(function.__self__).values())
        yield from _held(function.__func__, depth + 1)
    elif kind is types.FunctionType:
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # it is empty
                continue
        yield from function.__defaults__ or ()
        yield from (function.__kwdefaults__ or {}).values()
        module_globals = function.__globals__
        yield from [
            module_globals[name]
            for name in _names(function.__code__, depth)
            if name in module_globals
        ]


def _names(code: types.CodeType, depth: int) -> Iterator[str]:
    """Yield names of globals and attributes in a function and in its nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if type(constant) is types.CodeType and depth < _DEEPEST:
            yield from _names(constant, depth + 1)

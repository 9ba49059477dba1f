"""Finds the Python function that a call of an object executes, and names a hook like it."""

from __future__ import annotations

import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .log.op_table import Definitions

_VARIADIC = 0x04 | 0x08  # CO_VARARGS | CO_VARKEYWORDS


def function_of(thing: Any) -> tuple[Any, int]:
    """Return the function that a call of `thing` executes, and its number of bound arguments."""
    if type(thing) is types.MethodType:
        return thing.__func__, 1
    if type(thing) is types.FunctionType:
        return thing, 0
    function = _of_type(thing, "__call__")
    nn = sys.modules.get("torch.nn")
    if nn is not None and function is vars(nn.Module).get("__call__"):
        function = _of_type(thing, "forward")  # to which it hands on its arguments
    return function, 1


def _of_type(thing: object, name: str) -> Any:
    for kind in type(thing).__mro__:
        if name in vars(kind):
            return vars(kind)[name]
    return None


def note_place(definitions: Definitions, original: Callable[..., Any], number: int) -> None:
    """Note the file and lines of the function that a call of operation `number` executes."""
    function = function_of(original)[0]
    if type(function) is types.FunctionType:
        definitions.locate(number, function.__code__)


def sole_parameter(thing: Any) -> str | None:
    """Return the name of the only parameter of a callable; None if it accepts others."""
    function, bound = function_of(thing)
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    if (
        function.__defaults__
        or "__wrapped__" in vars(function)
        or code.co_flags & _VARIADIC
        or code.co_kwonlyargcount
        or code.co_posonlyargcount
        or code.co_argcount != bound + 1
    ):
        return None
    name = code.co_varnames[bound]
    return name if name not in ("self", "start", "end") else None


def renamed(call_unary: Any, original: Callable[..., Any], parameter: str) -> Any:
    """Give a hook (self, sole) the parameter's name and the name of the method that it times."""
    code = call_unary.__code__
    names = code.co_varnames
    call_unary.__code__ = code.replace(co_varnames=(names[0], parameter, *names[2:]))
    call_unary.__name__ = "__call__"
    call_unary.__qualname__ = f"{type(original).__name__}.__call__"
    return call_unary

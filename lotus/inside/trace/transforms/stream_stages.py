"""Finds the functions that streams of other libraries call per sample: `.map`, `.filter` and
others.
"""

from __future__ import annotations

from ...common.object_attributes import attributes, original_of
from ..called_function import function_of
from ..operation_stand_ins import is_stand_in, label, numbered, stand_in
from . import webdataset_stages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .webdataset_stages import Placing
_COROUTINE = 0x80  # CO_COROUTINE: a call of it only makes a coroutine


def instrument(finder: Placing, owner: object, name: str, value: Any, depth: int) -> bool:
    """Time the stages in one attribute of a data set; return False if it has none."""
    if name == "pipeline" and type(value) is list and _is_of(owner, "webdataset.pipeline"):
        webdataset_stages.instrument(finder, owner, value, depth)
        return False  # it may hold data sets too
    if name == "_ex_iterable" and _is_of(value, "datasets.iterable_dataset"):
        _functions_of_datasets(finder, value)
        return True
    return False


def _is_of(thing: object, module: str) -> bool:
    """Return whether an object has a class of the module."""
    return any(kind.__module__ == module for kind in type(thing).__mro__)


def _functions_of_datasets(finder: Placing, last: Any) -> None:
    """Time the functions of Hugging Face's `map` and `filter`; `last` is the last stage."""
    stages, pending = [], [last]
    while pending:
        own = attributes(stage := pending.pop())
        if not own or not finder.enter(stage, 0):
            continue
        if callable(own.get("function")):
            stages.append(stage)
        pending += [own.get("ex_iterable"), *(own.get("ex_iterables") or ())]
    stages.reverse()
    # `function` of a filter is the library's own, made of this one; copies of the filter, for
    # shards, make it again.
    slots = [
        (stage, "mask_function" if "mask_function" in attributes(stage) else "function")
        for stage in stages
    ]
    functions = [original_of(attributes(stage)[name]) for stage, name in slots]
    labels = numbered([label(function) for function in functions])
    recorder = finder.recorder
    for index, ((stage, name), function) in enumerate(zip(slots, functions, strict=True)):
        own, text = attributes(stage), labels[index]
        if is_stand_in(own[name]) or _is_coroutine(function):
            continue
        number = recorder.definitions.define(text, 0, index)
        replacement = stand_in(function, number, recorder)
        if name == "mask_function":
            wrapper = stand_in(own["function"], number, recorder)
            finder.set_attribute(stage, "function", wrapper)
        finder.set_attribute(stage, name, replacement)
        finder.inside(function, replacement, text, 0)


def _is_coroutine(function: Any) -> bool:
    while type(function).__name__ == "partial":
        function = function.func
    code = getattr(function_of(function)[0], "__code__", None)
    return bool(code is not None and code.co_flags & _COROUTINE)

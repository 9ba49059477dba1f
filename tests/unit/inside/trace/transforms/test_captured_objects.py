"""What a function names is found without calling anything of the program."""

import functools
from typing import Any

from lotus.inside.trace.transforms import captured_objects

OF_THE_MODULE, NESTED, UNUSED = object(), object(), object()


class Reader:
    def __init__(self) -> None:
        self.own = object()

    @property
    def refuses(self) -> None:
        raise AssertionError("a property of the program was called")

    def read(self, value: Any) -> Any:
        return [OF_THE_MODULE, self.refuses, value]


def test_globals_are_found_also_in_functions_that_it_defines() -> None:
    def convert(values: Any) -> Any:
        return [(lambda value: (NESTED, value))(value) for value in values] + [OF_THE_MODULE]

    found = captured_objects.of(convert)
    assert any(value is NESTED for value in found)
    assert any(value is OF_THE_MODULE for value in found)
    assert not any(value is UNUSED for value in found)


def test_closures_defaults_and_arguments_are_found_once() -> None:
    cell, default, argument = object(), object(), object()

    def convert(value: Any, known: Any = default, *, other: Any = default) -> Any:
        return value, known, other, cell

    found = captured_objects.of(functools.partial(convert, other=argument, known=cell))
    assert sorted(map(id, found)) == sorted(map(id, (cell, default, argument)))


def test_a_cell_that_is_still_empty_is_left_out() -> None:
    def convert() -> Any:
        return later

    assert captured_objects.of(convert) == []
    later = object()
    assert captured_objects.of(convert) == [later]


def test_a_method_names_the_attributes_of_its_object() -> None:
    reader = Reader()
    found = captured_objects.of(reader.read)
    assert reader.own in found
    assert any(value is OF_THE_MODULE for value in found)


def test_anything_else_names_nothing() -> None:
    for thing in (len, Reader, Reader(), 1, None):
        assert captured_objects.of(thing) == []

"""Operations are known by code and parameters, and what goes into them by kind and size."""

from types import SimpleNamespace

import pytest

from lotus.inside.isolate import operation_identity
from lotus.inside.isolate.operation_identity import (
    input_of_own_code,
    key_of_operation,
    key_of_own_code,
    kind_and_bytes,
)


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, value):
        return value * self.factor


class Larger(Scale):
    def __call__(self, value):
        return value * self.factor + 1


def decoded(path):
    return path


class Files:
    def __init__(self, transform, samples, loader=decoded, size=8):
        self.transform, self.samples, self.loader, self.size = transform, samples, loader, size


class Rows:
    def __init__(self, rows):
        self.rows = rows


def test_code_and_parameters_are_in_the_key():
    keys = [key_of_operation(each) for each in (Scale(2), Scale(3), Larger(2), decoded)]
    assert len({*keys, key_of_operation(Scale(2))}) == 4
    assert key_of_operation(iter([1]).__next__) is None or keys[0] is not None


def test_own_code_is_known_without_the_files():
    one = Files(Scale(2), ["/a/1.jpg"])
    key = key_of_own_code(one, one.transform)
    other = Files(Scale(3), ["/b/1.jpg", "/b/2.jpg"])
    assert key_of_own_code(other, other.transform) == key
    for changed in (Files(Scale(2), ["/a"], loader=str), Files(Scale(2), ["/a"], size=9)):
        assert key_of_own_code(changed, changed.transform) != key


def test_own_code_without_files_is_known_by_its_data():
    key = key_of_own_code(Rows([1]), None)
    assert key == key_of_own_code(Rows([1]), None) != key_of_own_code(Rows([2]), None)


def test_the_input_of_own_code_is_a_file(tmp_path):
    path = tmp_path / "1.JPG"
    path.write_bytes(bytes(70))
    assert input_of_own_code(Files(None, [str(path)]), 0) == ("file .jpg", 70)
    assert input_of_own_code(Files(None, ["/nowhere.jpg"]), 0) == ("index", 0)
    assert input_of_own_code(Rows([1]), 0) == ("index", 0)


def test_values_have_a_kind_and_bytes():
    numpy = pytest.importorskip("numpy")
    picture = SimpleNamespace(getbands=lambda: "RGB", mode="RGB", size=(4, 5))
    array = numpy.zeros((3, 4), "float32")
    assert kind_and_bytes(picture) == ("picture RGB", 60)
    assert kind_and_bytes(array) == ("ndarray float32", 48)
    assert kind_and_bytes("abc") == ("str", 3)
    assert kind_and_bytes(3) == ("int", 0)
    assert kind_and_bytes({"a": array, "b": [array, 1]}) == (
        "dict of ndarray float32, list of ndarray float32, int", 96,
    )  # fmt: skip


def test_names_are_qualified():
    assert operation_identity.qualified_name(Scale(2)) == f"{__name__}.Scale"
    assert operation_identity.qualified_name(decoded) == f"{__name__}.decoded"

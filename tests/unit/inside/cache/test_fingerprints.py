"""Hashes of data sets: the same for the same, in any process; other ones where a sample may be."""

import contextlib
import enum
import functools
import os
import pathlib
import random
import subprocess
import sys
import types

import pytest

from lotus.inside.cache import fingerprints
from lotus.inside.cache.fingerprints import FingerprintError, fingerprint

SCALE = 2


class Color(enum.Enum):
    RED = 1


class Data:
    def __init__(self, **state):
        self.__dict__.update(state)

    def __getitem__(self, index):
        return index * SCALE


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


def test_equal_state_has_one_hash():
    files = [(f"{number}.jpg", number % 7) for number in range(10_000)]
    first = Data(files=files, names={"a": 1}, kinds={"x", "y"}, path=pathlib.Path("here"))
    again = Data(
        files=[(f"{number}.jpg", number % 7) for number in range(10_000)],
        names={"a": 1}, kinds={"y", "x"}, path=pathlib.Path("here"),
    )  # fmt: skip
    assert fingerprint(first) == fingerprint(again)


@pytest.mark.parametrize(
    "change",
    [
        {"files": ["b"]}, {"names": {"a": 2}}, {"path": pathlib.Path("there")}, {"scale": 2.0},
        {"scale": True}, {"color": Color.RED}, {"text": "\udc80"}, {"slotted": Slotted(1)},
        {"chance": random.Random(1)}, {"call": functools.partial(int, "3", base=8)},
        {"many": [object] * 100}, {"none": None},
    ],
)  # fmt: skip
def test_another_state_has_another_hash(change):
    before = {"files": ["a"], "names": {"a": 1}, "path": pathlib.Path("here"), "scale": 1}
    assert fingerprint(Data(**before, **{})) != fingerprint(Data(**{**before, **change}))


def test_a_late_item_of_a_long_list_counts():
    items = [f"{number}.jpg" for number in range(9_000)]
    other = [*items[:-1], "other.jpg"]
    assert fingerprint(Data(files=items)) != fingerprint(Data(files=other))


def test_states_of_generators_count():
    chance = random.Random(3)
    before = fingerprint(Data(chance=chance))
    chance.random()
    assert fingerprint(Data(chance=chance)) != before


def function_of(source, **names):
    module = types.ModuleType("made")
    vars(module).update(names)
    exec(compile(source, "made.py", "exec"), vars(module))
    return module.load


def test_code_counts_and_what_it_names():
    same = "def load(x):\n    return x + 1\n"
    assert fingerprint(function_of(same)) == fingerprint(function_of("\n\n" + same))
    assert fingerprint(function_of(same)) != fingerprint(function_of(same.replace("1", "2")))
    inner = "def load(x):\n    return [(lambda y: y * 2)(v) for v in x]\n"
    assert fingerprint(function_of(inner)) != fingerprint(function_of(inner.replace("2", "3")))
    default = "def load(x, y=1):\n    return x\n"
    assert fingerprint(function_of(default)) != fingerprint(function_of(default.replace("1", "2")))
    named = "def load(x):\n    return helper(x) * SIZE\n"
    helper, other = function_of(same), function_of(same.replace("1", "2"))
    base = fingerprint(function_of(named, helper=helper, SIZE=3))
    assert fingerprint(function_of(named, helper=other, SIZE=3)) != base
    assert fingerprint(function_of(named, helper=helper, SIZE=4)) != base
    closed = (
        "def make(n):\n    def load(x):\n        return x * n\n    return load\nload = make(%d)\n"
    )
    assert fingerprint(function_of(closed % 1)) != fingerprint(function_of(closed % 2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"size": 1}, {"size": 2}),
        ([1], [2]),
        (types.SimpleNamespace(n=1), types.SimpleNamespace(n=2)),
    ],
)
def test_objects_that_code_names_count(one, other):
    named = "def load(x):\n    return GLOBAL\n"
    base = fingerprint(function_of(named, GLOBAL=one))
    assert fingerprint(function_of(named, GLOBAL=one)) == base
    assert fingerprint(function_of(named, GLOBAL=other)) != base


def test_what_code_names_of_own_modules_counts():
    def named(source):
        own = types.ModuleType("own")
        own.__file__ = os.path.abspath("own.py")
        exec(compile(source, own.__file__, "exec"), vars(own))
        return fingerprint(function_of("def load(x):\n    return own.crop(x)\n", own=own))

    crop = "SIZE = 1\ndef crop(x):\n    return x[:SIZE]\ndef other(x):\n    return 3\n"
    assert named(crop) == named(crop.replace("3", "4"))
    assert named(crop) != named(crop.replace("[:", "[1:"))
    assert named(crop) != named(crop.replace("= 1", "= 2"))


def test_global_generators_count_by_name():
    generators = [random.Random(1)]
    with contextlib.suppress(ImportError):
        import numpy

        generators += [numpy.random.default_rng(1), numpy.random.RandomState(1)]
    for generator in generators:
        names = {"source": generator}
        exec("def draw(): return source.random()", names)
        before = fingerprint(names["draw"])
        generator.random()
        assert fingerprint(names["draw"]) == before
        names["source"] = 0.5
        assert fingerprint(names["draw"]) != before


def test_a_global_without_a_hash_does_not_hinder(tmp_path):
    with open(tmp_path / "x", "w") as file:
        assert fingerprint(function_of("def load(x):\n    return log\n", log=file))


def test_functions_that_keep_results_are_refused():
    kept = functools.lru_cache(function_of("def load(x):\n    return x\n"))
    with pytest.raises(FingerprintError, match="load of the program keeps its results"):
        fingerprint(function_of("def load(x):\n    return shard(x)\n", shard=kept))


def test_objects_in_the_programs_classes_count():
    def made(size):
        return type("Own", (Data,), {"__module__": __name__, "steps": [Data(size=size)]})()

    assert fingerprint(made(1)) == fingerprint(made(1))
    assert fingerprint(made(1)) != fingerprint(made(2))


def test_methods_of_the_programs_classes_count():
    source = "class load:\n    def __getitem__(self, index):\n        return index + 1\n"

    def made(text):
        names = {"__name__": "made"}
        exec(text, names)
        return names["load"]()

    module = sys.modules["made"] = types.ModuleType("made")
    module.__file__ = os.path.abspath("made.py")
    try:
        assert fingerprint(made(source)) == fingerprint(made(source))
        assert fingerprint(made(source)) != fingerprint(made(source.replace("1", "2")))
    finally:
        del sys.modules["made"]


def test_what_is_left_out_does_not_count():
    transform = Data(a=1)
    kept = Data(transform=transform, files=["a"] * 100)
    other = Data(transform=Data(a=2), files=["a"] * 100)
    assert fingerprint(kept) != fingerprint(other)
    assert fingerprint(kept, without=[transform]) == fingerprint(other, without=[other.transform])


def test_a_cycle_ends():
    data = Data()
    data.own = [data]
    assert fingerprint(data) == fingerprint(data)


def test_what_has_no_state_is_refused(tmp_path):
    with open(tmp_path / "x", "w") as file, pytest.raises(FingerprintError, match="TextIOWrapper"):
        fingerprint(Data(file=file))


def test_too_much_is_refused(monkeypatch):
    monkeypatch.setattr(fingerprints, "_MOST_BYTES", 1000)
    with pytest.raises(FingerprintError, match="more than"):
        fingerprint(Data(text="x" * 2000))
    monkeypatch.undo()
    monkeypatch.setattr(fingerprints, "_MOST_OBJECTS", 100)
    with pytest.raises(FingerprintError, match="too many objects"):
        fingerprint([Slotted(1) for _ in range(200)])


def test_arrays_and_tensors_count():
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    values = numpy.arange(6.0)
    base = fingerprint(Data(values=values))
    assert fingerprint(Data(values=values.copy())) == base
    assert fingerprint(Data(values=values.reshape(2, 3))) != base
    assert fingerprint(Data(values=values.astype("f4"))) != base
    assert fingerprint(Data(values=torch.arange(6.0))) != fingerprint(
        Data(values=torch.arange(6.0) + 1)
    )
    assert fingerprint(Data(values=torch.empty(0))) == fingerprint(Data(values=torch.empty(0)))
    rng = numpy.random.default_rng(1)
    before = fingerprint(Data(rng=rng))
    rng.random()
    assert fingerprint(Data(rng=rng)) != before
    words = Data(words=numpy.array(["a", None], dtype=object), dtype=torch.float32)
    assert fingerprint(words) == fingerprint(words)


def test_pictures_in_memory_count(tmp_path):
    image = pytest.importorskip("PIL.Image")

    def picture(pixel=3, mode="RGB"):
        made = image.new("RGB", (4, 5), (1, 2, pixel)).convert(mode)
        return fingerprint(Data(pictures=[made]))

    assert picture() == picture()
    assert len({picture(), picture(pixel=4), picture(mode="L"), picture(mode="P")}) == 4
    # BUT one that was not read yet stays so.
    image.new("RGB", (4, 5)).save(tmp_path / "a.png")
    with image.open(tmp_path / "a.png") as opened:
        with pytest.raises(FingerprintError):
            fingerprint(Data(picture=opened))
        assert opened.fp is not None
        opened.load()


def test_it_is_the_same_in_another_process():
    code = (
        "from tests.unit.inside.cache.test_fingerprints import Data\n"
        "from lotus.inside.cache.fingerprints import fingerprint\n"
        "print(fingerprint(Data(files=[str(n) for n in range(5000)], kinds={'a', 'b', 'c'})))\n"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(hashes) == 1

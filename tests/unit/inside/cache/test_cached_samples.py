"""Samples that are made from what is kept, and when they are not."""

import random
import sys

import pytest

from lotus.inside.cache import cached_samples
from lotus.inside.cache.cached_samples import (
    CachedSample,
    CachedSamples,
    CachePlan,
    SampleCount,
    SampleMaker,
    entry_parts,
    key_of,
)
from lotus.inside.cache.entry_codec import HOLE, encode
from lotus.inside.cache.sample_template import filled, with_hole


class Memory:
    """A store in memory."""

    def __init__(self):
        self.entries, self.dropped, self.why = {}, False, ""

    def get(self, name):
        data = self.entries.get(name)
        return None if data is None else memoryview(data)

    def put(self, name, parts):
        self.entries[name] = b"".join(parts)
        return True

    def drop(self, why):
        self.dropped, self.why = True, why


class Data:
    def __init__(self):
        self.transform, self.made, self.shift = self.scale, [], 0

    def scale(self, value):
        return value * 10 + random.random()

    def __getitem__(self, index):
        if index == "raise":
            raise KeyError(index)
        self.made.append(index)
        return {"value": self.transform(index + self.shift), "label": [index]}


@pytest.fixture
def store():
    return Memory()


@pytest.fixture
def notes():
    return []


@pytest.fixture
def made(store, notes):
    """made(data): the samples of a data set that are kept in `store`."""

    def make(data, path=("transform",), least=0.0):
        plan = CachePlan(path, 0, "key", "")
        plan.least_ns_per_byte = least
        return CachedSamples(data, SampleMaker(data, plan, store, notes.append, SampleCount()))

    return make


def samples(data, indices=(1, 2, 1, 2)):
    random.seed(5)
    return [data[index] for index in indices]


def test_samples_and_random_numbers_are_equal(made, notes):
    data = Data()
    assert samples(made(data)) == samples(Data())
    assert (data.made, notes) == ([1, 2, 1], [])  # the first cached sample is compared
    assert data.transform == data.scale


def test_the_count_is_of_kept_and_made_samples(store):
    data, count = Data(), SampleCount()
    plan = CachePlan(("transform",), 0, "key", "")
    samples(CachedSamples(data, SampleMaker(data, plan, store, print, count)))
    assert (count.kept, count.made) == (2, 2)


def test_a_kept_sample_that_differs_drops_all(made, store, notes, monkeypatch):
    monkeypatch.setattr(cached_samples, "CHECKED", 1)
    data = Data()
    kept = made(data)
    before = samples(kept)
    data.shift = 1  # which no hash has seen
    plain = Data()
    plain.shift = 1
    assert samples(kept) == samples(plain) != before
    assert store.dropped
    assert "differs" in notes[0]
    # AND another process stops too.
    other = Data()
    samples(made(other))
    assert other.made == [1, 2, 1, 2]


def test_the_first_kept_sample_of_a_process_is_compared(made, store, notes):
    samples(made(Data()))
    data, plain = Data(), Data()
    data.shift = plain.shift = 1  # between two runs, and no hash has seen it
    assert samples(made(data)) == samples(plain)
    assert store.dropped
    assert "differs" in notes[0]


def test_a_comparison_of_equal_samples_keeps_them(made, store, notes, monkeypatch):
    monkeypatch.setattr(cached_samples, "CHECKED", 1)
    data = Data()
    assert samples(made(data)) == samples(Data())
    assert data.made == [1, 2, 1, 2]
    assert (store.dropped, notes) == (False, [])


@pytest.mark.parametrize("damage", [b"", b"\x00" * 40, b"\xff" * 9, b"\x01" + b"\x00" * 7])
def test_a_damaged_entry_is_made_again(made, store, notes, damage):
    data = Data()
    kept = made(data)
    samples(kept)
    for name in store.entries:
        store.entries[name] = damage
    assert samples(kept) == samples(Data())
    assert data.made == [1, 2, 1, 1, 2]
    assert notes == []


def test_what_saves_too_little_is_not_kept(made, store):
    data = Data()
    assert samples(made(data, least=1e18)) == samples(Data())
    assert store.entries == {}


def test_another_transform_stops_it(made, notes):
    data = Data()
    kept = made(data)
    samples(kept)
    data.transform = str
    assert kept[1] == {"value": "1", "label": [1]}
    assert "replaced" in notes[0]


def test_what_raises_raises(made, notes, monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which hides our frames from now on
    kept = made(Data())
    for _ in range(2):
        with pytest.raises(KeyError, match="raise"):
            kept["raise"]
    assert notes == []


def test_what_cannot_be_kept_stops_it(made, notes):
    class Odd(Data):
        def __getitem__(self, index):
            return {"value": self.transform(index), "odd": object()}

    kept = made(Odd())
    assert samples(kept)[0]["value"] == samples(Data())[0]["value"]
    assert len(notes) == 1
    assert "samples are not cached" in notes[0]


def test_random_numbers_before_the_cut_stop_it(made, store, notes):
    class Drawing(Data):
        def __getitem__(self, index):
            self.shift = random.random()
            return super().__getitem__(index)

    assert samples(made(Drawing())) == samples(Drawing())
    assert store.entries == {}
    assert "random numbers are drawn before the cut" in notes[0]


def test_random_numbers_after_the_transform_stop_it(made, store, notes):
    class Noisy(Data):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "noise": random.random()}

    assert samples(made(Noisy())) == samples(Noisy())
    assert store.entries == {}
    assert "random numbers are drawn after the transform" in notes[0]


def test_whole_samples(made, store):
    class Whole(Data):
        def __getitem__(self, index):
            self.made.append(index)
            return (index, [index])

    data = Whole()
    kept = made(data, path=None)
    assert samples(kept) == [(1, [1]), (2, [2])] * 2
    assert data.made == [1, 2, 1]
    assert kept[1][1] is not kept[1][1]


def test_indices_of_other_types_are_not_kept(made, store):
    class Any:
        def __getitem__(self, index):
            return str(index)

    assert made(Any(), path=None)[(1, [2])] == "(1, [2])"
    assert store.entries == {}


def test_it_has_the_attributes_of_its_data_set(made):
    data = Data()
    assert made(data).made is data.made
    assert not hasattr(made(data), "__getitems__")


def test_samples_of_alternatives_have_a_key_of_their_own():
    transforms = pytest.importorskip("torchvision.transforms")
    data, path = Data(), ("transform",)
    data.transform = transforms.Compose([transforms.Resize(8)])
    own, other = key_of(data, path, 0), key_of(data, path, 0, ["uint8_tensors"])
    assert len({own, other, key_of(data, path, 0, ["in_place_normalize"])}) == 3
    assert key_of(data, path, 0, ["uint8_tensors"]) == other
    data.transform.transforms.append(transforms.ToTensor())  # comes after what is cached
    assert key_of(data, path, 0) == own
    assert key_of(data, path, 0, ["uint8_tensors"]) != other


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, value):
        return value * self.factor


class OneTransform:
    def __init__(self, transform, paths=()):
        self.transform, self.paths = transform, list(paths)

    def __getitem__(self, index):
        return self.transform(index)


class SteppedTransform(OneTransform):
    pass


@pytest.mark.parametrize(
    "other",
    [
        OneTransform(Scale(3)),
        OneTransform(lambda value: value * 2),
        OneTransform(Scale(2), ["/a"]),
        SteppedTransform(Scale(2)),
    ],
)
def test_another_transform_or_data_set_has_another_key(other):
    path = ("transform",)
    assert key_of(OneTransform(Scale(2)), path, 1) == key_of(OneTransform(Scale(2)), path, 1)
    assert key_of(OneTransform(Scale(2)), path, 1) != key_of(other, path, 1)


def test_what_follows_the_cut_is_not_in_the_key():
    assert key_of(OneTransform(Scale(2)), ("transform",), 0) == key_of(
        OneTransform(Scale(3)), ("transform",), 0
    )


@pytest.mark.parametrize(("paths", "same"), [(["/data/a"], True), (["data/a"], False), ([], False)])
def test_relative_paths_belong_to_a_working_directory(tmp_path, monkeypatch, paths, same):
    data = OneTransform(Scale(2), paths)
    keys = [key_of(data, path, 1) for path in (None, ("transform",))]
    monkeypatch.chdir(tmp_path)
    assert ([key_of(data, path, 1) for path in (None, ("transform",))] == keys) is same


@pytest.mark.parametrize(("cut", "entries"), [(0, 0), (1, 2)])
def test_a_data_set_that_looks_into_its_transform_shares_no_prefix(store, notes, cut, entries):
    class Looking(OneTransform):
        def __getitem__(self, index):
            return self.transform(index + self.transform.factor)

    data = Looking(Scale(2))
    plan = CachePlan(("transform",), cut, "key", "")
    made = CachedSamples(data, SampleMaker(data, plan, store, notes.append, SampleCount()))
    assert samples(made) == [6, 8, 6, 8]
    assert len(store.entries) == entries
    assert ("uses attributes of its transform" in "".join(notes)) is (cut == 0)


def test_holes():
    value = object()
    sample = {"a": [1, value], "b": (2,)}
    template, holes = with_hole(sample, value)
    assert (template, holes) == ({"a": [1, HOLE], "b": (2,)}, 1)
    assert filled(template, value) == sample
    assert with_hole(value, value) == (HOLE, 1)
    assert with_hole([value, value], value)[1] == 2
    assert with_hole([1, 2], value) == ([1, 2], 0)


def test_an_entry_has_files_template_and_value(tmp_path):
    path = tmp_path / "a"
    path.write_text("x")
    status = path.stat()
    files = [(str(path), status.st_size, status.st_mtime_ns)]
    parts = entry_parts(files, [HOLE, 3], encode((1, "two")))
    entry = CachedSample(memoryview(b"".join(parts)))
    assert (entry.files, entry.template, entry.value) == (files, [HOLE, 3], (1, "two"))
    assert entry.is_current()
    path.write_text("xy")
    assert not entry.is_current()
    path.unlink()
    assert not entry.is_current()

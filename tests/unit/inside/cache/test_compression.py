"""Entries of cached samples are equal bit for bit after they were compressed."""

import io
import sys
import types
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from lotus.inside.cache import cached_samples, compression
from lotus.inside.cache.cached_samples import (
    CachedSample,
    CachedSamples,
    CachePlan,
    SampleCount,
    SampleMaker,
    encoded,
    entry_parts,
)
from lotus.inside.cache.compression import GREY, METHODS, PLANES, RGB, compressed, picture_of
from lotus.inside.cache.entry_codec import encode
from lotus.inside.cache.sample_store import SampleStore


def soft(*sizes):
    """An array of uint8 that becomes smaller, and by another number of bytes in each row."""
    values = np.indices(sizes).sum(0) * 3 + np.random.default_rng(0).integers(0, 4, sizes)
    return values.astype(np.uint8)


VALUES = {
    "picture": lambda: Image.fromarray(soft(60, 41, 3)),
    "grey picture": lambda: Image.fromarray(soft(60, 41)),
    "palette": lambda: Image.fromarray(soft(60, 41)).convert("P"),
    "with alpha": lambda: Image.fromarray(soft(60, 41, 4)),
    "rows of an array": lambda: soft(60, 41, 3),
    "planes of a tensor": lambda: torch.from_numpy(soft(3, 60, 41)),
    "channels last": lambda: torch.from_numpy(soft(60, 41, 3)).permute(2, 0, 1),
    "one plane": lambda: torch.from_numpy(soft(1, 60, 41)),
    "order of Fortran": lambda: np.asfortranarray(soft(60, 41, 3)),
    "spread": lambda: soft(60, 82, 3)[:, ::2],
    "floats": lambda: torch.linspace(0, 1, 1000).round(decimals=1),
    "noise": lambda: np.random.default_rng(1).integers(0, 256, (60, 41, 3), np.uint8),
    "several": lambda: [soft(60, 41, 3), {"mask": soft(60, 41)}, b"x" * 2000, "a text"],
    "small": lambda: (1, 2.5, None),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_bit_for_bit(name, method):
    value = VALUES[name]()
    parts = entry_parts((), {"rest": VALUES["several"]()}, encode(value))
    stored = b"".join(compressed(parts, method))
    again = CachedSample(memoryview(stored))
    assert bytes(again.encoded_value) == encoded(value)
    assert encoded(again.value) == encoded(value)
    assert encoded(again.template) == encoded({"rest": VALUES["several"]()})


def taken(value, method):
    parts = entry_parts((), None, encode(value))
    return len(b"".join(compressed(parts, method))) / sum(map(len, parts))


def test_pictures_take_less_as_pictures():
    # GIVEN colours that change from pixel to pixel, as in pictures
    for name in ("picture", "planes of a tensor", "channels last", "rows of an array"):
        value = VALUES[name]()
        assert taken(value, "webp") < 0.8 * taken(value, "zlib"), name
        assert taken(value, "png") < 0.8 * taken(value, "zlib"), name


def test_what_does_not_become_smaller_stays_as_it_is():
    for method in METHODS:
        assert taken(VALUES["noise"](), method) < 1.05


@pytest.mark.parametrize(
    ("sizes", "picture"),
    [
        ((5, 7), (GREY, 7, 5)),
        ((5, 7, 3), (RGB, 7, 5)),
        ((3, 5, 7), (PLANES, 7, 5)),
        ((1, 5, 7), (GREY, 7, 5)),
        ((5, 7, 1), (GREY, 7, 5)),
        ((5, 7, 4), None),
        ((2, 3, 5, 7), None),
        ((9,), None),
        ((5, 0, 3), None),
        ((5, 20_000), None),
    ],
)
def test_which_arrays_are_pictures(sizes, picture):
    assert picture_of(sizes) == picture


@pytest.mark.parametrize("method", METHODS)
def test_damaged_entries_are_none(method):
    stored = b"".join(compressed(entry_parts((), None, encode(VALUES["several"]())), method))
    for length in (9, 40, 200, len(stored) - 1):
        with pytest.raises(ValueError, match="damaged"):
            CachedSample(memoryview(stored[:length]))
    with pytest.raises(ValueError, match="damaged"):
        CachedSample(memoryview(stored + b"\0"))


class Decompressor:
    """As in Python 3.14 and backports.zstd."""

    def decompress(self, data, max_length):
        return zlib.decompressobj().decompress(bytes(data[4:]), max_length)


class Zstandard:
    """As in the package zstandard."""

    def stream_reader(self, data):
        return io.BytesIO(zlib.decompress(data[4:]))


@pytest.fixture(params=[Decompressor, Zstandard])
def zstd(request, monkeypatch):
    """A stand-in for a module of zstd."""
    module = types.ModuleType("zstandard")
    module.compress = lambda data, level: b"zstd" + zlib.compress(data, level)
    module.ZstdDecompressor = request.param
    monkeypatch.setattr(compression, "_ZSTD_MODULES", ("lotus_no_such", "zstandard"))
    monkeypatch.setattr(compression, "_found", [])
    monkeypatch.setitem(sys.modules, "zstandard", module)


def test_zstd_is_taken_from_where_it_is(zstd, monkeypatch):
    value = VALUES["floats"]()
    assert compression.usable("zstd", [])
    stored = b"".join(compressed(entry_parts((), None, encode(value)), "zstd"))
    assert b"zstd" in stored
    assert encoded(CachedSample(memoryview(stored)).value) == encoded(value)
    # THEN without it, what it has made cannot be read, and zlib is used.
    monkeypatch.setattr(compression, "_ZSTD_MODULES", ("lotus_no_such",))
    monkeypatch.setattr(compression, "_found", [])
    assert not compression.usable("zstd", [])
    with pytest.raises(ValueError, match="zstd is not here"):
        CachedSample(memoryview(stored))
    assert taken(value, "zstd") == taken(value, "zlib")


def bomb(method):
    """An entry of one part that should have 1,000 bytes, and expands to 10 MB."""
    data = zlib.compress(bytes(10_000_000), 1)
    kind = compression._ZLIB
    if method == "zstd":
        kind, data = compression._ZSTD, b"zstd" + data
    part = compression._PART.pack(kind, 0, 0, 0, 1000, len(data))
    return memoryview(compression.MARK + compression._COUNT.pack(1) + part + data)


@pytest.mark.parametrize("method", ["zlib", "zstd"])
def test_a_damaged_part_expands_to_no_more_than_it_should(zstd, method):
    assert len(compression.decompressed(bomb(method))) == 1000


@pytest.mark.parametrize("name", ["compression.zstd", "backports.zstd", "zstandard"])
def test_real_modules_of_zstd_expand_no_further_than_asked(name, monkeypatch):
    module = pytest.importorskip(name)
    monkeypatch.setattr(compression, "_found", [module])
    values = bytes(range(256)) * 1000
    packed = memoryview(module.compress(values, 3))
    for size in (len(values), 1000, 0):
        assert compression._expanded(module.ZstdDecompressor(), packed, size) == values[:size]
    part = compression._PART.pack(compression._ZSTD, 0, 0, 0, 1000, 50)
    with pytest.raises(ValueError, match="damaged"):
        compression.decompressed(
            memoryview(compression.MARK + compression._COUNT.pack(1) + part + bytes(50))
        )


def test_pictures_need_pillow_of_the_program(monkeypatch):
    value = VALUES["rows of an array"]()
    stored = b"".join(compressed(entry_parts((), None, encode(value)), "webp"))
    monkeypatch.delitem(sys.modules, "PIL.Image")
    assert not compression.usable("webp", [(RGB, 41, 60)])
    with pytest.raises(ValueError, match="Pillow"):
        CachedSample(memoryview(stored))
    assert taken(value, "webp") == taken(value, "zlib")


class Data:
    def __init__(self):
        self.made = []

    def transform(self, value):
        return value + np.uint8(1)

    def __getitem__(self, index):
        self.made.append(index)
        return self.transform(soft(60 + index, 41, 3)), index


def made(data, folder, budget_bytes, notes):
    plan = CachePlan(("transform",), 0, "key", "")
    plan.compression = "webp"
    store = SampleStore(str(folder), budget_bytes, notes.append)
    return CachedSamples(data, SampleMaker(data, plan, store, notes.append, SampleCount()))


def test_a_cache_holds_compressed_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(cached_samples, "CHECKED", 2)
    data, plain, notes = Data(), Data(), []
    data.transform = data.transform  # an attribute, as data sets have it
    cached = made(data, tmp_path / "cache", 1 << 30, notes)
    for _ in range(3):
        for index in range(4):
            got, expected = cached[index], plain[index]
            assert got[0].tobytes() == expected[0].tobytes()
            assert got[1] == expected[1]
    # THEN later epochs made those only that were compared.
    assert data.made[:4] == [0, 1, 2, 3]
    assert len(data.made) == 4 + 4
    assert notes == []
    files = list((tmp_path / "cache").glob("??/*"))
    assert len(files) == 4
    assert all(b"WEBP" in file.read_bytes() for file in files)


def test_where_there_is_no_more_room_nothing_is_compressed(tmp_path, monkeypatch):
    # GIVEN room for two samples with their folders
    calls = []
    monkeypatch.setattr(
        cached_samples,
        "compressed",
        lambda parts, method: calls.append(method) or compressed(parts, method),
    )
    data, notes = Data(), []
    data.transform = data.transform
    cached = made(data, tmp_path / "cache", 2 * (4096 + 8192), notes)
    for _ in range(3):
        for index in range(20):
            assert cached[index][1] == index
    # THEN one that found no room is the last that was compressed.
    assert len(calls) == len(list((tmp_path / "cache").glob("??/*"))) + 1 < 20

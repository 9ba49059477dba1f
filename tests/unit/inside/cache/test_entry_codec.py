"""Values of samples come back from bytes equal bit for bit, and damaged bytes as ValueError."""

import contextlib
import gc
import math
import random
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lotus.inside.cache import entry_codec, entry_decoder, sample_template
from lotus.inside.cache.entry_codec import HOLE, EncodingError

TEXTS = st.text(st.characters(categories=None), max_size=20)  # also lone surrogates
FLOATS = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**300), 2**300),
    FLOATS,
    st.sampled_from([-0.0, 0.0, math.inf, math.nan]),
    TEXTS,
    st.binary(max_size=50),
)
KEYS = st.one_of(PLAIN, st.tuples(PLAIN, PLAIN))
NAMES = "|b1 |u1 <i2 >i4 <i8 <u8 <f2 <f4 >f8 <c8 <c16 <M8[ns] <m8[D] |S3 <U2".split()
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


@st.composite
def strided(draw: st.DrawFn) -> "np.ndarray[Any, Any]":
    """An array of any bits, as it is after operations that only change its strides."""
    dtype, shape = np.dtype(draw(st.sampled_from(NAMES))), draw(SHAPES)
    count = math.prod(shape) * dtype.itemsize
    bits = random.Random(draw(st.integers(0, 99))).randbytes(count)
    if dtype.kind in "bU":
        bits = bytes(count)
    array = (
        np.frombuffer(bytearray(bits), dtype).reshape(shape) if count else np.empty(shape, dtype)
    )
    array = array.transpose(draw(st.permutations(range(len(shape)))))
    for place, size in enumerate(array.shape):
        step = draw(st.sampled_from([1, 1, -1, 2, -2]))
        array = array[(slice(None),) * place + (slice(None, None, step if size else 1),)]
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    return array


VALUES = st.recursive(
    st.one_of(PLAIN, st.just(HOLE), strided(), arrays.arrays("<f4", (2, 3)).map(lambda a: a[0, 0])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=8,
)

REFUSED = r"^(?!AttributeError|TypeError)"  # in words, or by a check of the layout


def joined(value: Any) -> bytes:
    return b"".join(entry_codec.encode(value))


def again(value: Any) -> Any:
    return entry_decoder.decode(memoryview(joined(value)))


def bits(value: Any) -> Any:
    """What distinguishes two values: their types, bits, order, and how they lie in memory."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack("<d", value)
    if kind in (tuple, list):
        return kind, [bits(item) for item in value]
    if kind is dict:
        return kind, [(bits(key), bits(item)) for key, item in value.items()]
    if kind is np.ndarray:
        steps = value.strides if value.size else None
        return kind, value.dtype.str, value.shape, steps, value.tobytes()
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    return kind, value


@holds_for(VALUES)
def test_values_come_back_equal_bit_for_bit(value: Any) -> None:
    decoded = again(value)
    assert bits(decoded) == bits(value)
    # AND equal values have equal bytes
    assert joined(decoded) == joined(value)


@holds_for(strided())
def test_arrays_come_back_writable_and_apart_from_the_bytes(array: Any) -> None:
    for data in (joined(array), bytearray(joined(array))):
        before = bytes(data)
        decoded = entry_decoder.decode(memoryview(data))
        assert decoded.flags.writeable
        if decoded.size:
            decoded.view()[...] = np.zeros((), decoded.dtype)
        assert bytes(data) == before


def test_what_was_encoded_does_not_change_with_the_value() -> None:
    array, text = np.arange(6.0), bytearray(b"text")
    parts = entry_codec.encode([array, bytes(text)])
    before = b"".join(parts)
    array[:] = 0
    assert b"".join(parts) == before


def test_a_contiguous_array_owns_its_memory_as_a_new_one_does() -> None:
    for order in "CF":
        decoded = again(np.asarray(np.arange(24.0).reshape(2, 3, 4), order=order))
        assert decoded.flags.owndata
        assert decoded.flags.f_contiguous == (order == "F")


def test_scalars_of_numpy_keep_their_type() -> None:
    for name in ["int8", "uint64", "float16", "longdouble", "complex64", "bool_"]:
        assert bits(again(getattr(np, name)(1))) == bits(getattr(np, name)(1))
    for value in (np.datetime64("2026-01-01", "s"), np.str_("a\0\udcff\0"), np.bytes_(b"a\0")):
        decoded = again(value)
        assert type(decoded) is type(value)
        assert decoded == value


class Text(str):
    pass


SAME: list[int] = []
CYCLE: list[Any] = []
CYCLE.append(CYCLE)
BASE = np.arange(12)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else None


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        {1, 2},
        object(),
        bytearray(b"a"),
        1j,
        np.array([None]),
        np.zeros(2, [("a", "i4")]),
        np.zeros(2).view(np.matrix),
        np.ma.zeros(2),
        np.lib.stride_tricks.sliding_window_view(BASE, 3),
        np.lib.stride_tricks.as_strided(np.zeros(9000), (2,), (8 * 8000,)),
        np.zeros(1, "<f8,<f8")[0],
        np.frombuffer(bytes(9), "<f4", 2, 1),
        {np.float64(1): 1},
        {(1, HOLE): 1},
        [SAME, SAME],
        CYCLE,
        [BASE[:7], BASE[6:]],
        nested(40),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_equal_is_refused(value: Any) -> None:
    with pytest.raises(EncodingError, match=REFUSED):
        entry_codec.encode([value])


def test_equal_numbers_and_separate_parts_of_an_array_are_no_repetition() -> None:
    number, text = 10**9, "text" * 9
    value = [number, number, text, text, BASE[:6], BASE[6:], (), ()]
    assert bits(again(value)) == bits(value)


SAMPLE = (
    {"a": [1, -2.5, None, True, "é\udcff", HOLE], ("k", 1): b"bytes" * 9},
    np.arange(24, dtype="<f4").reshape(2, 3, 4)[:, ::-1, ::2],
    np.asfortranarray(np.ones((3, 4), "<i2")),
    np.float64(0.5),
    np.str_("x"),
    12,
)


def decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        entry_decoder.decode(memoryview(data))


def test_any_changed_byte_and_any_cut_is_a_value_or_a_value_error() -> None:
    data, dice = joined(SAMPLE), random.Random(0)
    for length in range(len(data)):
        with pytest.raises(ValueError, match="damaged"):
            entry_decoder.decode(memoryview(data[:length]))
    with pytest.raises(ValueError, match="damaged"):
        entry_decoder.decode(memoryview(data + b"\0"))
    for place in range(len(data)):
        for byte in (0, 0xFF, data[place] ^ 1, dice.randrange(256)):
            decoded_or_refused(data[:place] + bytes((byte,)) + data[place + 1 :])


@holds_for(st.binary(max_size=200), st.randoms(use_true_random=False))
def test_any_bytes_are_a_value_or_a_value_error(data: bytes, dice: random.Random) -> None:
    decoded_or_refused(data)
    decoded_or_refused(len(data).to_bytes(4, "little") + data)
    letters = bytes(dice.choice(b"tldXAGUBPifsbNTFH\0\1\2") for _ in range(60))
    decoded_or_refused((60).to_bytes(4, "little") + letters)


def test_damaged_sizes_take_no_memory() -> None:
    # GIVEN arrays whose sizes or steps are said to be huge
    data = joined(np.arange(100, dtype="u1"))
    place = data.index(b"\x01" + (100).to_bytes(8, "little"))
    tracemalloc.start()
    try:
        for size, step in [(2**40, 1), (2**40, 0), (2**62, 2**62), (100, 2**40), (100, -(2**40))]:
            changed = b"\x01" + struct.pack("<qq", size, step)
            decoded_or_refused(data[:place] + changed + data[place + 17 :])
        # THEN none of it is taken
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", [np.ones((3, 4)), np.ones((4, 3)).T[::-1], (1, "a", [2.0])])
def test_values_that_are_freed_do_not_count_as_garbage(value: Any) -> None:
    """A collection in a worker copies all that it shares with its parent."""
    data = b"".join(entry_codec.encode((value, 3)))
    template = (HOLE, (HOLE, 3))

    def grown(times: int) -> int:
        for _time in range(times):
            sample_template.filled(template, entry_decoder.decode(memoryview(data)))
        return gc.get_count()[0]

    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        before = grown(50)
        assert grown(500) - before < 250
    finally:
        if enabled:
            gc.enable()

"""Values of samples as bytes and back, equal bit for bit; nothing that is read is executed.

An encoded value is the length of its description (4 bytes), the description, and then the blobs:
the bytes of arrays, tensors, pictures and `bytes` objects, in the order of the description. In the
description each value is a letter and what this kind needs; all numbers are little-endian.
"""

from __future__ import annotations

import ctypes
import re
import struct
import sys

from ..common.guard import of_the_program
from . import picture_parts
from .strided_layout import Layout, contiguous_strides, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_DEEPEST = 32  # levels of nested values
_MOST_DIMENSIONS = 64
_SPREAD = 64  # memory of a value with gaps may be so many times its bytes
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
_PICTURE = struct.Struct("<II")
# A dtype of numpy that its text describes whole: no fields, no objects.
_NUMPY_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d+(\[\d*[A-Za-z]+\])?")
_TORCH_DTYPE = re.compile(r"[a-pr-z][a-z0-9_]*")  # not the quantized ones, "quint8" and others


class CannotEncode(Exception):
    """The value is of a kind that is not kept; the message says which."""


class Hole:
    """The kind of HOLE."""

    def __repr__(self) -> str:
        return "HOLE"


HOLE = Hole()  # stands in a sample where the result of its transform belongs


def encode(value: Any) -> list[bytes | memoryview]:
    """The bytes of a value, in parts that no later change of the value reaches.

    Raises CannotEncode for all but None, bool, int, float, str, bytes, tuple, list, dict, HOLE,
    arrays and scalars of numpy without objects and fields, dense tensors of the CPU without
    gradients, and pictures of class Image; for subclasses of these, and for an object, or memory,
    that occurs twice.
    """
    try:
        encoder = _Encoder()
        encoder.add(value, 0)
        encoder.check_memory()
    except CannotEncode:
        raise
    except Exception as error:
        if of_the_program(error):
            raise
        raise CannotEncode(f"{type(error).__name__}: {error}"[:200]) from None
    return [_U32.pack(len(encoder.head)) + encoder.head, *encoder.blobs]


def decode(data: memoryview) -> Any:
    """The value that was encoded, made of new and writable objects.

    Raises ValueError for damaged bytes, and where the library of a value is not imported here.
    """
    try:
        decoder = _Decoder(memoryview(data).cast("B"))
        value = decoder.value(0)
        decoder.check_end()
        return value
    except Exception as error:
        if of_the_program(error):
            raise
        raise ValueError(f"damaged: {type(error).__name__}: {error}"[:200]) from None


class _Encoder:
    def __init__(self) -> None:
        self.head = bytearray()
        self.blobs: list[bytes | memoryview] = []
        self._objects: set[int] = set()  # those that can change
        self._memory: list[tuple[int, int]] = []  # first address and the one after the last

    def add(self, value: Any, depth: int) -> None:
        kind = type(value)
        if depth > _DEEPEST:
            raise CannotEncode("values are nested too deeply")
        add = _ADD.get(kind)
        if add is not None:
            add(self, value, depth)
            return
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch is not None and kind is getattr(torch, "Tensor", None):
            self._tensor(value, torch)
        elif numpy is not None and kind is getattr(numpy, "ndarray", None):
            self._array(value, numpy)
        elif numpy is not None and isinstance(value, getattr(numpy, "generic", ())):
            self._scalar(value, numpy)
        elif kind is getattr(sys.modules.get("PIL.Image"), "Image", None):
            self._picture(value, depth)
        else:
            raise CannotEncode(f"values of {kind.__module__}.{kind.__qualname__} are not kept")

    def check_memory(self) -> None:
        """Raise CannotEncode where two arrays share memory: their copies would not."""
        self._memory.sort()
        ends = [end for _, end in self._memory]
        if any(self._memory[i][0] < ends[i - 1] for i in range(1, len(ends))):
            raise CannotEncode("two arrays share memory")

    def _once(self, value: Any) -> None:
        if id(value) in self._objects:
            raise CannotEncode("an object occurs twice")
        self._objects.add(id(value))

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.head += _U32.pack(len(data)) + data

    def _blob(self, data: bytes) -> None:
        self.head += _U64.pack(len(data))
        if data:
            self.blobs.append(data)

    def _whole(self, value: int, depth: int) -> None:
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        self.head += b"i" + _U32.pack(len(data)) + data

    def _real(self, value: float, depth: int) -> None:
        self.head += b"f" + _FLOAT.pack(value)

    def _string(self, value: str, depth: int) -> None:
        self.head += b"s"
        self._text(value)

    def _bytes(self, value: bytes, depth: int) -> None:
        self.head += b"b"
        self._blob(value)

    def _constant(self, value: Any, depth: int) -> None:
        self.head += b"H" if value is HOLE else b"N" if value is None else b"T" if value else b"F"

    def _tuple(self, value: tuple[Any, ...], depth: int) -> None:
        self.head += b"t" + _U32.pack(len(value))
        for item in value:
            self.add(item, depth + 1)

    def _list(self, value: list[Any], depth: int) -> None:
        self._once(value)
        self.head += b"l" + _U32.pack(len(value))
        for item in value:
            self.add(item, depth + 1)

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        self._once(value)
        self.head += b"d" + _U32.pack(len(value))
        for key, item in value.items():
            if not _is_key(key):
                raise CannotEncode(f"a key of a dict is of {type(key).__qualname__}")
            self.add(key, depth + 1)
            self.add(item, depth + 1)

    def _shape(self, sizes: tuple[int, ...], steps: tuple[int, ...]) -> None:
        count = len(sizes)
        self.head += bytes((count,)) + struct.pack(f"<{2 * count}q", *sizes, *steps)

    def _placed(
        self, address: int, sizes: tuple[int, ...], steps: tuple[int, ...], size: int
    ) -> Layout:
        """The layout of an array at an address, whose memory is now known to occur."""
        placed = layout(sizes, steps, size)
        if placed.span > _SPREAD * placed.stored + 4096:
            raise CannotEncode("an array has its elements too far apart")
        if placed.span:
            self._memory.append((address, address + placed.span))
        return placed

    def _tensor(self, tensor: Any, torch: Any) -> None:
        self._once(tensor)
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise CannotEncode("a tensor is not a dense one of the CPU")
        if tensor.requires_grad or tensor.is_inference() or vars(tensor):
            raise CannotEncode("a tensor has more than its values")
        # Newer versions of torch have no names.
        named = any(getattr(tensor, "names", ()))
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or named:
            raise CannotEncode("a tensor is quantized, conjugated, negated or has names")
        size, address = tensor.element_size(), tensor.data_ptr()
        sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
        placed = self._placed(address, sizes, tuple(size * step for step in strides), size)
        self.head += b"X"
        self._text(str(tensor.dtype).removeprefix("torch."))
        self._shape(sizes, strides)
        if not placed.stored:
            self._blob(b"")
        elif placed.packed:
            self._blob(ctypes.string_at(address, placed.stored))
        else:
            plain = tensor.view(_bits(torch, size)).as_strided(placed.sizes, strides).contiguous()
            self._blob(ctypes.string_at(plain.data_ptr(), placed.stored))

    def _array(self, array: Any, numpy: Any) -> None:
        self._once(array)
        dtype, sizes, steps = array.dtype, array.shape, array.strides
        if not array.flags.aligned:
            raise CannotEncode("an array is not aligned")
        self.head += b"A"
        self._numpy_dtype(dtype, numpy)
        if not array.size:
            steps = numpy.empty(sizes, dtype).strides
        placed = layout(sizes, steps, dtype.itemsize)
        # The address of the first element in memory, also where steps go backwards.
        address = array.__array_interface__["data"][0] - placed.start
        self._placed(address, sizes, steps, dtype.itemsize)
        self._shape(sizes, steps)
        if array.size:
            cuts = (
                slice(0, 1) if kept < size else slice(None, None, -1 if step < 0 < size - 1 else 1)
                for kept, size, step in zip(placed.sizes, sizes, steps, strict=True)
            )
            cut = (*cuts, ...)  # of an array without dimensions, `...` leaves an array as well
            array = array[cut]
            array = array.transpose(placed.order) if placed.packed else array
        self._blob(array.tobytes())

    def _numpy_dtype(self, dtype: Any, numpy: Any) -> None:
        text = dtype.str
        if _NUMPY_DTYPE.fullmatch(text) is None or not dtype.itemsize or dtype.metadata:
            raise CannotEncode(f"arrays of {dtype} are not kept")
        again = numpy.dtype(text)
        if again != dtype or again.char != dtype.char or again.type is not dtype.type:
            raise CannotEncode(f"arrays of {dtype} are not kept")
        self._text(text)

    def _scalar(self, value: Any, numpy: Any) -> None:
        kind = type(value)
        if kind is numpy.str_:
            self.head += b"U"
            self._text("".join(value))  # `str` leaves out zeros at its end
        elif kind is numpy.bytes_:
            self.head += b"B"
            self._blob(bytes(value))
        elif kind is value.dtype.type and value.dtype.kind != "V":
            self.head += b"G"
            self._numpy_dtype(value.dtype, numpy)
            self.head += value.tobytes()
        else:
            raise CannotEncode(f"values of {kind.__module__}.{kind.__qualname__} are not kept")

    def _picture(self, picture: Any, depth: int) -> None:
        self._once(picture)
        images = sys.modules["PIL.Image"]
        data = picture.tobytes()  # which loads the picture
        mode, (width, height) = picture.mode, picture.size
        if len(data) != picture_parts.byte_count(mode, width, height):
            raise CannotEncode(f"pictures of mode {mode} are not kept")
        if (
            not picture_parts.usual_attributes(images).issuperset(vars(picture))
            or picture._exif is not None
        ):
            raise CannotEncode("a picture has more than its pixels and its info")
        self.head += b"P"
        self._text(mode)
        self.head += _PICTURE.pack(width, height)
        self._blob(data)
        palette = None
        if picture.palette is not None or mode in ("P", "PA"):
            palette = picture_parts.palette_of(picture)
            again = images.frombytes(mode, (width, height), data)
            if picture_parts.palette_of(picture_parts.set_palette(again, palette)) != palette:
                raise CannotEncode("a picture's palette is of a kind that is not kept")
        self.add(palette, depth + 1)
        self.add(picture.info, depth + 1)


_ADD: dict[type, Callable[[_Encoder, Any, int], None]] = {
    **dict.fromkeys((bool, type(None), Hole), _Encoder._constant),
    int: _Encoder._whole,
    float: _Encoder._real,
    str: _Encoder._string,
    bytes: _Encoder._bytes,
    tuple: _Encoder._tuple,
    list: _Encoder._list,
    dict: _Encoder._dict,
}


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        (length,) = _U32.unpack_from(data)
        self._data, self._blob_at = data, 4 + length
        self._head, self._at = bytes(data[4 : self._blob_at]), 0
        if len(self._head) != length:
            raise ValueError("its description is cut off")

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("values are nested too deeply")
        return _MAKE[self._take(1)](self, depth)

    def check_end(self) -> None:
        if self._at != len(self._head) or self._blob_at != len(self._data):
            raise ValueError("it does not end where its description says")

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._head):
            raise ValueError("its description is cut off")
        return self._head[start : self._at]

    def _count(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _text(self) -> str:
        return self._take(self._count()).decode("utf-8", "surrogatepass")

    def _blob(self) -> memoryview:
        length, start = int.from_bytes(self._take(8), "little"), self._blob_at
        self._blob_at = start + length
        if self._blob_at > len(self._data):
            raise ValueError("a blob is cut off")
        return self._data[start : self._blob_at]

    def _whole(self, depth: int) -> int:
        return int.from_bytes(self._take(self._count()), "little", signed=True)

    def _real(self, depth: int) -> float:
        number: float = _FLOAT.unpack(self._take(8))[0]
        return number

    def _items(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._count())]

    def _tuple(self, depth: int) -> tuple[Any, ...]:
        return tuple(self._items(depth))

    def _dict(self, depth: int) -> dict[Any, Any]:
        made, count = {}, self._count()
        for _ in range(count):
            key = self.value(depth + 1)
            if not _is_key(key):
                raise ValueError("a key of a dict is of another kind")
            made[key] = self.value(depth + 1)
        if len(made) != count:
            raise ValueError("a key occurs twice")
        return made

    def _shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        count = self._take(1)[0]
        if count > _MOST_DIMENSIONS:
            raise ValueError("an array has too many dimensions")
        numbers = struct.unpack(f"<{2 * count}q", self._take(16 * count))
        if any(size < 0 for size in numbers[:count]):
            raise ValueError("an array has a negative size")
        return numbers[:count], numbers[count:]

    def _placed(
        self, sizes: tuple[int, ...], steps: tuple[int, ...], size: int
    ) -> tuple[Layout, memoryview]:
        placed, blob = layout(sizes, steps, size), self._blob()
        if placed.stored != len(blob) or placed.span > _SPREAD * placed.stored + 4096:
            raise ValueError("an array has not as many bytes as it needs")
        return placed, blob

    def _tensor(self, depth: int) -> Any:
        torch, name = _library("torch"), self._text()
        dtype = getattr(torch, name, None) if _TORCH_DTYPE.fullmatch(name) else None
        if not isinstance(dtype, torch.dtype):
            raise ValueError("a tensor is of another dtype")
        sizes, strides = self._shape()
        if any(step < 0 for step in strides):
            raise ValueError("a tensor has a negative stride")
        size = dtype.itemsize
        placed, blob = self._placed(sizes, tuple(size * step for step in strides), size)
        # `device`: the program may have set another default one. What `set_` makes is no view.
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        if not blob:
            return tensor.set_(tensor.untyped_storage(), 0, sizes, strides)
        storage = torch.UntypedStorage.from_buffer(blob, dtype=torch.uint8)
        if not placed.packed:
            memory = torch.zeros(placed.span, dtype=torch.uint8, device="cpu").untyped_storage()
            stored, spread = (
                torch.empty(0, dtype=_bits(torch, size), device="cpu") for _ in range(2)
            )
            stored.set_(storage, 0, placed.sizes, contiguous_strides(placed.sizes))
            spread.set_(memory, 0, placed.sizes, strides).copy_(stored)
            storage = memory
        return tensor.set_(storage, 0, sizes, strides)

    def _array(self, depth: int) -> Any:
        numpy = _library("numpy")
        dtype = self._numpy_dtype(numpy)
        sizes, steps = self._shape()
        placed, blob = self._placed(sizes, steps, dtype.itemsize)
        if not blob:
            return numpy.empty(sizes, dtype)
        if placed.packed:
            for order, plain in (("C", sizes), ("F", sizes[::-1])):
                expected = tuple(dtype.itemsize * step for step in contiguous_strides(plain))
                if steps == (expected if order == "C" else expected[::-1]):
                    stored = numpy.frombuffer(blob, dtype).reshape(sizes, order=order)
                    return stored.copy(order)
            memory = numpy.frombuffer(blob, numpy.uint8).copy()
        else:
            memory = numpy.zeros(placed.span, numpy.uint8)
            forwards = tuple(abs(step) for step in steps)
            spread = numpy.ndarray(placed.sizes, dtype, memory, 0, forwards)
            spread[...] = numpy.frombuffer(blob, dtype).reshape(placed.sizes)
        return numpy.ndarray(sizes, dtype, memory, placed.start, steps)

    def _numpy_dtype(self, numpy: Any) -> Any:
        text = self._text()
        if _NUMPY_DTYPE.fullmatch(text) is None:
            raise ValueError("an array is of another dtype")
        dtype = numpy.dtype(text)
        if not dtype.itemsize:
            raise ValueError("an array is of another dtype")
        return dtype

    def _scalar(self, depth: int) -> Any:
        numpy = _library("numpy")
        dtype = self._numpy_dtype(numpy)
        return numpy.frombuffer(self._take(dtype.itemsize), dtype)[0]

    def _numpy_text(self, depth: int) -> Any:
        return _library("numpy").str_(self._text())

    def _numpy_bytes(self, depth: int) -> Any:
        return _library("numpy").bytes_(bytes(self._blob()))

    def _picture(self, depth: int) -> Any:
        images, mode = _library("PIL.Image"), self._text()
        width, height = _PICTURE.unpack(self._take(_PICTURE.size))
        blob = self._blob()
        if len(blob) != picture_parts.byte_count(mode, width, height):
            raise ValueError("a picture has not as many bytes as it needs")
        picture = images.frombytes(mode, (width, height), blob)
        palette = self.value(depth + 1)
        if palette is not None:
            picture_parts.set_palette(picture, palette)
        info = self.value(depth + 1)
        if type(info) is not dict:
            raise ValueError("a picture has no info")
        picture.info = info
        return picture


_MAKE: dict[bytes, Callable[[_Decoder, int], Any]] = {
    b"N": lambda decoder, depth: None,
    b"T": lambda decoder, depth: True,
    b"F": lambda decoder, depth: False,
    b"H": lambda decoder, depth: HOLE,
    b"i": _Decoder._whole,
    b"f": _Decoder._real,
    b"s": lambda decoder, depth: decoder._text(),
    b"b": lambda decoder, depth: bytes(decoder._blob()),
    b"t": _Decoder._tuple,
    b"l": _Decoder._items,
    b"d": _Decoder._dict,
    b"X": _Decoder._tensor,
    b"A": _Decoder._array,
    b"G": _Decoder._scalar,
    b"U": _Decoder._numpy_text,
    b"B": _Decoder._numpy_bytes,
    b"P": _Decoder._picture,
}


def _is_key(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(_is_key(item) for item in value)
    return kind in (type(None), bool, int, float, str, bytes)


def _library(name: str) -> Any:
    """A module that the program has imported; lotus imports none into it."""
    module = sys.modules.get(name)
    if module is None:
        raise ValueError(f"{name} is not imported here")
    return module


def _bits(torch: Any, size: int) -> Any:
    """A dtype of so many bytes whose values are copied bit for bit."""
    kinds = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
    return getattr(torch, kinds[size])

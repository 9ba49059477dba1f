"""Values of samples as bytes; entry_decoder.py makes them again, equal bit for bit.

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
from .compression import EncodedParts, picture_of
from .strided_layout import Layout, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEEPEST = 32  # levels of nested values
SPREAD = 64  # memory of a value with gaps may be so many times its bytes
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
FLOAT = struct.Struct("<d")
PICTURE = struct.Struct("<II")
# A dtype of numpy that its text describes whole: no fields, no objects.
NUMPY_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d+(\[\d*[A-Za-z]+\])?")


class EncodingError(Exception):
    """The value is of a kind that is not cached; the message says which."""


class Hole:
    """The kind of HOLE."""

    def __repr__(self) -> str:
        return "HOLE"


HOLE = Hole()  # stands in a sample where the result of its transform belongs


def encode(value: Any) -> EncodedParts:
    """Return the bytes of a value, in parts that no later change of the value reaches.

    Raises EncodingError for all but None, bool, int, float, str, bytes, tuple, list, dict, HOLE,
    arrays and scalars of numpy without objects and fields, dense tensors of the CPU without
    gradients, and pictures of class Image; for subclasses of these, and for an object, or memory,
    that occurs twice.
    """
    try:
        encoder = _Encoder()
        encoder.add(value, 0)
        encoder.check_memory()
    except EncodingError:
        raise
    except Exception as error:
        if of_the_program(error):
            raise
        raise EncodingError(f"{type(error).__name__}: {error}"[:200]) from None
    parts = EncodedParts([U32.pack(len(encoder.head)) + encoder.head])
    parts.add(encoder.blobs)
    return parts


class _Encoder:
    def __init__(self) -> None:
        self.head = bytearray()
        self.blobs = EncodedParts()
        self._objects: set[int] = set()  # those that can change
        self._memory: list[tuple[int, int]] = []  # first address and the one after the last

    def add(self, value: Any, depth: int) -> None:
        kind = type(value)
        if depth > DEEPEST:
            raise EncodingError("values are nested too deeply")
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
            raise EncodingError(f"values of {kind.__module__}.{kind.__qualname__} are not cached")

    def check_memory(self) -> None:
        """Raise EncodingError where two arrays share memory: their copies would not."""
        self._memory.sort()
        ends = [end for _, end in self._memory]
        if any(self._memory[i][0] < ends[i - 1] for i in range(1, len(ends))):
            raise EncodingError("two arrays share memory")

    def _once(self, value: Any) -> None:
        if id(value) in self._objects:
            raise EncodingError("an object occurs twice")
        self._objects.add(id(value))

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self.head += U32.pack(len(data)) + data

    def _blob(self, data: bytes, picture: tuple[int, int, int] | None = None) -> None:
        """Add bytes; `picture` says how they are to be compressed."""
        self.head += U64.pack(len(data))
        if data:
            if picture is not None:
                self.blobs.pictures[len(self.blobs)] = picture
            self.blobs.append(data)

    def _whole(self, value: int, depth: int) -> None:
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        self.head += b"i" + U32.pack(len(data)) + data

    def _real(self, value: float, depth: int) -> None:
        self.head += b"f" + FLOAT.pack(value)

    def _string(self, value: str, depth: int) -> None:
        self.head += b"s"
        self._text(value)

    def _bytes(self, value: bytes, depth: int) -> None:
        self.head += b"b"
        self._blob(value)

    def _constant(self, value: Any, depth: int) -> None:
        self.head += b"H" if value is HOLE else b"N" if value is None else b"T" if value else b"F"

    def _tuple(self, value: tuple[Any, ...], depth: int) -> None:
        self.head += b"t" + U32.pack(len(value))
        for item in value:
            self.add(item, depth + 1)

    def _list(self, value: list[Any], depth: int) -> None:
        self._once(value)
        self.head += b"l" + U32.pack(len(value))
        for item in value:
            self.add(item, depth + 1)

    def _dict(self, value: dict[Any, Any], depth: int) -> None:
        self._once(value)
        self.head += b"d" + U32.pack(len(value))
        for key, item in value.items():
            if not is_key(key):
                raise EncodingError(f"a key of a dict is of {type(key).__qualname__}")
            self.add(key, depth + 1)
            self.add(item, depth + 1)

    def _shape(self, sizes: tuple[int, ...], steps: tuple[int, ...]) -> None:
        count = len(sizes)
        self.head += bytes((count,)) + struct.pack(f"<{2 * count}q", *sizes, *steps)

    def _placed(
        self, address: int, sizes: tuple[int, ...], steps: tuple[int, ...], size: int
    ) -> Layout:
        """Return the layout of an array at an address, whose memory is now known to occur."""
        placed = layout(sizes, steps, size)
        if placed.span > SPREAD * placed.stored + 4096:
            raise EncodingError("an array has its elements too far apart")
        if placed.span:
            self._memory.append((address, address + placed.span))
        return placed

    def _tensor(self, tensor: Any, torch: Any) -> None:
        self._once(tensor)
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise EncodingError("a tensor is not a dense one of the CPU")
        if tensor.requires_grad or tensor.is_inference() or vars(tensor):
            raise EncodingError("a tensor has more than its values")
        # Newer versions of torch have no names.
        named = any(getattr(tensor, "names", ()))
        if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or named:
            raise EncodingError("a tensor is quantized, conjugated, negated or has names")
        size, address = tensor.element_size(), tensor.data_ptr()
        sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
        placed = self._placed(address, sizes, tuple(size * step for step in strides), size)
        self.head += b"X"
        self._text(str(tensor.dtype).removeprefix("torch."))
        self._shape(sizes, strides)
        if not placed.stored:
            self._blob(b"")
        elif placed.packed:
            picture = picture_of(_in_memory(placed)) if tensor.dtype is torch.uint8 else None
            self._blob(ctypes.string_at(address, placed.stored), picture)
        else:
            plain = tensor.view(bits(torch, size)).as_strided(placed.sizes, strides).contiguous()
            self._blob(ctypes.string_at(plain.data_ptr(), placed.stored))

    def _array(self, array: Any, numpy: Any) -> None:
        self._once(array)
        dtype, sizes, steps = array.dtype, array.shape, array.strides
        if not array.flags.aligned:
            raise EncodingError("an array is not aligned")
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
        picture = picture_of(array.shape) if dtype.str == "|u1" else None
        self._blob(array.tobytes(), picture)

    def _numpy_dtype(self, dtype: Any, numpy: Any) -> None:
        text = dtype.str
        if NUMPY_DTYPE.fullmatch(text) is None or not dtype.itemsize or dtype.metadata:
            raise EncodingError(f"arrays of {dtype} are not cached")
        again = numpy.dtype(text)
        if again != dtype or again.char != dtype.char or again.type is not dtype.type:
            raise EncodingError(f"arrays of {dtype} are not cached")
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
            raise EncodingError(f"values of {kind.__module__}.{kind.__qualname__} are not cached")

    def _picture(self, picture: Any, depth: int) -> None:
        self._once(picture)
        images = sys.modules["PIL.Image"]
        data = picture.tobytes()  # which loads the picture
        mode, (width, height) = picture.mode, picture.size
        if len(data) != picture_parts.byte_count(mode, width, height):
            raise EncodingError(f"pictures of mode {mode} are not cached")
        if (
            not picture_parts.usual_attributes(images).issuperset(vars(picture))
            or picture._exif is not None
        ):
            raise EncodingError("a picture has more than its pixels and its info")
        self.head += b"P"
        self._text(mode)
        self.head += PICTURE.pack(width, height)
        channels = {"L": 1, "RGB": 3}.get(mode, 0)
        self._blob(data, picture_of((height, width, channels)))
        palette = None
        if picture.palette is not None or mode in ("P", "PA"):
            palette = picture_parts.palette_of(picture)
            again = images.frombytes(mode, (width, height), data)
            if picture_parts.palette_of(picture_parts.set_palette(again, palette)) != palette:
                raise EncodingError("a picture's palette is of a kind that is not cached")
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


def _in_memory(placed: Layout) -> list[int]:
    """Return the sizes of an array without gaps, in the order of memory."""
    return [placed.sizes[place] for place in placed.order]


def is_key(value: Any) -> bool:
    kind = type(value)
    if kind is tuple:
        return all(is_key(item) for item in value)
    return kind in (type(None), bool, int, float, str, bytes)


def bits(torch: Any, size: int) -> Any:
    """Return a dtype of so many bytes whose values are copied bit for bit."""
    kinds = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}
    return getattr(torch, kinds[size])

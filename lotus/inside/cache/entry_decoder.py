"""Values of samples from the bytes of entry_codec.py; nothing that is read is executed.

Tuples are made from lists. CPython's collector counts one made from a generator as an object that
stays, although it is freed. After some hundred samples it then goes through all objects that a
worker shares with its parent, which copies their pages: half a second in each epoch.
"""

from __future__ import annotations

import re
import struct
import sys

from ..common.guard import of_the_program
from . import picture_parts
from .entry_codec import DEEPEST, FLOAT, HOLE, NUMPY_DTYPE, PICTURE, SPREAD, U32, bits, is_key
from .strided_layout import Layout, contiguous_strides, layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_MOST_DIMENSIONS = 64
_TORCH_DTYPE = re.compile(r"[a-pr-z][a-z0-9_]*")  # not the quantized ones, "quint8" and others


def decode(data: memoryview) -> Any:
    """Return the value that was encoded, made of new and writable objects.

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


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        (length,) = U32.unpack_from(data)
        self._data, self._blob_at = data, 4 + length
        self._head, self._at = bytes(data[4 : self._blob_at]), 0
        if len(self._head) != length:
            raise ValueError("its description is cut off")

    def value(self, depth: int) -> Any:
        if depth > DEEPEST:
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
        number: float = FLOAT.unpack(self._take(8))[0]
        return number

    def _items(self, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(self._count())]

    def _tuple(self, depth: int) -> tuple[Any, ...]:
        return tuple(self._items(depth))

    def _dict(self, depth: int) -> dict[Any, Any]:
        made, count = {}, self._count()
        for _ in range(count):
            key = self.value(depth + 1)
            if not is_key(key):
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
        if placed.stored != len(blob) or placed.span > SPREAD * placed.stored + 4096:
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
        placed, blob = self._placed(sizes, tuple([size * step for step in strides]), size)
        # `device`: the program may have set another default one. What `set_` makes is no view.
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        if not blob:
            return tensor.set_(tensor.untyped_storage(), 0, sizes, strides)
        storage = torch.UntypedStorage.from_buffer(blob, dtype=torch.uint8)
        if not placed.packed:
            memory = torch.zeros(placed.span, dtype=torch.uint8, device="cpu").untyped_storage()
            stored, spread = (
                torch.empty(0, dtype=bits(torch, size), device="cpu") for _ in range(2)
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
                expected = tuple([dtype.itemsize * step for step in contiguous_strides(plain)])
                if steps == (expected if order == "C" else expected[::-1]):
                    stored = numpy.frombuffer(blob, dtype).reshape(sizes, order=order)
                    return stored.copy(order)
            memory = numpy.frombuffer(blob, numpy.uint8).copy()
        else:
            memory = numpy.zeros(placed.span, numpy.uint8)
            forwards = tuple([abs(step) for step in steps])
            spread = numpy.ndarray(placed.sizes, dtype, memory, 0, forwards)
            spread[...] = numpy.frombuffer(blob, dtype).reshape(placed.sizes)
        return numpy.ndarray(sizes, dtype, memory, placed.start, steps)

    def _numpy_dtype(self, numpy: Any) -> Any:
        text = self._text()
        if NUMPY_DTYPE.fullmatch(text) is None:
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
        width, height = PICTURE.unpack(self._take(PICTURE.size))
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


def _library(name: str) -> Any:
    """Return a module that the program has imported; lotus imports none into it."""
    module = sys.modules.get(name)
    if module is None:
        raise ValueError(f"{name} is not imported here")
    return module

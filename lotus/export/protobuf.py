"""Writes protocol buffers without a compiler: single messages, and many of one shape with numpy.

Source: protobuf.dev/programming-guides/encoding. Messages of the same shape are rows of a byte
matrix. Each number has the same width in all rows: varints are padded with continuation bytes,
which every parser accepts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lotus.reading.logs.frame_scanner import Array

Bytes = npt.NDArray[np.uint8]
_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """An unsigned number below 2**64."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field of type (u)int32, (u)int64, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str) -> bytes:
    """A field that holds a text."""
    return message(field, value.encode("utf-8", "replace"))


def message(field: int, content: bytes) -> bytes:
    """A field that holds bytes, or a message within the message."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated number, packed."""
    return message(field, b"".join(varint(value & (1 << 64) - 1) for value in values))


@dataclass(frozen=True)
class Slot:
    """A number that differs between rows: a varint of `width` bytes, or 8 bytes."""

    name: str
    width: int
    kind: str = ""  # "<f8" or "<u8", as numpy has it


Part = bytes | Slot


def width_of(most: int) -> int:
    """Return the width in bytes of varints up to `most`."""
    return len(varint(max(most, 0)))


def slot(field: int, name: str, width: int) -> list[Part]:
    """A number field that is different in every row."""
    return [varint(field << 3 | _VARINT), Slot(name, width)]


def double_slot(field: int, name: str) -> list[Part]:
    """A field of type double that is different in every row."""
    return [varint(field << 3 | _FIXED64), Slot(name, 8, "<f8")]


def fixed_slot(field: int, name: str) -> list[Part]:
    """A fixed64."""
    return [varint(field << 3 | _FIXED64), Slot(name, 8, "<u8")]


def shaped(field: int, parts: Iterable[Part]) -> list[Part]:
    """A message of `parts`, which has the same length in all rows."""
    parts = list(parts)
    length = sum(len(part) if isinstance(part, bytes) else part.width for part in parts)
    return [varint(field << 3 | _LENGTH) + varint(length), *parts]


def render(parts: Iterable[Part], count: int, columns: Mapping[str, Array]) -> Bytes:
    """`count` rows of bytes; the numbers of Slot(name) are columns[name], none negative."""
    parts = list(parts)
    template = b"".join(part if isinstance(part, bytes) else bytes(part.width) for part in parts)
    rows = np.empty((count, len(template)), np.uint8)
    rows[:] = np.frombuffer(template, np.uint8)
    at = 0
    for part in parts:
        if isinstance(part, bytes):
            at += len(part)
            continue
        values = columns[part.name]
        if part.kind:
            rows[:, at : at + 8] = values.astype(part.kind).reshape(-1, 1).view(np.uint8)
        else:
            for byte in range(part.width):
                continuation = 0x80 if byte < part.width - 1 else 0
                rows[:, at + byte] = ((values >> (7 * byte)) & 0x7F) | continuation
        at += part.width
    return rows


def scatter(out: Bytes, places: Array, rows: Bytes) -> None:
    """Write each row at its place in `out`."""
    if not len(rows):
        return
    width = rows.shape[1]
    # One opaque item at every byte: rows are copied whole, whatever their alignment.
    items = np.ndarray((len(out) - width + 1,), f"V{width}", out.data, strides=(1,))
    items[places] = np.ascontiguousarray(rows).view(f"V{width}").reshape(-1)

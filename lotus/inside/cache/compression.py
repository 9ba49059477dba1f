"""Compresses the parts of a cached sample and makes them again, equal bit for bit.

Pictures become PNG or lossless WebP where Pillow can write these, all else zlib or zstd. A part
that does not become smaller stays as it is. What is stored says how, so that entries of all kinds
may lie in one cache; a process that lacks the library of one cannot read it, and its data set makes
the sample.
"""

from __future__ import annotations

import importlib
import io
import struct
import sys
import zlib

from ..common.guard import of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

METHODS = ("zlib", "zstd", "png", "webp")
# No length of a head, which entries that are not compressed begin with.
MARK = b"\x01lotus\xff\xff"
GREY, RGB, PLANES = 1, 2, 3  # a picture's layout in memory; PLANES: first all red, then green, blue
_MODES = {GREY: "L", RGB: "RGB", PLANES: "RGB"}
_RAW, _ZLIB, _ZSTD, _PNG, _WEBP = range(5)
_PART = struct.Struct("<BBIIQQ")  # kind, layout, width, height, bytes, stored bytes
_COUNT = struct.Struct("<I")
_LEAST = 512  # bytes: less is stored as it is
_LONGEST_SIDE = 16_383  # of a WebP
_ZSTD_LEVEL = 3
_ZSTD_MODULES = ("compression.zstd", "backports.zstd", "zstandard")


class EncodedParts(list["bytes | memoryview"]):
    """The bytes of a value, in parts; `pictures` says which are pictures, by place in the list.

    A picture is (layout, width, height), of one byte for a pixel's colour.
    """

    def __init__(self, parts: Iterable[bytes | memoryview] = ()) -> None:
        super().__init__(parts)
        self.pictures: dict[int, tuple[int, int, int]] = {}

    def add(self, others: EncodedParts) -> None:
        """Append the parts of another value."""
        for place, picture in others.pictures.items():
            self.pictures[len(self) + place] = picture
        self += others


def picture_of(sizes: Sequence[int]) -> tuple[int, int, int] | None:
    """Return the picture that an array of uint8 is, by its sizes in the order of memory."""
    count = len(sizes)
    if count == 3 and sizes[2] in (1, 3):
        picture = (RGB if sizes[2] == 3 else GREY, sizes[1], sizes[0])
    elif count == 3 and sizes[0] in (1, 3):
        picture = (PLANES if sizes[0] == 3 else GREY, sizes[2], sizes[1])
    elif count == 2:
        picture = (GREY, sizes[1], sizes[0])
    else:
        return None
    return picture if all(0 < side <= _LONGEST_SIDE for side in picture[1:]) else None


def usable(method: str, pictures: Iterable[tuple[int, int, int]]) -> bool:
    """Return True if a method is available here and suits such pictures better than others."""
    if method == "zstd":
        return _zstd() is not None
    if method == "png":
        return bool(list(pictures)) and _plugin("Png") is not None
    if method == "webp":
        return any(layout != GREY for layout, _, _ in pictures) and _plugin("WebP") is not None
    return method == "zlib"


def compressed(parts: EncodedParts, method: str) -> list[bytes | memoryview]:
    """Return the parts of an entry as they are stored; each by `method`, or else by zlib."""
    directory, stored = [MARK, _COUNT.pack(len(parts))], []
    for place, part in enumerate(parts):
        picture = parts.pictures.get(place)
        kind, data = _compressed(part, picture, method)
        directory.append(_PART.pack(kind, *(picture or (0, 0, 0)), len(part), len(data)))
        stored.append(data)
    return [*directory, *stored]


def _compressed(
    part: bytes | memoryview, picture: tuple[int, int, int] | None, method: str
) -> tuple[int, bytes | memoryview]:
    if len(part) < _LEAST:
        return _RAW, part
    if picture is not None and method in ("png", "webp") and usable(method, [picture]):
        data = _written(part, picture, method)
        kind = _PNG if method == "png" else _WEBP
    elif method == "zstd" and (zstd := _zstd()) is not None:
        kind, data = _ZSTD, zstd.compress(part, _ZSTD_LEVEL)
    else:
        kind, data = _ZLIB, zlib.compress(part, 1)
    return (kind, data) if len(data) < len(part) else (_RAW, part)


def decompressed(data: memoryview) -> memoryview:
    """Return the bytes of an entry. Raises ValueError for damaged ones, or without the library."""
    try:
        return _decompressed(data)
    except Exception as error:
        if of_the_program(error):
            raise
        raise ValueError(f"damaged: {type(error).__name__}: {error}"[:200]) from None


def _decompressed(data: memoryview) -> memoryview:
    (count,) = _COUNT.unpack_from(data, len(MARK))
    at = len(MARK) + _COUNT.size
    begins = at + count * _PART.size
    if begins > len(data):
        raise ValueError("its directory is cut off")
    made = []
    for number in range(count):
        kind, layout, width, height, size, length = _PART.unpack_from(
            data, at + number * _PART.size
        )
        part = _made(kind, data[begins : begins + length], size, (layout, width, height))
        if len(part) != size:
            raise ValueError("a part has another size")
        made.append(part)
        begins += length
    if begins != len(data):
        raise ValueError("it does not end where its directory says")
    return memoryview(b"".join(made))


def _made(
    kind: int, data: memoryview, size: int, picture: tuple[int, int, int]
) -> bytes | memoryview:
    if kind == _RAW:
        return data
    if kind == _ZLIB:
        return zlib.decompressobj().decompress(data, max(size, 1))  # 0 is no limit to it
    if kind == _ZSTD:
        zstd = _zstd()
        if zstd is None:
            raise ValueError("zstd is not here")
        return _expanded(zstd.ZstdDecompressor(), data, size)
    if kind in (_PNG, _WEBP):
        return _read(data, "Png" if kind == _PNG else "WebP", picture)
    raise ValueError("a part is of another kind")


def _expanded(decompressor: Any, data: memoryview, size: int) -> bytes:
    """Return at most `size` bytes of what was compressed with zstd."""
    expanded: bytes
    if hasattr(decompressor, "stream_reader"):  # zstandard's `decompress` believes the data's size
        with decompressor.stream_reader(data) as reader:
            expanded = reader.read(size)
    else:
        expanded = decompressor.decompress(data, size)
    return expanded


def _written(part: bytes | memoryview, picture: tuple[int, int, int], method: str) -> bytes:
    images: Any = sys.modules["PIL.Image"]
    layout, width, height = picture
    if layout == PLANES:
        plane = width * height
        planes = [
            images.frombytes("L", (width, height), part[start : start + plane])
            for start in range(0, 3 * plane, plane)
        ]
        made = images.merge("RGB", planes)
    else:
        made = images.frombytes(_MODES[layout], (width, height), part)
    file = io.BytesIO()
    if method == "png":
        made.save(file, "PNG", compress_level=1)
    else:  # what takes longer to write is hardly smaller
        made.save(file, "WEBP", lossless=True, quality=0, method=0)
    return file.getvalue()


def _read(data: memoryview, name: str, picture: tuple[int, int, int]) -> bytes:
    plugin = _plugin(name)
    if plugin is None:
        raise ValueError(f"Pillow is not here, or has no {name}")
    layout, width, height = picture
    made = getattr(plugin, f"{name}ImageFile")(io.BytesIO(data))
    if made.size != (width, height) or made.mode != _MODES.get(layout):
        raise ValueError("a picture has another size or mode")
    if layout == PLANES:
        return b"".join(plane.tobytes() for plane in made.split())
    pixels: bytes = made.tobytes()
    return pixels


def _plugin(name: str) -> Any:
    """Return Pillow's module of a format; None if the program does not use it, or it has none."""
    if "PIL.Image" not in sys.modules:  # lotus imports no library into a program
        return None
    try:
        plugin = importlib.import_module(f"PIL.{name}ImagePlugin")
    except ImportError:
        return None
    return None if name == "WebP" and not getattr(plugin, "SUPPORTED", False) else plugin


def _zstd() -> Any:
    """Return a module with zstd's `compress(data, level)` and `ZstdDecompressor`, or None."""
    if not _found:
        _found.append(_imported_zstd())
    return _found[0]


_found: list[Any] = []  # once it was looked for


def _imported_zstd() -> Any:
    for name in _ZSTD_MODULES:
        # The one library that is imported into a program: a plan chose it where it was measured.
        try:
            return importlib.import_module(name)
        except Exception as error:
            if of_the_program(error):
                raise
    return None

"""Unpacks the records of a perf.data file that `perf record -z` compressed, with limits.

perf compresses its records as one zstd stream, split into records of at most 64 KiB, with other
records in between. A few bytes of such a stream can expand to gigabytes. So the unpacked size is
limited, relative to the file and absolutely, and never held as a whole. libzstd is loaded with
ctypes when it is needed; it is installed with perf.
Source: Linux tools/perf/util/zstd.c, tools/perf/util/tool.c, zstd.h of libzstd 1.4.
"""

import ctypes
import struct
from collections.abc import Iterator
from functools import cache
from io import FileIO
from typing import Any

import numpy as np

from native_map.recording.perf_header import COMPRESSED_RECORDS, Header
from native_map.recording.record_bounds import boundaries

RATIO = 100  # typical recordings shrink to a fifth, very regular ones to a fortieth
LEAST_BOUND, MOST_BOUND = 16 << 20, 2 << 30
MOST_PLAIN = 2_000_000  # uncompressed records in such a file
LONGEST = 1 << 16
PIECE = 1 << 20
WINDOW_LOG = 27  # 128 MiB, that of zstd's highest level


class _ZstdBuffer(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t), ("pos", ctypes.c_size_t)]


@cache
def library() -> Any:
    """Return libzstd with its functions declared; None if it is not installed."""
    for name in ("libzstd.so.1", "libzstd.so"):
        try:
            zstd = ctypes.CDLL(name)
            zstd.ZSTD_createDStream.restype = ctypes.c_void_p
            zstd.ZSTD_freeDStream.argtypes = [ctypes.c_void_p]
            zstd.ZSTD_DCtx_setParameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
            zstd.ZSTD_DCtx_setParameter.restype = ctypes.c_size_t
            pointer = ctypes.POINTER(_ZstdBuffer)
            zstd.ZSTD_decompressStream.argtypes = [ctypes.c_void_p, pointer, pointer]
            zstd.ZSTD_decompressStream.restype = ctypes.c_size_t
            zstd.ZSTD_isError.argtypes = [ctypes.c_size_t]
            return zstd
        except (OSError, AttributeError):
            continue
    return None


class _Stream:
    """A zstd stream that is fed in parts."""

    def __init__(self) -> None:
        self._library = library()
        self._out = ctypes.create_string_buffer(PIECE)
        self.between = True  # all that was fed has been unpacked
        self._stream = self._library.ZSTD_createDStream()
        if not self._stream:
            raise MemoryError
        self._library.ZSTD_DCtx_setParameter(self._stream, 100, WINDOW_LOG)

    def unpack(self, packed: bytes) -> Iterator[bytes]:
        """Yield the unpacked bytes in pieces. Raises ValueError if the input is damaged."""
        held = ctypes.create_string_buffer(packed, len(packed))
        source = _ZstdBuffer(ctypes.cast(held, ctypes.c_void_p), len(packed), 0)
        while True:
            target = _ZstdBuffer(ctypes.cast(self._out, ctypes.c_void_p), PIECE, 0)
            code = self._library.ZSTD_decompressStream(
                self._stream, ctypes.byref(target), ctypes.byref(source)
            )
            if self._library.ZSTD_isError(code):
                raise ValueError("damaged")
            # The size of its next input: the header of a block, or 0 at the end of a frame.
            self.between = code in (0, 3)
            if target.pos:
                yield ctypes.string_at(self._out, target.pos)
            if source.pos == len(packed) and target.pos < PIECE:
                return

    def close(self) -> None:
        self._library.ZSTD_freeDStream(self._stream)


class Unpacking:
    """The unpacked records of a file as a stream of bytes. `damage` lists what is missing."""

    def __init__(self, file: FileIO, header: Header) -> None:
        self._file = file
        self._begin, self._size = header.data
        self.bound = min(max(RATIO * self._size, LEAST_BOUND), MOST_BOUND)
        self.damage: list[str] = []
        self.unread = 0  # bytes of the file
        self._pieces = self._read()
        self._rest = memoryview(b"")

    def fill(self, into: memoryview) -> int:
        """Fill the buffer as far as possible; return the number of bytes."""
        filled = 0
        while filled < len(into):
            if not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            part = self._rest[: len(into) - filled]
            into[filled : filled + len(part)] = part
            self._rest = self._rest[len(part) :]
            filled += len(part)
        return filled

    def skip(self) -> int:
        """Unpack the rest, within the limits, only to return its number of bytes."""
        in_hand, self._rest = len(self._rest), memoryview(b"")
        return in_hand + sum(len(piece) for piece in self._pieces)

    def _note_unread(self, at: int, why: str) -> None:
        self.unread = self._size - at
        self.damage.append(f"{why}: {self.unread} bytes from byte {self._begin + at} are not read")

    def _read(self) -> Iterator[bytes]:
        stream = _Stream()
        try:
            yield from self._records(stream)
        finally:
            stream.close()

    def _records(self, stream: _Stream) -> Iterator[bytes]:
        cut = b""  # the beginning of a record whose rest is in the next compressed one
        total = plain = whole_to = 0
        for at, kind, record in self._outer():
            if kind not in COMPRESSED_RECORDS:
                plain += 1
                if plain > MOST_PLAIN:
                    self._note_unread(at, "a file of compressed records has too many others")
                    break
                yield record
                continue
            packed = record[8:]
            if kind == COMPRESSED_RECORDS[1]:
                size = struct.unpack_from("<Q", packed)[0] if len(packed) >= 8 else 0
                packed = packed[8 : 8 + min(size, len(packed))]
            try:
                for piece in stream.unpack(packed):
                    total += len(piece)
                    if total > self.bound:
                        break
                    complete, cut = _whole_records(cut + piece)
                    yield complete
                if stream.between:
                    whole_to = at + len(record)
            except ValueError:
                self._note_unread(at, "a compressed record is damaged")
                break
            if total > self.bound:
                many = f"{self.bound >> 20} MiB"
                self._note_unread(at, f"the compressed records unpack to more than {many}")
                break
        if not stream.between and not self.damage:
            self._note_unread(whole_to, "the compressed records are damaged")
        if cut:
            yield cut

    def _outer(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield place, type and bytes of each record in the file."""
        at, window, start = 0, b"", 0
        while at < self._size:
            if len(window) - start < min(LONGEST, self._size - at):
                self._file.seek(self._begin + at)
                window, start = self._file.read(min(PIECE, self._size - at)), 0
            size = struct.unpack_from("<H", window, start + 6)[0] if len(window) - start >= 8 else 0
            if size < 8 or size > len(window) - start:
                self._note_unread(at, "a record is cut or damaged")
                return
            (kind,) = struct.unpack_from("<I", window, start)
            yield at, kind, window[start : start + size]
            start += size
            at += size


def _whole_records(data: bytes) -> tuple[bytes, bytes]:
    """Return the whole records at the start of these bytes, and the rest."""
    words = np.frombuffer(data, "<u8", len(data) // 8)
    _, end, _ = boundaries(words, len(words))
    end *= 8
    # An overlong record is damaged; the next reader reports it.
    return (data[:end], data[end:]) if len(data) - end < LONGEST else (data, b"")

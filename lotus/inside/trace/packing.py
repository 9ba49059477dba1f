"""Packs the rows of a fetch into the arrays of its record."""

from __future__ import annotations

import sys
import threading
from array import array

from ..common.guard import ask, is_number
from .log import log_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .fetch_state import Rows

_BIG_ENDIAN = sys.byteorder == "big"
# Arrays of C longs, if they have 64 bits, are filled twice as fast.
_CODES = {"I": "I", "q": "q", "Q": "L" if array("L").itemsize == 8 else "Q"}


def pack(code: str, values: Iterable[int]) -> bytes:
    """Return `values` as little-endian bytes; raise OverflowError if one does not fit."""
    packed: array[int] = array(_CODES[code], values)
    if _BIG_ENDIAN:
        packed.byteswap()
    return packed.tobytes()


def no_packed(indices: list[Any]) -> None:
    """Replacement of `pack_indices` of `_batch.c` if that is not used."""


def pack_indices(
    indices: list[Any] | None, quickly: Callable[[list[Any]], bytes | None]
) -> tuple[bytes, bytes]:
    """Return indices of samples as (4 bytes each, b"") or (b"", 8 bytes each); empty for other
    keys.
    """
    if not indices:
        return b"", b""
    packed = quickly(indices)
    if packed is not None:
        return packed, b""
    kinds = list(map(type, indices))
    if kinds.count(int) < len(kinds) and not all(map(is_number, set(kinds))):
        return b"", b""
    index = ask(pack, "I", indices, default=b"")
    return index, b"" if index else ask(pack, "q", indices, default=b"")


def pack_rows(rows: Rows) -> tuple[bytes, bytes, bytes, int]:
    """Return (samples, operations, their CPU times, the longest duration of a sample) of a fetch.

    The rows remain. Operations of samples that take over 4.3 s are moved to `loose`.
    """
    samples, ops = rows.samples, rows.ops
    if not samples and not ops:
        return b"", b"", b"", 0
    if type(samples) is not list:  # of the extension
        longest = samples.longest()
        if longest >= 1 << 32:
            _ops_to_loose(rows)
        return samples.packed(), ops.packed_low(), b"", longest
    longest = max(samples[1::3], default=0)
    if longest >= 1 << 32:
        _ops_to_loose(rows)
    if not ops:
        return pack("Q", samples), b"", b"", longest
    # The lower half of each 64-bit number.
    packed_ops = memoryview(pack("Q", ops)).cast("I")[::2].tobytes()
    return pack("Q", samples), packed_ops, pack("Q", rows.ops_cpu), longest


def _ops_to_loose(rows: Rows) -> None:
    """Move operations of samples that take over 4.3 s to `loose`, which has full times."""
    samples, ops, ops_cpu = rows.samples, rows.ops[:], rows.ops_cpu
    tid, row, width = threading.get_native_id(), 0, len(log_format.CPU)
    for position, count in enumerate(samples[2::3]):
        while row < count:
            start, end, operation = ops[3 * row : 3 * row + 3]
            cpu = tuple(ops_cpu[width * row : width * (row + 1)])
            rows.loose.append(((start, end - start, operation, tid, position, 0), cpu))
            row += 1
        samples[3 * position + 2] = 0
    del rows.ops[:], ops_cpu[:]

"""The arrays of a fetch's record: the numbers of its operations stay with them."""

import struct

from lotus.inside.trace.fetch_state import Rows
from lotus.inside.trace.log.log_format import CPU, CPU_BYTES, UNMEASURED
from lotus.inside.trace.packing import pack_rows

FIRST, SECOND = (1, 2, 3, 4, UNMEASURED, 6), (11, 12, 13, 14, 15, 16)


def rows_of(longest: int) -> Rows:
    """Two samples with an operation each."""
    rows = Rows()
    rows.samples += (1_000, longest, 1, 1_000 + longest, 5, 2)
    rows.ops += (1_001, 1_003, 7, 1_001 + longest, 1_004 + longest, 8)
    rows.ops_cpu += (*FIRST, *SECOND)
    return rows


def test_a_row_has_all_numbers_of_an_operation() -> None:
    assert len(FIRST) == len(CPU)
    _, ops, cpu, longest = pack_rows(rows_of(50))
    assert longest == 50
    assert (len(ops) // 12, len(cpu) // CPU_BYTES) == (2, 2)
    assert struct.unpack("<12Q", cpu) == (*FIRST, *SECOND)


def test_operations_of_long_samples_take_their_numbers_along() -> None:
    long = 5_000_000_000
    rows = rows_of(long)
    _, ops, cpu, longest = pack_rows(rows)
    assert (ops, cpu, longest) == (b"", b"", long)
    assert [(row[:3], row[4], numbers) for row, numbers in rows.loose] == [
        ((1_001, 2, 7), 0, FIRST),
        ((1_001 + long, 3, 8), 1, SECOND),
    ]

"""A deterministic data set of tiny pictures, in the format of CIFAR-10's binary version.

`data_batch_1.bin` and so on, with 10,000 pictures each: a byte for the class, then 1,024 bytes of
red, as many of green and of blue (32 rows of 32). The pictures are made: a shade and a direction in
which it changes that belong to the class, and noise.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lotus.workloads import making

CLASSES = 10
PICTURES = 10_000  # a file
RECORD = 1 + 3 * 32 * 32  # bytes


def records(file: int, count: int) -> NDArray[np.uint8]:
    """Return the first `count` records (count, 3073) of a file, with the same bytes each time."""
    random = np.random.Generator(np.random.PCG64(file))
    records = np.empty((count, RECORD), np.uint8)
    records[:, 0] = random.integers(0, CLASSES, count)
    records[:, 1:] = random.integers(0, 128, (count, RECORD - 1), dtype=np.uint8)
    slope = np.arange(32, dtype=np.uint8) * 2
    for label in range(CLASSES):
        pattern = np.zeros((3, 32, 32), np.uint8)
        pattern[label % 3] = slope if label % 2 else slope[:, None]
        pattern += np.uint8(6 * label)
        records[records[:, 0] == label, 1:] += pattern.reshape(-1)
    return records


def make(directory: Path, count: int) -> Iterator[int]:
    """Make `count` pictures unless they exist; as `making.make`."""

    def save(folder: Path, file: int) -> None:
        path = folder / f"data_batch_{file + 1}.bin"
        path.write_bytes(records(file, min(PICTURES, count - file * PICTURES)).tobytes())

    for files in making.make(directory, -(-count // PICTURES), save):
        yield min(count, files * PICTURES)

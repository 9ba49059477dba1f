"""A deterministic data set of 3-D scans and their masks, as MLPerf prepares those of KiTS19.

A case is a pair of files: `case_00000_x.npy`, a scan (1, depth, height, width) of float32 with
zero mean and unit variance, and `case_00000_y.npy`, its mask of uint8: 0 nothing, 1 kidney,
2 tumour. The scans are made: two ellipsoids with a small one in one of them, in noise. They are an
eighth of the size of real ones (8 MB instead of 70), and as different from each other.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lotus.workloads import making

DEPTH, HEIGHT, WIDTH = (80, 112), 128, 128  # the depths are between these


def case(number: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Return scan and mask `number`; the voxels are the same each time."""
    random = np.random.Generator(np.random.PCG64(number))
    shape = (int(random.integers(*DEPTH, endpoint=True)), HEIGHT, WIDTH)
    mask = np.zeros(shape, np.uint8)
    centres = [(0.5, 0.55, 0.27), (0.5, 0.55, 0.73)]
    for centre in centres:
        _ellipsoid(mask, random, centre, (0.2, 0.13, 0.1), 1)
    kidney = centres[int(random.integers(2))]
    _ellipsoid(mask, random, (kidney[0], kidney[1] - 0.08, kidney[2]), (0.07, 0.06, 0.05), 2)
    scan = random.standard_normal(shape, dtype=np.float32)
    scan += np.array([0, 1.5, 2.5], np.float32)[mask]
    # In double precision, so that no processor's order of summation shows.
    scan -= np.float32(scan.mean(dtype=np.float64))
    scan /= np.float32(scan.std(dtype=np.float64))
    return scan[None], mask[None]


def _ellipsoid(
    mask: NDArray[np.uint8],
    random: np.random.Generator,
    centre: tuple[float, float, float],
    radii: tuple[float, float, float],
    label: int,
) -> None:
    """Draw an ellipsoid into the mask, with random changes of its place and size."""
    total = np.zeros((1, 1, 1), np.float32)
    for axis, size in enumerate(mask.shape):
        middle = (centre[axis] + random.uniform(-0.05, 0.05)) * size
        radius = radii[axis] * random.uniform(0.8, 1.2) * size
        line = ((np.arange(size, dtype=np.float32) - middle) / radius) ** 2
        total = total + line.reshape([-1 if axis == other else 1 for other in range(3)])
    mask[total < 1] = label


def save(directory: Path, number: int) -> None:
    scan, mask = case(number)
    np.save(directory / f"case_{number:05d}_x.npy", scan)
    np.save(directory / f"case_{number:05d}_y.npy", mask)


def make(directory: Path, count: int) -> Iterator[int]:
    """Make `count` cases unless they exist; as `making.make`."""
    return making.make(directory, count, save)

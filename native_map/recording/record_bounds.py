"""Finds where the records of a perf.data file start."""

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def boundaries(words: Words, stop: int) -> tuple[Places, int, bool]:
    """Return the words up to `stop` at which records start, the start of the next record, and
    whether it is valid: False if its size is impossible or it ends after the last word.
    """
    sizes = words.view("<u2")[3::4]
    size_at = sizes.data
    total = len(words)
    bounds: list[Places] = []
    at, well = 0, True
    while at < stop and well:
        # A run of records of one size: each gives the start of the next one.
        size = size_at[at]
        step = size >> 3
        count, window = 0, 32
        if step and not size & 7:
            room = min((stop - at + step - 1) // step, (total - at) // step)
            while count < room:
                window = min(window, room - count)
                begin = at + count * step
                other = sizes[begin : begin + (window - 1) * step + 1 : step] != size
                first = int(other.argmax())
                if other[first]:
                    count += first
                    break
                count += window
                window *= 8
            bounds.append(np.arange(at, at + count * step, step, dtype=np.int64))
            at += count * step
        if count >= 32:
            continue
        # Changing sizes: single steps are faster than many short runs.
        single = []
        for _ in range(256):
            if at >= stop:
                break
            size = size_at[at]
            if size & 7 or not size or at + (size >> 3) > total:
                well = False
                break
            single.append(at)
            at += size >> 3
        bounds.append(np.array(single, np.int64))
    return (np.concatenate(bounds) if bounds else np.empty(0, np.int64)), at, well

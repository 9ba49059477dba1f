"""Finds the offset between the clocks of stacks and of looks, as py-spy does not say its start."""

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Floats, Ints

_STEP_NS = 4_000_000
_MARGIN_NS = 40_000_000  # py-spy takes the time after it has sampled all processes
_MOST_STEPS = 400
NONE = -1


def labels_of_looks(looks: pd.DataFrame, samples: pd.DataFrame, bound_ns: float) -> Ints:
    """Return the label of the stack of the same process at each look's time (n,); NONE: no stack.

    A look stands for the middle of the time since the look before. The offset between the clocks
    is the one within `bound_ns` with most mutual information between what a thread was blocked in
    and the label of its stack. If neither changes, all offsets are equal.
    """
    if not len(looks) or not len(samples):
        return np.full(len(looks), NONE, np.int64)
    width = bound_ns + _MARGIN_NS
    step = max(_STEP_NS, 2 * width / _MOST_STEPS)
    offsets = np.arange(-width, width + step, step)
    kinds = pd.factorize(looks["reason"])[0]
    lookup = _SampleLookup(looks, samples)
    scores = [_information(lookup.at(offset), kinds) for offset in offsets]
    # Of offsets with the same information, the smallest.
    best = max(range(len(offsets)), key=lambda k: (round(scores[k], 3), -abs(offsets[k])))
    return lookup.at(float(offsets[best]))


class _SampleLookup:
    def __init__(self, looks: pd.DataFrame, samples: pd.DataFrame) -> None:
        self._count = len(looks)
        self._each: list[tuple[Ints, Floats, Floats, Ints, float]] = []
        middle = looks["time_ns"].to_numpy(np.float64) - looks["wall_ns"].to_numpy(np.float64) / 2
        pid = looks["pid"].to_numpy()
        main = samples[samples["pid"] == samples["tid"]]
        for each, mine in main.groupby("pid"):
            rows = np.flatnonzero(pid == each)
            times = mine["time_ns"].to_numpy(np.float64)
            if rows.size and times.size:
                gap = 2.0 * float(np.median(np.diff(times))) if times.size > 1 else 1e9
                label = mine["label"].to_numpy(np.int64)
                self._each.append((rows, middle[rows], times, label, gap))

    def at(self, offset: float) -> Ints:
        """Return the labels if the looks' times are moved by `offset` nanoseconds."""
        result = np.full(self._count, NONE, np.int64)
        for rows, middle, times, label, gap in self._each:
            wanted = middle + offset
            place = nearest(times, wanted)
            near = np.abs(times[place] - wanted) <= gap
            result[rows[near]] = label[place[near]]
        return result


def nearest(times: Floats, wanted: Floats) -> Ints:
    """Return for each wanted time (n,) the place of the nearest of the sorted `times`."""
    after = np.clip(np.searchsorted(times, wanted), 1, max(len(times) - 1, 1))
    if len(times) == 1:
        return np.zeros(len(wanted), np.int64)
    before = after - 1
    closer = wanted - times[before] <= times[after] - wanted
    return np.asarray(np.where(closer, before, after), np.int64)


def _information(labels: Ints, kinds: Ints) -> float:
    """Return the mutual information, in nats, of labels and kinds where both are known."""
    known = labels != NONE
    if not known.any():
        return 0.0
    label, kind = np.unique(labels[known], return_inverse=True)[1], kinds[known]
    table = np.zeros((int(label.max()) + 1, int(kind.max()) + 1))
    np.add.at(table, (label, kind), 1.0)
    table /= table.sum()
    apart = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    filled = table > 0
    return float((table[filled] * np.log(table[filled] / apart[filled])).sum())

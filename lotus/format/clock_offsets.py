"""The offset between two clocks, computed from round trips, with a bound on its error.

The other clock was read between the start and the end of a round trip, however different the two
directions are. So the offset is the middle of the trip, with an error of at most half the trip.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lotus.common.numbers.array_types import Ints

FASTEST = 200e-6  # largest drift between two clocks: crystals and NTP's slewing, doubled
_MOST = 128  # measurements that are used: the best of each of so many periods of time


@dataclass(frozen=True)
class Clock:
    """Offset of another clock: its time is t + offset_ns + drift * (t - at_ns).

    error_ns is a bound on the offset's error over the requested times.
    method describes how the offset was measured.
    """

    at_ns: int = 0
    offset_ns: int = 0
    drift_ppb: float = 0.0
    error_ns: int = 0
    method: str = "same clock"

    def shift(self, times: Ints) -> Ints:
        """Return what to add to times of this clock (int64 ns)."""
        drift: Ints = np.rint((times - self.at_ns) * (self.drift_ppb * 1e-9)).astype(np.int64)
        return drift + self.offset_ns


def estimate(
    times: Sequence[int], offsets: Sequence[int], trips: Sequence[int], begin: int, end: int
) -> Clock:
    """Compute the offset and its drift from measurements, for the times `begin` to `end` (all ns).

    A measurement bounds the offset to its reading plus or minus half its round trip. Of all
    straight lines within these bounds whose slope is at most FASTEST, the result is the middle one
    at `begin` and `end`; error_ns is the largest distance of any of them from it there. If there is
    no such line because the drift changed, the bounds are doubled until there is one. Raises
    ValueError if there are no measurements.
    """
    if not len(times):
        raise ValueError("no measurements")
    at, middle, half = _best(times, offsets, trips)
    origin, base = int(at[0]), int(middle[0])
    # Small numbers, which float64 represents exactly.
    when = (at - origin).astype(np.float64)
    value = (middle - base).astype(np.float64)
    # (The reading was taken at an unknown time, up to half the trip from its middle.)
    width, wider = half * (1 + FASTEST) + 0.5, 1
    while True:
        low, high = value - wider * width, value + wider * width
        edges = [_bounds(when, low, high, float(t - origin)) for t in (begin, end)]
        inside = [_bounds(when, low, high, t) for t in when.tolist()]
        if all(least <= most for least, most in edges + inside):
            break
        wider *= 2
    first, last = (sum(edge) / 2 for edge in edges)
    error = max((most - least) / 2 for least, most in edges)
    drift = (last - first) / (end - begin) if end > begin else 0.0
    if wider > 1:
        line = first + drift * (when - float(begin - origin))
        error = max(error, float((np.abs(value - line) + width).max()))
    method = f"{len(times)} meetings over the job's store" if len(times) > 1 else "one meeting"
    if wider > 1:
        method += f", whose bounds hold no straight line and were widened {wider} times"
    return Clock(begin, base + round(first), drift * 1e9, int(np.ceil(error)) + 1, method)


def _best(
    times: Sequence[int], offsets: Sequence[int], trips: Sequence[int]
) -> tuple[Ints, Ints, Ints]:
    """Return (time, offset, half round trip) of at most _MOST measurements, sorted by time."""
    order = np.argsort(np.asarray(times, np.int64), kind="stable")
    columns = [np.asarray(column, np.int64)[order] for column in (times, offsets, trips)]
    parts = np.array_split(np.arange(len(order)), min(_MOST, len(order)))
    chosen = np.array([part[np.argmin(columns[2][part])] for part in parts])
    at, middle, trip = (column[chosen] for column in columns)
    return at, middle, -(-np.maximum(trip, 0) // 2)


def _bounds(
    when: npt.NDArray[np.float64],
    low: npt.NDArray[np.float64],
    high: npt.NDArray[np.float64],
    t: float,
) -> tuple[float, float]:
    """Return the least and greatest value at `t` of the lines within [low, high] at `when`."""
    away = np.abs(t - when) * FASTEST
    least, most = float((low - away).max()), float((high + away).min())
    earlier, later = np.meshgrid(np.arange(len(when)), np.arange(len(when)), indexing="ij")
    apart = when[later] > when[earlier]
    earlier, later = earlier[apart], later[apart]
    if not len(earlier):
        return least, most
    span = when[later] - when[earlier]
    share = (t - when[earlier]) / span  # 0 at the earlier of the two, 1 at the later
    between = (share >= 0) & (share <= 1)
    after = share > 1
    # Outside of the two times, the steepest line goes from one's least to the other's greatest.
    up = np.where(between | after, high[later], low[later])
    start = np.where(after, low[earlier], high[earlier])
    most = min(most, float((start + (up - start) * share).min()))
    down = np.where(between | after, low[later], high[later])
    start = np.where(after, high[earlier], low[earlier])
    return max(least, float((start + (down - start) * share).max())), most

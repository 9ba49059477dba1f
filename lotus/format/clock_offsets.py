"""How a clock stands to another one, from round trips: pure arithmetic, with a bound on the error.

A round trip tells that the other clock's reading was taken between its start and its end, however
unlike the two ways are: so at that time the offset is its middle, give or take half the trip.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

FASTEST = 200e-6  # by which two clocks can at most run apart: crystals and what NTP slews, doubled
_MOST = 128  # measurements that are looked at together: the best of as many stretches of time


@dataclass(frozen=True)
class Clock:
    """Offset of another clock: its time is t + offset_ns + drift * (t - at_ns).

    error_ns bounds the offset's error over the times that were asked for; None: not known.
    method says in words what it was taken from.
    """

    at_ns: int = 0
    offset_ns: int = 0
    drift_ppb: float = 0.0
    error_ns: int | None = 0
    method: str = "same clock"

    def shift(self, times: Ints) -> Ints:
        """What to add to times of this clock (int64 ns)."""
        drift: Ints = np.rint((times - self.at_ns) * (self.drift_ppb * 1e-9)).astype(np.int64)
        return drift + self.offset_ns


def estimate(
    times: Sequence[int], offsets: Sequence[int], trips: Sequence[int], begin: int, end: int
) -> Clock:
    """The offset and its drift from measurements, for the times `begin` to `end` (all ns).

    Of all straight lines that pass through every measurement give or take half its round trip, and
    rise or fall by no more than FASTEST, the middle one at `begin` and at `end`; error_ns is the
    farthest that any of them is from it there. Where no line passes, as the drift changed, the
    measurements are believed half as much, until one does. Raises ValueError without any.
    """
    if not len(times):
        raise ValueError("no measurements")
    at, middle, half = _best(times, offsets, trips)
    origin, base = int(at[0]), int(middle[0])
    # Small numbers, which float64 holds whole.
    when = (at - origin).astype(np.float64)
    value = (middle - base).astype(np.float64)
    # (The reading is the offset of its own time, which may be as far from the middle of the trip.)
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
    """(time, offset, half round trip) of at most _MOST measurements, by time."""
    order = np.argsort(np.asarray(times, np.int64), kind="stable")
    columns = [np.asarray(one, np.int64)[order] for one in (times, offsets, trips)]
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
    """Least and greatest value at `t` of the lines within [low, high] at `when`."""
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
    # Outside of the two a line rises most from one's least to the other's greatest value.
    up = np.where(between | after, high[later], low[later])
    start = np.where(after, low[earlier], high[earlier])
    most = min(most, float((start + (up - start) * share).min()))
    down = np.where(between | after, low[later], high[later])
    start = np.where(after, high[earlier], low[earlier])
    return max(least, float((start + (down - start) * share).max())), most

"""Converts a recording on another clock to CLOCK_MONOTONIC, by events that both sides recorded.

Our side has a bracket for each event: an earliest and a latest time. Each pair of an event of the
other side and a bracket of ours excludes some straight lines (offset + drift) as the relation of
the clocks. The remaining lines bound the error, without any assumption about delays in reading a
clock.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.errors import UnusableError
from native_map.recording.perf_recording import PerfRecording

MOST_DRIFT = 1e-3  # NTP slews by 5e-4 at most; a counter's calibration is off by less than that
MOST_ERROR_NS = 5_000_000
FEWEST = 3
RESOLUTION_NS = 1  # of both clocks: exact times need not fit a line better than this
OPEN_BEFORE, OPEN_AFTER = np.iinfo(np.int64).min, np.iinfo(np.int64).max
RECORD_RIGHT = "record again with `perf record -k CLOCK_MONOTONIC ...`"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockAlignment:
    """ours = theirs + offset_ns + drift * (theirs - reference_ns), off by error_ns at most."""

    offset_ns: int
    drift: float
    reference_ns: int
    error_ns: int
    matched: int  # events that took part
    rejected: int  # events whose times contradict the others

    def apply(self, times: Ints) -> Ints:
        """Return times of the other clock as ns on our clock."""
        drift_ns = np.rint((times - self.reference_ns) * self.drift).astype(np.int64)
        aligned: Ints = times + self.offset_ns + drift_ns
        return aligned

    def __str__(self) -> str:
        left_out = f"; left out as contradicting them: {self.rejected}" if self.rejected else ""
        return (
            f"clocks aligned through {self.matched} events: {self.offset_ns / 1e9:+.6f} s,"
            f" drift {self.drift * 1e6:+.1f} ppm, within {self.error_ns / 1e3:.0f} us{left_out}"
        )


def events_of(recording: PerfRecording) -> pd.DataFrame:
    """Return pid, tid, kind, time_ns of the forks, exits and comms in a recording, without those
    that perf synthesised at its start (time 0)."""
    tables = []
    for kind, table in (
        ("fork", recording.forks),
        ("exit", recording.exits),
        ("comm", recording.comms),
    ):
        tables.append(table[["pid", "tid", "time_ns"]].assign(kind=kind))
    events = pd.concat(tables, ignore_index=True)
    return events[events["time_ns"] > 0].reset_index(drop=True)


def align(
    ours: pd.DataFrame,
    theirs: pd.DataFrame,
    span: tuple[int, int] | None = None,
    most_error_ns: int = MOST_ERROR_NS,
) -> ClockAlignment:
    """Relate two clocks.

    ours            pid, tid, kind ("fork", "exit", "comm"), and earliest_ns, latest_ns on
                    CLOCK_MONOTONIC (the smallest and largest int64 if unknown); or only time_ns,
                    read in the process itself: after a fork or comm, before an exit.
    theirs          pid, tid, kind, time_ns on the other clock
    span            first and last time on the other clock for which the error must hold; by
                    default those of its events

    Raises UnusableError, with the command for a usable recording, if fewer than three events match,
    if they contradict each other, or if the error would exceed most_error_ns.
    """
    pairs = _match(_brackets(ours), theirs)
    if len(pairs) < FEWEST:
        raise _refusal(f"only {len(pairs)} of its process events are known to the run")
    times = pairs["time_ns"].to_numpy(np.int64)
    first, last = span or (int(theirs["time_ns"].min()), int(theirs["time_ns"].max()))
    first, last = min(first, int(times.min())), max(last, int(times.max()))
    reference = first
    base = _base(pairs)
    low = _difference(pairs["earliest_ns"].to_numpy(np.int64), times, OPEN_BEFORE, base)
    high = _difference(pairs["latest_ns"].to_numpy(np.int64), times, OPEN_AFTER, base)
    low, high = low - RESOLUTION_NS, high + RESOLUTION_NS
    x = (times - reference).astype(np.float64)
    consistent = _agreeing(x, low, high)
    rejected = int((~consistent).sum())
    if rejected * 5 > len(consistent) or consistent.sum() < FEWEST:
        raise _refusal(f"{rejected} of {len(consistent)} process events contradict the others")
    corners = _corners(x[consistent], low[consistent], high[consistent])
    if corners is None:
        raise _refusal("the process events of both sides contradict each other")
    width = float(last - first)
    ends = np.stack([corners[:, 0], corners[:, 0] + corners[:, 1] * width])
    if not np.isfinite(ends).all():
        raise _refusal("it has no events that bound the offset from both sides")
    middle = (ends.max(axis=1) + ends.min(axis=1)) / 2
    error = float((ends.max(axis=1) - ends.min(axis=1)).max() / 2)
    if error > most_error_ns:
        raise _refusal(f"it could only be aligned within {error / 1e6:.1f} ms")
    return ClockAlignment(
        offset_ns=base + round(float(middle[0])),
        drift=float(middle[1] - middle[0]) / width if width else 0.0,
        reference_ns=reference,
        error_ns=int(np.ceil(error)) + 1,
        matched=int(consistent.sum()),
        rejected=rejected,
    )


def _refusal(why: str) -> UnusableError:
    return UnusableError(
        f"the recording is on another clock and cannot be aligned: {why}; its functions can still"
        f" be counted for the whole run, not per operation; {RECORD_RIGHT}"
    )


def _brackets(ours: pd.DataFrame) -> pd.DataFrame:
    if "earliest_ns" in ours.columns and "latest_ns" in ours.columns:
        return ours
    ends = ours["kind"].eq("exit").to_numpy()
    time = ours["time_ns"].to_numpy(np.int64)
    return ours.assign(
        earliest_ns=np.where(ends, time, OPEN_BEFORE), latest_ns=np.where(ends, OPEN_AFTER, time)
    )


def _match(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Pair the events by (pid, tid, kind), in order. If one side has more of a kind than the other
    (a reused number), the pairing is ambiguous: none is used."""
    key = ["pid", "tid", "kind"]
    sides = []
    for side, order in ((ours, ["latest_ns", "earliest_ns"]), (theirs, ["time_ns"])):
        ordered = side.sort_values(order, kind="stable")
        grouped = ordered.groupby(key, observed=True)
        sides.append(
            ordered.assign(
                turn=grouped.cumcount(), times=grouped["pid"].transform("size").to_numpy()
            )
        )
    left = sides[0][[*key, "turn", "times", "earliest_ns", "latest_ns"]]
    right = sides[1][[*key, "turn", "times", "time_ns"]]
    return pd.merge(left, right, on=[*key, "turn", "times"])


def _base(pairs: pd.DataFrame) -> int:
    """Return a rough offset in whole ns; the remainder is small enough for floats."""
    closed = pairs[pairs["latest_ns"] != OPEN_AFTER]
    column = "latest_ns" if len(closed) else "earliest_ns"
    closed = closed if len(closed) else pairs
    differences = closed[column].to_numpy(np.int64) - closed["time_ns"].to_numpy(np.int64)
    return int(np.sort(differences)[len(differences) // 2])


def _difference(ours: Ints, theirs: Ints, unknown: int, base: int) -> Floats:
    known = ours != unknown
    result = np.full(len(ours), np.inf if unknown == OPEN_AFTER else -np.inf)
    result[known] = ours[known] - theirs[known] - base
    return result


def _agreeing(x: Floats, low: Floats, high: Floats) -> npt.NDArray[np.bool_]:
    """Return which brackets contain the offset that most of them contain, with any drift."""
    slack = np.abs(x - np.median(x)) * MOST_DRIFT
    begin, end = low - slack, high + slack
    moments = np.concatenate([begin, end])
    steps = np.concatenate([np.ones(len(x)), -np.ones(len(x))])
    order = np.lexsort((-steps, moments))
    depth = np.cumsum(steps[order])
    best = moments[order][int(depth.argmax())]
    contain_best: npt.NDArray[np.bool_] = (begin <= best) & (best <= end)
    return contain_best


def _hull(x: Floats, y: Floats, upper: bool) -> list[tuple[float, float]]:
    """Return the corners of the points' upper or lower convex hull; only they can bound a line."""
    sign = 1.0 if upper else -1.0
    corners: list[tuple[float, float]] = []
    for px, py in sorted(zip(x.tolist(), (sign * y).tolist(), strict=True)):
        while len(corners) >= 2:
            (ax, ay), (bx, by) = corners[-2:]
            if (bx - ax) * (py - ay) < (by - ay) * (px - ax):
                break
            corners.pop()
        # Of two points with the same x, only the outer one counts.
        if corners and corners[-1][0] == px:
            corners.pop()
        corners.append((px, py))
    return [(px, sign * py) for px, py in corners]


def _corners(x: Floats, low: Floats, high: Floats) -> Floats | None:
    """Return the corners (offset, drift) of the set of lines above all `low` and below all `high`.

    None if there is no such line; infinite where the set is unbounded.
    """
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    if not has_low.any() or not has_high.any():
        return np.full((1, 2), np.inf)
    above = _hull(x[has_low], low[has_low], upper=True)
    below = _hull(x[has_high], high[has_high], upper=False)
    # A line's offset, for a drift d, lies between the largest y - d x of `above` and the smallest
    # of `below`; both bend only at the drifts of the hulls' edges and where they meet.
    points = [np.array(side) for side in (above, below)]
    drifts = {-MOST_DRIFT, MOST_DRIFT}
    for side in (above, below):
        drifts |= {(by - ay) / (bx - ax) for (ax, ay), (bx, by) in pairwise(side)}
    breakpoints = np.array(sorted(d for d in drifts if abs(d) <= MOST_DRIFT))

    def ranges(at: Floats) -> tuple[Floats, Floats]:
        floor = (points[0][:, 1] - at[:, None] * points[0][:, 0]).max(axis=1)
        ceiling = (points[1][:, 1] - at[:, None] * points[1][:, 0]).min(axis=1)
        return floor, ceiling

    floor, ceiling = ranges(breakpoints)
    room = ceiling - floor
    # Where the room changes its sign, the limit lies in between (the room is linear there).
    met = []
    for at in np.flatnonzero(room[:-1] * room[1:] < 0).tolist():
        share = room[at] / (room[at] - room[at + 1])
        met.append(breakpoints[at] + share * (breakpoints[at + 1] - breakpoints[at]))
    inside = breakpoints[room >= 0]
    corners = []
    for drift in inside.tolist():
        low_end, high_end = (float(end[0]) for end in ranges(np.array([drift])))
        corners += [(low_end, drift), (high_end, drift)]
    for drift in met:
        low_end, high_end = (float(end[0]) for end in ranges(np.array([drift])))
        corners += [(low_end, drift), (high_end, drift)]
    return np.array(corners) if corners else None

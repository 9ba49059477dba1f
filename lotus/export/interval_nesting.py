"""Nests intervals: computes order, depth, parent and last descendant of each."""

from typing import NamedTuple

import numpy as np

from lotus.common.numbers.array_types import Ints

_LEVELS = 64  # found level by level; deeper nests one interval after the other


class Nested(NamedTuple):
    """Intervals in the order of their starts, outer ones first. Arrays have an element each."""

    order: Ints  # places in the input
    end: Ints  # at most that of the parent
    depth: Ints
    parent: Ints  # place in this order, -1: none
    last: Ints  # place of its last descendant, its own where it has none
    clipped: int  # number of those that ended after the interval in which they began


def nest(track: Ints, start: Ints, end: Ints, rank: Ints) -> Nested:
    """Nest intervals of each track; of equal intervals the one of lower `rank` is outside.

    Intervals of a thread nest or are disjoint unless a clock jumped or a record is damaged. An
    interval that ends after the one in which it began is cut at the end of that one. No interval
    may end before it starts.
    """
    order = np.lexsort((rank, -end, start, track))
    track, start, end = track[order], start[order], end[order]
    levels = _levels(track, start, end)
    if levels is None:
        levels = _one_by_one(track, start, end)
    until, depth, parent, last = levels
    return Nested(order, until, depth, parent, last, int((until < end).sum()))


_Levels = tuple[Ints, Ints, Ints, Ints]


def _levels(track: Ints, start: Ints, end: Ints) -> _Levels | None:
    """Return the nesting; None if intervals overlap without nesting, or nest too deeply."""
    size = len(start)
    depth, parent = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    last = np.arange(size)
    if not size:
        return end, depth, parent, last
    first, span = int(start.min()), int(end.max()) - int(start.min()) + 1
    _, place = np.unique(track, return_inverse=True)
    if span * (int(place.max()) + 1) >= 1 << 62:
        return None
    begin, until = start - first + place * span, end - first + place * span
    below = np.arange(size)  # places in the intervals of the level before
    above: list[Ints] = []
    for level in range(_LEVELS):
        begins, ends = begin[below], until[below]
        highest = np.maximum.accumulate(ends)
        top = np.ones(len(below), np.bool_)
        top[1:] = begins[1:] >= highest[:-1]
        tops = below[top]
        group = np.cumsum(top) - 1
        inside = ~top
        owner = tops[group]
        if (ends > until[owner]).any():
            return None
        depth[below] = level
        parent[below[inside]] = owner[inside]
        above.append(tops)
        below = below[inside]
        if not len(below):
            break
    else:
        return None
    upper = np.empty(0, np.int64)
    for tops in above:
        upper = np.union1d(upper, tops) if len(upper) else tops
        place = np.searchsorted(upper, tops, side="right")
        last[tops] = np.append(upper, size)[place] - 1
    return end, depth, parent, last


def _one_by_one(track: Ints, start: Ints, end: Ints) -> _Levels:
    until, size = end.tolist(), len(start)
    depth, parent, last = [0] * size, [-1] * size, list(range(size))
    stack: list[int] = []
    before = None
    for at, (own, begin) in enumerate(zip(track.tolist(), start.tolist(), strict=True)):
        while stack and (own != before or until[stack[-1]] <= begin):
            last[stack.pop()] = at - 1
        before = own
        if stack:
            parent[at] = stack[-1]
            until[at] = min(until[at], until[stack[-1]])
        depth[at] = len(stack)
        stack.append(at)
    for at in stack:
        last[at] = size - 1
    return tuple(np.array(column, np.int64) for column in (until, depth, parent, last))  # type: ignore[return-value]

"""The layout of an array's elements in memory, and those of them that must be kept."""

from __future__ import annotations

import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Layout:
    """The layout of an array; all lengths are in bytes.

    sizes  the array's, but 1 where all elements along a dimension are the same ones in memory
    order  its dimensions, from the largest step to the smallest
    packed  whether its elements, in the order of memory, have no gaps between them
    span  from its first byte in memory to behind its last one
    start  of the element with index 0 from the first byte: 0 unless a step is negative
    stored  of the elements of an array with these sizes
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        order: tuple[int, ...],
        packed: bool,
        span: int,
        start: int,
        stored: int,
    ) -> None:
        self.sizes = sizes
        self.order = order
        self.packed = packed
        self.span = span
        self.start = start
        self.stored = stored


def layout(sizes: Sequence[int], steps: Sequence[int], itemsize: int) -> Layout:
    """Return the layout of an array with these sizes and steps (in bytes, as numpy's strides).

    Raises ValueError where elements overlap otherwise than by a step of 0.
    """
    count = len(sizes)
    order = tuple(sorted(range(count), key=lambda place: -abs(steps[place])))
    if 0 in sizes:
        return Layout(tuple(sizes), order, True, 0, 0, 0)
    kept = tuple([size if step else 1 for size, step in zip(sizes, steps, strict=True)])
    span, packed, start = itemsize, True, 0
    for place in reversed(order):
        size, step = kept[place], steps[place]
        if size == 1:
            continue
        if abs(step) < span:
            raise ValueError("elements of an array overlap")
        packed = packed and abs(step) == span
        span += abs(step) * (size - 1)
        if step < 0:
            start -= step * (size - 1)
    return Layout(kept, order, packed, span, start, math.prod(kept) * itemsize)


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of a contiguous array in C's order, in elements."""
    return tuple([math.prod(sizes[place + 1 :]) for place in range(len(sizes))])

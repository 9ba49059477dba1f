"""From what the ranks' steps cost to shares of which the slowest takes the least. Pure.

A rank's cost is taken for proportional to its share until it was seen at two shares that differ
clearly; then for a line through what it costs now. Costs of neighbouring steps are alike, so how
sure a median is follows from their correlation as well as from their spread.
"""

from collections import deque
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FEWEST = 8  # steps that say what a share costs
GAIN = 0.05  # of a step, which a change must bring
_CHANCE = 0.001  # of a change among ranks that are alike
_SURE = 4.0  # standard errors from which on costs are taken to be others than before
_MOST = 256  # steps of one share that count; more tell nothing of what is now
_APART = 0.15  # of the larger share: from where on two differ clearly
_ALIKE = 0.98  # correlation of neighbours, at most
_FLATTEST = 0.25  # of a cost is put down to its samples at least; moves are steps, not leaps


class Costs:
    """What this rank's own part of a step takes, in ns, since its share last changed."""

    def __init__(self, every: int) -> None:
        """`every`: after how many steps it is asked what they take."""
        self.recent = max(every, 2 * FEWEST)
        self.share = 0
        self.own: deque[int] = deque(maxlen=max(every, _MOST))
        self.waits: deque[int] = deque(maxlen=self.recent)
        self.before: tuple[int, float, float] | None = None  # share, cost, error of another share
        self._at: tuple[int, int] | None = None
        self._last_share, self._sum, self._wait, self._good = 0, 0, 0, False

    def add(self, at: "tuple[int, int] | None", share: int, own: "int | None", wait: int) -> None:
        """A backward pass whose gradients were averaged.

        `at`: (iteration, step) of its batch, None where it is not known; `share`: of the step, 0
        where it is not a whole one; `own`: since the pass before, without waits for others, None
        where it was not timed; `wait`: for others, at its end. Several passes of a step are one.
        """
        if at is not None and at == self._at and own is not None:
            self._sum += own
            self._wait += wait
            return
        self._finish()
        # The first step of an iteration comes after what is between two, and data may take longer.
        follows = at is not None and self._at is not None and at[0] == self._at[0]
        self._good = follows and own is not None and share == self._last_share > 0
        self._at, self._last_share = at, share
        self._sum, self._wait = own or 0, wait

    def _finish(self) -> None:
        if not self._good:
            return
        if self._last_share != self.share:
            if len(self.own) >= FEWEST:
                self.before = (self.share, *median(self.own))
            self.own.clear()
            self.waits.clear()
            self.share = self._last_share
        self.own.append(max(self._sum, 1))
        self.waits.append(self._wait)

    def told(self) -> "dict[str, Any] | None":
        """What the other ranks are told, once there is enough: `share`, its `cost` (ns), the
        standard `error` of that, `slope` (ns a sample), `wait` (ns)."""
        if len(self.own) < FEWEST:
            return None
        self._forget()
        cost, error = median(self.own)
        slope = even = cost / self.share
        if self.before is not None:
            share, other, unsure = self.before
            far = self.share - share
            # Where it is not clear from both, it stays proportional.
            if abs(far) >= _APART * max(self.share, share) and (
                error**2 + unsure**2 <= (even * far / 2) ** 2
            ):
                slope = min(max((cost - other) / far, _FLATTEST * even), even)
        wait = median(self.waits)[0]
        return {"share": self.share, "cost": cost, "error": error, "slope": slope, "wait": wait}

    def _forget(self) -> None:
        """Keep the last steps alone, where they take another time than those before them."""
        many = len(self.own) - self.recent
        if many < self.recent:
            return
        steps = list(self.own)
        (before, unsure), (now, error) = median(steps[:many]), median(steps[many:])
        if (now - before) ** 2 > _SURE**2 * (unsure**2 + error**2):
            self.own = deque(steps[many:], self.own.maxlen)


def median(values: "Sequence[float] | deque[int]") -> tuple[float, float]:
    """The median of a series, and its standard error: of 1.4826 times the median deviation, as
    for normal values, with so many fewer of them as neighbours may be alike (AR(1)).

    For a few it is larger, by as much as the quantiles of Student's t are than the normal ones.
    """
    many = len(values)
    middle = _middle(values)
    spread = 1.4826 * _middle([abs(one - middle) for one in values])
    limit = 3 * spread
    moved = [min(max(one - middle, -limit), limit) for one in values]
    square = sum(one * one for one in moved)
    alike = sum(one * after for one, after in pairwise(moved)) / (square or 1.0)
    # It comes out too low for short series (Marriott and Pope 1954), and by chance.
    alike = min(max(alike + (1 + 3 * alike) / many, 0.0) + many**-0.5, _ALIKE)
    alone = max(many * (1 - alike) / (1 + alike), 2.0)
    few = max(alone - 1, 5.0)
    return middle, 1.2533 * spread * (1 + 3 / few + 8 / few**2) / alone**0.5


def _middle(values: "Sequence[float] | deque[int]") -> float:
    order, half = sorted(values), len(values) // 2
    return float(order[half]) if len(order) % 2 else (order[half - 1] + order[half]) / 2


def level(
    told: "Sequence[dict[str, Any]]", most: "Sequence[int]", least: int
) -> "tuple[list[int], str] | None":
    """New shares of the same global batch and why, from what each rank tells; None: they stay.

    `most`: samples a rank may take, `least`: that each must. None moves by more than half. They
    change only for a gain that matters and that chance does not bring.
    """
    sizes = [int(one["share"]) for one in told]
    low = [max(size - max(size // 2, 1), min(least, size)) for size in sizes]
    high = [
        max(min(size + max(size // 2, 1), cap), size) for size, cap in zip(sizes, most, strict=True)
    ]
    lines = [(one["cost"] - one["slope"] * one["share"], one["slope"]) for one in told]
    found = split(lines, low, high, sum(sizes))
    now = max(float(one["cost"]) for one in told)
    slowest = next(rank for rank, one in enumerate(told) if one["cost"] == now)
    after = max(fixed + slope * size for (fixed, slope), size in zip(lines, found, strict=True))
    whole = now + min(float(one["wait"]) for one in told)  # the least is what averaging takes
    if now - after <= max(GAIN * whole, _quantile(len(told)) * _unsure(told, found, slowest)):
        return None
    quickest = min(range(len(told)), key=lambda rank: told[rank]["cost"] / sizes[rank])
    each = [told[rank]["cost"] / sizes[rank] for rank in (slowest, quickest)]
    return found, (
        f"a sample takes rank {slowest} {each[0] / each[1]:.1f} times as long as rank {quickest}; "
        f"a step is expected to take {100 * (now - after) / whole:.0f} % less"
    )


def _unsure(told: "Sequence[dict[str, Any]]", found: "Sequence[int]", slowest: int) -> float:
    """The standard error of what the slowest costs now and of what all come to afterwards."""
    whole = sum(found)
    now = float(told[slowest]["error"])
    after = [one["error"] / one["share"] * size for one, size in zip(told, found, strict=True)]
    return float(
        (now**2 + sum((one * size / whole) ** 2 for one, size in zip(after, found, strict=True)))
        ** 0.5
    )


def _quantile(ranks: int) -> float:
    """How many standard errors the slowest of ranks that are alike seldom comes to."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(1 - _CHANCE / ranks)


def split(
    lines: "Sequence[tuple[float, float]]", low: "Sequence[int]", high: "Sequence[int]", whole: int
) -> list[int]:
    """`whole` samples among ranks so that the largest `fixed + slope * size` is least, exactly.

    `lines`: (fixed, slope > 0); low <= size <= high, between whose sums `whole` must be. As
    lotus/balance/minmax.py, from the standard library.
    """
    import heapq

    def within(time: float) -> list[int]:
        return [
            int(min(max((time - fixed) / slope, least), most))
            for (fixed, slope), least, most in zip(lines, low, high, strict=True)
        ]

    bottom, top = (
        0.0,
        max(
            max(fixed, 0.0) + slope * most for (fixed, slope), most in zip(lines, high, strict=True)
        ),
    )
    for _ in range(60):
        middle = (bottom + top) / 2
        if sum(within(middle)) > whole:
            top = middle
        else:
            bottom = middle
    # One less than fits, for the rounding of the division.
    sizes = [max(size - 1, least) for size, least in zip(within(bottom), low, strict=True)]
    waiting = [
        (lines[rank][0] + lines[rank][1] * (size + 1), rank)
        for rank, size in enumerate(sizes)
        if size < high[rank]
    ]
    heapq.heapify(waiting)
    for _ in range(whole - sum(sizes)):
        _, rank = heapq.heappop(waiting)
        sizes[rank] += 1
        if sizes[rank] < high[rank]:
            heapq.heappush(waiting, (lines[rank][0] + lines[rank][1] * (sizes[rank] + 1), rank))
    return sizes

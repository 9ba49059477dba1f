"""Computes shares that minimize the time of the slowest rank, from the costs of the ranks' steps.

The cost of a rank is assumed to be proportional to its share until it was measured at two clearly
different shares; from then on it is a line through its current cost. The costs of neighbouring
steps are correlated, so the standard error of a median takes that correlation into account. All
functions are pure.
"""

from collections import deque
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FEWEST = 8  # steps that are needed to measure the cost of a share
GAIN = 0.05  # least fraction of a step that a change has to save
_CHANCE = 0.001  # probability of a change if all ranks are equally fast
_SURE = 4.0  # standard errors by which costs have to differ to count as changed
_MOST = 256  # most recent steps of a share that are used
_APART = 0.15  # least difference of two shares, as a fraction of the larger, to fit a line
_ALIKE = 0.98  # upper bound of the correlation of neighbouring steps
_FLATTEST = 0.25  # lower bound of the slope, relative to a proportional cost, to limit changes


class Costs:
    """The time (ns) of this rank's own part of a step, since its share last changed."""

    def __init__(self, every: int) -> None:
        """`every`: number of steps after which `summary` is called."""
        self.recent = max(every, 2 * FEWEST)
        self.share = 0
        self.own: deque[int] = deque(maxlen=max(every, _MOST))
        self.waits: deque[int] = deque(maxlen=self.recent)
        self.before: tuple[int, float, float] | None = (
            None  # share, cost and error of the previous share
        )
        self._at: tuple[int, int] | None = None
        self._last_share, self._sum, self._wait, self._good = 0, 0, 0, False

    def add(self, at: "tuple[int, int] | None", share: int, own: "int | None", wait: int) -> None:
        """Add a backward pass whose gradients were averaged; sum several passes of a step.

        `at`: (iteration, step) of its batch, or None if unknown. `share`: the share of that step,
        0 for a partial global batch. `own`: the time since the previous pass without waits for
        other ranks, None if it was not timed. `wait`: the wait for other ranks at its end.
        """
        if at is not None and at == self._at and own is not None:
            self._sum += own
            self._wait += wait
            return
        self._finish()
        # The time of an iteration's first step includes what happens between two iterations.
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

    def summary(self) -> "dict[str, Any] | None":
        """Return what the other ranks need to know, or None if there are too few steps.

        This is the `share`, its `cost` (ns), the standard `error` of the cost, the `slope` (ns per
        sample) and the `wait` (ns).
        """
        if len(self.own) < FEWEST:
            return None
        self._forget()
        cost, error = median(self.own)
        slope = even = cost / self.share
        if self.before is not None:
            share, other, unsure = self.before
            far = self.share - share
            # Stay proportional unless both costs are precise enough for a line.
            if abs(far) >= _APART * max(self.share, share) and (
                error**2 + unsure**2 <= (even * far / 2) ** 2
            ):
                slope = min(max((cost - other) / far, _FLATTEST * even), even)
        wait = median(self.waits)[0]
        return {"share": self.share, "cost": cost, "error": error, "slope": slope, "wait": wait}

    def _forget(self) -> None:
        """Drop all but the most recent steps if their cost has changed."""
        many = len(self.own) - self.recent
        if many < self.recent:
            return
        steps = list(self.own)
        (before, unsure), (now, error) = median(steps[:many]), median(steps[many:])
        if (now - before) ** 2 > _SURE**2 * (unsure**2 + error**2):
            self.own = deque(steps[many:], self.own.maxlen)


def median(values: "Sequence[float] | deque[int]") -> tuple[float, float]:
    """Return the median of a series and its standard error.

    The error is that of normal values whose standard deviation is 1.4826 times the median absolute
    deviation. Their number is reduced by the correlation of neighbours (AR(1)). For few values the
    error is larger, as the quantiles of Student's t are larger than those of the normal
    distribution.
    """
    many = len(values)
    middle = _middle(values)
    spread = 1.4826 * _middle([abs(value - middle) for value in values])
    limit = 3 * spread
    deviations = [min(max(value - middle, -limit), limit) for value in values]
    squares = sum(value * value for value in deviations)
    products = sum(value * following for value, following in pairwise(deviations))
    correlation = products / (squares or 1.0)
    # The estimate is biased downwards in short series (Marriott and Pope 1954).
    correlation = min(max(correlation + (1 + 3 * correlation) / many, 0.0) + many**-0.5, _ALIKE)
    effective = max(many * (1 - correlation) / (1 + correlation), 2.0)
    freedom = max(effective - 1, 5.0)
    return middle, 1.2533 * spread * (1 + 3 / freedom + 8 / freedom**2) / effective**0.5


def _middle(values: "Sequence[float] | deque[int]") -> float:
    order, middle = sorted(values), len(values) // 2
    return float(order[middle]) if len(order) % 2 else (order[middle - 1] + order[middle]) / 2


def rebalance(
    costs: "Sequence[dict[str, Any]]", most: "Sequence[int]", least: int
) -> "tuple[list[int], str] | None":
    """Return (new shares of the same global batch, why), or None to keep the shares.

    `costs` has the `Costs.summary` of each rank. A rank may take at most `most` samples and has to
    take at least `least`. No share changes by more than half. Shares only change if the gain is
    large enough to matter and unlikely to be due to chance.
    """
    sizes = [int(cost["share"]) for cost in costs]
    low = [max(size - max(size // 2, 1), min(least, size)) for size in sizes]
    high = [
        max(min(size + max(size // 2, 1), cap), size) for size, cap in zip(sizes, most, strict=True)
    ]
    lines = [(cost["cost"] - cost["slope"] * cost["share"], cost["slope"]) for cost in costs]
    shares = split(lines, low, high, sum(sizes))
    now = max(float(cost["cost"]) for cost in costs)
    slowest = next(rank for rank, cost in enumerate(costs) if cost["cost"] == now)
    after = max(fixed + slope * size for (fixed, slope), size in zip(lines, shares, strict=True))
    # The shortest wait is the time of the averaging itself.
    step_ns = now + min(float(cost["wait"]) for cost in costs)
    if now - after <= max(GAIN * step_ns, _quantile(len(costs)) * _unsure(costs, shares, slowest)):
        return None
    quickest = min(range(len(costs)), key=lambda rank: costs[rank]["cost"] / sizes[rank])
    per_sample = [costs[rank]["cost"] / sizes[rank] for rank in (slowest, quickest)]
    return shares, (
        f"a sample takes rank {slowest} {per_sample[0] / per_sample[1]:.1f} times as long as rank "
        f"{quickest}; "
        f"a step is expected to take {100 * (now - after) / step_ns:.0f} % less"
    )


def _unsure(costs: "Sequence[dict[str, Any]]", shares: "Sequence[int]", slowest: int) -> float:
    """Return the standard error of the gain: of the slowest rank now, and of all afterwards."""
    total = sum(shares)
    now = float(costs[slowest]["error"])
    errors = [
        cost["error"] / cost["share"] * size for cost, size in zip(costs, shares, strict=True)
    ]
    after = sum((error * size / total) ** 2 for error, size in zip(errors, shares, strict=True))
    return float((now**2 + after) ** 0.5)


def _quantile(ranks: int) -> float:
    """Return the standard errors that the slowest of equally fast ranks rarely exceeds."""
    from statistics import NormalDist

    return NormalDist().inv_cdf(1 - _CHANCE / ranks)


def split(
    lines: "Sequence[tuple[float, float]]", low: "Sequence[int]", high: "Sequence[int]", whole: int
) -> list[int]:
    """Divide `whole` samples so that the largest `fixed + slope * size` is minimal, exactly.

    `lines` has (fixed, slope > 0) of each rank, and low <= size <= high. `whole` has to be between
    their sums. Like lotus/balance/minmax.py, but with the standard library only.
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
    # One less than fits, as the division may have rounded up.
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

"""Searches for the best split of a global batch by measuring splits; standard library only.

The search starts from the best of the given splits and moves samples between ranks: first a seventh
of the batch, and half as many each time that no move helps, similar to a golden-section search.
Finally the splits that look best are measured again in turn, because the best of many noisy values
looks better than it is.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

Split = tuple[int, ...]


class Search:
    """Ask for a split, tell the seconds of an update with it, until `ask` gives None."""

    def __init__(
        self, starts: Sequence[Split], most: int = 40, finest: float = 0.015, finalists: int = 3
    ) -> None:
        """`most`: measurements before the last ones; `finest`: the least move, of the batch."""
        self.times: dict[Split, list[float]] = {}
        self.most, self.finalists = most, finalists
        total = sum(starts[0])
        self.least = max(1, round(finest * total))
        self.step = max(self.least, total // 7)
        self._plan = self._splits([tuple(sizes) for sizes in starts])
        self._split: Split | None = None

    def ask(self) -> Split | None:
        self._split = next(self._plan, None)
        return self._split

    def tell(self, seconds: float) -> None:
        """Add the seconds of an update with the split that was requested."""
        assert self._split is not None
        self.times.setdefault(self._split, []).append(seconds)

    def best(self) -> Split:
        """Return the split whose median is least, of those measured most often."""
        often = max(len(values) for values in self.times.values())
        return min(
            (split for split, values in self.times.items() if len(values) == often),
            key=lambda split: statistics.median(self.times[split]),
        )

    def _quickest(self) -> list[Split]:
        return sorted(self.times, key=lambda split: statistics.median(self.times[split]))

    def _splits(self, starts: Sequence[Split]) -> Iterator[Split]:
        yield from dict.fromkeys(starts)
        step = self.step
        while len(self.times) < self.most:
            best = self._quickest()[0]
            fresh = [split for split in moves(best, step) if split not in self.times]
            for split in fresh:
                if len(self.times) < self.most:
                    yield split
                    if self._quickest()[0] == split:  # go on from here
                        break
            if self._quickest()[0] == best:
                if step == self.least:
                    break
                step = max(step // 2, self.least)
        for split in self._quickest()[: self.finalists] * 2:
            yield split


def moves(split: Split, step: int) -> list[Split]:
    """All splits in which some ranks gave `step` samples to the others, or one gave them to one.

    Every rank keeps at least one sample.
    """
    ranks = range(len(split))
    sides = [
        (givers, tuple(rank for rank in ranks if rank not in givers))
        for many in range(1, len(split))
        for givers in combinations(ranks, many)
    ]
    sides += [((giver,), (taker,)) for giver, taker in permutations(ranks, 2)]
    splits = []
    for givers, takers in sides:
        made = list(split)
        for side, sign in ((givers, -1), (takers, 1)):
            for turn in range(step):
                made[side[turn % len(side)]] += sign
        if min(made) > 0:
            splits.append(tuple(made))
    return list(dict.fromkeys(splits))

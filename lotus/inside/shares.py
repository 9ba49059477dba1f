"""Which samples of each global batch a rank takes, where the ranks take different shares.

The order of an epoch is that of the program's own `DistributedSampler`: the k-th global batch is
the k-th slice of its permutation, the same samples as without shares. What is left at the end is
shared out in proportion, one sample a rank at least. Each sample is taken once: torch pads what is
left to equal lengths with samples from the beginning; here a rank is given one of those only where
fewer samples are left than there are ranks, so that all make the same number of steps, and its
weight is 0 then.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any


def places(sizes: "Sequence[int]", rank: int) -> list[int]:
    """Which places of a slice of sum(sizes) samples a rank takes, spread over it.

    Of equal sizes every len(sizes)-th, as torch's own sampler takes them.
    """
    order = sorted(
        ((turn + 0.5) / size, owner) for owner, size in enumerate(sizes) for turn in range(size)
    )
    return [place for place, (_, owner) in enumerate(order) if owner == rank]


def rest(sizes: "Sequence[int]", many: int) -> list[int]:
    """How many of the last `many` samples each rank takes: in proportion, at most its size.

    None goes without while there are enough, and none has one only while there are two for each
    (batch norm cannot train on one).
    """
    whole, ranks = sum(sizes), len(sizes)
    if many < ranks:  # the larger ones take one each
        first = sorted(range(ranks), key=lambda rank: (-sizes[rank], rank))[:many]
        return [int(rank in first) for rank in range(ranks)]
    least = [min(2 if many >= 2 * ranks else 1, size) for size in sizes]
    found = [max(many * size // whole, low) for size, low in zip(sizes, least, strict=True)]

    def lacking(rank: int) -> tuple[int, int]:
        return many * sizes[rank] - found[rank] * whole, -rank

    while (missing := many - sum(found)) > 0:
        found[max((rank for rank in range(ranks) if found[rank] < sizes[rank]), key=lacking)] += 1
    while missing < 0:
        found[min((rank for rank in range(ranks) if found[rank] > least[rank]), key=lacking)] -= 1
        missing += 1
    return found


class Shared:
    """Stands for a `DistributedSampler` inside a loader's `BatchSampler`: this rank's shares.

    The program keeps its own sampler, whose epoch, seed and order are followed.
    """

    def __init__(self, own: "Any", sizes: "Sequence[int]", rank: int, drop_last: bool) -> None:
        """`own`: the program's sampler; `drop_last`: of the loader."""
        self.own = own
        self.sizes, self.rank, self.drop_last = tuple(sizes), rank, drop_last
        self.whole = sum(sizes)
        self.full_places = places(sizes, rank)

    def __getattr__(self, name: str) -> "Any":
        if name == "own":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.own, name)

    def counted(self) -> tuple[int, int]:
        """(full global batches of an epoch, samples of the last one that is not)."""
        many = len(self.own.dataset)
        if self.own.drop_last:
            many -= many % len(self.sizes)  # as torch does
        full, left = divmod(many, self.whole)
        return full, 0 if self.drop_last else left

    def taken(self, step: int) -> "Sequence[int]":
        """How many samples each rank takes in a step (0 where it is given one that counts for
        nothing)."""
        full, left = self.counted()
        return rest(self.sizes, left) if left and step >= full else self.sizes

    def __len__(self) -> int:
        full, left = self.counted()
        size = self.sizes[self.rank]
        return full * size + (max(rest(self.sizes, left)[self.rank], 1) if left else 0)

    def __iter__(self) -> "Iterator[Any]":
        import copy

        full, left = self.counted()
        # What torch's own code says of the whole epoch, whichever version it is.
        everything = copy.copy(self.own)
        many = len(everything.dataset)
        everything.num_replicas, everything.rank = 1, 0
        everything.num_samples = everything.total_size = many
        order = list(everything)
        for start in range(0, full * self.whole, self.whole):
            for place in self.full_places:
                yield order[start + place]
        if left:
            sizes, start = rest(self.sizes, left), full * self.whole
            if sizes[self.rank]:
                for place in places(sizes, self.rank):
                    yield order[start + place]
            else:
                yield order[sizes[: self.rank].count(0) % many]

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
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    class Steering(Protocol):
        """Who says what the shares are."""

        @property
        def lock(
            self,
        ) -> AbstractContextManager[Any]: ...  # while one reads how far was drawn, none is drawn

        def begin(self, drawn: "Drawn") -> int:
            """An iteration draws its first batch; returns its number."""

        def sizes_at(self, number: int, step: int) -> Sequence[int]:
            """The shares of a step, the same object until they change; may wait for them."""


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
        self.steering: Steering | None = None  # who says what the sizes are, where they change
        self._places: tuple[Sequence[int], list[int]] = ((), [])  # of the sizes used last

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

    def steps(self) -> int:
        """How many batches an epoch has."""
        full, left = self.counted()
        return full + (left > 0)

    def taken(self, step: int, sizes: "Sequence[int] | None" = None) -> "Sequence[int]":
        """How many samples each rank takes in a step (0 where it is given one that counts for
        nothing)."""
        full, left = self.counted()
        sizes = self.sizes if sizes is None else sizes
        return rest(sizes, left) if left and step >= full else sizes

    def __len__(self) -> int:
        full, left = self.counted()
        size = self.sizes[self.rank]
        return full * size + (max(rest(self.sizes, left)[self.rank], 1) if left else 0)

    def order(self) -> "list[Any]":
        """The epoch's order of all samples."""
        import copy

        # What torch's own code says of the whole epoch, whichever version it is.
        everything = copy.copy(self.own)
        many = len(everything.dataset)
        everything.num_replicas, everything.rank = 1, 0
        everything.num_samples = everything.total_size = many
        return list(everything)

    def batch(self, order: "Sequence[Any]", step: int, sizes: "Sequence[int]") -> "list[Any]":
        """What this rank takes in a step, where the ranks' shares are `sizes`."""
        taken = self.taken(step, sizes)
        if not taken[self.rank]:
            return [order[taken[: self.rank].count(0) % len(order)]]
        known, mine = self._places
        if known is not taken:
            mine = places(taken, self.rank)
            self._places = taken, mine
        start = step * self.whole
        return [order[start + place] for place in mine]

    def __iter__(self) -> "Iterator[Any]":
        order = self.order()
        for step in range(self.steps()):
            yield from self.batch(order, step, self.sizes)


class Drawn:
    """The batches of one iteration, where shares change: what every rank takes in each step."""

    def __init__(self, shared: Shared, steering: "Steering") -> None:
        self.shared, self.steering, self.rank = shared, steering, shared.rank
        self.number = -1  # of the iteration, counted in the order of their first batches
        self.drawn = self.steps = 0  # batches: that were drawn, of the epoch
        self.order: list[Any] = []
        self.changes: list[tuple[int, Sequence[int]]] = []  # (first step, sizes from then on)

    def __iter__(self) -> "Iterator[Any]":
        return self

    def __next__(self) -> "list[Any]":
        with self.steering.lock:
            if self.number < 0:
                self.order, self.steps = self.shared.order(), self.shared.steps()
                self.number = self.steering.begin(self)
            step = self.drawn
            if step >= self.steps:
                self.order = []
                raise StopIteration
            sizes = self.steering.sizes_at(self.number, step)
            if not self.changes or self.changes[-1][1] is not sizes:
                self.changes.append((step, sizes))
            self.drawn = step + 1
        return self.shared.batch(self.order, step, sizes)

    def sizes_at(self, step: int) -> "Sequence[int]":
        """The shares of a step that was drawn."""
        last = self.changes[-1]
        return next((sizes for first, sizes in reversed(self.changes) if first <= step), last[1])

    def taken(self, step: int) -> "Sequence[int]":
        """As that of `Shared`."""
        return self.shared.taken(step, self.sizes_at(step))


def shown(sizes: "Sequence[int]") -> str:
    """As "11, 5", "1, 2, 3, 4, 5, 6, ... (64 of 1 to 9)"."""
    if len(sizes) <= 8:
        return ", ".join(map(str, sizes))
    return f"{', '.join(map(str, sizes[:6]))}, ... ({len(sizes)} of {min(sizes)} to {max(sizes)})"


def let_change(batches: "Any", steering: "Steering") -> None:
    """Have a `BatchSampler` around a `Shared` make batches whose shares change.

    By its class, as Python looks for `__iter__` nowhere else; torch asks it for lists of indices.
    """
    kind = type(batches)
    if batches.sampler.steering is None:
        names = ("__module__", "__qualname__", "__doc__")
        members: dict[str, Any] = {name: getattr(kind, name) for name in names}
        members["__iter__"] = lambda self: Drawn(self.sampler, self.sampler.steering)
        members["__len__"] = lambda self: self.sampler.steps()
        batches.__class__ = type(kind.__name__, (kind,), members)
    batches.sampler.steering = steering

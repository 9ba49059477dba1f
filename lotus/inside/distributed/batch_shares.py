"""Chooses the samples of each global batch that a rank takes when ranks take different shares.

The order of an epoch is that of the program's `DistributedSampler`: the k-th global batch is the
k-th slice of its permutation and has the same samples as without shares. The last, partial batch is
divided in proportion to the shares, with at least one sample per rank. Each sample is used once.
torch pads the last batch to equal lengths with samples from the beginning; here a rank only gets
such a sample if fewer samples are left than there are ranks, so that all ranks take the same number
of steps. It then has weight 0.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    class Steering(Protocol):
        """Decides the shares."""

        @property
        def lock(
            self,
        ) -> AbstractContextManager[Any]: ...  # held while a batch is drawn

        def begin(self, drawn: "Drawn") -> int:
            """Register an iteration that draws its first batch; return its number."""

        def sizes_at(self, number: int, step: int) -> Sequence[int]:
            """Return the shares of a step, the same object until they change; may block."""


def places(sizes: "Sequence[int]", rank: int) -> list[int]:
    """Return the positions that a rank takes in a slice of sum(sizes) samples, evenly spread.

    With equal sizes it takes every len(sizes)-th sample, as torch's own sampler does.
    """
    order = sorted(
        ((turn + 0.5) / size, owner) for owner, size in enumerate(sizes) for turn in range(size)
    )
    return [place for place, (_, owner) in enumerate(order) if owner == rank]


def rest(sizes: "Sequence[int]", many: int) -> list[int]:
    """Return how many of the last `many` samples each rank takes, in proportion to `sizes`.

    No rank takes more than its size. Each takes at least one if there are enough, and at least two
    if there are two for each rank (batch norm cannot train on one sample).
    """
    total, ranks = sum(sizes), len(sizes)
    if many < ranks:  # the larger ones take one each
        first = sorted(range(ranks), key=lambda rank: (-sizes[rank], rank))[:many]
        return [int(rank in first) for rank in range(ranks)]
    least = [min(2 if many >= 2 * ranks else 1, size) for size in sizes]
    counts = [max(many * size // total, low) for size, low in zip(sizes, least, strict=True)]

    def lacking(rank: int) -> tuple[int, int]:
        return many * sizes[rank] - counts[rank] * total, -rank

    while (missing := many - sum(counts)) > 0:
        counts[max((rank for rank in range(ranks) if counts[rank] < sizes[rank]), key=lacking)] += 1
    while missing < 0:
        counts[min((rank for rank in range(ranks) if counts[rank] > least[rank]), key=lacking)] -= 1
        missing += 1
    return counts


class Shared:
    """Replaces a `DistributedSampler` inside a loader's `BatchSampler`: yields this rank's shares.

    The program keeps its own sampler, and that determines epoch, seed and order.
    """

    def __init__(self, own: "Any", sizes: "Sequence[int]", rank: int, drop_last: bool) -> None:
        """`own` is the program's sampler, `drop_last` that of the loader."""
        self.own = own
        self.sizes, self.rank, self.drop_last = tuple(sizes), rank, drop_last
        self.whole = sum(sizes)
        self.steering: Steering | None = None  # decides the sizes if they change
        self._places: tuple[Sequence[int], list[int]] = ((), [])  # of the most recent sizes

    def __getattr__(self, name: str) -> "Any":
        if name == "own":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.own, name)

    def counted(self) -> tuple[int, int]:
        """Return (full global batches of an epoch, samples in a last, partial one)."""
        many = len(self.own.dataset)
        if self.own.drop_last:
            many -= many % len(self.sizes)  # as torch does
        full, left = divmod(many, self.whole)
        return full, 0 if self.drop_last else left

    def steps(self) -> int:
        """Return the number of batches of an epoch."""
        full, left = self.counted()
        return full + (left > 0)

    def taken(self, step: int, sizes: "Sequence[int] | None" = None) -> "Sequence[int]":
        """Return how many samples each rank takes in a step; 0 for one sample of weight 0."""
        full, left = self.counted()
        sizes = self.sizes if sizes is None else sizes
        return rest(sizes, left) if left and step >= full else sizes

    def __len__(self) -> int:
        full, left = self.counted()
        size = self.sizes[self.rank]
        return full * size + (max(rest(self.sizes, left)[self.rank], 1) if left else 0)

    def order(self) -> "list[Any]":
        """Return all samples of the epoch in order."""
        import copy

        # torch's own code determines the order of the whole epoch, whatever its version.
        everything = copy.copy(self.own)
        many = len(everything.dataset)
        everything.num_replicas, everything.rank = 1, 0
        everything.num_samples = everything.total_size = many
        return list(everything)

    def batch(self, order: "Sequence[Any]", step: int, sizes: "Sequence[int]") -> "list[Any]":
        """Return the samples of this rank in a step with shares `sizes`."""
        counts = self.taken(step, sizes)
        if not counts[self.rank]:
            return [order[counts[: self.rank].count(0) % len(order)]]
        cached_sizes, mine = self._places
        if cached_sizes is not counts:
            mine = places(counts, self.rank)
            self._places = counts, mine
        start = step * self.whole
        return [order[start + place] for place in mine]

    def __iter__(self) -> "Iterator[Any]":
        order = self.order()
        for step in range(self.steps()):
            yield from self.batch(order, step, self.sizes)


class Drawn:
    """The batches of one iteration with changing shares; knows the shares of each step."""

    def __init__(self, shared: Shared, steering: "Steering") -> None:
        self.shared, self.steering, self.rank = shared, steering, shared.rank
        self.number = -1  # of the iteration, counted in the order of their first batches
        self.drawn = self.steps = 0  # batches that were drawn; batches of the epoch
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
        """Return the shares of a step that was drawn."""
        last = self.changes[-1]
        return next((sizes for first, sizes in reversed(self.changes) if first <= step), last[1])

    def taken(self, step: int) -> "Sequence[int]":
        """Return how many samples each rank takes in a step: see `Shared.taken`."""
        return self.shared.taken(step, self.sizes_at(step))


def shown(sizes: "Sequence[int]") -> str:
    """Return text such as "11, 5" or "1, 2, 3, 4, 5, 6, ... (64 of 1 to 9)"."""
    if len(sizes) <= 8:
        return ", ".join(map(str, sizes))
    return f"{', '.join(map(str, sizes[:6]))}, ... ({len(sizes)} of {min(sizes)} to {max(sizes)})"


def let_change(batches: "Any", steering: "Steering") -> None:
    """Make a `BatchSampler` around a `Shared` yield batches whose shares change.

    This replaces its class, because Python looks up `__iter__` on the class only.
    """
    kind = type(batches)
    if batches.sampler.steering is None:
        names = ("__module__", "__qualname__", "__doc__")
        members: dict[str, Any] = {name: getattr(kind, name) for name in names}
        members["__iter__"] = lambda self: Drawn(self.sampler, self.sampler.steering)
        members["__len__"] = lambda self: self.sampler.steps()
        batches.__class__ = type(kind.__name__, (kind,), members)
    batches.sampler.steering = steering

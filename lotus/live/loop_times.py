"""The times of loops over a loader, from the records of one process, in bounded memory.

Computes the same as lotus.analysis.batches.waits.loop_times, which would import pandas.
"""

from dataclasses import dataclass, field

_MOST_EPOCHS = 1000  # kept individually


@dataclass
class Epoch:
    """One iteration of a loader; times in ns, 0 for what is not known."""

    iter_ns: int = 0
    begin_ns: int = 0  # of the first `next`
    taken_ns: int = 0  # end of the last `next` that gave a batch
    waited_ns: int = 0
    taken: int = 0
    end_ns: int = 0
    batches: int = 0
    exhausted: bool = False
    last_next_ns: int = 0
    shutdown_ns: int = 0

    def total(self) -> "Total":
        """Return its duration: `iter()`, the recorded waits and steps, and the shut-down."""
        last = max(self.taken_ns, self.last_next_ns)
        tail = 0
        if self.taken and self.exhausted and self.batches <= self.taken:
            tail = max(self.end_ns - last, 0)
        edges = self.iter_ns + max(tail, self.shutdown_ns)
        inside = last - self.begin_ns if self.taken else 0
        return Total(1, inside + edges, self.waited_ns + edges, self.taken)


@dataclass(frozen=True)
class Total:
    """Sums over loops: their time, the part of it in which the loop was blocked, batches."""

    loops: int = 0
    loop_ns: int = 0
    blocked_ns: int = 0
    taken: int = 0

    def __add__(self, other: "Total") -> "Total":
        return Total(
            self.loops + other.loops,
            self.loop_ns + other.loop_ns,
            self.blocked_ns + other.blocked_ns,
            self.taken + other.taken,
        )


@dataclass
class Loops:
    """The epochs of all loaders of one process; the oldest are kept only as a sum."""

    epochs: dict[tuple[int, int], Epoch] = field(default_factory=dict)
    _before: dict[int, Total] = field(default_factory=dict)

    def of(self, loader: int, epoch: int) -> Epoch:
        """Return the record of an epoch, and create it if there is none."""
        state = self.epochs.get((loader, epoch))
        if state is None:
            if len(self.epochs) >= _MOST_EPOCHS:
                self._add_up(_MOST_EPOCHS // 2)
            state = self.epochs[loader, epoch] = Epoch()
        return state

    def _add_up(self, count: int) -> None:
        for key in list(self.epochs)[:count]:
            total = self.epochs.pop(key).total()
            self._before[key[0]] = self._before.get(key[0], Total()) + total

    def totals(self, loader: int) -> tuple[Total, Total]:
        """Return (the last loop over a loader that took a batch, all loops over it)."""
        last, every = Total(), self._before.get(loader, Total())
        for (number, _), epoch in self.epochs.items():
            if number == loader:
                total = epoch.total()
                every += total
                last = total if total.taken else last
        return last, every

"""A fetch in progress, and a thread's current work."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Gate:
    """Checked first by the hooks of samples and operations; a check costs one instruction."""

    __slots__ = ("owner", "shut")

    def __init__(self) -> None:
        self.owner = 0  # the thread whose fetch the hooks record by themselves, else 0
        self.shut = False  # whether nothing is recorded: not this batch, or no more at all


class Rows:
    """The records of a fetch by the hooks: consecutive numbers, as in its arrays in the log."""

    __slots__ = ("loose", "ops", "ops_cpu", "samples")

    def __init__(self) -> None:
        self.samples: Any = []  # lists, or buffers of the extension
        self.ops: Any = []
        self.ops_cpu: list[int] = []
        # Rows of two arrays, one item each: other threads append at any time.
        self.loose: list[tuple[tuple[int, ...], tuple[int, ...]]] = []


class Fetch:
    """A fetch in progress, and the results of its hooks. Only `begin_fetch` enters it.

    Of the threads that fetch at one time, one has the recorder's own rows, which the hooks fill
    directly. A fetch of another thread has rows of its own and is `beside` it.
    """

    # Class attributes, because an instance is made for every batch.
    before: tuple[Any, ...] | None = None  # state to restore at its end; None: not entered
    detail = False  # whether it is recorded: only then `end_fetch` has to be called
    beside = False  # whether it is recorded in rows of its own
    counted = False  # whether its thread's counters are read
    rows: Any = None  # Rows
    sample_start = 0  # of the sample in hand, of a fetch beside another; 0: none
    where = (-1, 0, 0)  # loader, epoch, batch
    begun: tuple[tuple[int, ...], int] = ((), 0)  # what the kernel counted by then, time
    pid = 0
    samples = 0  # that were collated
    collate_start = collate_ns = 0
    collate_readings = (0, 0)  # places of the counters' readings around collate


class Hand:
    """A thread's current work. No other thread reads or writes it."""

    __slots__ = ("counts", "fetch", "iterates", "paths", "pending", "slowest", "unseen", "where")

    def __init__(self) -> None:
        self.where = Fetch.where  # loader, epoch, batch of its next fetch
        self.fetch: Fetch | None = None  # the innermost one
        self.unseen = False  # whether it is a worker of a loader: then nothing of it is recorded
        # Whether it is a training loop: what it does between batches is no part of a fetch.
        self.iterates = False
        self.pending: tuple[list[int], tuple[bytes, ...]] | None = None  # the batch that it made
        self.paths = self.counts = b""  # frames to write with that
        self.slowest: list[int] = []  # durations of its slowest samples, ascending


class Here(threading.local):
    """`hand` of the current thread. One look-up, which costs more than one of an object."""

    def __init__(self) -> None:
        self.hand = Hand()

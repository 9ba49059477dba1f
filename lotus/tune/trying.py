"""What a program offers that is to be tuned: candidate loaders of its own, measured in place.

lotus/inside/candidate.py does the work inside the program; `lotus.tuning` speaks to it over a pipe,
`lotus.tune(loader)` calls it. A search (search.py) knows this protocol and nothing of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lotus.settings import Target
from lotus.tune.space import Setting


class TrialFailed(Exception):
    """A trial did not work, in words that follow "because"; the program is as it was before."""


class Forbidden(TrialFailed):
    """No trial may be made any more in the program's process, in the words of one."""


@dataclass(frozen=True)
class Watched:
    """The loader that is tuned, and what its program did with it before the first trial.

    `waits_s`, `steps_s` and `step_cpu_s` have an element for each batch that was watched: how long
    the program waited for it, how long it took until it asked for the next one, and the CPU time
    of the program's process (not of its workers) meanwhile. `alone_s` and `alone_cpu_s` are those
    of some later steps beside which its workers had nothing to do; none where it has no workers.
    """

    loader: Target
    setting: Setting  # the program's own, with its start method where it has workers
    pid: int
    torch: str
    iterable: bool
    batch_size: int | None  # None: the program makes its batches itself
    batches: int | None  # of an epoch; None: not known
    waits_s: tuple[float, ...] = ()
    steps_s: tuple[float, ...] = ()
    step_cpu_s: tuple[float, ...] = ()
    alone_s: tuple[float, ...] = ()
    alone_cpu_s: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()  # samples of each batch
    startup_s: float | None = None  # from `iter()` to the first batch, of its first iteration
    accelerator: str | None = None  # "cuda", ...; None: there is none to pin for
    threads: int = 1  # that torch uses in the program's main process
    in_order: bool = True  # whether this torch knows in_order (2.6 and later)
    notes: tuple[str, ...] = ()  # what is unusual, in words
    grown_bytes: int = 0  # that fetching without workers added to the program's own process
    forbidden: str = ""  # why nothing may be tried in its process


@dataclass(frozen=True)
class Opened:
    """A candidate loader has given its first batch."""

    first_batch_s: float  # from `iter()` to the first batch
    iter_s: float  # the part of it in `iter()`: the start of the workers
    workers: tuple[int, ...]  # their process numbers


@dataclass(frozen=True)
class Block:
    """Some batches of a candidate loader, one element each in the tuples."""

    waits_s: tuple[float, ...]  # in `next`
    steps_s: tuple[float, ...]  # of what stands in for the program's step; 0 without
    sizes: tuple[int, ...]  # samples
    worker_cpu_s: float  # CPU time of all workers meanwhile (0 workers: of the fetches)
    worker_queued_s: float  # that they were ready to run and had no core
    main_cpu_s: float  # CPU time of the main process in `next` (0 workers: 0)
    batch_bytes: int  # the largest batch: see lotus.tune.costs.Costs
    shared_bytes: int
    pipe_bytes: int
    tensors: int
    worker_bytes: int  # memory of its own that the largest worker has now
    main_bytes: int  # resident memory of the main process now
    read_bytes: int = 0  # that the workers read from storage (not from the page cache)

    @property
    def seconds(self) -> float:
        """Seconds in `next` and in steps."""
        return sum(self.waits_s) + sum(self.steps_s)

    @property
    def samples_per_s(self) -> float:
        """Samples a second over the block; 0 where it took no time."""
        return sum(self.sizes) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class Stretch:
    """Batches that the program itself has trained on with a setting, an element each in the tuples.

    Those that were in flight before are not counted, nor is the first one after these.
    """

    waits_s: tuple[float, ...]  # in `next`
    steps_s: tuple[float, ...]  # of the program
    sizes: tuple[int, ...]  # samples
    startup_s: float | None  # the wait for the first batch, the start of its workers in it
    passed: int  # batches that the program took meanwhile, counted or not
    over: bool  # the epoch has come to its end
    refused: str = ""  # why the setting could not be put on after all


@dataclass(frozen=True)
class Same:
    """Whether an epoch has the same samples with another number of workers."""

    why: str  # in words why it has not, or why that is not known; "" where it has
    # (workers, samples, batches) of each epoch that was counted, the own setting's first.
    epochs: tuple[tuple[int, int, int], ...] = ()


class Program(Protocol):
    """A program that stands still at a batch of its loader. Settings are told apart as normal."""

    watched: Watched

    def open(self, setting: Setting, limit_s: float) -> Opened:
        """Make a candidate loader and take its first batch; raises TrialFailed."""

    def block(
        self,
        setting: Setting,
        *,
        seconds: float,
        least: int,
        step: bool,
        limit_s: float,
        discard: int | None = None,
    ) -> Block:
        """Measure batches of an open candidate for `seconds`, and at least `least` of them.

        First `discard` batches are taken and not counted, without steps between them: None takes as
        many as may lie ready, workers x prefetch. With `step` something that takes as long as
        the program's step, and as much CPU time, follows each counted batch. All candidates read
        the same indices. Raises TrialFailed; the candidate is closed then.
        """

    def close(self, setting: Setting) -> float:
        """End a candidate with its processes and shared memory; seconds that it took."""

    def same_samples(self, setting: Setting, limit_s: float) -> Same:
        """Whether an epoch of an iterable data set has the same samples as with the own setting.

        Found out within about `limit_s`. Raises TrialFailed.
        """

"""Simulates a data-parallel job: ranks with prefetched input that synchronise at every step.

Each rank has a DataLoader that prefetches as torch does (lotus.analysis.replay.loader_replay). So
a rank's input gets ahead while the rank waits for others. A step begins when the rank has its
batch and all ranks have finished the previous step. When the last rank is done, the collective
follows.

Times of steps and batches are drawn with replacement from the rank's own measurements, each
independently. What slows all ranks down at once is not modelled, so real ranks may wait less.
All ranks are computed at once, step by step: 1,024 ranks x 1,000 steps take a second or two.
Times are nanoseconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lotus.analysis.replay.loader_replay import Replay, replay
from lotus.common.numbers.array_types import Floats, Ints

COLLECTIVES = ("ring", "tree")


@dataclass(frozen=True)
class Member:
    """One rank: measured times of its training step, and of one worker for a batch."""

    step_ns: Floats
    fetch_ns: Floats
    samples: float  # per batch
    workers: int = 1  # 0: the main process makes the batches itself
    prefetch: int = 2

    def __post_init__(self) -> None:
        for name in ("step_ns", "fetch_ns"):
            values = getattr(self, name)
            if not len(values) or not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} needs times that are not negative")
        if not self.samples > 0 or self.workers < 0 or self.prefetch < 1:
            raise ValueError("a rank needs samples, and batches ahead")


@dataclass(frozen=True)
class Stragglers:
    """Ranks whose step and input take `times` as long: the last `ranks` always, and any rank in a
    step with probability `chance`."""

    ranks: int = 0
    chance: float = 0.0
    times: float = 2.0

    def __post_init__(self) -> None:
        if self.ranks < 0 or not 0 <= self.chance <= 1 or not 0 < self.times < math.inf:
            raise ValueError("stragglers: a number of ranks, a chance from 0 to 1, times above 0")


@dataclass(frozen=True)
class Collective:
    """An all-reduce of `bytes` over links with a latency (ns) and a bandwidth (bytes per second).

    ring: 2 (N - 1) rounds of 1 / N of the bytes; tree: up and down, 2 log2 N rounds of all bytes
    (Thakur, Rabenseifner and Gropp 2005, without the time of the additions).
    """

    kind: str
    bytes: float
    latency_ns: float
    bandwidth: float

    def __post_init__(self) -> None:
        if self.kind not in COLLECTIVES:
            raise ValueError(f"{self.kind!r} is not one of {', '.join(COLLECTIVES)}")
        if not (self.bytes >= 0 and self.latency_ns >= 0 and self.bandwidth > 0):
            raise ValueError("bytes and latency must be at least 0, the bandwidth above it")

    def ns(self, ranks: int) -> float:
        """Return the duration among so many ranks, in nanoseconds."""
        if ranks < 2:
            return 0.0
        whole = self.bytes / self.bandwidth * 1e9
        if self.kind == "ring":
            return 2 * (ranks - 1) * (self.latency_ns + whole / ranks)
        return 2 * math.ceil(math.log2(ranks)) * (self.latency_ns + whole)


@dataclass(frozen=True)
class JobOutcome:
    """The simulated performance of a job after warm-up. Times are means in seconds.

    `step_s` is the whole step: waiting for input, the rank's own step, waiting for the last rank,
    the collective. `efficiency` is the rate divided by the rate of the same ranks without
    synchronisation.
    """

    ranks: int
    steps: int
    step_s: float
    step_p95_s: float
    samples_per_s: float
    input_s: float  # waiting for the batch
    own_s: float
    waiting_s: float  # waiting for the last rank
    collective_s: float
    efficiency: float
    last: Floats  # (ranks,) share of the steps in which the rank came last

    @property
    def straggler_share(self) -> float:
        """The mean share of a step in which a rank waits for the last one."""
        return self.waiting_s / self.step_s if self.step_s > 0 else 0.0


def simulate(
    members: Sequence[Member],
    *,
    steps: int = 1000,
    collective_ns: float = 0.0,
    stragglers: Stragglers | None = None,
    seed: int = 0,
) -> JobOutcome:
    """Simulate `steps` steps of a job of these ranks, after a warm-up that fills the queues.

    Raises ValueError without a rank or a step.
    """
    if not members or steps < 1:
        raise ValueError("there must be a rank and a step")
    depths = np.array([max(member.workers, 1) * member.prefetch for member in members])
    warm = int(min(2 * depths.max(), 500))
    random = np.random.default_rng(seed)
    slower = stragglers or Stragglers()
    job = _run(members, steps, warm, collective_ns, slower, random)
    alone = _run(members, steps, warm, None, slower, random)
    samples = np.array([member.samples for member in members])
    whole = float(job.end[-1].max() - job.begin[0].min())
    each = alone.end[-1] - alone.begin[0]
    ideal = float((samples * steps / each).sum()) if (each > 0).all() else math.nan
    rate = float(samples.sum()) * steps / whole * 1e9 if whole > 0 else math.nan
    last = job.done.max(axis=1)
    took = job.end[:, 0] - job.begin[:, 0]
    winners = np.bincount(job.done.argmax(axis=1), minlength=len(members))
    return JobOutcome(
        ranks=len(members),
        steps=steps,
        step_s=float(took.mean()) / 1e9,
        step_p95_s=float(np.quantile(took, 0.95)) / 1e9,
        samples_per_s=rate,
        input_s=float((job.taken - job.begin).mean()) / 1e9,
        own_s=float((job.done - job.taken).mean()) / 1e9,
        waiting_s=float((last[:, None] - job.done).mean()) / 1e9,
        collective_s=collective_ns / 1e9,
        efficiency=rate / (ideal * 1e9) if ideal > 0 else math.nan,
        last=winners / steps,
    )


def _run(
    members: Sequence[Member],
    steps: int,
    warm: int,
    collective: float | None,
    stragglers: Stragglers,
    random: np.random.Generator,
) -> Replay:
    """Replay the members after a warm-up; without a collective each by itself."""
    own, fetch = _drawn(members, warm + steps, stragglers, random)
    workers = np.array([member.workers for member in members])
    prefetch = np.array([member.prefetch for member in members])
    job = replay(fetch, own, workers, prefetch, collective=collective)
    return Replay(*(times[warm:] for times in (job.begin, job.taken, job.done, job.end, job.made)))


def _drawn(
    members: Sequence[Member], total: int, stragglers: Stragglers, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return times of steps and of batches, each of shape (total, ranks)."""
    count = len(members)
    own, fetch = np.empty((total, count)), np.empty((total, count))
    for place, member in enumerate(members):
        own[:, place] = member.step_ns[_any_of(member.step_ns, total, random)]
        fetch[:, place] = member.fetch_ns[_any_of(member.fetch_ns, total, random)]
    factor = np.ones((total, count))
    if stragglers.ranks:
        factor[:, count - min(stragglers.ranks, count) :] *= stragglers.times
    if stragglers.chance:
        factor[random.random((total, count)) < stragglers.chance] *= stragglers.times
    return own * factor, fetch * factor


def _any_of(values: Floats, count: int, random: np.random.Generator) -> Ints:
    return random.integers(0, len(values), count)

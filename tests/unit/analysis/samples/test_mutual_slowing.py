"""Samples behind one limit slow each other down; those that wait each for itself do not."""

import heapq
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.samples.mutual_slowing import mutual_slowing

MS = 1e6


def fetched_in(*parts: pd.DataFrame) -> Any:
    """The samples of a loader, in parts."""
    return SimpleNamespace(times=lambda: iter(parts), once=lambda name, make: make())


def loader(
    workers: int, batches: int, one_limit: bool, jitter: float = 0.1, epochs: int = 1
) -> Any:
    """A loader whose workers make batches of 8 samples; alone, a sample takes 10 ms.

    With one limit, they are made one after the other.
    """
    random = np.random.default_rng(workers)
    rows, fetches = [], []
    for epoch in range(epochs):
        # When each worker can start its next sample, and what it makes.
        ready = [(random.uniform(0, 3) * MS + 1e10 * epoch, worker) for worker in range(workers)]
        heapq.heapify(ready)
        left, line = batches, 0.0
        made: dict[int, tuple[int, int, float]] = {}  # of a worker: batch, samples, start
        while ready:
            now, worker = heapq.heappop(ready)
            if worker not in made:
                if not left:
                    continue
                made[worker] = (batches - left, 0, now)
                left -= 1
            batch, count, start = made[worker]
            took = random.normal(10, 10 * jitter) * MS
            end = max(line, now) + took if one_limit else now + took
            line = end
            rows.append((0, epoch, batch, worker, now, end - now))
            made[worker] = (batch, count + 1, start)
            if count + 1 == 8:
                fetches.append((0, epoch, batch, worker, start, end - start))
                del made[worker]
            heapq.heappush(ready, (end, worker))
    names = ["rank", "epoch", "batch", "worker", "start_ns", "duration_ns"]
    samples = pd.DataFrame(rows, columns=names)
    renamed = ["rank", "epoch", "batch", "worker", "fetch_start_ns", "samples_ns"]
    return SimpleNamespace(
        num_workers=workers,
        batches=pd.DataFrame(fetches, columns=renamed),
        fetched=fetched_in(samples[:50], samples[50:]),
    )


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_samples_behind_one_limit_slow_each_other_down(workers: int) -> None:
    assert mutual_slowing(loader(workers, 41, one_limit=True, epochs=3)) > 0.6


@pytest.mark.parametrize("jitter", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("batches", [41, 60, 64])
def test_samples_that_wait_each_for_itself_do_not(
    batches: int, workers: int, jitter: float
) -> None:
    exponent = mutual_slowing(loader(workers, batches, False, jitter, epochs=3))
    assert math.isnan(exponent) or exponent < 0.2


def test_who_leaves_the_line_meanwhile_makes_it_no_shorter() -> None:
    # GIVEN batches that all workers end at the same time: while the last samples wait in the line,
    # it gets shorter, but they take as long as any
    assert math.isnan(mutual_slowing(loader(8, 64, one_limit=True, epochs=3)))


def test_samples_outside_of_their_fetch_divide_nothing_by_zero() -> None:
    late = loader(4, 41, one_limit=True)
    samples = pd.concat(late.fetched.times())
    after = late.batches["fetch_start_ns"].max() + 1e10
    few = samples.index[-20:]
    samples.loc[few, "start_ns"] = after + np.arange(20) * 1e8
    late.fetched = fetched_in(samples)
    with np.errstate(all="raise"):
        assert mutual_slowing(late) >= 0 or math.isnan(mutual_slowing(late))


def test_it_is_not_known_of_one_worker_or_where_all_are_always_busy() -> None:
    assert math.isnan(mutual_slowing(loader(1, 41, one_limit=True)))
    together = loader(4, 40, one_limit=True)
    # All but the time in which all are at work is cut off.
    ends = together.batches["fetch_start_ns"] + together.batches["samples_ns"]
    until = ends.groupby(together.batches["worker"]).max().min()
    samples = pd.concat(together.fetched.times())
    rows = samples[samples["start_ns"] + samples["duration_ns"] < until]
    together.fetched = fetched_in(rows)
    assert math.isnan(mutual_slowing(together))

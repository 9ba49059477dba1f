"""Samples that come one after the other behind a limit, and samples of workers that wait apart."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.samples.shared_pace import shared_pace_ns

MS = 1e6


def scope(
    ends: np.ndarray, workers: int = 4, ranks: int = 1, makers: Any = 0, batches: Any = 0
) -> Any:
    """A loader whose samples end at these times (ns) in the workers `makers`, on each rank."""
    columns = {"epoch": 0, "worker": makers, "batch": batches, "start_ns": ends - 3 * MS}
    columns["duration_ns"] = 3 * MS
    samples = pd.concat(pd.DataFrame({"rank": rank, **columns}) for rank in range(ranks))
    half = len(samples) // 2
    parts = [samples[:half], samples[half:]]
    fetched = SimpleNamespace(times=lambda: iter(parts), once=lambda name, make: make())
    return SimpleNamespace(num_workers=workers, fetched=fetched)


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_line_for_all_is_seen_although_the_machine_delays_a_part(ranks: int) -> None:
    random = np.random.default_rng(5)
    # GIVEN one end every 6 ms; a tenth of them are seen some milliseconds late
    ends = 6 * MS * np.arange(1.0, 400)
    late = random.random(len(ends)) < 0.1
    ends += late * random.uniform(0, 5 * MS, len(ends))
    assert shared_pace_ns(scope(ends, ranks=ranks)) == pytest.approx(6 * MS, rel=0.1)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_workers_that_wait_each_for_itself_share_nothing(workers: int) -> None:
    random = np.random.default_rng(workers)
    ends = []
    for _worker in range(workers):
        # Between two batches of 16 it does something else, for a little more or less.
        pauses = np.where(np.arange(400) % 16 == 0, random.uniform(0, 6 * MS, 400), 0.0)
        ends.append(random.uniform(0, 24 * MS) + np.cumsum(24 * MS + pauses))
    makers = np.repeat(np.arange(workers), 400)
    assert math.isnan(shared_pace_ns(scope(np.concatenate(ends), workers, makers=makers)))


def in_line(random: np.random.Generator, workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends, and their workers: a server takes 7 to 9 ms for each sample, a worker 1 to 7 ms.

    A worker asks again when its sample is done, which a busy machine shows up to 2 ms late.
    """
    ready, free = np.arange(workers) * MS, 0.0
    ends, makers = [], []
    for _sample in range(600):
        worker = int(np.argmin(ready))
        free = max(free, ready[worker]) + random.uniform(7 * MS, 9 * MS)
        ready[worker] = free + random.uniform(1 * MS, 7 * MS)
        ends.append(free + random.uniform(0, 2 * MS))
        makers.append(worker)
    return np.array(ends), np.array(makers)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_a_line_is_seen_with_few_workers_that_drift(workers: int) -> None:
    ends, makers = in_line(np.random.default_rng(workers), workers)
    assert shared_pace_ns(scope(ends, workers, makers=makers)) == pytest.approx(8 * MS, rel=0.3)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
@pytest.mark.parametrize("jitter", [0.0, 0.01, 0.05, 0.1, 0.3])
@pytest.mark.parametrize(("size", "pause"), [(300, 0), (2, 2.4), (2, 6), (3, 2.4)])
def test_workers_that_drift_share_nothing(
    workers: int, jitter: float, size: int, pause: float
) -> None:
    random = np.random.default_rng(workers)
    makers = np.repeat(np.arange(workers), 300)
    batches = np.tile(np.arange(300) // size, workers) * workers + makers
    found = 0
    for _trial in range(20):
        times = 24 * MS * np.exp(random.normal(0, jitter, (workers, 300)))
        times[:, ::size] += pause * MS
        ends = (random.uniform(0, 24 * MS, (workers, 1)) + np.cumsum(times, axis=1)).ravel()
        there = scope(ends, workers, makers=makers, batches=batches)
        found += math.isfinite(shared_pace_ns(there))
    assert found <= 1


def test_workers_that_end_their_samples_at_the_same_moments_share_nothing() -> None:
    ends = np.repeat(24 * MS * np.arange(1.0, 100), 4)
    assert math.isnan(shared_pace_ns(scope(ends)))


def test_one_worker_and_few_samples_tell_nothing() -> None:
    ends = 6 * MS * np.arange(1.0, 400)
    assert math.isnan(shared_pace_ns(scope(ends, workers=1)))
    assert math.isnan(shared_pace_ns(scope(ends[:50])))
    assert math.isnan(shared_pace_ns(scope(ends[:0])))

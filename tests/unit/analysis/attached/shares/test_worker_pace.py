"""Which worker of a sampled loop is slow."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.worker_pace import WorkerPace, pace_of, slow_worker

PIECES = 20


def pace(share: float, rank: int = 0) -> WorkerPace:
    """A worker that makes batches for this share of every half second."""
    return WorkerPace(rank, np.full(PIECES, share * 5e8))


def test_the_slowest_worker_is_found() -> None:
    found = slow_worker({0: pace(0.3), 1: pace(0.9), 2: pace(0.2)})
    assert found is not None
    assert (found.place, found.times) == (1, pytest.approx(0.9 / 0.25))


@pytest.mark.parametrize(
    "shares",
    [[0.62, 0.9], [0.0, 0.9], [0.9, 0.9, 0.1], [0.9]],
    ids=["below 1.5 times", "others without data", "most of them", "alone"],
)
def test_none_is_slow(shares: list[float]) -> None:
    assert slow_worker(dict(enumerate(map(pace, shares)))) is None


def test_a_few_costly_batches_make_no_slow_worker() -> None:
    burst = np.where(np.arange(PIECES) < PIECES / 2, 5e8, 0.0)
    assert slow_worker({0: WorkerPace(0, burst), 1: pace(0.3)}) is None


def test_ranks_are_compared_by_themselves() -> None:
    paces = {0: pace(0.9), 1: pace(0.9), 2: pace(0.2, rank=1), 3: pace(0.2, rank=1)}
    assert slow_worker(paces) is None
    found = slow_worker(paces | {3: pace(0.4, rank=1)})
    assert found is not None
    assert (found.place, found.rank) == (3, 1)


def test_time_without_a_core_does_not_count() -> None:
    count = PIECES * 25
    samples = pd.DataFrame(
        {
            "time_ns": np.arange(count) * 20_000_000,
            "weight_ns": 20_000_000,
            "phase": [phases.OPERATION, phases.IDLE] * (count // 2),
        }
    )
    looks = pd.DataFrame({"phase": [phases.OPERATION] * 2, "wall_ns": [10, 10], "delay_ns": [3, 5]})
    span = 0, int(samples["time_ns"].max())
    assert pace_of(samples, looks, span, 0).made_ns == pytest.approx(0.5 * 0.6 * PIECES * 5e8)


def test_workers_of_one_epoch_after_the_other_are_joined() -> None:
    first, second = np.full(PIECES, np.nan), np.full(PIECES, np.nan)
    first[:11], second[10:] = 1.0, 2.0
    joined = WorkerPace(0, first).joined(WorkerPace(0, second)).made
    assert joined.tolist() == [1.0] * 10 + [3.0] + [2.0] * 9

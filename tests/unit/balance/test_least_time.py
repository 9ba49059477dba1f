"""The default strategy weighs how much a rank's times vary, not their mean alone."""

import numpy as np

from lotus.balance.least_time import least
from lotus.balance.rank_measurements import Job, Rank
from lotus.balance.time_fit import curve


def rank(number: int, mean: float, variation: float, steps: int = 400, batch: int = 32) -> Rank:
    shape = 1 / variation**2
    rough = np.random.default_rng(number).gamma(shape, 1 / shape, steps)
    whole = np.full(steps, float(batch))
    return Rank(
        rank=number,
        host="",
        batch=batch,
        workers=2,
        prefetch=2,
        sizes=whole,
        step_ns=mean * rough,
        key=np.arange(steps),
        fetch_sizes=whole,
        fetch_ns=np.full(steps, mean / 10),
        whole_ns=mean,
        after_ns=0.0,
    )


def test_ranks_that_vary_more_take_less() -> None:
    ranks = tuple(rank(k, 32e6, 0.4 if k < 4 else 0.02) for k in range(8))
    job = Job(ranks, "", None, True, 0.0, 32e6)
    sizes = least(job, [curve(rank) for rank in ranks], [None] * 8)
    assert sum(sizes) == 8 * 32
    assert max(sizes[:4]) < 32 < min(sizes[4:])
    # In the long run as well: the mean of the slowest, of steps that were not in the trace.
    random = np.random.default_rng(99)
    rough = np.column_stack([random.gamma(6.25, 1 / 6.25, (50_000, 4)), np.ones((50_000, 4))])
    slowest = [float((rough * split).max(axis=1).mean()) for split in (np.array(sizes), 32.0)]
    assert slowest[0] < 0.93 * slowest[1]


def test_ranks_that_never_vary_are_split_by_their_means() -> None:
    ranks = tuple(rank(k, mean, 1e-6) for k, mean in enumerate((10e6, 20e6, 30e6)))
    job = Job(ranks, "", None, True, 0.0, 30e6)
    # 53 / 3.2, 26 / 1.6 and 17 x 30 / 32: 16.6, 16.3 and 15.9 ms; 18 would be 16.9.
    assert least(job, [curve(rank) for rank in ranks], [None] * 3) == [53, 26, 17]
    assert least(job, [curve(rank) for rank in ranks], [40, None, None])[0] == 40

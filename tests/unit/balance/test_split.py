"""The split that `lotus balance` makes of a known job, and what it says of it."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.balance.rank_measurements import measure
from lotus.balance.split import BatchSplit, SplitOptions, balance
from lotus.balance.step_prediction import predict
from lotus.common.errors import LotusError
from lotus.settings.share_plan import STRATEGIES
from tests.unit.many_ranks import Costs, job
from tests.unit.simulated import Plan

GIB = float(1 << 30)


def _noted(balanced: BatchSplit, words: str) -> bool:
    return any(words in note for note in balanced.notes)


def test_a_rank_three_times_as_slow_takes_a_third() -> None:
    balanced = balance(job([Costs(1.0), Costs(3.0)]), SplitOptions())
    assert balanced.batch_sizes == (12, 4)
    assert balanced.before.seconds == pytest.approx(25e-3, rel=0.02)
    assert balanced.after.seconds == pytest.approx(13e-3, rel=0.04)
    assert balanced.times == pytest.approx(25 / 13, rel=0.04)
    # One batch size only: the interval says that it might bring nothing at all.
    assert balanced.after.low < balanced.after.seconds < balanced.after.high
    assert balanced.after.high == pytest.approx(25e-3, rel=0.05)
    assert _noted(balanced, "had batches of one size only")


def test_fixed_times_are_told_apart_by_a_second_run() -> None:
    ranks = [Costs(1.0, fixed=10.0), Costs(3.0, fixed=2.0)]
    small = [Costs(1.0, fixed=10.0, batch=4), Costs(3.0, fixed=2.0, batch=4)]
    balanced = balance(job(ranks), SplitOptions(), [job(small, seed=5)])
    # 10 + 10 = 20 and 2 + 3 x 6 = 20.
    assert balanced.batch_sizes == (10, 6)
    assert balanced.after.low < 21.2e-3 < balanced.after.high
    assert balanced.after.high - balanced.after.low < 2e-3
    assert balanced.after.high < balanced.before.low
    assert not _noted(balanced, "one size only, so it is not known") or _noted(balanced, "input:")


def test_the_prediction_holds_for_the_job_that_it_makes() -> None:
    """95 % intervals of a split, against the mean that it has: as often as they should."""
    slopes, sizes = (1.0, 2.0, 4.0), [14, 7, 3]
    rough = np.random.default_rng(0).normal(1.0, 0.1, (200_000, 3))
    truth = (np.array(slopes) * sizes * rough).max(axis=1).mean() * 1e-3 + 1e-3
    held = 0
    for seed in range(20):
        was = job([Costs(slope) for slope in slopes], noise=0.1, seed=seed)
        small = job([Costs(slope, batch=4) for slope in slopes], noise=0.1, seed=seed + 50)
        made = predict(measure(was, also=[small]), sizes, seed)
        held += made.low <= truth <= made.high
        assert made.seconds == pytest.approx(truth, rel=0.06)
    assert held >= 17, held


def test_an_input_that_binds_counts_and_it_is_said_what_more_workers_give() -> None:
    # Rank 1: 8 samples of 4 ms by one worker are 32 ms, its step 8 ms.
    balanced = balance(job([Costs(1.0), Costs(1.0, fetch=4.0)]), SplitOptions())
    share = balanced.shares[1]
    assert share.input_binds
    assert share.input_before_s == pytest.approx(32e-3, rel=0.02)
    assert balanced.batch_sizes == (13, 3)


def test_without_workers_input_and_step_follow_each_other() -> None:
    balanced = balance(job([Costs(1.0), Costs(1.0, fetch=1.0, workers=0)]), SplitOptions())
    assert balanced.shares[1].own_before_s == pytest.approx(16e-3, rel=0.02)
    assert balanced.batch_sizes == (11, 5)


def test_nothing_is_changed_where_nothing_is_gained() -> None:
    balanced = balance(job([Costs(1.0), Costs(1.0)]), SplitOptions())
    assert balanced.batch_sizes == (8, 8)
    assert _noted(balanced, "no split of this global batch is faster")


def test_a_gain_within_what_steps_vary_by_is_said_to_be_none() -> None:
    some = balance(job([Costs(1.0), Costs(1.2), Costs(1.0)], noise=0.3, steps=40), SplitOptions())
    assert _noted(some, "not worth a change")
    sure = balance(job([Costs(1.0), Costs(3.0), Costs(1.0)], noise=0.3), SplitOptions())
    assert not _noted(sure, "not worth a change")


def test_a_rank_takes_no_more_than_it_can_hold() -> None:
    ranks = [Costs(1.0), Costs(3.0)]
    balanced = balance(job(ranks), SplitOptions(most={0: 10}))
    assert balanced.batch_sizes == (10, 6)
    with pytest.raises(LotusError, match=r"can hold 12 samples between them, of a global batch of"):
        balance(job(ranks), SplitOptions(most={0: 6, 1: 6}))
    with pytest.raises(LotusError, match="ranks 0 to 1"):
        balance(job(ranks), SplitOptions(most={2: 6}))
    # Two ranks share 64 GiB; a worker of 13 GiB and the main process it was forked from: 26 of 32.
    full = balance(job([Costs(1.0, memory=13 * GIB), Costs(3.0, memory=GIB)]), SplitOptions())
    assert full.batch_sizes == (9, 7)
    # The host's memory was read, a GPU's never is.
    assert _noted(full, "--most RANK=SAMPLES (larger for: 0)")
    assert not _noted(balanced, "GPU")
    assert full.shares[0].cap.samples == 9
    # A main process that came to hold 19 GiB in training, with that worker, and one without any.
    ranks = [Costs(1.0, memory=13 * GIB, peak=19 * GIB), Costs(3.0, memory=GIB, peak=GIB / 2)]
    assert [share.cap.samples for share in balance(job(ranks), SplitOptions()).shares] == [8, 128]
    ranks = [Costs(1.0, peak=26 * GIB), Costs(3.0)]
    assert [share.cap.samples for share in balance(job(ranks), SplitOptions()).shares] == [9, None]


def test_equal_and_random_keep_the_global_batch() -> None:
    run = job([Costs(1.0, batch=10), Costs(3.0, batch=7), Costs(1.0, batch=8)])
    assert balance(run, SplitOptions("equal")).batch_sizes == (9, 8, 8)
    drawn = balance(run, SplitOptions("random", seed=3))
    assert sum(drawn.batch_sizes) == 25
    assert drawn.batch_sizes == balance(run, SplitOptions("random", seed=3)).batch_sizes
    over = balance(run, SplitOptions("equal", most={1: 7}))
    assert _noted(over, "rank 1 would take 8 samples and can hold 7 (as given)")


def test_bno_says_that_it_does_not_keep_the_global_batch_and_what_it_took() -> None:
    balanced = balance(job([Costs(1.0), Costs(3.0), Costs(1.0), Costs(1.0)]), SplitOptions("bno"))
    # K: 3/10, 1/10, 3/10, 3/10; MW 3/4; NCW 1 each (all links alike): x 8 / 3.
    assert balanced.batch_sizes == (5, 4, 5, 5)
    assert balanced.weights[1]["K"] == pytest.approx(0.1, rel=0.05)
    assert _noted(balanced, "makes 19 samples of 32 (-41%)")
    assert _noted(balanced, "its sum over NCW is 4.0")
    assert balanced.quantities["MU"].startswith("not measured")
    assert "last rank's arrival" in balanced.quantities["NL"]
    question = SplitOptions("bno", links={(0, 1): 5.0, (2, 0): 1.0, (2, 1): 1.0}, base=30.0)
    other = balance(job([Costs(1.0), Costs(1.0), Costs(1.0)]), question)
    assert other.quantities["NL"] == "as given"
    assert other.quantities["B"] == "30 samples, as given"
    assert [weights["NCW"] for weights in other.weights] == pytest.approx([1.8, 1.8, 1.0])
    with pytest.raises(LotusError, match="ranks 0 to 2"):
        balance(job([Costs(1.0)] * 3), SplitOptions("bno", links={(0, 3): 1.0}))


def test_the_plan_is_a_sound_document() -> None:
    made = balance(job([Costs(1.0), Costs(3.0)], synced=False), SplitOptions()).plan()
    assert made.global_batch == 16
    assert made.loader is not None
    assert made.predicted.step_before_s is not None
    assert (made.predicted.step_before_s.seconds or 0) > 0
    assert made.predicted.batch_sizes_before == (8, 8)


def test_fewer_samples_than_ranks() -> None:
    balanced = balance(job([Costs(1.0, batch=1)] * 2), SplitOptions())
    assert balanced.batch_sizes == (1, 1)


def _together(*runs: SimpleNamespace) -> SimpleNamespace:
    names = ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders", "resources")
    tables = {name: pd.concat([getattr(run, name) for run in runs]) for name in names}
    for table in tables.values():
        table["host"], table["world_size"] = "a", len(runs)
    return SimpleNamespace(**(vars(runs[0]) | tables))


def test_what_more_workers_would_give_is_simulated_first() -> None:
    # One worker needs 8 x 4 = 32 ms for a batch that the step takes 10 ms for; 8 cores for two.
    slow = Plan(workers=1, operations={"Loader": 8.0}, step=10.0, rank=1)
    run = _together(Plan(workers=1, step=10.0, operations={"Loader": 0.5}).run(), slow.run())
    balanced = balance(run, SplitOptions())
    (tuned,) = balanced.tuned
    assert (tuned.rank, tuned.workers_now, tuned.why) == (1, 1, "")
    assert tuned.now == pytest.approx(4 / 32.7e-3, rel=0.03)
    assert tuned.workers >= 4
    assert tuned.then == pytest.approx(4 * tuned.now, rel=0.1)
    assert balanced.after_tuned is not None
    assert balanced.after_tuned.seconds < 0.7 * balanced.after.seconds
    full = _together(*(Plan(workers=8, operations={"Loader": 40.0}, rank=r).run() for r in (0, 1)))
    assert all(
        rank.workers == rank.workers_now == 8 for rank in balance(full, SplitOptions()).tuned
    )


def test_damaged_numbers_end_in_a_plan_or_in_one_line() -> None:
    random = np.random.default_rng(1)
    whole = job([Costs(1.0), Costs(3.0, memory=GIB), Costs(2.0)], steps=20)
    plans = refused = 0
    for turn in range(40):
        run = SimpleNamespace(**vars(whole))
        for name in ("batches", "syncs", "resources", "loaders"):
            frame = getattr(whole, name).astype(object)
            columns = np.array(
                [column for column in frame if column not in ("host", "loader", "rank")]
            )
            for _ in range(int(random.integers(0, 8))):
                value = (math.nan, -1, 0, 2**40, 7, 10**18)[random.integers(6)]
                frame.loc[int(random.integers(len(frame))), random.choice(columns)] = value
            setattr(run, name, frame.infer_objects())
        try:
            balanced = balance(run, SplitOptions(STRATEGIES[turn % 4]))
        except LotusError:
            refused += 1
            continue
        plans += 1
        assert min(balanced.batch_sizes) >= 1
        assert balanced.plan().world_size == 3
        if STRATEGIES[turn % 4] != "bno":
            assert sum(balanced.batch_sizes) == balanced.job.global_batch
    assert plans >= 5
    assert refused >= 5


def test_a_run_that_speaks_of_too_many_ranks() -> None:
    run = job([Costs(), Costs()])
    run.batches.loc[3, "rank"] = 2**31 - 1
    with pytest.raises(LotusError, match="the run has 2,147,483,648 ranks"):
        measure(run)

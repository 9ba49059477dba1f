"""Rates of trials and their intervals."""

import math
import random
import statistics

import pytest

from lotus.inside.tune.candidates.trial_requests import Opened, TrialBlock
from lotus.tune.search.trials import trial_rates
from lotus.tune.simulation import epoch_time


def block(
    waits: list[float], steps: list[float] | None = None, sizes: list[int] | None = None
) -> TrialBlock:
    count = len(waits)
    return TrialBlock(
        waits_s=tuple(waits),
        steps_s=tuple(steps or [0.0] * count),
        sizes=tuple(sizes or [10] * count),
        worker_cpu_s=0.5 * count,
        worker_queued_s=0.1 * count,
        main_cpu_s=0.01 * count,
        batch_bytes=1,
        shared_bytes=1,
        pipe_bytes=1,
        tensors=1,
        worker_bytes=1,
        main_bytes=1,
    )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, held = random.Random(3), 0
    for _ in range(400):
        waits = [chance.gammavariate(4, 0.025) for _ in range(40)]
        rate = trial_rates.rate(block(waits), workers=0)
        held += rate.low_s <= 0.01 <= rate.high_s
    assert 0.91 <= held / 400 <= 0.98


def test_bursts_of_workers_are_counted_whole() -> None:
    # Four workers deliver together, 0.4 s apart; the last burst is cut.
    waits = [0.4, 0.0, 0.0, 0.0] * 5 + [0.4]
    rate = trial_rates.rate(block(waits), workers=4)
    assert rate.sample_s == pytest.approx(0.01)
    assert rate.low_s == pytest.approx(0.01)
    assert rate.high_s == pytest.approx(0.01)
    seen = trial_rates.observed(block(waits), Opened(1.0, 0.2, (1, 2, 3, 4)), 4, 0.3)
    assert seen.capacity_s == pytest.approx(0.1)
    assert seen.variation == pytest.approx(0.0)
    assert (seen.cpu_s, seen.queued_s, seen.get_s) == pytest.approx((0.5, 0.1, 0.01))
    assert (seen.startup_s, seen.iter_s, seen.shutdown_s, seen.samples) == (1.0, 0.2, 0.3, 10)


def test_steps_and_unequal_batches_count() -> None:
    rate = trial_rates.rate(block([0.1] * 8, [0.3] * 8, [4, 12] * 4), workers=0)
    assert rate.sample_s == pytest.approx(0.05)
    assert rate.samples == 8
    assert rate.low_s < 0.05 < rate.high_s  # batches of 4 and of 12 take the same time


def test_the_emptied_queue_of_a_block_is_not_the_consumers() -> None:
    # Four workers that are twice as fast as the consumer: it waits for the first batch only.
    rate = trial_rates.rate(block([0.2] + [0.0] * 8, [0.1] * 9), workers=4)
    assert (rate.low_s, rate.sample_s, rate.high_s) == pytest.approx((0.01, 0.01, 0.01))
    alone = trial_rates.rate(block([0.2] * 9, [0.1] * 9), workers=0)
    assert alone.sample_s == pytest.approx(0.03)


def test_one_batch_has_no_interval_and_none_no_rate() -> None:
    assert trial_rates.rate(block([0.1]), workers=0).high_s == math.inf
    with pytest.raises(ValueError, match="batches"):
        trial_rates.rate(block([]), workers=0)


def test_an_epoch_has_its_setup_once() -> None:
    alone = epoch_time.Pace(0, 0.1)
    assert epoch_time.rate(alone, 10, 11, 2.0) == pytest.approx(110 / (2.0 + 10 * 0.1))
    assert epoch_time.rate(alone, 10, 11) == pytest.approx(100)
    assert epoch_time.rate(alone, 10, None, 2.0) == pytest.approx(100)


def test_a_short_epoch_takes_as_long_as_the_rounds_of_its_workers() -> None:
    # 20 workers of 2 s a batch: 26 batches take two rounds, 20 one, and 6 no less.
    pace = epoch_time.Pace(20, 0.1, fetch_s=2.0)
    assert pace.epoch_s(26) == pytest.approx(4.0)
    assert pace.epoch_s(20) == pytest.approx(2.0)
    assert pace.epoch_s(6) == pytest.approx(2.0)
    assert pace.epoch_s(2000) == pytest.approx(200.0)
    # New workers have made a batch each when the first comes, 5 s after the start.
    assert pace.epoch_s(26, first_s=5.0, end_s=1.0) == pytest.approx(8.0)
    assert pace.epoch_s(20, first_s=5.0, end_s=1.0) == pytest.approx(6.0)
    # A consumer that takes 1 s: it waits for the first batch only.
    slow = epoch_time.Pace(20, 1.0, fetch_s=2.0, taken_s=1.0, step_s=1.0)
    assert slow.epoch_s(26) == pytest.approx(2.0 + 26 * 1.0)


def test_what_varies_is_measured_longer() -> None:
    assert trial_rates.needed(0.0, 0.1, 1.0) == 0
    assert 0 < trial_rates.needed(0.1, 0.001, 1.0) < 100
    assert (
        trial_rates.needed(1.0, 0.1, 1.0) == trial_rates.needed(3.0, 0.1, 1.0) < 100
    )  # as time allows


def test_pairs_give_a_ratio_whatever_drifts() -> None:
    chance = random.Random(1)
    drift = [100 * 0.8**number for number in range(6)]
    ratio = trial_rates.compared(
        [(1.5 * factor * chance.gauss(1, 0.01), factor) for factor in drift]
    )
    assert ratio.low <= 1.5 <= ratio.high
    assert ratio.precision < 0.02
    assert ratio.pairs == 6
    assert statistics.stdev(drift) / statistics.mean(drift) > 0.4
    assert trial_rates.compared([(2.0, 1.0)]).high == math.inf

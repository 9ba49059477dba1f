"""What is out of the ordinary: samples that are slow at regular intervals, one worker's batches."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.samples.outlier_samples import outlier_samples, regular_distance
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.loop_time.batch_making import BatchMaking
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def judged(plan: Plan, **settings: object) -> Verdict:
    run = plan.run()
    run.loaders = run.loaders.assign(**settings)
    return verdict(scopes(run)[0])


def placed(*slow: int, count: int = 400, workers: int = 1) -> int:
    """The distance between these samples of `count`, dealt out to workers in batches of four."""
    samples = pd.DataFrame({"start_ns": np.arange(count) * 1e6, "epoch": 0, "rank": 0})
    samples["worker"] = samples.index // 4 % workers
    return regular_distance([samples], samples.iloc[list(slow)])


def test_equal_distances_are_told_from_chance() -> None:
    assert placed(40, 140, 240, 340) == 100
    assert placed(340, 40, 240, 140) == 100  # whichever was the slowest
    assert placed(40, 140, 240) == 0  # two distances may be equal by chance
    assert placed(40, 140, 240, 300) == 0
    assert placed(40, 41, 42, 43) == 0
    # One that is not counted among the slow ones leaves a distance twice as long.
    assert placed(40, 80, 160, 200, 240) == 40
    assert placed(40, 80, 220, 260, 300) == 0
    assert placed(40, 44, 52, 56, 60) == 0  # so short, it is a multiple by chance
    # In the order of its worker: of two, each has every second batch.
    assert placed(40, 80, 120, 160, 200, workers=2) == 20


def opening(every: int) -> Plan:
    """One sample in `every` takes long, as by opening another file; one worker could keep up."""
    return Plan(
        workers=1,
        batches=120,
        step=10.0,
        operations={"Read": lambda sample, _: 200.0 if sample % every == every - 1 else 0.5},
    )


def test_files_opened_at_equal_distances_ask_for_more_prefetch() -> None:
    first = judged(opening(96)).causes[0]
    assert first.kind == "prefetch"
    assert first.title.startswith("one in 96 samples is slow, at regular intervals")
    assert first.remedy.setting["prefetch_factor"] > 2
    assert "shuffle" not in first.advice


def test_a_few_slow_samples_are_named_with_what_was_slow_and_the_prefetch_that_hides_them() -> None:
    slow = {90, 130, 310, 350, 444}
    cost = {"Read": 0.5, "Blur": lambda sample, _: 200.0 if sample in slow else 0.1}
    judgement = judged(Plan(workers=1, batches=120, step=10.0, operations=cost))
    first = judgement.causes[0]
    assert first.kind == "slow-samples"
    assert first.title.endswith(", in Blur")
    assert "slow samples" not in judgement.ruled_out


def costly(few: int, cheap: int) -> Plan:
    """Of 1,000 samples so many take 400 ms in each epoch, and so many 8 ms instead of 0.6."""
    kinds = np.random.default_rng(5).permutation(1000)

    def took(sample: int, worker: int) -> float:
        kind = kinds[sample % 1000]
        return 400.0 if kind < few else 8.0 if kind < few + cheap else 0.5

    return Plan(batches=250, epochs=2, step=1.0, operations={"Read": took})


def test_slow_samples_are_few_where_few_make_up_most_of_the_cost() -> None:
    """Whatever else is slow, as many cheap samples are on a machine whose cores others have."""
    plain, beside, many = (judged(costly(*counts)) for counts in ((25, 0), (25, 80), (80, 0)))
    assert plain.causes[0].kind == beside.causes[0].kind == "slow-samples"
    assert plain.causes[0].evidence["samples"] == beside.causes[0].evidence["samples"]
    assert many.causes[0].kind == "operation"  # a second kind of sample


@pytest.mark.parametrize(("own", "told"), [(300.0, True), (0.0, False)])
def test_a_sample_that_sleeps_is_slow_also_where_its_batch_had_no_core_for_longer(
    own: float, told: bool
) -> None:
    """`own`: milliseconds that a few samples take by themselves; the others have no core."""
    slow = set(range(30, 480, 60))
    long = own or 300.0
    run = Plan(
        batches=120, operations={"Read": lambda sample, _: long if sample in slow else 20.0}
    ).run()
    # GIVEN batches of which all but 10 ms, and what such a sample takes by itself, has no core,
    # some of it in every sample
    batches = run.batches
    hit = batches["batch"].isin({sample // 4 for sample in slow})
    batches["run_delay_ns"] = (batches["fetch_ns"] - 10e6 - hit * own * 1e6).astype(np.int64)
    late = run.samples["sample"].isin({sample + 1 for sample in slow})
    run.samples.loc[late, "duration_ns"] += int(900e6)
    batches.loc[hit, ["fetch_ns", "run_delay_ns"]] += int(900e6)
    found = outlier_samples(
        scopes(run)[0], np.zeros(len(batches), np.bool_), np.zeros(len(batches), np.bool_)
    )
    assert set(found.samples["sample"][found.alone]) == (slow if told else set())


@pytest.mark.parametrize(("own", "told"), [(0.0, False), (0.2, False), (8.0, True)])
def test_a_sample_that_lost_its_core_is_slow_only_if_it_is_so_beside_that(
    own: float, told: bool
) -> None:
    """`own`: milliseconds that it takes beyond a usual one, beside 40 without a core."""
    slow = set(range(30, 480, 60))
    run = Plan(
        batches=120, operations={"Read": lambda sample, _: 1.0 + (40.0 + own) * (sample in slow)}
    ).run()
    batches = run.batches
    hit = batches["batch"].isin({sample // 4 for sample in slow})
    batches["run_delay_ns"] = 40_000_000 * hit.astype(np.int64)
    none = np.zeros(len(batches), np.bool_)
    found = outlier_samples(scopes(run)[0], none, none)
    assert set(found.samples["sample"]) == (slow if told else set())


@pytest.mark.parametrize(
    ("sampler", "words"),
    [("SequentialSampler", "because of their order"), ("RandomSampler", "slow worker")],
)
def test_the_batches_of_one_worker(sampler: str, words: str) -> None:
    cost = {"Read": lambda _, worker: 20.0 if worker == 1 else 1.0}
    judgement = judged(Plan(workers=4, batches=80, operations=cost), sampler=sampler)
    assert judgement.causes[0].kind == "slow-worker"
    assert words in judgement.causes[0].title
    assert "times as long as others. " in judgement.causes[0].advice
    assert ("shuffle=True" in judgement.causes[0].advice) == (sampler == "SequentialSampler")


def test_medians_that_differ_by_chance_make_no_worker_slow() -> None:
    """About half of the batches cost a lot: in one worker a few more, in the other a few less."""
    run = Plan(workers=2, batches=80, operations={"Read": 1.0}).run()
    worker, turn = run.batches["worker"], run.batches["batch"] // 2
    costly = turn % 2 == 0
    costly |= (worker == 0) & turn.isin([1, 3, 5])
    costly &= ~((worker == 1) & turn.isin([0, 2, 4]))
    run.batches["fetch_ns"] = run.batches["fetch_ns"].where(~costly, run.batches["fetch_ns"] * 5)
    table = BatchMaking(scopes(run)[0]).workers
    assert table["times"].max() > 1.5
    assert not table["slow"].any()
    assert summarise(run).loaders


@pytest.mark.parametrize(("again", "alone"), [(250.0, True), (3.0, False)])
def test_a_sample_is_slow_by_itself_if_it_takes_about_as_long_again(
    again: float, alone: bool
) -> None:
    """Those of which one fetch alone tells are what most of the others are."""
    slow, calls = {90, 130, 310, 350, 444}, Counter[int]()

    def took(sample: int, worker: int) -> float:
        calls[sample] += 1
        return 1.0 if sample not in slow else 400.0 if calls[sample] == 1 else again

    run = Plan(workers=1, batches=120, epochs=2, step=10.0, operations={"Ask": took}).run()
    once = (run.samples["sample"] == 444) & (run.samples["epoch"] == 1)
    run.samples = run.samples[~once].reset_index(drop=True)
    none = np.zeros(len(run.batches), np.bool_)
    found = outlier_samples(scopes(run)[0], none, none)
    assert set(found.samples["sample"]) == slow
    assert found.alone.all() == alone
    assert found.by_chance.all() != alone
    assert found.fetches[found.samples["sample"] == 444].tolist() == [1]

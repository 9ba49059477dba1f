"""Workers that read the same samples, or draw the same random numbers."""

import zlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.data.repeated_samples import divided_data, shared_generators
from lotus.analysis.verdict.verdict import Verdict, verdict
from lotus.inside.trace.fetches.sample_digests import KEPT
from lotus.reporters.run.parts.coverage import verdict_words
from tests.unit.simulated import Plan


def with_first(rows: list[tuple[int, int, int | None, str, int | None]]) -> SimpleNamespace:
    """A run whose first batches are (worker, epoch, content, generator, state)."""
    run = Plan(operations={"Slow": 20.0}, workers=3).run()
    run.loaders["num_workers"], run.loaders["dataset_kind"] = 3, "iterable"
    run.loaders["dataset_length"] = None  # the data set does not say how many samples it has
    columns = ["worker", "epoch", "content", "generator", "state"]
    table = pd.DataFrame(rows, columns=columns).astype({"content": "Int64", "state": "Int64"})
    pids = run.batches.groupby("worker")["pid"].first()
    run.first_batches = table.assign(rank=0, loader=0, pid=table["worker"].map(pids))
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


def test_equal_first_batches_mean_that_all_workers_read_the_same() -> None:
    run = with_first([(0, 0, 7, "", None), (1, 0, 7, "", None), (2, 0, 7, "", None)])
    assert divided_data(scopes(run)[0]).times_read == 3
    judgement = judged(run)
    assert judgement.causes[0].kind == "samples-twice"
    assert "get_worker_info" in judgement.causes[0].advice
    assert any("3 times per epoch" in flaw for flaw in judgement.flaws)
    run.loaders["dataset_kind"] = "map"  # the main process deals the samples out
    assert judged(run).causes[0].kind == "operation"


def test_steps_that_repeated_samples_take_are_no_waits() -> None:
    run = with_first([(0, 0, 7, "", None), (1, 0, 7, "", None), (2, 0, 7, "", None)])
    waited = judged(run).input_share
    run.waits["step_ns"] += run.waits["wait_ns"].sum()  # as if the steps were most of the loop
    judgement = judged(run)
    first = judgement.causes[0]
    assert first.kind == "samples-twice"
    assert first.share == pytest.approx(2 / 3, abs=0.1)
    assert first.wait_share < 1
    assert judgement.input_share < 0.1 < waited
    run.waits["step_ns"] *= 10
    assert verdict_words(judged(run)) == "NOT INPUT-BOUND, BUT SAMPLES REPEAT"


def test_workers_with_unequal_shares_of_the_data_do_not_read_the_same() -> None:
    # GIVEN samples that begin alike, and a worker that makes most of the batches
    run = with_first([(0, 0, 7, "", None), (1, 0, 7, "", None), (2, 0, 7, "", None)])
    run.batches.loc[6:, "worker"] = 0
    judgement = judged(run)
    # THEN the uneven shares are the cause, and nothing is said that excludes them
    assert judgement.causes[0].kind == "starved-workers"
    assert not [flaw for flaw in judgement.flaws if "times per epoch" in flaw]


def test_different_first_batches_and_those_of_different_epochs_do_not() -> None:
    run = with_first([(0, 0, 7, "", None), (1, 0, 8, "", None), (2, 1, 7, "", None)])
    assert divided_data(scopes(run)[0]).times_read == 1
    run = with_first([(0, 0, None, "", None), (1, 0, None, "", None), (2, 0, None, "", None)])
    assert divided_data(scopes(run)[0]).times_read == 1  # nothing told them apart


def whole_passes(asked: bool | None = False, generator: str = "random") -> SimpleNamespace:
    """A run of three workers, each with 14 batches of samples that are drawn at random."""
    run = Plan(operations={"Slow": 20.0}, workers=3, batches=42).run()
    run.loaders["num_workers"], run.loaders["dataset_kind"] = 3, "iterable"
    run.loaders["dataset_length"] = None
    run.workers = run.workers.assign(reads_worker_info=pd.array([asked] * 3, "boolean"))
    rows = [(worker, 0, worker, generator, worker, 0, 0) for worker in range(3)]
    columns = ["worker", "epoch", "content", "generator", "state", "rank", "loader"]
    pids = run.batches.groupby("worker")["pid"].first()
    run.first_batches = pd.DataFrame(rows, columns=columns).assign(pid=pids.to_numpy())
    return run


def test_workers_that_do_not_ask_which_they_are_pass_over_all_of_the_data() -> None:
    run = whole_passes()
    shares = divided_data(scopes(run)[0])
    assert (shares.times_read, shares.whole_passes) == (3, True)
    judgement = judged(run)
    assert judgement.causes[0].title == (
        "each of the 3 workers passes over all of the data: none asks which one it is"
    )
    assert "3 times as many as with one worker" in judgement.causes[0].reason
    assert "or make one n-th of the samples" in judgement.causes[0].advice
    assert any("passes over all of the data" in flaw for flaw in judgement.flaws)
    run.waits["step_ns"] += 10 * run.waits["wait_ns"].sum()
    assert verdict_words(judged(run)) == "NOT INPUT-BOUND, BUT DATA ARE NOT DIVIDED"


def lacks_an_end(run: SimpleNamespace) -> None:
    run.epochs["exhausted"] = False


def has_unequal_workers(run: SimpleNamespace) -> None:
    run.batches.loc[run.batches["batch"] == 41, "size"] -= 1


def has_a_length(run: SimpleNamespace) -> None:
    run.loaders["dataset_length"] = 42 * 4


def lacks_a_worker(run: SimpleNamespace) -> None:
    run.workers = run.workers.iloc[:2]


@pytest.mark.parametrize(
    "change", [lacks_an_end, has_unequal_workers, has_a_length, lacks_a_worker]
)
def test_this_is_not_said_of_a_run_that(change: Callable[[SimpleNamespace], None]) -> None:
    run = whole_passes()
    change(run)
    assert divided_data(scopes(run)[0]).times_read == 1


@pytest.mark.parametrize(("asked", "generator"), [(True, "random"), (None, "random"), (False, "")])
def test_this_takes_workers_that_did_not_ask_and_random_samples(
    asked: bool | None, generator: str
) -> None:
    assert divided_data(scopes(whole_passes(asked, generator))[0]).times_read == 1


def with_digests(*workers: Iterable[int], samples: int = -1) -> SimpleNamespace:
    """A run whose workers, each, had samples with these checksums, so many in all."""
    run = with_first([])
    pids = run.batches.groupby("worker")["pid"].first()
    run.sample_digests = pd.DataFrame(
        [
            {"rank": 0, "pid": pids[worker], "epoch": 0, "worker": worker, "digest": digest}
            for worker, digests in enumerate(workers)
            for digest in digests
        ]
    ).assign(samples=samples)
    return run


def smallest(samples: np.ndarray) -> list[int]:
    """The checksums that a worker with these samples keeps."""
    digests = {zlib.crc32(str(sample).encode()) for sample in samples.tolist()}
    return sorted(digests)[:KEPT]


def times_read(run: SimpleNamespace) -> float:
    return divided_data(scopes(run)[0]).times_read


def test_the_same_samples_in_another_order_mean_that_all_workers_read_the_same() -> None:
    assert times_read(with_digests(range(64), range(64), range(64))) == 3
    # Some lie beyond the smallest that were kept.
    assert times_read(with_digests(range(64), range(4, 64), range(64))) == 3


def test_shards_that_overlap_are_read_as_often_as_workers_have_them() -> None:
    # GIVEN workers that read from their place to the end of the data, or from it for too long
    data = np.arange(2400)
    to_the_end = with_digests(*(smallest(data[start:]) for start in (0, 800, 1600)))
    windows = with_digests(*(smallest(data[start : start + 1200]) for start in (0, 0, 1200)))
    # THEN a sample comes so often on average, whatever the sizes of the workers' shares
    assert times_read(to_the_end) == pytest.approx(2.0, rel=0.15)
    assert times_read(windows) == pytest.approx(1.5, rel=0.15)
    run = to_the_end
    run.batches.loc[6:, "worker"] = 0
    judgement = judged(run)
    assert judgement.causes[0].kind == "samples-twice"
    assert "on average: workers read what others read as well" in judgement.causes[0].title
    assert "some of it once more" in judgement.causes[0].advice
    assert any("on average" in flaw for flaw in judgement.flaws)


@pytest.mark.parametrize("replace", [True, False])
def test_workers_that_draw_at_random_do_not_read_the_same(replace: bool) -> None:
    chance = np.random.default_rng(3)
    drawn = [smallest(chance.choice(2400, 1200, replace)) for _ in range(3)]
    assert times_read(with_digests(*drawn, samples=1200)) == 1
    if replace:  # so often that each has nearly all of them
        drawn = [smallest(chance.choice(800, 2400)) for _ in range(3)]
        assert times_read(with_digests(*drawn, samples=2400)) == 1


def test_workers_that_share_few_samples_or_alike_ones_do_not_read_the_same() -> None:
    apart = with_digests(range(64), range(64, 128), range(128, 192))
    few = with_digests(range(8), range(8), range(8))  # hardly any distinct ones
    silent = with_digests(range(64), range(64), range(0))  # a worker gave up
    alike = with_digests(range(50), range(50), range(50), samples=800)  # 50 rows, again and again
    for run in (apart, few, silent, alike):
        assert times_read(run) == 1


def test_an_epoch_of_more_samples_than_there_are() -> None:
    run = with_first([])
    samples = int(run.batches["size"].sum())
    run.loaders["dataset_length"] = samples // 2
    assert divided_data(scopes(run)[0]).times_read == 2
    run.loaders["dataset_length"] = samples
    assert divided_data(scopes(run)[0]).times_read == 1


def test_generators_in_the_same_state_are_a_cause() -> None:
    rows = [(worker, 0, worker, "", None) for worker in range(3)]
    rows += [(worker, 0, worker, "dataset.rng", 5) for worker in range(3)]
    rows += [(worker, 0, worker, "torch", worker) for worker in range(3)]
    run = with_first([*rows])
    assert shared_generators(scopes(run)[0]) == {"dataset.rng": 3}
    waits, without = judged(run), judged(with_first([]))
    assert any("same random numbers" in flaw for flaw in waits.flaws)
    assert waits.causes[0].kind == "operation"  # a loop that waits is told why first
    assert without.flaws == ()
    run.waits["wait_ns"], run.waits["step_ns"] = 0, 50_000_000
    first = judged(run).causes[0]
    assert first.kind == "same-random"
    assert "dataset.rng" in first.title
    assert "worker_init_fn" in first.advice


@pytest.mark.parametrize(("operation", "times"), [("RandomCrop", 3), ("CenterCrop", 1)])
def test_equal_series_of_labels_count_where_samples_are_changed_at_random(
    operation: str, times: int
) -> None:
    run = with_digests(range(64), range(100, 164), range(200, 264))
    run.operations = run.operations.assign(operation=operation)
    contents = run.sample_digests.assign(of="sample")
    series = contents.assign(of="series", digest=contents["digest"] % 100)
    run.sample_digests = pd.concat([contents, series], ignore_index=True)
    assert times_read(run) == times
    # BUT not labels that come again and again in one worker, as where they are in a fixed order
    run.sample_digests["samples"], run.sample_digests["digest"] = (
        1000,
        run.sample_digests["digest"] % 20,
    )
    assert times_read(run) == 1

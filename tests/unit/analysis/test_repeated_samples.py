"""Workers that read the same samples, or draw the same random numbers."""

from types import SimpleNamespace

import pandas as pd

from lotus.analysis.batches.repeated_samples import divided_data, shared_generators
from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Verdict, verdict
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


def with_digests(*workers: range) -> SimpleNamespace:
    """A run whose workers, each, had samples with these checksums."""
    run = with_first([])
    pids = run.batches.groupby("worker")["pid"].first()
    run.sample_digests = pd.DataFrame(
        [
            {"rank": 0, "pid": pids[worker], "epoch": 0, "worker": worker, "digest": digest}
            for worker, digests in enumerate(workers)
            for digest in digests
        ]
    )
    return run


def test_the_same_samples_in_another_order_mean_that_all_workers_read_the_same() -> None:
    assert divided_data(scopes(with_digests(range(64), range(64), range(64)))[0]).times_read == 3
    # Some lie beyond the smallest that were kept.
    assert divided_data(scopes(with_digests(range(64), range(4, 64), range(64)))[0]).times_read == 3


def test_workers_that_share_some_samples_do_not_read_the_same() -> None:
    apart = with_digests(range(64), range(64, 128), range(128, 192))
    half = with_digests(range(64), range(32, 96), range(64))  # as with replacement
    few = with_digests(range(8), range(8), range(8))  # hardly any distinct ones
    silent = with_digests(range(64), range(64), range(0))  # a worker gave up
    for run in (apart, half, few, silent):
        assert divided_data(scopes(run)[0]).times_read == 1


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

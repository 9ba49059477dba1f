"""What is taken from a run of many ranks, and which runs are refused."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from lotus.balance.rank_measurements import RUN, WARM, measure
from lotus.balance.time_fit import curve
from lotus.common.errors import LotusError
from lotus.settings.share_plan import ModelSignature
from lotus.settings.tuned_file import Target
from tests.unit.many_ranks import MS, Costs, job

TWO = (Costs(slope=1.0), Costs(slope=3.0))


def test_waiting_for_the_others_is_no_own_time() -> None:
    measured = measure(job(TWO, noise=0.0))
    assert [rank.step_ns.mean() for rank in measured.ranks] == pytest.approx([8 * MS, 24 * MS])
    assert measured.collective_ns == pytest.approx(1 * MS)
    assert measured.measured_ns == pytest.approx(25 * MS)
    assert measured.batch_sizes == (8, 8)
    assert measured.synchronised
    assert measured.loader is not None
    # A run knows where a loader was iterated, a plan is put on where one is made.
    assert measured.loader == Target(
        dataset="Images", dataset_length=1000, sampler="DistributedSampler"
    )
    assert not any("tell them apart" in note for note in measured.notes)
    assert len(measured.ranks[0].step_ns) == 60 - WARM


def test_the_model_is_the_largest_that_all_ranks_train() -> None:
    run = job(TWO, noise=0.0)
    assert measure(run).model is None
    rows = [(rank, size, f"{size:064}") for rank in (0, 1) for size in (5, 83)]
    run.models = pd.DataFrame(rows, columns=["rank", "parameters", "shapes"])
    assert measure(run).model == ModelSignature(83, f"{83:064}")
    run.models.loc[3, "shapes"] = "other"
    assert measure(run).model is None
    run.models = run.models[run.models["rank"] == 0]
    assert measure(run).model is None


def test_hosts_whose_clocks_differ_have_the_same_collective() -> None:
    run = job(TWO, noise=0.0)
    other = run.syncs["rank"] == 1
    for name in ("start_ns", "ready_ns", "end_ns"):
        run.syncs.loc[other, name] += 7 * MS
    assert measure(run).collective_ns == pytest.approx(1 * MS)


def test_without_traced_synchronisation_it_says_so() -> None:
    measured = measure(job(TWO, noise=0.0, synced=False))
    assert not measured.synchronised
    assert [rank.step_ns.mean() for rank in measured.ranks] == pytest.approx([25 * MS, 25 * MS])
    assert any("was not traced" in note for note in measured.notes)


def test_two_batch_sizes_tell_what_is_fixed() -> None:
    run = job([Costs(1.0, fixed=5.0), Costs(2.0, fixed=9.0)], noise=0.01)
    smaller = job([Costs(1.0, fixed=5.0, batch=4), Costs(2.0, fixed=9.0, batch=4)], noise=0.01)
    lines = [curve(rank).step for rank in measure(run, also=[smaller]).ranks]
    assert [line.how for line in lines] == ["fitted"] * 2
    assert [line.fixed / MS for line in lines] == pytest.approx([5, 9], rel=0.1)
    assert [line.slope / MS for line in lines] == pytest.approx([1, 2], rel=0.1)


def test_steps_of_each_run_are_told_apart() -> None:
    # GIVEN three runs of a job, WHEN they are joined
    runs = [job([Costs(batch=size), Costs(2.0, batch=size)], epochs=2) for size in (8, 4, 2)]
    measured = measure(runs[0], also=runs[1:])
    # THEN a step of any of them is met by the same step of the other rank, and by no other
    for rank in measured.ranks:
        assert len(set(rank.key.tolist())) == len(rank.key) == len(rank.sizes)
        assert set((rank.key >> RUN).tolist()) == {0, 1, 2}
    steps = [dict(zip(rank.key.tolist(), rank.sizes, strict=True)) for rank in measured.ranks]
    assert steps[0] == steps[1]


def test_one_batch_size_leaves_it_open_within_bounds() -> None:
    line = curve(measure(job(TWO, noise=0.0)).ranks[0]).step
    assert (line.how, line.fixed) == ("assumed", 0.0)
    assert line.slope == pytest.approx(MS)
    assert line.fixed_high == pytest.approx(8 * MS)
    assert line.highest().at(100) == pytest.approx(8 * MS)


def test_last_batches_of_epochs_are_a_second_size() -> None:
    costs = Costs(1.0, fixed=4.0)
    line = curve(measure(job([costs, costs], noise=0.0, partial=2, epochs=2)).ranks[0]).step
    assert line.how == "last batches"
    assert (line.fixed / MS, line.slope / MS) == pytest.approx((4, 1))
    noisy = measure(job([costs, costs], noise=0.1, partial=2, epochs=2))
    line = curve(noisy.ranks[0]).step
    assert 0 <= line.fixed_low < 4 * MS < line.fixed_high < 12 * MS
    many = curve(measure(job([costs, costs], noise=0.0, partial=2, epochs=6)).ranks[0]).step
    assert many.how == "fitted"


def test_accumulated_gradients_are_named() -> None:
    run = job(TWO, noise=0.0)
    run.syncs = run.syncs[run.syncs["step"] % 4 == 3]
    assert any("once in 4.0 batches" in note for note in measure(run).notes)


def _without(rank: int) -> SimpleNamespace:
    run = job([Costs()] * 4)
    run.batches = run.batches[run.batches["rank"] != rank]
    return run


def _unrecorded() -> SimpleNamespace:
    run = _without(2)
    run.manifest["ranks"] = [rank for rank in run.manifest["ranks"] if rank["rank"] != 2]
    return run


def _nothing() -> SimpleNamespace:
    run = job(TWO)
    return SimpleNamespace(manifest=run.manifest, loaders=run.loaders, batches=run.batches[:0])


def _two_jobs() -> SimpleNamespace:
    run = job(TWO)
    run.batches.loc[0, "world_size"] = 3
    return run


@pytest.mark.parametrize(
    ("run", "error"),
    [
        (job([Costs()]), "the run has one rank"),
        (_without(2), "rank 2 of 4 took no batch of this loader"),
        (_unrecorded(), "of 4 ranks rank 2 left no record: trace every host"),
        (_nothing(), "no DataLoader was iterated"),
        (_two_jobs(), "jobs of 2, 3 ranks"),
        (job(TWO, dataset_kind="iterable"), "the loader of Images at train.py:7 is of an iterable"),
        (job(TWO, batch_size=None), r"no batch size \(batch_size=None\)"),
        (job(TWO, batch_sampler="Buckets"), "a batch sampler of its own, Buckets"),
    ],
)
def test_what_cannot_be_balanced_is_refused_by_name(run: Any, error: str) -> None:
    with pytest.raises(LotusError, match=error):
        measure(run)


def test_a_loader_that_there_is_not() -> None:
    with pytest.raises(LotusError, match="no loader 3 in this run; there are: 0"):
        measure(job(TWO), loader=3)


def test_loaders_that_a_plan_cannot_tell_apart_are_named() -> None:
    run = job(TWO)
    other = run.loaders.assign(loader=1)
    run.loaders = pd.concat([run.loaders, other, other.assign(loader=2, dataset_length=9)])
    assert any("loader 1 has the same data set" in note for note in measure(run).notes)


def test_another_run_must_be_of_the_same_job() -> None:
    with pytest.raises(LotusError, match="has 3 ranks, this one 2"):
        measure(job(TWO), also=[job([Costs()] * 3)])
    with pytest.raises(LotusError, match="rank 0 has 4 workers there and 1 here"):
        measure(job(TWO), also=[job([Costs(workers=4)] * 2)])


def test_taking_a_batch_that_lies_ready_is_a_ranks_own_time() -> None:
    run = job(TWO, noise=0.0)
    run.batches["ready_ns"] = run.batches["wait_start_ns"] - 1
    run.batches["wait_ns"] = 2.0 * MS
    assert measure(run).ranks[0].step_ns.mean() == pytest.approx(10 * MS)
    # One that is late takes no longer to take; the rest of its wait is its input's.
    late = run.batches["batch"] % 2 == 0
    run.batches.loc[late, "ready_ns"] += 2
    run.batches.loc[late, "wait_ns"] = 30.0 * MS
    assert measure(run).ranks[0].step_ns.mean() == pytest.approx(10 * MS)


@pytest.mark.parametrize("loader", [None, 2])
def test_all_epochs_of_a_loader_that_is_made_anew_are_measured(loader: int | None) -> None:
    run = job(TWO, noise=0.0, epochs=3)
    expected = measure(job(TWO, noise=0.0, epochs=3))
    # Each epoch has a loader of its own.
    run.batches["loader"], run.batches["epoch"] = run.batches["epoch"], 0
    rows = [run.loaders.assign(loader=number, pid=run.loaders["rank"] + 100) for number in range(3)]
    run.loaders = pd.concat(rows, ignore_index=True)
    begun = run.batches.assign(end_ns=run.batches["taken_ns"] + run.batches["step_ns"])
    run.epochs = begun.groupby(["rank", "loader", "epoch"], as_index=False).agg(
        start_ns=("wait_start_ns", "min"), end_ns=("end_ns", "max")
    )
    measured = measure(run, loader)
    assert [len(rank.step_ns) for rank in measured.ranks] == [3 * 60 - WARM] * 2
    assert [rank.step_ns.tolist() for rank in measured.ranks] == [
        rank.step_ns.tolist() for rank in expected.ranks
    ]
    assert [rank.key.tolist() for rank in measured.ranks] == [
        rank.key.tolist() for rank in expected.ranks
    ]
    assert not any("tell them apart" in note for note in measured.notes)

"""Loaders that are made anew for each epoch are seen as one."""

from types import SimpleNamespace

import pytest

from lotus.analysis.common.remade_loaders import merged, number_of
from lotus.analysis.summary import summarise
from tests.unit.analysis.verdict.test_run_time import shift, together
from tests.unit.simulated import Plan


def remade(count: int = 3, gap: float = 1e6) -> SimpleNamespace:
    runs = [Plan(batches=8, loader=number, spawn=300).run() for number in range(count)]
    end = runs[0].epochs["end_ns"].max()
    for run in runs[1:]:
        shift(run, end + gap - run.epochs["start_ns"].min())
        end = run.epochs["end_ns"].max()
    run = together(*runs)
    run.loaders["call_site"] = "train.py:12"
    run.loaders["num_workers"] = 2
    return run


def test_they_have_one_number_and_their_epochs_are_counted_on() -> None:
    run = merged(remade())
    assert run.loaders["loader"].tolist() == [0]
    assert run.loaders["made"].tolist() == [3]
    assert sorted(run.epochs["epoch"]) == [0, 1, 2]
    assert set(run.batches["loader"]) == {0}
    assert set(run.workers["loader"]) == {0}
    assert run.batches.groupby("epoch").size().tolist() == [8, 8, 8]


def test_each_of_their_numbers_is_known() -> None:
    assert [number_of(remade(), loader) for loader in (0, 1, 2, 7)] == [0, 0, 0, 7]
    assert number_of(Plan().run(), 0) == 0


def test_the_advice_is_to_make_it_once() -> None:
    (loader,) = summarise(remade()).loaders
    first = loader.verdict.causes[0]
    assert first.kind == "start-up"
    assert "creates this loader 3 times at train.py:12" in first.advice
    assert loader.times["epochs"] == 3


@pytest.mark.parametrize("column", ["call_site", "batch_size", "dataset"])
def test_loaders_that_differ_stay_apart(column: str) -> None:
    run = remade(2)
    run.loaders[column] = ["first", "second"]
    assert merged(run) is run


def test_loaders_that_are_iterated_at_once_stay_apart() -> None:
    run = remade(2, gap=-1e6)
    assert merged(run) is run


def test_a_run_of_one_loader_is_itself() -> None:
    run = Plan().run()
    assert merged(run) is run


@pytest.mark.parametrize(("count", "together"), [(3, True), (2, False)])
def test_loaders_of_data_that_grow_are_one_if_they_are_several(count: int, together: bool) -> None:
    run = remade(count)
    run.loaders["dataset_length"] = [100 * (number + 1) for number in range(count)]
    run.loaders["length"] = [number + 8 for number in range(count)]
    assert (merged(run).loaders["loader"].tolist() == [0]) == together
    assert together or merged(run) is run


def test_of_loaders_that_take_turns_each_is_made_anew_by_itself() -> None:
    run = remade(4)
    run.loaders["dataset_length"] = [100, 20, 100, 20]  # of training, of validation
    assert merged(run).loaders["made"].tolist() == [2, 2]


def test_what_was_counted_belongs_to_the_one_loader_too() -> None:
    run = remade()
    run.counters = run.batches[["rank", "loader", "epoch", "batch"]].assign(cycles=1.0)
    counters = merged(run).counters
    assert set(counters["loader"]) == {0}
    assert sorted(set(counters["epoch"])) == [0, 1, 2]


def test_seen_twice_they_are_what_they_are() -> None:
    run = merged(remade())
    assert merged(run) is run

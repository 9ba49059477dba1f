"""Which code needs workers: what prepares a worker, and what asks for one without a test."""

import functools
import random

import pytest

from lotus.inside.common.loaders import worker_needs
from lotus.inside.common.loaders.worker_needs import workers_needed_at


@pytest.fixture(autouse=True)
def these_functions_are_the_programs(monkeypatch):
    monkeypatch.setattr(worker_needs, "is_installed", lambda path: False)


def get_worker_info():
    return None


class Loader:
    def __init__(self, dataset, worker_init_fn):
        self.dataset, self.worker_init_fn = dataset, worker_init_fn


class Plain:
    def __getitem__(self, index):
        return index


def seeds(worker_id):
    import numpy as np
    import torch

    torch.set_num_threads(1)
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


def opens(worker_id):
    info = get_worker_info()
    info.dataset.rows = list(range(9))


class Opens:
    def __call__(self, worker_id):
        opens(worker_id)


def needed(worker_init_fn=None, dataset=None):
    return workers_needed_at(Loader(dataset or Plain(), worker_init_fn))


@pytest.mark.parametrize("function", [None, seeds, lambda number: random.seed(number), print])
def test_seeds_and_threads_prepare_nothing(function):
    assert needed(function) == ""


@pytest.mark.parametrize("function", [opens, functools.partial(opens), Opens(), Opens().__call__])
def test_what_else_a_worker_runs_first_may_be_needed(function):
    found = needed(function)
    assert found.startswith("test_worker_needs.py:")
    if function is opens:
        assert found == f"test_worker_needs.py:{opens.__code__.co_firstlineno}"


def test_code_of_libraries_is_left_alone(monkeypatch):
    monkeypatch.setattr(worker_needs, "is_installed", lambda path: True)
    assert needed(opens, Divided()) == ""


def test_what_lotus_itself_puts_in_is_no_code_of_the_program():
    from lotus.inside.apply.worker_start import WorkerInit

    assert needed(WorkerInit(1, None)) == ""
    assert needed(worker_needs.workers_needed_at) == ""


class Divided:
    def __iter__(self):
        info = get_worker_info()
        yield from range(info.id, 100, info.num_workers)


class InFunction:
    def __iter__(self):
        def part():
            return get_worker_info().id

        yield part()


class Tested:
    def __iter__(self):
        info = get_worker_info()
        if info is None:
            yield from range(100)
        else:
            yield from range(info.id, 100, info.num_workers)


class TestedByTruth:
    def __iter__(self):
        info = get_worker_info()
        yield from range(info.id if info else 0, 100)


class TestedWithOr:
    def __iter__(self):
        info = get_worker_info()
        yield (info and info.id) or 0


class Around:
    def __init__(self, dataset):
        self.dataset = dataset


@pytest.mark.parametrize("kind", [Divided, InFunction])
def test_a_data_set_that_asks_without_a_test_needs_workers(kind):
    assert needed(dataset=kind()).startswith("test_worker_needs.py:")
    assert needed(dataset=Around(Around(kind()))).startswith("test_worker_needs.py:")


@pytest.mark.parametrize("kind", [Plain, Tested, TestedByTruth, TestedWithOr])
def test_one_that_allows_for_no_answer_does_not(kind):
    assert needed(dataset=kind()) == ""
    assert needed(dataset=Around(kind())) == ""


def test_strange_objects_need_nothing():
    around = Around(None)
    around.dataset = around
    assert needed(dataset=around) == ""
    assert workers_needed_at(object()) == ""
    assert needed(42) == ""

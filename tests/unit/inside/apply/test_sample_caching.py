"""Caching of samples in a worker that starts."""

import types

import pytest

from lotus.inside.apply import sample_caching
from lotus.inside.apply.sample_caching import SampleCaching
from lotus.inside.cache.cached_samples import CachedSamples, CachePlan, key_of


class Data:
    def __init__(self):
        self.offset = 0

    def __getitem__(self, index):
        return index + self.offset


@pytest.mark.parametrize("changes", [False, True])
def test_a_data_set_that_worker_init_fn_changes_is_left_alone(tmp_path, changes):
    notes, data = [], Data()
    caching = SampleCaching(types.SimpleNamespace(note=notes.append, tell=notes.append))
    plan = CachePlan(None, 0, key_of(data, None, 0), str(tmp_path / "kept"))
    plan.budget_bytes = 1 << 20
    caching.pending = (data, plan, True)
    fetcher = types.SimpleNamespace(dataset=data)
    data.offset = 10 if changes else 0
    caching._place(fetcher, data)
    assert isinstance(fetcher.dataset, CachedSamples) != changes
    assert notes == (["samples are not cached: worker_init_fn changes the data set"] * changes)


class Counted(Data):
    def __init__(self):
        super().__init__()
        self.made = []

    def __getitem__(self, index):
        self.made.append(index)
        return [index, "made"]


class Fetcher:
    def __init__(self, dataset):
        self.dataset = dataset

    def fetch(self, index):
        return [self.dataset[each] for each in index]


@pytest.fixture
def switched(tmp_path):
    """(a switch, its data set, a fetcher, notes) of a cache that is measured."""
    switch, notes, data = tmp_path / "switch", [], Counted()
    switch.write_bytes(b"\0")
    caching = SampleCaching(types.SimpleNamespace(note=notes.append, tell=notes.append, on=True))
    plan = CachePlan(None, 0, key_of(Data(), None, 0), str(tmp_path / "kept"))
    plan.budget_bytes, plan.switch = 1 << 20, str(switch)
    caching.pending = (data, plan, False)
    fetcher = caching._place(Fetcher(data), data)
    return switch, data, fetcher, notes


def fetched(switched, number, *indices):
    """The samples that the data set made of these, with the switch at a number."""
    switch, data, fetcher, notes = switched
    switch.write_bytes(bytes([number]))
    data.made.clear()
    assert fetcher.fetch(indices) == [[index, "made"] for index in indices]
    assert not notes
    return list(data.made)


def test_a_switch_says_what_each_fetch_does(switched):
    own, filling, cached = 0, 1, 2
    assert fetched(switched, own, 1, 2) == [1, 2]
    assert fetched(switched, cached, 1) == [1]  # nothing was cached before
    assert fetched(switched, filling, 1, 2, 3) == [1, 2, 3]
    # The first cached sample is compared with one that is made anew.
    assert fetched(switched, cached, 1, 2, 3) == [1]
    assert fetched(switched, own, 1) == [1]
    assert fetched(switched, filling, 2) == [2]  # although it is cached
    assert fetched(switched, cached, 1, 2, 3) == []


def test_a_measured_cache_that_is_not_used_says_why(switched):
    switch, data, fetcher, notes = switched
    assert fetched(switched, 1, 1) == [1]
    assert sample_caching.problem(str(switch)) == ""
    data.__class__ = type(
        "Changed", (Counted,), {"__getitem__": lambda self, index: [index, "new"]}
    )
    switch.write_bytes(b"\2")
    assert fetcher.fetch([1]) == [[1, "new"]]
    assert "a cached sample differs" in sample_caching.problem(str(switch))
    assert not notes

"""Caching of samples in a worker that starts."""

import types

import pytest

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

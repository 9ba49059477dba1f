"""What is measured of a cut without a program: its exchange with the store, and what is refused."""

from types import SimpleNamespace

import pytest

from lotus.inside.cache.entry_codec import HOLE, encode
from lotus.inside.cache.sample_store import SampleStore
from lotus.inside.isolate import cut_bench
from lotus.inside.isolate.busy_time import BusyTime


class FullStore:
    def put(self, name, parts):
        return False

    def get(self, name):
        return None


@pytest.mark.parametrize("full", [False, True])
def test_an_entry_is_timed_also_where_there_is_no_room_for_it(tmp_path, full):
    store = FullStore() if full else SampleStore(str(tmp_path / "store"), 1 << 20, lambda note: 0)
    times, busy = cut_bench._CutTimes(), BusyTime()
    value, rest = b"".join(encode(bytes(5000))), b"".join(encode((HOLE, 3)))
    for _ in range(3):
        cut_bench._exchange(store, busy, "0" * 64, (value, rest), times)
    busy.close()
    assert times.bytes == [len(value) + len(rest)] * 3
    assert len(times.keep) == len(times.fetch) == 3
    assert all(cpu_ns > 0 for cpu_ns, _ in [*times.keep, *times.fetch])


@pytest.mark.parametrize(
    ("sampler", "reason"), [(iter([]), "it is not torch's own"), (None, "AttributeError: ")]
)
def test_a_sampler_that_is_not_followed_has_its_reason(sampler, reason):
    pytest.importorskip("torch")
    loader = SimpleNamespace(batch_sampler=sampler) if sampler else SimpleNamespace()
    accesses, why = cut_bench._accesses(loader, 2)
    assert accesses is None
    assert why.startswith(reason)


class Clocked:
    """Counts the batches that were timed, each with 6,400 ns."""

    def start(self):
        pass

    def stop(self, readings):
        return [(6000, 400)]

    def close(self):
        pass


class Batched:
    def __init__(self):
        self.batch_size = 64


@pytest.mark.parametrize(
    ("length", "batch_size", "batches", "size"),
    [
        (1000, 64, None, 64),
        (1000, None, Batched(), 64),
        (1000, 4, None, 4),
        (20, 64, None, 20),
        (9000, 8192, None, 512),
        (1000, None, [[1, 2]], None),
    ],
)
def test_batches_are_collated_as_large_as_in_training(
    monkeypatch, length, batch_size, batches, size
):
    monkeypatch.setattr(cut_bench, "BusyTime", Clocked)
    collated = []
    loader = SimpleNamespace(
        batch_size=batch_size, batch_sampler=batches, collate_fn=collated.append
    )
    bench = cut_bench.CutBench(24, 2, 60 * 10**9, "", lambda event: None)
    ns = bench._collated(loader, SimpleNamespace(dataset=range(length)))
    assert ns == (None if size is None else 6400 / size)
    assert {len(batch) for batch in collated} == (set() if size is None else {size})
    # Only a few samples are made, and come again.
    assert all(max(batch) < 8 for batch in collated)


class Whole:
    def __len__(self):
        return 5


class Batches(Whole):
    def __getitems__(self, indices):
        return indices


class Endless:
    pass


@pytest.mark.parametrize(
    ("dataset", "changes", "why"),
    [
        (Whole(), {}, None),
        (Whole(), {"_dataset_kind": 1}, "its data set is iterable"),
        (Whole(), {"batch_sampler": None}, "it has no batch size"),
        (Batches(), {}, "its data set has __getitems__"),
        (Endless(), {}, "its data set has no length"),
        ([], {}, "its data set has no length"),
    ],
)
def test_what_has_no_samples_by_index_is_refused(dataset, changes, why):
    fields = {"dataset": dataset, "_dataset_kind": 0, "batch_sampler": [], **changes}
    reason = cut_bench.refusal(SimpleNamespace(**fields))
    assert reason == why or reason.startswith(why)

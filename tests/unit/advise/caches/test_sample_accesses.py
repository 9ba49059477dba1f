"""The hits of a cache that is never emptied, against one that is simulated access by access."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.advise.caches.sample_accesses import SampleAccesses
from lotus.inside.isolate import access_order
from lotus.inside.isolate.access_order import AccessOrder, UnknownOrderError

torch = pytest.importorskip("torch")
data = torch.utils.data


def simulated(
    epochs: Sequence[Sequence[Hashable]], room: float, cached: Any = lambda sample: True
) -> tuple[list[float], list[float]]:
    """Return (hits, written) of each epoch, as parts of its accesses: a cache of `room` samples."""
    cache: set[Hashable] = set()
    hits, written = [], []
    for epoch in epochs:
        found = made = 0
        for sample in epoch:
            if sample in cache:
                found += 1
            elif len(cache) < room and cached(sample):
                cache.add(sample)
                made += 1
        hits.append(found / max(len(epoch), 1))
        written.append(made / max(len(epoch), 1))
    return hits, written


def accesses_of(epochs: Sequence[Sequence[Hashable]]) -> SampleAccesses:
    order = AccessOrder()
    for epoch in epochs:
        order.add(epoch)
    return SampleAccesses.read(order.columns())


SEQUENCES = st.lists(st.lists(st.integers(0, 30), max_size=60), min_size=1, max_size=5)


@settings(deadline=None)
@given(SEQUENCES, st.integers(0, 40))
def test_hits_and_what_is_written_are_those_of_a_cache(epochs: list[list[int]], room: int) -> None:
    found, made = accesses_of(epochs).shares(room, len(epochs))
    hits, written = simulated(epochs, room)
    np.testing.assert_allclose(found, hits, atol=1e-9)
    np.testing.assert_allclose(made, written, atol=1e-9)


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 50), st.integers(0, 99))
def test_shuffles_hit_what_has_found_room(epochs: int, length: int, room: int, seed: int) -> None:
    # AND so do ranks, which together ask for each sample once
    chance = random.Random(seed)
    shuffled = [chance.sample(range(length), length) for _ in range(epochs)]
    for accesses in (accesses_of(shuffled), SampleAccesses.each_once(length)):
        found, made = accesses.shares(room, epochs)
        hits, written = simulated(shuffled, room)
        np.testing.assert_allclose(found, hits, atol=1e-9)
        np.testing.assert_allclose(made, written, atol=1e-9)
        assert accesses.once


def loader(sampler: Any, length: int = 1000, drops: bool = False) -> Any:
    return SimpleNamespace(
        sampler=sampler,
        batch_sampler=data.BatchSampler(sampler, 8, drops),
        dataset=range(length),
    )


def samplers(length: int) -> dict[str, Any]:
    weights = torch.linspace(0.01, 1, length) ** 3
    some = torch.arange(0, length, 3).tolist()
    return {
        "again": data.RandomSampler(range(length), replacement=True),
        "more": data.RandomSampler(range(length), replacement=True, num_samples=3 * length),
        "a part": data.RandomSampler(range(length), num_samples=length // 2),
        "weighted": data.WeightedRandomSampler(weights, length),
        "subset": data.SubsetRandomSampler(some),
        "shuffled": data.RandomSampler(range(length)),
        "in order": data.SequentialSampler(range(length)),
    }


@pytest.mark.parametrize("name", samplers(9))
@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
def test_samplers_of_torch_are_followed(name: str, part: float) -> None:
    torch.manual_seed(0)
    length = 4000
    sampler = samplers(length)[name]
    accesses = SampleAccesses.read(access_order.columns(loader(sampler, length), 5))
    # THEN a cache in training, which draws other numbers, hits as often.
    epochs = [list(sampler) for _ in range(5)]
    hits, written = simulated(epochs, part * length)
    found, made = accesses.shares(part * length, 5)
    np.testing.assert_allclose(found, hits, atol=0.04)
    np.testing.assert_allclose(made, written, atol=0.04)
    assert accesses.once == (name in ("shuffled", "in order", "subset"))
    assert accesses.samples <= length


def test_samples_that_are_not_cached_are_spread_over_the_order() -> None:
    # GIVEN a sampler with replacement, and a cache that takes every fourth sample, as slow ones
    torch.manual_seed(0)
    length, part = 4000, 0.25
    sampler = data.RandomSampler(range(length), replacement=True)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler, length), 5))
    room = 600
    found, made = accesses.shares(room / part, 4)
    hits, written = simulated(
        [list(sampler) for _ in range(4)], room, lambda sample: sample % 4 == 0
    )
    np.testing.assert_allclose(part * found, hits, atol=0.04)
    np.testing.assert_allclose(part * made, written, atol=0.04)


def test_the_sampler_and_its_generator_stay_as_they_are() -> None:
    generator = torch.Generator().manual_seed(3)
    sampler = data.RandomSampler(range(100), replacement=True, generator=generator)
    before = generator.get_state()
    access_order.columns(loader(sampler, 100), 5)
    assert torch.equal(generator.get_state(), before)
    assert sampler.generator is generator


class Own(data.Sampler):  # type: ignore[misc]
    def __iter__(self) -> Any:
        raise AssertionError("a sampler of the program may have effects")


class OwnWeighted(data.WeightedRandomSampler):  # type: ignore[misc]
    __iter__ = Own.__iter__


def test_samplers_of_a_program_are_not_followed() -> None:
    shuffled = loader(data.RandomSampler(range(1000)))
    shuffled.batch_sampler = [[0, 1], [2]]
    for each in (loader(Own()), loader(OwnWeighted([1.0], 5)), shuffled):
        with pytest.raises(UnknownOrderError, match="not torch's own"):
            access_order.columns(each, 5)


def read(sampler: Any, length: int = 1000) -> SampleAccesses:
    return SampleAccesses.read(access_order.columns(loader(sampler, length), 5))


def test_the_sampler_of_a_given_batch_sampler_is_followed() -> None:
    weighted = data.WeightedRandomSampler([1.0] * 1000, 100)
    batches = data.BatchSampler(weighted, 4, False)
    given = data.DataLoader(range(1000), batch_sampler=batches)
    accesses = SampleAccesses.read(access_order.columns(given, 5))
    assert set(accesses.accesses) == {100}
    assert accesses.distinct[0] < 100 < accesses.samples


@pytest.mark.parametrize(
    ("sampler", "asked"),
    [
        (data.SequentialSampler(range(100)), 100),
        (data.RandomSampler(range(100)), 100),
        (data.RandomSampler(range(5_000_000)), 5_000_000),
        (data.WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False), 3),
        (data.SubsetRandomSampler(torch.arange(100)), 100),
        (data.SubsetRandomSampler(torch.arange(3_000_000)), 3_000_000),
        (data.DistributedSampler(range(100), num_replicas=4, rank=1), 100),
    ],
)
def test_samples_that_are_asked_for_once_are_those_of_the_sampler(sampler: Any, asked: int) -> None:
    accesses = read(sampler)
    assert accesses.once
    assert accesses.samples == asked


@pytest.mark.parametrize(
    "sampler",
    [
        data.RandomSampler(range(100), num_samples=1000),
        data.SubsetRandomSampler(torch.arange(1000) % 100),
    ],
)
def test_samples_that_an_epoch_asks_for_again_count_once(sampler: Any) -> None:
    accesses = read(sampler)
    assert set(accesses.accesses) == {1000}
    assert set(accesses.distinct) == {100}
    hits, written = accesses.shares(100, 3)
    assert hits.tolist() == [0.9, 1, 1]
    assert written.tolist() == [0.1, 0, 0]


def test_epochs_are_drawn_for_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a sampler of few samples that permutes many, and a clock by which an epoch takes 2 s
    ticks = itertools.count(0, 2_000_000_000)
    monkeypatch.setattr(access_order, "clock", lambda: next(ticks))
    sampler = data.RandomSampler(range(1000), num_samples=10)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler), 1000))
    assert len(accesses.accesses) == 4
    # THEN there are two of them where one takes longer
    monkeypatch.setattr(access_order, "_MOST_S", 1.0)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler), 1000))
    assert len(accesses.accesses) == 2


def test_a_sampler_that_draws_from_too_many_samples_is_not_followed() -> None:
    sampler = data.RandomSampler(range(50_000_000), num_samples=10)
    with pytest.raises(UnknownOrderError, match="draws from more than 20,000,000 samples"):
        access_order.columns(loader(sampler), 5)


def test_a_sampler_of_too_many_samples_is_not_followed_for_this_reason() -> None:
    many = data.RandomSampler(range(1000), replacement=True, num_samples=3_000_000)
    with pytest.raises(UnknownOrderError, match="draws more than 2,000,000 samples"):
        access_order.columns(loader(many), 5)


@pytest.mark.parametrize("length", [41, 43, 80])
def test_what_drop_last_leaves_out_is_not_asked_for(length: int) -> None:
    # GIVEN an epoch of whole batches, of which a shuffle leaves out others each time
    torch.manual_seed(0)
    sampler = data.RandomSampler(range(length))
    batches = data.BatchSampler(sampler, 8, True)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler, length, True), 40))
    epochs = [[sample for batch in batches for sample in batch] for _ in range(40)]
    assert set(accesses.accesses) == {len(epochs[0])}
    assert accesses.once == (length == 80)
    hits, written = simulated(epochs, length)
    found, made = accesses.shares(length, 40)
    np.testing.assert_allclose(found.sum() + made.sum(), sum(hits) + sum(written))
    assert accesses.samples == length
    # AND in order, those are always the same
    in_order = loader(data.SequentialSampler(range(length)), length, True)
    accesses = SampleAccesses.read(access_order.columns(in_order, 40))
    assert accesses.once
    assert accesses.samples == length // 8 * 8


def test_epochs_are_followed_as_far_as_there_are_some_to_come() -> None:
    # GIVEN so few draws an epoch that new samples come for a long time
    torch.manual_seed(0)
    sampler = data.RandomSampler(range(10_000), replacement=True, num_samples=100)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler), 200))
    found, made = accesses.shares(10_000, 200)
    assert len(accesses.accesses) == 200
    assert found[-1] > 3 * found[15]
    assert made[-1] < made[15]


def test_ranks_that_drop_their_last_batch_are_not_followed() -> None:
    sampler = data.DistributedSampler(range(100), num_replicas=4, rank=1)
    with pytest.raises(UnknownOrderError, match="drops its last batch"):
        access_order.columns(loader(sampler, 100, True), 5)

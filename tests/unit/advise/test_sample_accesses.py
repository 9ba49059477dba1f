"""The hits of a cache that is never emptied, against one that is simulated access by access."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.advise.sample_accesses import SampleAccesses
from lotus.inside.isolate import access_order
from lotus.inside.isolate.access_order import AccessOrder

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


def loader(sampler: Any, length: int = 1000) -> Any:
    return SimpleNamespace(
        sampler=sampler,
        batch_sampler=data.BatchSampler(sampler, 8, False),
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
    length = 4000
    sampler = samplers(length)[name]
    accesses = SampleAccesses.read(access_order.columns(loader(sampler, length)))
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
    length, part = 4000, 0.25
    sampler = data.RandomSampler(range(length), replacement=True)
    accesses = SampleAccesses.read(access_order.columns(loader(sampler, length)))
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
    assert access_order.columns(loader(sampler, 100)) is not None
    assert torch.equal(generator.get_state(), before)
    assert sampler.generator is generator


class Own(data.Sampler):  # type: ignore[misc]
    def __iter__(self) -> Any:
        raise AssertionError("a sampler of the program may have effects")


class OwnWeighted(data.WeightedRandomSampler):  # type: ignore[misc]
    __iter__ = Own.__iter__


def test_samplers_of_a_program_are_not_followed() -> None:
    assert access_order.columns(loader(Own())) is None
    assert access_order.columns(loader(OwnWeighted([1.0], 5))) is None
    shuffled = loader(data.RandomSampler(range(1000)))
    shuffled.batch_sampler = [[0, 1], [2]]
    assert access_order.columns(shuffled) is None

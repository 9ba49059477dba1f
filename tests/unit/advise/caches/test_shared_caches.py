"""Caches that are there already, and what a plan makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lotus.advise.caches import cache_plan, shared_caches
from lotus.advise.caches.cache_plan import DISK, RAM, CachePlanning
from lotus.advise.caches.shared_caches import SharedCache
from lotus.inside.cache.sample_store import SampleStore
from lotus.reporters.advise import plan_report
from tests.unit.advise.caches.test_cache_plan import (
    GB,
    MB,
    MEMORY,
    MS,
    RANDOM,
    cut,
    data_set,
    printed,
    room_for,
    webp,
)  # fmt: skip

KEY = "0123456789abcdef" * 4


def with_cache(share: float, folder: Path, **about: Any) -> tuple[Any, ...]:
    """The events of a loader whose second cut has a cache in a folder, and the store."""
    events = (
        cut(0, "own", [4.0] * 4, 2.0, key="f" * 64),
        cut(1, "Resize", [5.0] * 4, key=KEY, compressions=webp(0.2, 1.0, 0.5)),
        RANDOM,
        {"event": "cached", "cut": 0, "shares": {}},
        {"event": "cached", "cut": 1, "shares": {str(folder): share, "/elsewhere": 1.0}},
    )
    return events, SampleStore(str(folder / KEY[:32]), GB, print, about)


def test_a_cache_that_is_there_already_is_found(tmp_path: Path) -> None:
    events, store = with_cache(0.5, tmp_path, command=["train.py"], compression="webp")
    assert store.put("a" * 64, [b"x" * 5000])
    (found,) = shared_caches.present_caches(events, {DISK: tmp_path, RAM: tmp_path / "ram"})
    assert (found.cut, found.place, found.samples, found.share) == (1, DISK, 1, 0.5)
    assert (found.program, found.compression) == ("train.py", "webp")
    assert found.bytes >= 8192
    # A dropped one is not used any more.
    store.drop("it differs")
    assert shared_caches.present_caches(events, {DISK: tmp_path}) == ()


def shared_of(share: float, events: Any = None, **changes: Any) -> CachePlanning:
    """A planning with a cache that has a part of the samples at Resize already."""
    own = cut(0, "own", [4.5] * 4, 1.5, 0.1, fetch=0.01, keep=0.3)
    later = cut(1, "Resize", [5.0] * 4, 1.0, 0.2, fetch=0.2, compressions=webp(0.1, 1.0, 0.6))
    data, cuts = cache_plan.read([data_set(), own, later, RANDOM])
    cache = SharedCache(1, RAM, 700, 150 * MB, share, **changes)
    return cache_plan.choose(data, cuts, [MEMORY], 10, (), [cache])


def test_samples_that_are_cached_already_cost_nothing_to_write() -> None:
    chosen = shared_of(1.0).chosen
    assert chosen is not None
    assert (chosen.cut.name, chosen.present, chosen.added_bytes) == ("Resize", 1.0, 0.0)
    # 5 ms before and 1 after become 0.2 and 1, also in the first epoch.
    assert chosen.first.mean == pytest.approx(1.2 * MS)
    assert chosen.later.mean == pytest.approx(1.2 * MS)
    assert (chosen.first_shares.hits, chosen.first_shares.written) == (1.0, 0.0)
    assert chosen.break_even == 1


def test_a_part_that_is_cached_already_counts_as_a_part() -> None:
    chosen = shared_of(0.25).chosen
    assert chosen is not None
    assert chosen.first_shares.hits == pytest.approx(0.25)
    assert chosen.first_shares.written == pytest.approx(0.75)
    # Of the first epoch, a quarter saves 4.8 ms and the rest adds 0.5.
    assert chosen.first.mean == pytest.approx((6 - 0.25 * 4.8 + 0.75 * 0.5) * MS)
    assert chosen.later.mean == pytest.approx(1.2 * MS)
    assert chosen.added_bytes == pytest.approx(0.75 * chosen.kept_bytes)


def test_a_cache_that_is_there_keeps_its_compression() -> None:
    methods = {
        each.compression for each in shared_of(1.0, compression="webp").offers if each.cut.number
    }
    assert methods == {"webp"}
    # What this program cannot read is not counted.
    planning = shared_of(1.0, compression="zstd")
    assert {each.present for each in planning.offers} == {0.0}
    assert {each.compression for each in planning.offers if each.cut.number} == {None, "webp"}


def test_a_cache_that_is_there_takes_of_the_budget() -> None:
    own = cut(1, "Resize", [5.0] * 4)
    data, cuts = cache_plan.read([data_set(), cut(0, "own", [4.0] * 4, 2.0), own])
    place = room_for(500)
    cache = SharedCache(1, RAM, 500, place.budget_bytes, 0.2)  # of which 300 are not this loader's
    offers = cache_plan.choose(data, cuts, [place], 10, (), [cache]).offers
    (offer,) = [each for each in offers if each.cut.number == 1]
    assert (offer.share, offer.added_bytes) == (pytest.approx(0.2), pytest.approx(0.0))


OTHER = {
    "event": "other_loader", "cut": 1, "overlap": 0.5, "number": None, "call_site": "a.py:5",
    "dataset": "Subset", "dataset_length": 9, "sampler": "RandomSampler",
}  # fmt: skip
OTHERS = shared_caches.other_loaders([OTHER, OTHER])


def test_what_is_shared_is_told() -> None:
    planning = shared_of(1.0, program="train.py")
    planning = replace(planning, others=OTHERS)
    text = " ".join(printed(planning, None).split())
    assert (
        "shared what comes from Resize is cached in RAM already, by train.py: 700 samples, "
        "143 MiB; with it, the first epoch reads all its samples from there, and writes none"
    ) in text
    assert "191 MiB of it are there already" in text
    assert "in the first epoch, which finds its samples cached" in text
    assert (
        "both the loader of Subset (9 samples, RandomSampler) at a.py:5 makes 50% of these samples "
        "as well, the same up to Resize: a cache of what comes from Resize serves both. Once it is "
        "filled, lotus plan --loader a.py:5 counts it"
    ) in text
    document = plan_report.document(planning)
    assert document["shared"][0]["present_share"] == 1.0
    assert document["other_loaders"][0]["overlap_share"] == 0.5

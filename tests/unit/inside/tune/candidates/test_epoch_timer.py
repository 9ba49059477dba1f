"""Epochs of a loader that are timed with cached samples and without, in this process."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from lotus.inside.apply import sample_caching
from lotus.inside.tune.candidates.trial_requests import TimeEpoch
from lotus.inside.tune.candidates.trials import Failed, Trials
from lotus.settings import sample_caches
from lotus.settings.tuned_file import SampleCache
from tests.unit.inside.tune.candidates.test_trials import setting, surroundings


class Rows(Dataset[Any]):
    """Sample i is i."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return torch.full((8,), float(index)), index


def cache(folder: Path) -> dict[str, Any]:
    made = SampleCache(
        path=None, cut=0, operations=(), folder=str(folder), budget_bytes=1 << 28,
        least_ns_per_byte=0.0,
    )  # fmt: skip
    return asdict(made)


@pytest.fixture
def trials() -> Iterator[Trials]:
    made = Trials(DataLoader(Rows(), batch_size=4, shuffle=True))
    yield made
    made.end()


@pytest.mark.parametrize(
    "own", [setting(0), setting(2), setting(2, persistent_workers=True)], ids=str
)
def test_an_epoch_has_its_batches_and_fills_its_cache(
    trials: Trials, own: dict[str, Any], tmp_path: Path
) -> None:
    before = surroundings()
    plain = trials.time_epoch(own, TimeEpoch(12, 0, None, False, 60.0))
    assert len(plain.batches_s) == 12
    assert 0 < plain.batches_s[0] <= plain.batches_s[-1] <= plain.total_s
    assert not list(tmp_path.iterdir())
    for filled in (False, True):
        timed = trials.time_epoch(own, TimeEpoch(8, 2, cache(tmp_path), filled, 60.0))
        assert len(timed.batches_s) == 8
        (folder,) = tmp_path.iterdir()
        cached = sample_caches.read(folder)
        # THEN its samples are cached, each once
        assert cached is not None
        assert cached.samples == 32
        assert cached.dropped is None
    trials.end()
    assert sample_caching.active is None
    assert surroundings() == before


class Logged(Rows):
    """Writes the index of each sample that it makes into a pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def __getitem__(self, index: int) -> Any:
        os.write(self.pipe, bytes([index]))
        return super().__getitem__(index)


@pytest.fixture
def logged() -> Iterator[tuple[Trials, Callable[[], list[int]]]]:
    """Trials on a loader without a sampler, and the samples that were made since it was asked."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    trials = Trials(DataLoader(Logged(writer), batch_size=4))
    yield trials, lambda: list(os.read(reader, 4096))
    trials.end()
    os.close(reader)
    os.close(writer)


def test_workers_that_persist_have_cached_nothing_when_the_filling_epoch_begins(
    logged: tuple[Trials, Callable[[], list[int]]], tmp_path: Path
) -> None:
    # GIVEN workers that make a batch each before an epoch of all samples is timed
    trials, made = logged
    own = setting(2, persistent_workers=True)
    trials.time_epoch(own, TimeEpoch(12, 0, cache(tmp_path), False, 60.0))
    # THEN all samples are made and written in that epoch
    assert len(made()) == 48 + 8
    (folder,) = tmp_path.iterdir()
    cached = sample_caches.read(folder)
    assert cached is not None
    assert cached.samples == 48
    trials.time_epoch(own, TimeEpoch(12, 0, cache(tmp_path), True, 60.0))
    assert len(set(made())) == 2  # that each worker compares


def test_an_epoch_begins_again_where_its_end_is_reached(
    logged: tuple[Trials, Callable[[], list[int]]],
) -> None:
    trials, made = logged
    timed = trials.time_epoch(setting(1), TimeEpoch(8, 1000, None, False, 60.0))
    assert (len(timed.batches_s), timed.drawn) == (8, 12)
    # THEN it has the batches 4 to 11, as 1,000 batches are 83 epochs and 4
    assert sorted(made()) == list(range(16, 48))
    trials.time_epoch(setting(1), TimeEpoch(8, 8, None, False, 60.0))
    assert sorted(made()) == [*range(16), *range(32, 48)]
    timed = trials.time_epoch(setting(1), TimeEpoch(99, 5, None, False, 60.0))
    assert (len(timed.batches_s), sorted(made())) == (12, list(range(48)))


@pytest.mark.parametrize(
    ("own", "warm"), [(setting(0), 4), (setting(2, persistent_workers=True), 2)], ids=str
)
def test_what_is_timed_was_not_read_just_before(
    logged: tuple[Trials, Callable[[], list[int]]],
    own: dict[str, Any],
    warm: int,
    tmp_path: Path,
) -> None:
    trials, made = logged
    for entry in (None, cache(tmp_path)):
        # GIVEN an epoch of the batches 5 to 8 of 12, and workers that are there already
        trials.time_epoch(own, TimeEpoch(4, 5, entry, False, 60.0))
        # THEN these warmed up with the batches before it, which are not timed next
        assert sorted(made()) == [*range(20 - 4 * warm, 20), *range(20, 36)]
    # WHERE an epoch leaves out fewer, some have to be its own
    trials.time_epoch(own, TimeEpoch(11, 0, None, False, 60.0))
    assert sorted(made())[-4:] == list(range(44, 48))


def test_workers_that_are_not_forked_are_not_timed_with_a_cache(
    trials: Trials, tmp_path: Path
) -> None:
    own = setting(1, start_method="spawn")
    with pytest.raises(Failed, match="not forked"):
        trials.time_epoch(own, TimeEpoch(8, 0, cache(tmp_path), False, 60.0))


class Broken(Rows):
    def __getitem__(self, index: int) -> Any:
        raise ValueError("this row is broken")


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_data_set_raises_is_the_reason(workers: int) -> None:
    trials = Trials(DataLoader(Broken(), batch_size=4))
    try:
        with pytest.raises(Failed, match="this row is broken"):
            trials.time_epoch(setting(workers), TimeEpoch(8, 0, None, False, 60.0))
    finally:
        trials.end()

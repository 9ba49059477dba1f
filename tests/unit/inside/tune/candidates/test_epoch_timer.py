"""Epochs of a loader that are timed with cached samples and without, in this process."""

from collections.abc import Iterator
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


def test_a_part_of_an_epoch_lies_within_it(trials: Trials) -> None:
    timed = trials.time_epoch(setting(0), TimeEpoch(8, 1000, None, False, 60.0))
    assert len(timed.batches_s) == 8


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

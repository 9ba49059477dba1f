"""Epochs that are replayed: read block by block, of long ones the beginning alone."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from lotus.analysis.common.scope import Scope, scopes
from lotus.analysis.replay import recorded_epochs as module
from lotus.analysis.replay.recorded_epochs import RecordedEpoch, recorded_epochs
from lotus.reading.run import load
from tests.logs import RunBuilder
from tests.simulation import simulate

BATCHES = 24


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """Two ranks of three epochs each."""
    builder = RunBuilder(tmp_path / "run")
    for rank in range(2):
        simulate(
            tmp_path / "run", batches=BATCHES, epochs=3, rank=rank, first_pid=100 * (rank + 1),
            step_ns=1_000_000 * (rank + 1), builder=builder,
        )  # fmt: skip
    return scopes(load(builder.end()))[0]


def same(mine: list[RecordedEpoch], theirs: list[RecordedEpoch]) -> None:
    assert len(mine) == len(theirs) == 6
    for each, whole in zip(mine, theirs, strict=True):
        for name in (field.name for field in fields(each)):
            np.testing.assert_array_equal(getattr(each, name), getattr(whole, name))


@pytest.mark.parametrize("batches", [1, BATCHES + 1])
def test_epochs_are_the_same_however_many_batches_are_joined_at_a_time(
    batches: int, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(recorded_epochs(scope))
    monkeypatch.setattr(module, "_BLOCK", batches)
    same(list(recorded_epochs(scope)), whole)


def test_of_a_long_epoch_the_first_batches_are_told(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(recorded_epochs(scope))
    monkeypatch.setattr(module, "_MOST_BATCHES", 20)
    first = list(recorded_epochs(scope))
    assert [len(epoch.made) for epoch in first] == [20] * 6
    # All but the delivery, which the batches tell that are read.
    for each, other in zip(first, whole, strict=True):
        for name in ("made", "fetch", "step", "wait"):
            np.testing.assert_array_equal(getattr(each, name), getattr(other, name)[:20])


def test_a_gap_at_the_end_of_those_batches_is_seen_where_later_ones_were_taken(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_BATCHES", 20)
    waits = scope.waits
    gap = waits["batch"] == 19
    # Batch 19 has no wait: the epoch goes on, so that one of its batches is missing.
    object.__setattr__(scope, "waits", waits[~gap].reset_index(drop=True))
    assert not list(recorded_epochs(scope))
    # Where none after it was taken, the epoch ended before it.
    object.__setattr__(scope, "waits", waits[waits["batch"] < 19].reset_index(drop=True))
    assert [len(epoch.made) for epoch in recorded_epochs(scope)] == [19] * 6

"""What a fetch tells of a batch: its bytes, and the indices that it was made of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lotus.inside.trace.fetches.fetch_hooks import size_in_bytes
from lotus.inside.trace.native.native_hooks import PYTHON
from tests.unit.fetches import Fetches, Numbers

PIXELS = np.zeros((2, 3), np.int32)  # 24 bytes


class Sly(list[Any]):
    """A list of the program whose methods must not be run."""

    def __iter__(self) -> Any:
        raise AssertionError

    __len__ = __getitem__ = copy = __iter__


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (PIXELS, 24),
        ([PIXELS, PIXELS], 48),
        ((PIXELS, {"label": [PIXELS, 5, 2.5, None]}), 48),
        (Sly([PIXELS]), 24),
        ([PIXELS] * 100, 64 * 24),
        ([[[PIXELS]]], 24),
        ([[[[PIXELS]]]], 0),
        (["four", b"fives", True, object()], 9),
        (7, 0),
    ],
)
def test_bytes_of_a_batch(batch: Any, size: int) -> None:
    assert size_in_bytes(batch) == size


@pytest.mark.parametrize("hooks", [PYTHON, "c"])
def test_indices_are_those_that_the_fetch_was_given(tmp_path: Path, hooks: str) -> None:
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    indices = [3, 1 << 31]

    def use_up(index: int) -> None:
        """The program changes the list while it is fetched."""
        indices[1] = 8

    fetch = fetches.fetcher(Numbers(use_up), loader=0)
    fetch(0, indices)
    fetch(2, (1 << 40, 2))
    fetches.recorder.flush_batch(1)
    run = fetches.end()
    samples = run.samples.groupby("batch")["sample"].agg(list)
    assert samples.to_dict() == {0: [3, 1 << 31], 2: [1 << 40, 2]}

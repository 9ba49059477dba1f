"""The lanes of a timeline on which iterations of one loader lie side by side."""

import random
from typing import Any

import pandas as pd

from lotus.export.timelines.tracks import Tracks


class Lanes(Tracks):
    """Tracks without a run, identified by their keys."""

    def __init__(self) -> None:
        pass

    def _add(self, key: tuple[Any, ...], *where: Any) -> int:  # type: ignore[override]
        return key[3]

    def _prefix(self, number: int) -> str:
        return ""

    def loader(self, rank: int, loader: int) -> str:
        return ""


def spread(rows: list[tuple[int, int]]) -> list[int]:
    frame = pd.DataFrame(sorted(rows), columns=["start_ns", "end_ns"])
    return Lanes()._spread(frame.assign(number=0, loader=0, rank=0))


def test_each_iteration_has_the_first_lane_that_is_free() -> None:
    dice = random.Random(3)
    for _ in range(50):
        starts = [dice.randrange(100) for _ in range(30)]
        rows = sorted((start, start + dice.randrange(30)) for start in starts)
        ends: list[int] = []
        expected = []
        for start, end in rows:
            lane = next((at for at, until in enumerate(ends) if until <= start), len(ends))
            ends[lane : lane + 1] = [end]
            expected.append(lane)
        assert spread(rows) == expected


def test_thousands_that_overlap_are_not_held_against_each_other() -> None:
    count = 100_000  # of which each pair would be five billion
    assert spread([(at, 1 << 62) for at in range(count)]) == list(range(count))

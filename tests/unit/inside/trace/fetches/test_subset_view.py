"""Parts of a data set: their single samples are timed, and torch's own code makes their batches."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import Dataset, Subset

from lotus.inside.trace.fetches.subset_view import SubsetView, view_of


class Squares(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        if index < 0:
            raise ValueError(index)
        return index * index


class Batches(Squares):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


class Own(Subset[int]):
    pass


class Timed:
    def __init__(self, data: Any) -> None:
        self.data, self.asked = data, []  # type: ignore[var-annotated]

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return self.data[index]


def test_each_sample_of_a_part_is_asked_for_by_its_index_in_the_data_set() -> None:
    timed = Timed(Squares())
    part = Subset(Squares(), [5, 3, 8])
    view = view_of(part, lambda data: timed)
    assert view is not None
    assert view.__getitems__([2, 0]) == part.__getitems__([2, 0]) == [64, 25]
    assert timed.asked == [8, 5]
    # what the program changes meanwhile counts
    part.indices = [1, 2, 4]
    assert view.__getitems__([2, 0]) == [16, 1]
    part.dataset = Subset(Squares(), [9] * 9)
    assert view.__getitems__([2, 0]) == [81, 81]
    assert timed.asked == [8, 5, 4, 1]


def test_parts_of_parts_are_seen_through() -> None:
    made: list[Timed] = []

    def timed(data: Any) -> Timed:
        made.append(Timed(data))
        return made[-1]

    part = Subset(Subset(Squares(), [5, 3, 8]), [2, 1])
    view = view_of(part, timed)
    assert view is not None
    assert view.__getitems__([1, 0]) == [9, 64]
    assert [each.asked for each in made] == [[3, 8]]


def with_own_method() -> Subset[int]:
    part = Subset(Squares(), [1])
    part.__dict__["__getitems__"] = lambda indices: []
    return part


def endless() -> Subset[int]:
    part: Any = Subset(Squares(), [0])
    part.dataset = part
    return part  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "make",
    [
        Squares,
        lambda: Subset(Batches(), [1]),
        lambda: Own(Squares(), [1]),
        with_own_method,
        endless,
    ],
)
def test_what_makes_batches_in_another_way_is_left_alone(make: Callable[[], Any]) -> None:
    assert view_of(make(), Timed) is None


def test_a_replaced_method_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Subset, "__getitems__", lambda self, indices: [])
    assert view_of(Subset(Squares(), [1]), Timed) is None


def test_errors_come_as_from_the_part_itself_and_the_data_set_is_freed_at_once() -> None:
    part = Subset(Squares(), [-1])
    view = view_of(part, Timed)
    assert isinstance(view, SubsetView)
    for makes in (part, view):
        with pytest.raises(ValueError, match="-1") as caught:
            makes.__getitems__([0])
        assert "__getitems__" in [entry.name for entry in caught.traceback]
    del caught, makes
    data = Squares()
    freed = weakref.ref(data)
    view = view_of(Subset(data, [1]), Timed)
    assert view is not None
    assert view.__getitems__([0]) == [1]
    del data, view
    assert freed() is None

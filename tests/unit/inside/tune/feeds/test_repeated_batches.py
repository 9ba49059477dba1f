"""Batches that are given again, whatever a step did to them, and indices that never end."""

import dataclasses
import itertools
from collections import defaultdict, namedtuple
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lotus.inside.tune.feeds import endless_indices
from lotus.inside.tune.feeds.endless_indices import EndlessIndices
from lotus.inside.tune.feeds.repeated_batches import RepeatedBatches
from lotus.inside.tune.feeds.unsent_batches import UnsentIndices

Pair = namedtuple("Pair", "images labels")


@dataclasses.dataclass
class Own:
    """A batch class of a program."""

    images: Any


def batch() -> Any:
    images = torch.arange(6.0).reshape(2, 3)
    return {
        "images": images,
        "pair": Pair(torch.ones(2), [torch.zeros(2)]),
        "own": Own(torch.full((2,), 3.0)),
        "array": numpy.arange(4),
        "names": ["a", "b"],
    }


def spoil(given: Any) -> None:
    """What steps do to batches."""
    given["images"].mul_(5).requires_grad_()
    given["pair"].labels[0].add_(1)
    given["pair"].labels.clear()
    given["own"].images.zero_()
    given["own"].images = None
    given["array"][:] = 7
    given["names"].append("c")
    given.pop("pair")


def same(one_batch: Any, other: Any) -> bool:
    return (
        one_batch.keys() == other.keys()
        and torch.equal(one_batch["images"], other["images"])
        and one_batch["images"].requires_grad == other["images"].requires_grad
        and torch.equal(one_batch["pair"].images, other["pair"].images)
        and torch.equal(one_batch["pair"].labels[0], other["pair"].labels[0])
        and torch.equal(one_batch["own"].images, other["own"].images)
        and bool((one_batch["array"] == other["array"]).all())
        and one_batch["names"] == other["names"]
    )


def test_a_step_gets_the_batch_as_it_was_whatever_it_did_before() -> None:
    kept, first = RepeatedBatches(), batch()
    kept.keep(first)
    spoil(first)  # the program has it first
    for _ in range(3):
        given = kept.give()
        assert same(given, batch())
        assert type(given["pair"]) is Pair
        spoil(given)


def test_what_is_not_changed_is_not_copied() -> None:
    kept, images = RepeatedBatches(), torch.ones(3)
    kept.keep([images])
    assert kept.give()[0].data_ptr() == images.data_ptr()


def test_batches_come_in_turn_and_only_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = RepeatedBatches()
    with pytest.raises(IndexError, match="no batch was kept"):
        kept.give()
    for number in itertools.count():
        if kept.full():
            break
        kept.keep(torch.tensor([number]))
    assert len(kept) == 8
    assert [int(kept.give()) for _ in range(10)] == [*range(8), 0, 1]
    monkeypatch.setattr("lotus.inside.tune.feeds.repeated_batches._MOST_BYTES", 1)
    one_only = RepeatedBatches()
    for _ in range(2):
        one_only.keep(torch.ones(2))
    assert (len(one_only), one_only.full()) == (1, True)


def test_tensors_of_inference_mode_are_put_back_too() -> None:
    kept = RepeatedBatches()
    with torch.inference_mode():
        kept.keep(torch.ones(2))
        kept.give().mul_(3)
        assert kept.give().tolist() == [1, 1]


def test_an_epoch_of_indices_begins_again() -> None:
    indices = EndlessIndices(iter([[0], [1], [2]]), again=2)
    assert [next(indices) for _ in range(3)] == [[0], [1], [2]]
    assert not indices.wrapped
    assert [next(indices) for _ in range(4)] == [[0], [1], [2], [0]]
    assert indices.wrapped


def test_indices_repeat_while_they_shall_and_go_on_where_they_were() -> None:
    indices = EndlessIndices(iter([[number] for number in range(9)]), again=2)
    assert [next(indices) for _ in range(4)] == [[0], [1], [2], [3]]
    indices.repeats = True
    assert {tuple(next(indices)) for _ in range(5)} == {(2,), (3,)}
    indices.repeats = False
    assert next(indices) == [4]


def test_indices_since_a_mark_repeat_also_where_the_epoch_has_begun_again() -> None:
    indices = EndlessIndices(iter([[number] for number in range(5)]), again=2)
    assert [next(indices) for _ in range(4)] == [[0], [1], [2], [3]]
    indices.mark()
    assert [next(indices) for _ in range(3)] == [[4], [0], [1]]
    indices.repeats = True
    assert {tuple(next(indices)) for _ in range(6)} == {(4,), (0,), (1,)}
    indices.repeats = False
    assert next(indices) == [2]
    indices.mark()
    indices.repeats = True  # none since: the latest ones
    assert {tuple(next(indices)) for _ in range(4)} == {(3,), (4,)}


def test_indices_of_batches_that_are_not_sent_are_marked_also_of_streams() -> None:
    for again in (2, 0):
        indices = EndlessIndices(iter([[number] for number in range(3)]), again)
        assert type(next(indices)) is list
        indices.unsent = True
        marked = next(indices)
        assert (type(marked), list(marked)) == (UnsentIndices, [1])
    indices.repeats = True  # a stream goes on
    assert next(indices) == [2]
    with pytest.raises(StopIteration):
        next(indices)


def test_an_epoch_never_ends_once_and_with_the_batches_that_were_left_of_it() -> None:
    loader = DataLoader(TensorDataset(torch.arange(4)), batch_size=1)
    iterator = iter(loader)
    next(iterator)
    for _ in range(2):
        endless_indices.never_end(loader, iterator, lambda: True)
    assert [int(batch) for (batch,) in itertools.islice(iterator, 7)] == [1, 2, 3, 1, 2, 3, 1]


def test_another_epoch_begins_where_workers_have_all_batches_in_flight() -> None:
    loader = DataLoader(TensorDataset(torch.arange(3)), batch_size=1)
    iterator = iter(loader)
    assert len([next(iterator) for _ in range(3)]) == 3
    endless_indices.never_end(loader, iterator, lambda: True)
    assert [int(batch) for (batch,) in itertools.islice(iterator, 7)] == [0, 1, 2, 0, 1, 2, 0]


def test_an_epoch_ends_once_nobody_asks_for_more_of_it() -> None:
    loader, asked = DataLoader(TensorDataset(torch.arange(3)), batch_size=1), [True, False]
    iterator = iter(loader)
    endless_indices.never_end(loader, iterator, lambda: asked.pop(0))
    assert [int(batch) for (batch,) in iterator] == [0, 1, 2, 0, 1, 2]


def test_no_indices_at_all_are_the_end() -> None:
    with pytest.raises(StopIteration):
        next(EndlessIndices(iter([]), again=2))


def again(value: Any) -> tuple[Any, Any]:
    """A batch of the program, and how it is given for the second time."""
    repeated = RepeatedBatches()
    repeated.keep(value)
    repeated.give()
    return value, repeated.give()


def test_scalars_of_numpy_and_arrays_that_cannot_be_changed_are_given_as_they_are() -> None:
    labels, fixed = [numpy.float64(1.5), numpy.int64(2)], numpy.frombuffer(b"abcd", numpy.uint8)
    _, given = again([torch.zeros(2), labels, fixed])
    assert given[1] == labels
    assert given[2] is fixed


def test_containers_of_a_class_of_their_own_are_given_whole() -> None:
    made = defaultdict(list, meta=[1], images=[torch.ones(2)])
    repeated = RepeatedBatches()
    repeated.keep(made)
    first = repeated.give()
    first.pop("meta")
    first["images"][0].zero_()
    second = repeated.give()
    assert type(second) is defaultdict
    assert second["meta"] == [1]
    assert second["images"][0].tolist() == [1.0, 1.0]


def test_a_tensor_keeps_whether_it_requires_a_gradient() -> None:
    _, given = again([torch.ones(2, requires_grad=True), torch.ones(2)])
    assert [tensor.requires_grad for tensor in given] == [True, False]
    given[0].sum().backward()

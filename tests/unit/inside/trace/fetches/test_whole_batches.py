"""How many samples a whole batch holds is told by its shape, or not at all."""

import collections
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lotus.inside.trace.fetches import whole_batches


class Tensor:
    """As torch's, of which only the shape may be read."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def __len__(self) -> int:
        raise AssertionError


class OfProgram(Tensor):
    pass


class Strange(dict[str, Any]):
    def values(self) -> Any:
        raise AssertionError


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    modes = SimpleNamespace(_len_torch_function_stack=int, _len_torch_dispatch_stack=int)
    module = SimpleNamespace(Tensor=Tensor, _C=modes)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def encoding(**parts: object) -> "collections.UserDict[str, object]":
    return collections.UserDict(parts)


BATCHES = {
    "a tensor": (Tensor(8, 5), 8),
    "images": (Tensor(8, 3, 224, 224), 8),
    "images and labels": ((Tensor(8, 3, 32, 32), Tensor(8)), 8),
    "in a list": ([Tensor(8, 3, 32, 32), Tensor(8)], 8),
    "an array and labels": ((np.zeros((6, 2)), np.zeros(6)), 6),
    "with keys": ({"__key__": ["a", "b"], "image": Tensor(2, 3, 8, 8)}, 2),
    "a dictionary with methods of its own": (Strange(x=Tensor(4, 7), y=Tensor(4)), 4),
    "tokens": (encoding(input_ids=Tensor(16, 512), mask=Tensor(16, 512)), 16),
    "one sample in a batch": ((Tensor(1, 3, 32, 32), Tensor(1)), 1),
}
UNSURE = {
    "a vector": Tensor(8),
    "an image": Tensor(3, 224, 224),
    "an image and its number": (Tensor(3, 32, 32), 7),
    "an image and its label": (Tensor(3, 32, 32), Tensor()),
    "an image and its text": {"image": Tensor(3, 32, 32), "__key__": "a"},
    "tokens of one text": {"input_ids": Tensor(512), "mask": Tensor(512)},
    "parts that differ": (Tensor(8, 3), Tensor(7)),
    "samples in a list": [{"x": Tensor(8, 2)}, {"x": Tensor(8, 2)}],
    "a class of the program": OfProgram(8, 5),
    "an object": object(),
    "nothing": (),
    "numbers": [1, 2, 3],
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_counted(name: str) -> None:
    batch, count = BATCHES[name]
    assert whole_batches.samples_of(batch) == count


@pytest.mark.parametrize("name", UNSURE)
def test_what_may_be_one_sample_is_not(name: str) -> None:
    assert whole_batches.samples_of(UNSURE[name]) is None


def test_no_shape_is_read_where_the_program_would_see_it(torch: SimpleNamespace) -> None:
    torch._C._len_torch_function_stack = lambda: 1
    assert whole_batches.samples_of(Tensor(8, 5)) is None

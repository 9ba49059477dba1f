"""Attributes of WorkerInfo that tell whether they were read, on classes as those of torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.trace.loaders import worker_identity


@dataclass(frozen=True, slots=True)
class Slotted:
    """As in torch 2.9."""

    id: int
    num_workers: int
    seed: int
    dataset: object = None


class Plain:
    """As in older versions."""

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.closed = True

    def __setattr__(self, name: str, value: object) -> None:
        if "closed" in self.__dict__:
            raise RuntimeError("read only")
        super().__setattr__(name, value)


@pytest.fixture(params=[Slotted, Plain])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = SimpleNamespace(WorkerInfo=request.param)
    monkeypatch.setitem(worker_identity.sys.modules, "torch.utils.data._utils.worker", module)
    monkeypatch.setattr(worker_identity, "_asked", True)
    before = dict(vars(request.param))
    yield request.param
    worker_identity._restore(request.param)
    assert dict(vars(request.param)) == before


@pytest.mark.parametrize("name", ["id", "num_workers", "seed"])
def test_reading_one_is_noted_and_leaves_the_class_as_it_was(kind: Any, name: str) -> None:
    before = dict(vars(kind))
    worker_identity.watch(prepared=False)
    info = kind(id=1, num_workers=3, seed=7)
    assert not worker_identity.reads_worker_info()
    assert getattr(info, name) == {"id": 1, "num_workers": 3, "seed": 7}[name]
    assert worker_identity.reads_worker_info()
    assert dict(vars(kind)) == before
    assert (info.id, info.num_workers, info.seed) == (1, 3, 7)
    with pytest.raises((RuntimeError, AttributeError)):
        info.id = 2


def test_what_says_nothing_about_the_worker_is_not_noted(kind: Any) -> None:
    worker_identity.watch(prepared=False)
    info = kind(id=1, num_workers=3, seed=7, dataset="data")
    assert info.dataset == "data"
    assert isinstance(info, kind)
    with pytest.raises((RuntimeError, AttributeError)):
        info.id = 2
    assert not worker_identity.reads_worker_info()


def test_a_worker_that_a_function_prepares_is_taken_to_know(kind: Any) -> None:
    worker_identity.watch(prepared=True)
    kind(id=1, num_workers=3, seed=7)
    assert worker_identity.reads_worker_info()


def test_where_torch_has_no_such_class_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_identity, "_asked", True)
    monkeypatch.setitem(
        worker_identity.sys.modules, "torch.utils.data._utils.worker", SimpleNamespace()
    )
    worker_identity.watch(prepared=False)
    assert worker_identity.reads_worker_info()

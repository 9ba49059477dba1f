"""Checksums of first batches: they tell equal from different, and advance no generator."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lotus.inside.trace.fetches.first_batches import (
    content_of,
    generator_states,
    sizes_of,
    values_of,
    watch,
)

torch = pytest.importorskip("torch")


class Recorder:
    on, worker = True, 0

    def __init__(self) -> None:
        self.events: list[object] = []

    def event(self, event: object) -> None:
        self.events.append(event)

    def fault(self, error: BaseException) -> None:
        raise error


class Transform:
    def __init__(self) -> None:
        self.draws = random.Random(3)


class Data:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.old = np.random.RandomState(seed)
        self.own = torch.Generator().manual_seed(seed)
        self.transforms = [Transform()]


def test_the_generators_of_a_data_set_are_named() -> None:
    names = set(generator_states(Data(0)))
    assert {"dataset.rng", "dataset.old", "dataset.own", "dataset.transforms.0.draws"} <= names
    assert {"random", "numpy.random", "torch"} <= names


def test_the_state_is_the_seed_s_and_looking_does_not_change_it() -> None:
    data = Data(0)
    before = generator_states(data)
    assert generator_states(data) == before
    same, other = generator_states(Data(0)), generator_states(Data(1))
    for name in ("dataset.rng", "dataset.old", "dataset.own"):
        assert before[name] == same[name] != other[name]
    data.rng.normal()
    after = generator_states(data)
    assert {name for name in before if after[name] != before[name]} == {"dataset.rng"}


def test_a_generator_of_the_program_s_own_kind_is_not_asked() -> None:
    class Own(random.Random):
        def getstate(self) -> tuple[object, ...]:
            raise AssertionError

    data = Data(0)
    data.__dict__["own"] = Own()
    assert "dataset.own" not in generator_states(data)


class Timed:
    """In place of a TimedFetcher."""

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        self.fetch = fetch


def test_a_mode_of_the_program_does_not_see_our_calls() -> None:
    seen: list[str] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    timed, recorder = Timed(lambda index: 5), Recorder()
    watch(timed, Data(0), recorder)
    with Mode():
        assert timed.fetch([0]) == 5
    assert seen == []
    assert recorder.events == []
    watch(timed, Data(0), recorder)
    assert timed.fetch([0]) == 5
    assert len(recorder.events) == 1


def test_contents_are_told_apart() -> None:
    first = {"x": torch.arange(12).reshape(3, 4), "names": ["a", "b"], "y": np.arange(3.0)}
    again = {"x": torch.arange(12).reshape(3, 4), "names": ["a", "b"], "y": np.arange(3.0)}
    other = {**again, "names": ["a", "c"]}
    assert content_of(first) == content_of(again) != content_of(other)


@pytest.mark.parametrize("batch", [None, [], torch.zeros(4, 4), [torch.ones(3), torch.ones(2)]])
def test_what_holds_nothing_of_its_own_has_no_checksum(batch: object) -> None:
    assert content_of(batch) is None


def test_a_large_data_set_is_not_walked_whole() -> None:
    looked_at = []

    class Node(list):  # type: ignore[type-arg]
        pass

    class Counted(dict):  # type: ignore[type-arg]
        def items(self) -> object:  # never called: no code of the program runs
            looked_at.append(1)
            return super().items()

    data = Data(0)
    data.__dict__["tree"] = [[[object()] * 100 for _ in range(100)] for _ in range(100)]
    data.__dict__["own"] = [Node(), Counted()]
    assert "dataset.rng" in generator_states(data)
    assert not looked_at


def test_what_would_have_to_be_copied_whole_is_left_out() -> None:
    assert content_of(torch.arange(12.0).reshape(3, 4).t()) is None
    assert content_of(np.arange(12.0).reshape(3, 4).T) is None
    assert content_of(torch.arange(12.0)) is not None


def test_no_code_of_a_metaclass_runs() -> None:
    class Meta(type):
        def __getattr__(cls, name: str) -> object:
            raise AssertionError(name)

    class Held(metaclass=Meta):
        pass

    data = Data(0)
    data.__dict__["held"] = Held()
    assert "dataset.rng" in generator_states(data)


def test_views_have_the_size_of_what_they_are_views_of() -> None:
    whole = torch.zeros(1000, 8)
    batch = {"crops": [whole[:2], whole[5:6]], "labels": torch.zeros(3), "names": ["a"]}
    assert sizes_of(batch) == (3 * 32 + 12, 32_000 + 12)
    assert sizes_of([torch.zeros(4), torch.zeros(4).clone()]) == (32, 32)
    assert sizes_of({"text": "a"}) == (0, 0)


def test_doubles_and_zeros_of_large_tensors_are_counted() -> None:
    padded = torch.zeros(40, 3000)
    padded[:, :300] = 1.0
    doubles, zeros = values_of({"rows": padded, "labels": torch.ones(40, dtype=torch.float64)})
    assert doubles == 320
    assert zeros == pytest.approx(0.9, abs=0.02)
    doubles, zeros = values_of([padded.to(torch.float64), torch.ones(120_000)])
    assert doubles == 960_000
    assert zeros == pytest.approx(0.6, abs=0.02)
    assert values_of([padded.bool(), padded.to(torch.bfloat16)])[1] == pytest.approx(0.9, abs=0.02)
    assert values_of({"text": "a", "few": torch.zeros(9), "turned": padded.T}) == (0, None)

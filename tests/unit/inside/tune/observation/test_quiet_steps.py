"""Steps of a program whose workers have nothing to do, and that it gets all its batches."""

import inspect
import itertools
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from lotus.inside.tune.agent import Agent
from lotus.inside.tune.candidates.trials.trials import Trials
from lotus.inside.tune.observation import idle_workers
from lotus.inside.tune.observation.observer import LoaderObserver
from lotus.inside.tune.observation.quiet_steps import Quiet

BATCHES = 16


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)


class Held(Numbers):
    """Its first sample is made once `go` is set."""

    def __init__(self) -> None:
        self.go = multiprocessing.get_context("fork").Event()

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            self.go.wait()
        return super().__getitem__(index)


class Draws(Sampler[int]):
    """Asks `look` before each index, which may raise."""

    def __init__(self, look: Callable[[int], object]) -> None:
        self.look, self.index = look, -1

    def __len__(self) -> int:
        return 2 * BATCHES

    def __iter__(self) -> "Draws":
        return self

    def __next__(self) -> int:
        self.index += 1
        if self.index >= len(self):
            raise StopIteration
        self.look(self.index)
        return self.index


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(2 * BATCHES))


def loader(**others: Any) -> Any:
    return DataLoader(
        Numbers(),
        batch_size=2,
        shuffle=True,
        num_workers=2,
        generator=torch.Generator().manual_seed(3),
        **others,
    )


def take(iterator: Any, count: int | None = None) -> list[Any]:
    return [batch.tolist() for batch in itertools.islice(iterator, count)]


def test_workers_rest_and_no_batch_is_lost() -> None:
    expected = take(iter(loader()))
    iterator = iter(loader())
    got = take(iterator, 3)
    quiet = Quiet(iterator)
    assert quiet.on
    sent = iterator._send_idx
    while quiet.on:
        # Each that was asked for is made: nobody works.
        early = sum(len(info) == 2 for info in iterator._task_info.values())
        assert iterator._worker_result_queue.qsize() + early == (
            iterator._send_idx - iterator._rcvd_idx
        )
        assert iterator._send_idx == sent
        got += take(iterator, 1)
        quiet.steps.append(0.0)
        quiet.goes_on()
    assert len(quiet.steps) == 4  # two workers, two batches ahead
    assert iterator._send_idx == sent + 4
    assert got + take(iterator) == expected


def test_they_are_some_only() -> None:
    iterator = iter(loader(prefetch_factor=8))
    got = take(iterator, 1)
    quiet = Quiet(iterator)
    while quiet.on:
        got += take(iterator, 1)
        quiet.steps.append(0.0)
        quiet.goes_on()
    assert len(quiet.steps) == 8
    assert got + take(iterator) == take(iter(loader()))


def test_an_epoch_that_is_left_meanwhile() -> None:
    for persistent in (False, True):
        plain, other = (loader(persistent_workers=persistent) for _ in range(2))
        expected = [take(iter(plain), 4), take(iter(plain)), take(iter(plain))]
        iterator = iter(other)
        got = take(iterator, 2)
        quiet = Quiet(iterator)
        got += take(iterator, 2)
        assert quiet.on
        if persistent:
            quiet.end(iterator)  # as its hook does before torch begins anew
            assert iter(other) is iterator
            epochs = [got, take(iterator), take(iter(other))]
        else:
            epochs = [got, take(iter(other)), take(iter(other))]
            quiet.end(iter(other))  # hands on to workers that nobody asks any more
        assert epochs == expected
        assert not quiet.on


def test_where_there_is_nothing_to_keep_back() -> None:
    stream: Any = iter(DataLoader(Stream(), batch_size=2, num_workers=1))
    alone: Any = iter(DataLoader(Numbers(), batch_size=2))
    for iterator in (stream, alone):
        next(iterator)
        quiet = Quiet(iterator)
        assert not quiet.on
        assert len(take(iterator)) == BATCHES - 1


def rest_of(iterator: Any) -> list[Any]:
    """All that the program gets, with steps beside which nobody works, and what it meets."""
    quiet, got = Quiet(iterator), []
    for _ in range(2 * BATCHES):
        try:
            got += take(iterator, 1) or ["end"]
        except ValueError as error:
            got.append(str(error))
        if quiet.on:
            quiet.steps.append(0.0)
            quiet.goes_on()
    assert quiet.steps
    return got


@pytest.mark.skipif(
    "in_order" not in inspect.signature(DataLoader).parameters, reason="torch has no in_order"
)
def test_batches_that_come_out_of_order() -> None:
    data = Held()
    iterator: Any = iter(DataLoader(data, batch_size=2, num_workers=2, in_order=False))
    got = take(iterator, 1)
    while iterator._worker_result_queue.qsize() < 2:  # of the worker that is not held
        time.sleep(0.001)
    data.go.set()
    got += rest_of(iterator)
    assert sorted(item for item in got if item != "end") == [
        [2 * n, 2 * n + 1] for n in range(BATCHES)
    ]


def test_the_sampler_is_asked_when_torch_asks() -> None:
    def draws(watched: bool) -> list[tuple[int, int]]:
        taken: list[Any] = []
        drawn: list[tuple[int, int]] = []

        def look(index: int) -> None:
            drawn.append((index, len(taken)))

        iterator: Any = iter(
            DataLoader(Numbers(), batch_size=2, sampler=Draws(look), num_workers=2)
        )
        quiet = Quiet(iterator) if watched else None
        while batch := take(iterator, 1):
            taken += batch
            if quiet is not None and quiet.on:
                quiet.steps.append(0.0)
                quiet.goes_on()
        assert quiet is None or quiet.steps
        return drawn

    assert draws(True) == draws(False)


def test_what_the_sampler_raises_is_raised_as_ever() -> None:
    def made() -> Any:
        def look(index: int) -> None:
            if index in (6, 9):
                raise ValueError(f"no {index}")

        return iter(DataLoader(Numbers(), batch_size=None, sampler=Draws(look), num_workers=2))

    plain, got = made(), []
    for _ in range(2 * BATCHES):
        try:
            got += take(plain, 1) or ["end"]
        except ValueError as error:
            got.append(str(error))
    assert rest_of(made()) == got
    assert {"no 6", "no 9"} <= {item for item in got if isinstance(item, str)}


def test_an_epoch_begins_when_another_loader_is_the_chosen_one(tmp_path: Path) -> None:
    own = loader(persistent_workers=True)
    settings = {"exchange": str(tmp_path / "none"), "loader": 7, "watch": None, "apply": True}
    agent = Agent({"LOTUS_TUNE": json.dumps(settings)})
    agent.observer = LoaderObserver(own)
    iterator = iter(own)
    agent.observer.quiet = Quiet(iterator)
    take(iterator, 2)
    assert agent.observer.quiet.on
    agent.epoch_begins(own, iterator, 0.0)
    assert not agent.observer.quiet.on
    iterator._reset(own)
    assert len(take(iterator)) == BATCHES


def test_no_more_threads_than_cores_work_at_once(tmp_path: Path) -> None:
    own: Any = DataLoader(Numbers(), batch_size=2)
    settings = {"exchange": str(tmp_path / "none"), "loader": 0, "watch": None, "apply": True}
    agent = Agent({"LOTUS_TUNE": json.dumps(settings)})
    observer = LoaderObserver(own)
    observer.steps, observer.cpu, observer.waits, observer.sizes = [0.02], [0.04], [0.0], [2]
    trials = Trials(own)
    before, cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
    torch.set_num_threads(cores + 2)
    try:
        fields = agent.session().describe(trials, observer, [])
    finally:
        torch.set_num_threads(before)
    assert fields["threads"] == cores + 2
    step: Any = trials.step
    assert step.threads == cores


def test_not_where_workers_get_indices_in_another_way() -> None:
    kind: Any = torch.utils.data.dataloader._MultiProcessingDataLoaderIter

    class Own(kind):  # type: ignore[misc]
        def _next_index(self) -> Any:
            return super()._next_index()

    iterator = Own(loader())
    take(iterator, 1)
    assert not Quiet(iterator).on


def test_not_where_its_workers_do_not_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_workers, "_IDLE_S", 0.05)
    data = Held()
    iterator: Any = iter(DataLoader(data, batch_size=2, num_workers=2))
    assert not Quiet(iterator).on
    data.go.set()
    assert len(take(iterator)) == BATCHES


def test_what_a_signal_raises_while_workers_come_to_rest() -> None:
    def handler(number: int, frame: object) -> None:
        raise TimeoutError("of the program")

    data = Held()
    iterator: Any = iter(DataLoader(data, batch_size=2, num_workers=2))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(TimeoutError, match="of the program"):  # noqa: PT012
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            Quiet(iterator)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    data.go.set()
    assert len(take(iterator)) == BATCHES

"""A thread whose time slice is over loses its core where its CPU time is read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.trace import recorder as recorder_module
from lotus.inside.trace.loaders import loader_hooks
from lotus.inside.trace.loaders.iterations import KEY, Iteration
from tests.unit.fetches import Fetches, Numbers

_MS = 1_000_000
_AWAY_NS = 10 * _MS


class BusyCore:
    """A core that another thread takes for 10 ms after each slice, once the kernel looks."""

    def __init__(self) -> None:
        self.now = self.used = self.delay = 0
        self.slice_is_over = False

    def work(self, ns: int) -> None:
        self.now += ns
        self.used += ns
        self.slice_is_over = True

    def clock(self) -> int:
        self.now += 1
        return self.now

    def cpu_clock(self) -> int:
        if self.slice_is_over:
            self.slice_is_over = False
            self.now += _AWAY_NS
            self.delay += _AWAY_NS
        return self.used

    def read(self) -> tuple[int, ...]:
        """As rusage.reading, whose first number is the delay."""
        delay, cpu = self.delay, self.cpu_clock()
        return delay, cpu, cpu, 0, 0, 0, 0, 0


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> BusyCore:
    core = BusyCore()
    for module in (recorder_module, loader_hooks):
        monkeypatch.setattr(module, "clock", core.clock)
        monkeypatch.setattr(module, "cpu_clock", core.cpu_clock)
    return core


def fetches_on(core: BusyCore, path: Path) -> Fetches:
    fetches = Fetches(path / "R")
    recorder = fetches.recorder
    recorder.read = core.read
    recorder._spent = lambda before: (0, 0, 0, 0, 0, 0, core.read()[0] - before[0], 0)
    return fetches


def test_a_core_that_is_lost_before_a_fetch_is_no_delay_of_the_fetch(
    core: BusyCore, tmp_path: Path
) -> None:
    fetches = fetches_on(core, tmp_path)
    fetch = fetches.fetcher(Numbers(lambda index: core.work(_MS)), loader=0)
    for batch in range(3):
        core.work(_MS)
        fetch(batch, [batch])
    fetches.recorder.flush_batch(core.clock())
    assert fetches.end().batches["run_delay_ns"].tolist() == [0, 0, 0]


def test_a_core_that_is_lost_after_a_step_is_a_delay_of_the_step(
    core: BusyCore, tmp_path: Path
) -> None:
    # GIVEN steps whose slice is over as `next` is called, and waits that use no core
    fetches = fetches_on(core, tmp_path)
    recorder = fetches.recorder

    def original(self: Any) -> int:
        core.now += _MS
        return 0

    next_data = loader_hooks.next_data(original, SimpleNamespace(recorder=recorder))  # type: ignore[arg-type]
    iterator = SimpleNamespace(_rcvd_idx=0, **{KEY: Iteration(0, 0, 1, recorder.pid, 0)})
    for _ in range(4):
        next_data(iterator)
        iterator._rcvd_idx += 1
        core.work(2 * _MS)
    # THEN what followed each is part of the step's time, and of its delay
    waits = fetches.end().waits
    assert len(waits) == 4
    assert waits["wait_run_delay_ns"].tolist() == [0] * 4
    assert waits["step_run_delay_ns"].tolist()[:3] == [_AWAY_NS] * 3
    assert waits["step_ns"].tolist()[:3] == pytest.approx([_AWAY_NS + 2 * _MS] * 3, abs=100)

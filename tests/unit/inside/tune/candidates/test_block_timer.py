"""What is measured of a candidate: the time of its batches, whatever else is looked at."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.tune.candidates import block_timer
from lotus.inside.tune.candidates.trial_requests import SLOW_BATCHES, Measure

FETCH_S, STEP_S = 0.1, 0.02


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Watch:
    limit_s = 1e6

    @contextmanager
    def off(self) -> Iterator[None]:
        yield


class Loading:
    """A loader of batches that take FETCH_S each, by workers that go on while time passes."""

    def __init__(self, clock: Clock, workers: int, extra: dict[str, float]) -> None:
        self.clock, self.extra = clock, extra
        self.loader = SimpleNamespace(num_workers=workers)
        self.usage = SimpleNamespace(
            cpu_s=0.0, queued_s=0.0, read_bytes=0, reset=bool, add=bool, start=self.start
        )
        self.ready_at = [FETCH_S] * workers  # of the batch that each worker makes
        self.taken = 0

    def start(self, pids: list[int]) -> None:
        self.clock.now += self.extra["usage"]

    def pids(self) -> list[int]:
        return [-1]

    def samples(self, batch: int) -> int:
        self.clock.now += self.extra["samples"]
        return 4

    def take(self, watch: Watch) -> tuple[int, float, float]:
        before = self.clock.now
        if self.ready_at:
            turn = self.taken % len(self.ready_at)
            self.clock.now = max(before, self.ready_at[turn])
            # Two batches of each worker may lie ready.
            self.ready_at[turn] = max(self.ready_at[turn], before - FETCH_S) + FETCH_S
        else:
            self.clock.now += FETCH_S
        self.taken += 1
        return self.taken, self.clock.now - before, 0.0


def samples_per_s(
    monkeypatch: pytest.MonkeyPatch, workers: int, step: bool = False, **extra: float
) -> float:
    """As it is measured where looking at something takes so many seconds more."""
    clock = Clock()
    more = {"usage": 0.0, "samples": 0.0, "look": 0.0, **extra}

    def measures(batch: int) -> dict[str, int]:
        clock.now += more["look"]
        return dict.fromkeys(("batch_bytes", "shared_bytes", "pipe_bytes", "tensors"), batch)

    def wait(batch: int) -> None:
        clock.now += STEP_S

    monkeypatch.setattr(block_timer, "time", clock)
    monkeypatch.setattr(block_timer.batch_contents, "measures", measures)
    loading: Any = Loading(clock, workers, more)
    function: Callable[[Any], object] | None = wait if step else None
    watch: Any = Watch()
    request = Measure(10, 8, step=step, limit_s=60, discard=2 * workers)
    block = block_timer.measure(loading, watch, request, function)
    assert block.batch_bytes > 0  # something was looked at
    return block.samples_per_s


@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize(
    "extra", [{"look": 0.09}, {"look": 3.0}, {"samples": 0.004}, {"usage": 0.5}]
)
def test_slow_inspection_does_not_favour_workers(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, float], step: bool
) -> None:
    for workers in (1, 2, 4):
        new, own = (samples_per_s(monkeypatch, count, step) for count in (workers, 0))
        slowed = [samples_per_s(monkeypatch, count, step, **extra) for count in (workers, 0)]
        assert slowed[0] / slowed[1] <= new / own * (1 + 1e-9)
        assert slowed[0] <= 4 * workers / FETCH_S * (1 + 1e-9)  # what they can make


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_loader_gives_few_batches(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    clock = Clock()
    monkeypatch.setattr(block_timer, "time", clock)
    monkeypatch.setattr(
        block_timer.batch_contents,
        "measures",
        lambda batch: dict.fromkeys(("batch_bytes", "shared_bytes", "pipe_bytes", "tensors"), 1),
    )
    watch: Any = Watch()
    for slow_s, least in ((0.5 * FETCH_S, SLOW_BATCHES), (None, 40)):
        loading: Any = Loading(clock, workers, {"usage": 0, "samples": 0})
        loading.ready_at = [clock.now + FETCH_S] * workers
        request = Measure(0, 40, step=False, limit_s=1e6, discard=2 * workers, slow_s=slow_s)
        block = block_timer.measure(loading, watch, request, None)
        assert len(block.waits_s) == least


def test_batches_of_several_sizes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    looked: list[int] = []

    def measures(batch: int) -> dict[str, int]:
        looked.append(batch)
        return {"batch_bytes": batch, "shared_bytes": 0, "pipe_bytes": 0, "tensors": 1}

    monkeypatch.setattr(block_timer, "time", clock)
    monkeypatch.setattr(block_timer.batch_contents, "measures", measures)
    for workers in (0, 2):
        looked.clear()
        loading: Any = Loading(clock, workers, {"usage": 0, "samples": 0})
        watch: Any = Watch()
        request = Measure(10, 8, step=False, limit_s=60, discard=0)
        block = block_timer.measure(loading, watch, request, None)
        assert len(looked) > 5
        assert block.batch_bytes == max(looked)
        assert max(looked) - len(block.waits_s) == (0 if workers == 0 else len(looked))

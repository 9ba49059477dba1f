"""What is measured of a candidate: the time of its batches, whatever else is looked at."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.tune.candidates.trial_requests import SLOW_BATCHES, Measure
from lotus.inside.tune.candidates.trials import block_timer
from lotus.tune.search.trials.trial_rates import rate

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
    """A loader of batches that take `fetch_s` each, by workers that go on while time passes."""

    def __init__(
        self, clock: Clock, workers: int, extra: dict[str, float], fetch_s: float = FETCH_S
    ) -> None:
        self.clock, self.extra, self.fetch_s = clock, extra, fetch_s
        self.loader = SimpleNamespace(num_workers=workers)
        self.usage = SimpleNamespace(
            cpu_s=0.0, queued_s=0.0, read_bytes=0, reset=bool, add=bool, start=self.start
        )
        self.ready_at = [clock.now + fetch_s] * workers  # of the batch that each worker makes
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
            self.ready_at[turn] = max(self.ready_at[turn], before - self.fetch_s) + self.fetch_s
        else:
            self.clock.now += self.fetch_s
        self.taken += 1
        return self.taken, self.clock.now - before, 0.0


def sizes_of(batch: int) -> dict[str, int]:
    return dict.fromkeys(("batch_bytes", "shared_bytes", "pipe_bytes", "tensors"), batch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the measurement; looking at a batch takes none of it."""
    clock = Clock()
    monkeypatch.setattr(block_timer, "time", clock)
    monkeypatch.setattr(block_timer.batch_contents, "measures", sizes_of)
    return clock


def samples_per_s(
    monkeypatch: pytest.MonkeyPatch, workers: int, step: bool = False, **extra: float
) -> float:
    """As it is measured where looking at something takes so many seconds more."""
    clock = Clock()
    more = {"usage": 0.0, "samples": 0.0, "look": 0.0, **extra}

    def measures(batch: int) -> dict[str, int]:
        clock.now += more["look"]
        return sizes_of(batch)

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
def test_a_slow_loader_gives_few_batches(clock: Clock, workers: int) -> None:
    watch: Any = Watch()
    for slow_s, least in ((0.5 * FETCH_S, SLOW_BATCHES), (None, 40)):
        loading: Any = Loading(clock, workers, {"usage": 0, "samples": 0})
        request = Measure(0, 40, step=False, limit_s=1e6, discard=2 * workers, slow_s=slow_s)
        block = block_timer.measure(loading, watch, request, None)
        assert len(block.waits_s) == least


@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("overhead_s", [0.0, 0.003])
@pytest.mark.parametrize("workers", [1, 3, 8, 12, 16])
def test_a_block_of_a_slow_loader_has_whole_bursts_of_its_workers(
    clock: Clock, workers: int, overhead_s: float, step: bool
) -> None:
    def wait(batch: int) -> None:
        clock.now += STEP_S

    watch: Any = Watch()
    for taken in range(workers):  # so many of a burst by the block before
        loading: Any = Loading(clock, workers, {"usage": 0, "samples": overhead_s}, fetch_s=2.0)
        for _ in range(taken):
            loading.take(watch)
        request = Measure(1.0, 40, step, limit_s=1e6, discard=2 * workers, slow_s=3.0)
        block = block_timer.measure(loading, watch, request, wait if step else None)
        assert len(block.waits_s) < 40
        made = 4 * workers / loading.fetch_s
        # Without steps the queue was emptied sooner than it is with them.
        apart = 0.05 + (workers * STEP_S / loading.fetch_s if step else 0.0)
        assert 1 / rate(block, workers).sample_s == pytest.approx(made, rel=apart)


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

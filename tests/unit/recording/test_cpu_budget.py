"""The sampler's share of a core, by clocks that the tests set."""

from pathlib import Path

import pytest

from lotus.recording import blocking_sampler, process_memory
from lotus.recording.blocking_sampler import BlockingSampler
from lotus.recording.cpu_budget import CpuBudget

MS, S = 10**6, 10**9


class Clocks:
    """What has passed, and what a thread has used of it, ns."""

    wall = cpu = 10**12

    def use(self, ns: float) -> None:
        self.wall += int(ns)
        self.cpu += int(ns)

    def budget(self, share: float) -> CpuBudget:
        return CpuBudget(share, lambda: self.cpu, lambda: self.wall)


def test_what_was_used_too_early_is_waited_for() -> None:
    clocks = Clocks()
    budget = clocks.budget(0.01)
    clocks.wall += S
    assert budget.left_ns() == pytest.approx(10 * MS)
    assert budget.wait_s(budget.left_ns()) == 0
    clocks.cpu += 15 * MS
    assert budget.used_ns() == 15 * MS
    assert budget.wait_s(budget.left_ns()) == pytest.approx(0.5)
    assert budget.wait_s(budget.left_ns(reserved_ns=5 * MS)) == pytest.approx(1)


def test_a_long_time_without_work_saves_a_little_only() -> None:
    clocks = Clocks()
    budget = clocks.budget(0.01)
    clocks.wall += 1000 * S
    assert budget.left_ns() == pytest.approx(50 * MS)
    assert budget.left_ns() == pytest.approx(50 * MS)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """The clocks of a sampler and its readings of memory, which take 5 ms each."""
    clocks = Clocks()

    def sizes(pid: int) -> tuple[int, ...]:
        clocks.use(5 * MS)
        return (0,) * 5

    monkeypatch.setattr(blocking_sampler, "CpuBudget", clocks.budget)
    monkeypatch.setattr(process_memory.time, "monotonic_ns", lambda: clocks.wall)
    monkeypatch.setattr(process_memory.time, "thread_time_ns", lambda: clocks.cpu)
    monkeypatch.setattr(process_memory, "_resident", lambda pid: 400 << 20)
    monkeypatch.setattr(process_memory, "_sizes", sizes)
    monkeypatch.setattr(process_memory, "_descriptor_limit", lambda pid: -1)
    return clocks


def sampled(folder: Path, clocks: Clocks, processes: int, seconds: int) -> tuple[int, list[int]]:
    """How often each process was looked at, and how often the memory of each was read."""
    looks = [0] * processes
    end = clocks.wall + seconds * S

    class Sampler(BlockingSampler):
        def _is_left_within(self, seconds: float) -> bool:
            clocks.wall += int(seconds * S)
            clocks.use(0.06 * MS)  # to wake up
            return clocks.wall >= end

        def _find_pages(self) -> None:
            self._pages = {str(number): 1 << 20 for number in range(processes)}

        def _look(self, name: str, descriptor: int) -> tuple[int, int]:
            clocks.use(0.02 * MS)
            looks[int(name)] += 1
            return int(name), int(name)

    sampler = Sampler(folder)
    sampler._machine.read = lambda *_: clocks.use(0.02 * MS)  # type: ignore[method-assign,misc,assignment]
    sampler._look_until_stopped()
    assert sampler._cost_ns <= 0.01 * seconds * S
    assert len(set(looks)) == 1
    read = [row[1] for row in sampler._memory.rows]
    return looks[0], [read.count(number) for number in range(processes)]


@pytest.mark.parametrize("seconds", [6, 60])
def test_looks_and_readings_together_stay_within_a_hundredth_of_a_core(
    tmp_path: Path, clocks: Clocks, seconds: int
) -> None:
    few, read = sampled(tmp_path, clocks, 3, seconds)
    more, _ = sampled(tmp_path, clocks, 16, seconds)
    many, _ = sampled(tmp_path, clocks, 200, seconds)
    assert few > more > many > 0
    assert few > 25 * seconds
    assert max(read) - min(read) <= 1  # in turn, however seldom
    assert min(read) > 0

"""Blocks with a cache and without, in a program whose samples take known times."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from lotus.advise.caches import cache_blocks, planned_cache
from lotus.advise.caches.cache_timing import CacheTiming, EpochShares
from lotus.inside.cache.sample_store import SampleStore
from lotus.inside.tune.candidates.trial_requests import Feed, TrainedBatches
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import TrialError, Watched
from tests.unit.advise.caches.test_cache_timing import planned, printed

WRITTEN, ALL = EpochShares(0, 1), EpochShares(1, 0)
TIMES = {"real": 1.0, "filling": 1.5, "cached": 0.2}
EPOCH = 100  # batches
BATCH = 8  # samples


class Program:
    """Waits for batches as long as their kind takes, and caches a sample where it is to."""

    problem = ""

    def __init__(
        self,
        folder: Path,
        caches: bool = True,
        workers: int = 0,
        batch_s: float = 0.1,
        step_s: float = 0.0,
        **changes: Any,
    ) -> None:
        setting = Setting(workers, prefetch_factor=2 if workers else None)
        fields = {"waits_s": (batch_s,) * 5, "steps_s": (step_s,) * 5, **changes}
        self.watched = Watched(
            Target(dataset="Rows"), setting, 1, "2", False, BATCH, EPOCH, **fields
        )
        self.folder, self.caches = folder, caches
        self.asked: list[Feed] = []
        self.batch_s, self.step_s, self.now = batch_s, step_s, 0.0
        self.drift = 1.0  # by which everything is slower

    def clock(self) -> float:
        return self.now

    def perform(self, setting: Setting, request: Any) -> Any:
        assert isinstance(request, Feed)
        self.asked.append(request)
        if request.kind == "filling" and self.caches:
            SampleStore(str(self.folder / "samples-x"), 1 << 30, print).put("ab" * 32, [b"sample"])
        count = request.batches
        wait = self.batch_s * TIMES[request.kind] * self.drift
        self.now += count * (wait + self.step_s)
        steps = (self.step_s,) * count
        return TrainedBatches((wait,) * count, steps, (BATCH,) * count, None, count, False)


def timed(program: Program, budget_s: float = 60.0, epochs: int = 10) -> CacheTiming:
    shares = WRITTEN, ALL
    return cache_blocks.measure(program, program.folder, shares, budget_s, epochs, program.clock)


def test_whole_epochs_follow_from_blocks(tmp_path: Path) -> None:
    program = Program(tmp_path, step_s=0.05)
    shown = timed(program)
    assert shown.plain_s is not None
    assert shown.plain_s.mean == pytest.approx(EPOCH * 0.15)
    assert shown.first_s is not None
    assert shown.first_s.mean == pytest.approx(EPOCH * 0.2)
    assert shown.later_s is not None
    assert shown.later_s.mean == pytest.approx(EPOCH * 0.07)
    assert shown.waiting == pytest.approx(0.1 / 0.15)
    assert shown.batches == sum(each.batches for each in program.asked)
    # It ends once what is saved is known.
    assert len(shown.rounds) == 6


def test_what_is_read_was_written_just_before_and_the_plain_block_changes_sides(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path)
    timed(program)
    kinds = [each.kind for each in program.asked]
    assert kinds[:6] == ["real", "filling", "cached", "filling", "cached", "real"]
    for before, kind in itertools.pairwise(kinds):
        assert (kind == "cached") == (before == "filling")


def test_a_drift_of_the_machine_is_in_all_kinds_alike(tmp_path: Path) -> None:
    program, perform = Program(tmp_path), Program.perform

    def slower(setting: Setting, request: Any) -> Any:
        program.drift *= 1.01
        return perform(program, setting, request)

    program.perform = slower  # type: ignore[method-assign]
    saving = timed(program).saving(10)
    assert saving is not None
    assert saving.low < 1 - (1.5 + 9 * 0.2) / 10 < saving.high
    assert saving.high - saving.low < 0.1


@pytest.mark.parametrize(
    ("persistent", "workers", "start_s"), [(False, 2, 0.8), (True, 2, 0.0), (False, 0, 0.0)]
)
def test_an_epoch_has_the_start_of_its_workers(
    tmp_path: Path, persistent: bool, workers: int, start_s: float
) -> None:
    program = Program(tmp_path, workers=workers, startup_s=1.0)
    setting = Setting(workers, prefetch_factor=2, persistent_workers=persistent)
    object.__setattr__(program.watched, "setting", setting)
    shown = timed(program)
    assert shown.start_s == pytest.approx(start_s)  # without the batch that each one makes
    assert shown.plain_s is not None
    assert shown.plain_s.mean == pytest.approx(start_s + EPOCH * 0.1)


def test_the_start_is_that_of_a_later_epoch_where_one_was_seen(tmp_path: Path) -> None:
    program = Program(tmp_path, workers=2, startup_s=1.0, later_startup_s=0.5)
    assert timed(program).start_s == pytest.approx(0.3)


def test_samples_that_were_not_cached_give_no_answer(tmp_path: Path) -> None:
    shown = timed(Program(tmp_path, caches=False))
    assert "were not cached" in shown.why_unknown()
    assert not shown.rounds


def test_the_reason_why_samples_are_not_cached_is_told(tmp_path: Path) -> None:
    program = Program(tmp_path)
    why = "samples are not cached: random numbers are drawn before the cut"

    def refused(setting: Setting, request: Any) -> Any:
        return TrainedBatches((), (), (), None, 0, False, refused=why)

    program.perform = refused  # type: ignore[method-assign]
    assert timed(program).why_unknown() == why


def test_what_cannot_fit_is_said_beforehand(tmp_path: Path) -> None:
    program = Program(tmp_path, batch_s=8.0)
    why = timed(program).why_unknown()
    assert not program.asked
    assert why == "its batches take too long for --budget 60s; --budget 240s may do"
    # THEN that does
    assert timed(program, 240.0).speedup is not None


def test_batches_that_are_slower_than_watched_end_it_early(tmp_path: Path) -> None:
    program = Program(tmp_path, batch_s=30.0, waits_s=(0.001,) * 5)
    assert "take too long for --budget 60s" in timed(program).why_unknown()
    assert len(program.asked) == 3


@pytest.mark.parametrize("batch_s", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("workers", [0, 2, 8])
def test_rounds_stay_within_the_time(tmp_path: Path, workers: int, batch_s: float) -> None:
    program = Program(tmp_path, workers=workers, batch_s=batch_s)
    shown = timed(program)
    assert shown.speedup is not None, shown.why_unknown()
    assert program.now <= 121


@pytest.mark.parametrize("problem", ["", "the program ended"])
@pytest.mark.parametrize("rounds", [0, 3, 5])
def test_rounds_before_an_end_count(tmp_path: Path, problem: str, rounds: int) -> None:
    program, perform = Program(tmp_path), Program.perform

    def until_interrupted(setting: Setting, request: Any) -> Any:
        if len(program.asked) == 3 * rounds:
            program.problem = problem
            raise KeyboardInterrupt
        return perform(program, setting, request)

    program.perform = until_interrupted  # type: ignore[method-assign]
    shown = timed(program)
    assert len(shown.rounds) == rounds
    assert shown.interrupted == (not problem)
    assert shown.ended == (problem or "it was interrupted")
    if rounds == 5:
        assert shown.speedup is not None
        assert shown.ended in printed(shown)
    else:
        assert shown.ended in shown.why_unknown()
        assert planned(shown).is_unknown
    # THEN an interrupted plan writes what was shown to pay, and nothing else
    written = planned_cache.settings(planned(shown), ["python"])
    assert (written is None) == (rounds < 5 and not problem)


def test_a_program_that_fails_gives_no_answer(tmp_path: Path) -> None:
    program = Program(tmp_path)

    def fails(setting: Setting, request: Any) -> Any:
        raise TrialError("a worker ended")

    program.perform = fails  # type: ignore[method-assign]
    shown = timed(program)
    assert shown.why_unknown() == "a worker ended"
    assert shown.speedup is None

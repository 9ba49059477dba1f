"""What is predicted of a cache, from epochs whose seconds are known."""

from __future__ import annotations

import io
import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from lotus.advise import cache_plan, cache_timing
from lotus.advise.cache_timing import CacheTiming, EpochRound, EpochShares
from lotus.inside.cache.sample_store import SampleStore
from lotus.inside.tune.candidates.trial_requests import TimedEpoch, TimeEpoch
from lotus.reporters.advise import plan_report
from lotus.reporters.base.console import plain_console
from lotus.settings.space import Setting
from lotus.settings.tuned_file import SampleCache, Target
from lotus.tune.program.program import TrialFailed, Watched
from tests.unit.advise.test_cache_plan import chosen_of, cut

ALL, WRITTEN = EpochShares(1, 0), EpochShares(0, 1)
CACHE = SampleCache(
    path=None, cut=0, operations=(), folder=None, budget_bytes=1 << 30, least_ns_per_byte=0.0
)


def timing(
    *rounds: tuple[float, float, float],
    first: EpochShares = WRITTEN,
    later: EpochShares = ALL,
    **changes: Any,
) -> CacheTiming:
    return CacheTiming(
        tuple(EpochRound(*each) for each in rounds), 10, 10, 60.0, first, later, **changes
    )


EVEN = [(1.0 + step / 100, 1.5, 0.25) for step in range(6)]


def test_the_interval_is_for_a_further_epoch() -> None:
    shown = timing(*EVEN).speedup
    assert shown is not None
    assert shown.mean == pytest.approx(4.1, rel=0.01)
    # Wider than what was seen: another epoch may lie outside of these few.
    assert shown.low < 4.0
    assert shown.high > 4.2
    longer = timing(*EVEN).first_longer
    assert longer is not None
    assert longer.low < 1.5 / 1.025 < longer.high


def test_parts_of_an_epoch_that_hit_or_are_written_count_as_such() -> None:
    even = [(1.0, 1.5, 0.25)] * 6
    shown = timing(*even, later=EpochShares(0.5, 0.2)).speedup
    assert shown is not None
    assert shown.mean == pytest.approx(1 / (0.3 + 0.2 * 1.5 + 0.5 * 0.25))


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (timing(*EVEN[:3]), "only 3 of at least 4 rounds"),
        (timing(*[(1.0, 1.5, part) for part in (0.1, 0.6, 0.1, 0.6)]), "differ too much"),
        (timing(*EVEN, failure="a worker ended"), "a worker ended"),
    ],
)
def test_what_is_not_predictable_has_its_reason(shown: CacheTiming, why: str) -> None:
    assert why in shown.why_unknown()
    assert "not predictable" in printed(shown)
    assert plan_report.document(planned(shown))["timing"]["times"] is None


def planned(shown: CacheTiming) -> cache_plan.CachePlanning:
    return cache_plan.with_timing(chosen_of(cut(0, "own", [5.0] * 4)), shown)


def printed(shown: CacheTiming) -> str:
    file = io.StringIO()
    plan_report.write(plain_console(file, 80), planned(shown), words=["x"], output=Path("p.json"))
    return " ".join(file.getvalue().split())


def test_the_plan_says_what_timed_epochs_gain() -> None:
    text = printed(timing(*EVEN))
    assert "from epoch 2 on an epoch is 4.10 (" in text
    assert "pays after 2 epochs, of 10" in text
    document = plan_report.document(planned(timing(*EVEN)))
    assert document["timing"]["times"]["mean"] == pytest.approx(4.1, rel=0.01)
    assert document["timing"]["break_even_epochs"] == 2


def test_a_cache_that_did_not_make_epochs_faster_is_not_planned() -> None:
    # GIVEN samples whose parts promise much, and epochs that the step binds
    assert chosen_of(cut(0, "own", [5.0] * 4)).chosen is not None
    planning = planned(timing(*[(1.0, 1.2, 0.99)] * 6))
    assert planning.chosen is None
    assert "timed epochs were 1.01 (1.01 to 1.01) times as fast" in planning.reason


def test_epochs_that_are_still_to_come_have_to_pay_for_the_first() -> None:
    slow = [(1.0, 9.0, 0.5)] * 6
    planning = cache_plan.with_timing(chosen_of(cut(0, "own", [5.0] * 4), epochs=10), timing(*slow))
    assert planning.chosen is None
    planning = cache_plan.with_timing(chosen_of(cut(0, "own", [5.0] * 4), epochs=99), timing(*slow))
    assert planning.chosen is not None


def test_a_whole_epoch_follows_from_a_shorter_one() -> None:
    # GIVEN two workers: both first batches after 3 s, then two batches every second, and an end
    got = tuple(3.0 + math.floor(number / 2) for number in range(10))
    epoch = TimedEpoch(got, got[-1] + 0.5)
    assert cache_timing.seconds(epoch, 2, 10) == 7.5
    assert cache_timing.seconds(epoch, 2, 110) == pytest.approx(7.5 + 50)


class Program:
    """Gives epochs of known seconds, and caches a sample where it is to."""

    problem = ""

    def __init__(self, caches: bool = True, batches: int = 1000) -> None:
        self.watched = Watched(
            Target(dataset="Rows"), Setting(0), 1, "2", False, 8, batches,
            waits_s=(0.1,) * 5, steps_s=(0.0,) * 5,
        )  # fmt: skip
        self.caches, self.asked = caches, []  # type: list[TimeEpoch]
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def perform(self, setting: Setting, request: Any) -> Any:
        assert isinstance(request, TimeEpoch)
        self.asked.append(request)
        each = 0.1
        if request.cache is not None:
            folder = Path(request.cache["folder"]) / "samples-x"
            each = 0.02 if folder.exists() else 0.15
            if self.caches:
                SampleStore(str(folder), 1 << 30, print).put("ab" * 32, [b"sample"])
        marks = [*itertools.accumulate([each] * request.batches)]
        self.now += marks[-1]
        return TimedEpoch(tuple(marks), marks[-1])


def test_rounds_have_caches_of_their_own_and_stay_within_the_time(tmp_path: Path) -> None:
    program = Program()
    shown = cache_timing.measure(program, CACHE, tmp_path, (WRITTEN, ALL), 60.0, program.clock)
    assert shown.speedup is not None
    assert shown.speedup.mean == pytest.approx(5.0)
    assert shown.first_longer is not None
    assert shown.first_longer.mean == pytest.approx(1.5)
    assert 4 <= len(shown.rounds) <= 8
    assert program.now < 70
    # Each round reads other samples, and a cache those that it has.
    cached = [each for each in program.asked if each.cache is not None]
    folders = [each.cache["folder"] for each in cached if each.cache is not None]
    assert folders[::2] == folders[1::2]
    assert len(set(folders)) == len(shown.rounds)
    assert [each.skip for each in cached[::2]] == [each.skip for each in cached[1::2]]
    assert not list(tmp_path.iterdir())


def test_samples_that_were_not_cached_give_no_answer(tmp_path: Path) -> None:
    program = Program(caches=False)
    shown = cache_timing.measure(program, CACHE, tmp_path, (WRITTEN, ALL), 60.0, program.clock)
    assert "were not cached" in shown.why_unknown()


def test_a_program_that_fails_gives_no_answer(tmp_path: Path) -> None:
    program = Program()

    def fails(setting: Setting, request: Any) -> Any:
        raise TrialFailed("a worker ended")

    program.perform = fails  # type: ignore[method-assign]
    shown = cache_timing.measure(program, CACHE, tmp_path, (WRITTEN, ALL), 60.0, program.clock)
    assert shown.why_unknown() == "a worker ended"
    assert shown.speedup is None

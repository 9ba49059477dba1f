"""What is predicted of a cache, from epochs whose seconds are known."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from lotus.advise import cache_plan, cache_timing, planned_cache
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
        (timing(*EVEN[:3], ended="a worker ended"), "were timed in 60 s: a worker ended"),
        (timing(*[(1.0, 1.5, part) for part in (0.1, 0.6, 0.1, 0.6)]), "differ too much"),
        (timing(ended="a worker ended"), "a worker ended"),
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
    assert "it has saved what it cost after 2 epochs" in text
    document = plan_report.document(planned(timing(*EVEN)))
    assert document["timing"]["times"]["mean"] == pytest.approx(4.1, rel=0.01)
    assert document["timing"]["break_even_epochs"] == 2


def test_a_cache_that_did_not_make_epochs_faster_is_not_planned() -> None:
    # GIVEN samples whose parts promise much, and epochs that the step binds
    assert chosen_of(cut(0, "own", [5.0] * 4)).chosen is not None
    planning = planned(timing(*[(1.0, 1.2, 0.99)] * 6))
    assert planning.chosen is None
    assert "adds 1.1% (1.1% to 1.1%) to the time of 10 epochs" in planning.reason
    one = dataclasses.replace(chosen_of(cut(0, "own", [5.0] * 4)), epochs=1)
    once = cache_plan.with_timing(one, timing(*[(1.0, 1.0, 1.0)] * 6))
    assert "saves 0.0% (0.0% to 0.0%) of the time of 1 epoch, less than 5%" in once.reason
    # THEN what was timed is shown all the same
    text = printed(timing(*[(1.0, 1.2, 0.99)] * 6))
    assert "from epoch 2 on an epoch is 1.01 (1.01 to 1.01) times as fast" in text
    assert "lotus run" not in text


UNEVEN = [(1.0, 1.0, part) for part in (0.6, 1.2, 0.7, 1.1)]  # a tenth is saved in the mean


def test_what_may_pay_is_not_called_useless() -> None:
    # GIVEN epochs that save 9 % in the mean, with an interval that has both more and nothing
    planning = planned(timing(*UNEVEN))
    assert planning.timing is not None
    saving = planning.timing.saving(planning.epochs)
    assert saving is not None
    assert saving.low < 0 < 0.05 < saving.mean < saving.high
    assert planning.chosen is not None
    assert planning.is_unknown
    assert planning.reason.startswith("It is not known whether it pays to cache what comes from")
    text = printed(timing(*UNEVEN))
    assert "To try it:" in text
    assert "saved what it cost" not in text


def test_a_cache_is_not_called_useless_because_it_lost_in_some_rounds() -> None:
    # GIVEN rounds that lose a tenth in the mean, in one of which it saved: the load changes
    shown = timing(*[(1.0, 1.0, part) for part in (1.3, 0.9, 1.1, 1.2)])
    saving = shown.saving(10)
    assert saving is not None
    assert saving.mean < 0 < 0.05 < saving.high
    planning = planned(shown)
    assert planning.is_unknown
    assert planning.chosen is not None


def test_no_more_than_all_is_said_to_be_saved() -> None:
    saving = timing(*[(1.0, 1.0, part) for part in (0.2, 0.9, 0.1, 0.8)]).saving(10)
    assert saving is not None
    assert saving.high == 1.0
    assert saving.low < 0


def test_a_cache_that_won_in_each_round_is_not_promised_more_than_a_round_may_give() -> None:
    # GIVEN rounds in which the mean's interval would be 4 to 16 %
    shown = timing(*[(1.0, 1.0, part) for part in (0.85, 0.93, 0.86, 0.92)])
    saving = shown.saving(10)
    assert saving is not None
    assert saving.low < 0.07 * 0.9 < 0.15 * 0.9 < saving.high
    assert saving.low < 0
    assert planned(shown).is_unknown


def test_epochs_may_show_that_it_pays_where_one_of_them_is_not_predictable() -> None:
    shown = timing(*[(1.0, 1.5, part) for part in (0.1, 0.3, 0.1, 0.3, 0.1, 0.3)])
    planning = planned(shown)
    assert shown.speedup is None
    assert planning.chosen is not None
    assert not planning.is_unknown
    assert "To train with it:" in printed(shown)
    saved = plan_report.document(planning)["timing"]["saved_share"]
    assert saved["mean"] == pytest.approx((10 - 1.5 - 9 * 0.2) / 10)
    assert 0.05 < saved["low"] < saved["mean"] < saved["high"]


def test_epochs_that_are_still_to_come_have_to_pay_for_the_first() -> None:
    slow = [(1.0, 9.0, 0.5)] * 6
    planning = cache_plan.with_timing(chosen_of(cut(0, "own", [5.0] * 4), epochs=10), timing(*slow))
    assert planning.chosen is None
    planning = cache_plan.with_timing(chosen_of(cut(0, "own", [5.0] * 4), epochs=99), timing(*slow))
    assert planning.chosen is not None


def test_a_whole_epoch_follows_from_a_shorter_one() -> None:
    # GIVEN two workers: both first batches after 3 s, then two batches every second, and an end
    got = tuple(3.0 + math.floor(number / 2) for number in range(10))
    epoch = TimedEpoch(got, got[-1] + 0.5, 10)
    assert cache_timing.seconds(epoch, 2, 10) == 7.5
    assert cache_timing.seconds(epoch, 2, 110) == pytest.approx(7.5 + 50)
    # WHERE none came after the first of each worker, nothing follows
    with pytest.raises(TrialFailed, match="only 10 of 110 batches"):
        cache_timing.seconds(epoch, 10, 110)
    assert cache_timing.seconds(epoch, 10, 10) == 7.5


class Program:
    """Gives epochs of known seconds, and caches a sample where it is to."""

    problem = ""

    def __init__(
        self,
        caches: bool = True,
        batches: int = 1000,
        workers: int = 0,
        batch_s: float = 0.1,
        drawn: int | None = None,
    ) -> None:
        setting = Setting(workers, prefetch_factor=2 if workers else None)
        self.watched = Watched(
            Target(dataset="Rows"), setting, 1, "2", False, 8, batches,
            waits_s=(batch_s,) * 5, steps_s=(0.0,) * 5,
        )  # fmt: skip
        self.caches, self.asked = caches, []  # type: list[TimeEpoch]
        self.batch_s, self.drawn = batch_s, batches if drawn is None else drawn
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def perform(self, setting: Setting, request: Any) -> Any:
        assert isinstance(request, TimeEpoch)
        self.asked.append(request)
        each = 1.0
        if request.cache is not None:
            folder = Path(request.cache["folder"]) / "samples-x"
            each = 0.2 if folder.exists() else 1.5
            if self.caches:
                SampleStore(str(folder), 1 << 30, print).put("ab" * 32, [b"sample"])
        each *= self.batch_s
        marks = [*itertools.accumulate([each] * min(request.batches, self.drawn))]
        self.now += marks[-1]
        return TimedEpoch(tuple(marks), marks[-1], self.drawn)

    def samples(self, request: TimeEpoch) -> set[int]:
        """Return the batches of an epoch that it has."""
        return {(request.skip + number) % self.drawn for number in range(request.batches)}


def timed(program: Program, folder: Path, budget_s: float = 60.0) -> CacheTiming:
    return cache_timing.measure(program, CACHE, folder, (WRITTEN, ALL), budget_s, program.clock)


def test_rounds_have_caches_of_their_own_and_stay_within_the_time(tmp_path: Path) -> None:
    program = Program()
    shown = timed(program, tmp_path)
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
    shown = timed(program, tmp_path)
    assert "were not cached" in shown.why_unknown()


def test_a_program_that_fails_gives_no_answer(tmp_path: Path) -> None:
    program = Program()

    def fails(setting: Setting, request: Any) -> Any:
        raise TrialFailed("a worker ended")

    program.perform = fails  # type: ignore[method-assign]
    shown = timed(program, tmp_path)
    assert shown.why_unknown() == "a worker ended"
    assert shown.speedup is None


@pytest.mark.parametrize("workers", [0, 2, 8, 16])
@pytest.mark.parametrize("batch_s", [0.01, 0.1, 0.4])
def test_epochs_are_as_short_as_the_time_asks_for(
    tmp_path: Path, workers: int, batch_s: float
) -> None:
    # WHERE four rounds of the shortest epochs fit into twice the time, they are timed
    program = Program(workers=workers, batch_s=batch_s)
    shown = timed(program, tmp_path)
    shortest = max(8, 3 * workers)
    if 11 * shortest * batch_s < 120:
        assert shown.speedup is not None, shown.why_unknown()
        assert shown.batches >= shortest
    else:
        assert "take too long for --check 60s" in shown.why_unknown()
    assert program.now <= 121


def test_what_cannot_fit_is_said_beforehand(tmp_path: Path) -> None:
    program = Program(workers=8, batch_s=1.0)
    shown = timed(program, tmp_path)
    assert not program.asked
    why = shown.why_unknown()
    assert why == "its epochs take too long for --check 60s; --check 160s may do"
    # THEN that does
    assert timed(program, tmp_path, 160.0).speedup is not None


def test_epochs_that_are_slower_than_watched_end_it_early(tmp_path: Path) -> None:
    program = Program(workers=8, batch_s=1.0)
    program.watched = dataclasses.replace(program.watched, waits_s=(0.001,) * 5)
    shown = timed(program, tmp_path)
    assert len(program.asked) == 1
    assert "take too long for --check 60s; --check 160s may do" in shown.why_unknown()


def test_epochs_go_through_all_samples(tmp_path: Path) -> None:
    program = Program(batches=1000, batch_s=0.1)
    shown = timed(program, tmp_path)
    fresh = [each for each in program.asked[1:] if not each.filled]
    assert shown.batches < 1000
    # Each has other samples than the one before it, and none are left out until all were timed.
    for one, following in itertools.pairwise(fresh):
        assert not program.samples(one) & program.samples(following)
        assert following.skip == one.skip + shown.batches
    # WHERE an epoch has two parts, both are timed both ways
    program = Program(batches=48)
    timed(program, tmp_path)
    for cached in (False, True):
        parts = {
            frozenset(program.samples(each))
            for each in program.asked[1:]
            if not each.filled and (each.cache is not None) == cached
        }
        assert len(parts) > 1


def test_the_batches_are_those_that_were_timed(tmp_path: Path) -> None:
    # GIVEN an epoch of 100,000 batches, of which the first 4,096 were drawn
    program = Program(batches=100_000, batch_s=0.0001, drawn=4096)
    shown = timed(program, tmp_path)
    assert shown.batches == program.asked[-1].batches <= 4096
    # THEN no samples come again in any round
    assert len(shown.rounds) == 8
    assert_apart(program)


def assert_apart(program: Program) -> None:
    fresh = [program.samples(each) for each in program.asked if not each.filled]
    for one, other in itertools.combinations(fresh, 2):
        assert not one & other


def test_samples_that_come_again_are_no_further_round(tmp_path: Path) -> None:
    # GIVEN 100 batches that were drawn: one epoch of 8 to warm up, and five rounds of two
    program = Program(batches=100_000, drawn=100)
    shown = timed(program, tmp_path)
    assert (len(shown.rounds), shown.batches) == (5, 8)
    assert_apart(program)
    # WHERE not even four rounds have samples of their own, nothing is predicted
    shown = timed(Program(batches=100_000, drawn=70), tmp_path)
    assert not shown.rounds
    assert "only 70 of the 100000 batches of an epoch could be drawn" in shown.why_unknown()


@pytest.mark.parametrize("problem", ["", "the program ended"])
@pytest.mark.parametrize("rounds", [0, 3, 5])
def test_rounds_before_an_end_count(tmp_path: Path, problem: str, rounds: int) -> None:
    program, perform = Program(), Program.perform

    def until_interrupted(setting: Setting, request: Any) -> Any:
        if len(program.asked) > 3 * rounds + 1:
            program.problem = problem
            raise KeyboardInterrupt
        return perform(program, setting, request)

    program.perform = until_interrupted  # type: ignore[method-assign]
    shown = timed(program, tmp_path)
    assert len(shown.rounds) == rounds
    assert shown.interrupted == (not problem)
    assert shown.ended == (problem or "it was interrupted")
    assert not list(tmp_path.iterdir())
    if rounds == 5:
        assert shown.speedup is not None
        assert shown.ended in printed(shown)
    else:
        assert shown.ended in shown.why_unknown()
        assert planned(shown).is_unknown
    # THEN an interrupted plan writes what was shown to pay, and nothing else
    written = planned_cache.settings(planned(shown), ["python"])
    assert (written is None) == (rounds < 5 and not problem)

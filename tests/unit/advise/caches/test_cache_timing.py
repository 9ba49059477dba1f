"""What is predicted of a cache, from rounds whose seconds are known."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest

from lotus.advise.caches import cache_decision, cache_plan, cache_timing
from lotus.advise.caches.cache_timing import CacheTiming, EpochRound, EpochShares
from lotus.reporters.advise import plan_report
from lotus.reporters.base.console import plain_console
from tests.unit.advise.caches.test_cache_plan import chosen_of, cut

LEAST = cache_timing.LEAST_ROUNDS - 1
ALL, WRITTEN = EpochShares(1, 0), EpochShares(0, 1)


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
    text = printed(shown)
    assert "times as fast" not in text
    assert shown.rounds[LEAST:] or "what they gain is not known" in text
    assert plan_report.document(planned(shown))["timing"]["times"] is None


def planned(shown: CacheTiming) -> cache_plan.CachePlanning:
    return cache_decision.with_timing(chosen_of(cut(0, "own", [5.0] * 4)), shown)


def printed(shown: CacheTiming) -> str:
    file = io.StringIO()
    plan_report.write(plain_console(file, 80), planned(shown), words=["x"], output=Path("p.json"))
    return " ".join(file.getvalue().split())


def test_the_plan_says_what_timed_epochs_gain() -> None:
    text = printed(timing(*EVEN))
    assert "4.10 (3.9" in text
    assert "an epoch takes 250 ms (250 ms to 250 ms) instead of 1.02 s from the second on" in text
    assert "measured in 6 blocks each; it pays after 2 epochs." in text
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
    assert "the step binds, the program waits for data in 0.0% of its time" in planning.reason
    one = dataclasses.replace(chosen_of(cut(0, "own", [5.0] * 4)), epochs=1)
    once = cache_decision.with_timing(one, timing(*[(1.0, 1.0, 1.0)] * 6))
    assert "saves 0.0% (0.0% to 0.0%) of the time of 1 epoch, measured in 6 blocks" in once.reason
    # THEN what was timed is shown all the same
    text = printed(timing(*[(1.0, 1.2, 0.99)] * 6))
    assert "1.01 (1.01 to 1.01) times as fast from the second epoch on" in text
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
    planning = cache_decision.with_timing(
        chosen_of(cut(0, "own", [5.0] * 4), epochs=10), timing(*slow)
    )
    assert planning.chosen is None
    planning = cache_decision.with_timing(
        chosen_of(cut(0, "own", [5.0] * 4), epochs=99), timing(*slow)
    )
    assert planning.chosen is not None

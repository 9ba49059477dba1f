"""What a search found, held against the steps of a program that is a formula."""

from __future__ import annotations

import dataclasses
import io
import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.tune.candidates.trial_requests import TrainedBatches
from lotus.reporters.base.console import plain_console
from lotus.reporters.tune import tune_report
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError
from lotus.tune.search.check.checked_result import judged, promising
from lotus.tune.search.check.step_check import check
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.decision import LeftOpen
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from tests.unit.trained_program import BEST, OWN, Trains, result_of


def checked(program: Trains, trials: float = 1.5, seconds: float = 20.0) -> Result:
    return check(result_of(program, trials), program, seconds, clock=program.clock)


def test_a_gain_that_is_there_is_shown_as_it_is() -> None:
    program = Trains(0.1, 0.08)
    result = checked(program)
    assert result.best == BEST
    assert result.benefit
    assert result.checked is not None
    shown = result.checked.speedup
    # The first batch comes after 0.2 s, once in an epoch of 1,000 batches.
    assert shown.low < 100 / (0.2 + 999 * 0.08) < shown.high
    assert shown.precision < 0.03
    # The trials' own figure stays what it was.
    assert result.speedup == Speedup(1.5, 1.5 * 0.97, 1.5 * 1.03, 4)
    assert result.notes == ("a note",)
    settings = [setting for setting, _, _ in program.blocks]
    assert len(settings) >= 8
    assert settings == ([BEST, OWN, OWN, BEST] * len(settings))[: len(settings)]
    assert shown.pairs == len(settings) // 2
    assert {discard for setting, _, discard in program.blocks if setting == BEST} == {2}
    explanation = result.explain()
    verdict = search_notes.checked(result.checked, BEST)
    sentence = f"2 workers x prefetch 2 instead of no workers: {verdict}"
    assert f"{sentence}; in trials 1.5 times" in explanation


def test_a_promise_that_the_program_does_not_keep_is_taken_back() -> None:
    result = checked(Trains(0.1, 0.101))
    assert result.best == result.own == OWN
    assert not result.benefit
    assert result.speedup == Speedup(1.0, 1.0, 1.0, 0)
    assert result.checked is not None
    assert result.checked.setting == BEST
    assert result.notes[0].startswith("2 workers x prefetch 2 was 1.5 times as fast in trials,")
    assert result.notes[0].endswith(f"but only {search_notes.checked(result.checked, BEST)}")
    assert "the program keeps its own, no workers" in result.explain()


@pytest.mark.parametrize(
    ("shown", "note"),
    [
        (Speedup(0.39, 0.09, 1.77, 0), "the program's own steps do not confirm that (0.39 times"),
        (Speedup(0.98, 0.7, 1.6, 0), "or a longer --check would decide"),
        (Speedup(1.2, 0.9, 1.6, 0), "the program's own steps do not confirm that"),
        (Speedup(1.5, 1.0, 2.0, 0), "the program's own steps do not confirm that"),
        (Speedup(0.98, 0.92, 1.04, 0), "as fast in trials, which emulate"),
        (Speedup(1.01, 1.005, 1.015, 0), "as fast in trials, which emulate"),
    ],
)
def test_nothing_is_recommended_that_the_check_does_not_show(shown: Speedup, note: str) -> None:
    program = Trains(0.1, 0.1)
    random = search_notes.augmentations(BEST, OWN, False)
    result = judged(result_of(program, notes=(random, "a note")), Checked(BEST, shown, 10, 10))
    assert (result.best, result.benefit) == (OWN, False)
    assert result.speedup == Speedup(1.0, 1.0, 1.0, 0)
    assert note in result.notes[0]
    assert result.notes[1:] == ("a note",)
    explanation = result.explain()
    assert ("keeps its own, no workers" in explanation) == (shown.mean < 1.05)
    assert ("not decided: 2 workers x prefetch 2" in explanation) == (shown.mean >= 1.05)
    assert "DataLoader(" not in result.explain()


def test_what_the_check_shows_is_recommended() -> None:
    program = Trains(0.1, 0.1)
    shown = Checked(BEST, Speedup(1.2, 1.01, 1.4, 0), 10, 10)
    result = judged(result_of(program), shown)
    assert (result.best, result.benefit, result.checked) == (BEST, True, shown)
    assert result.notes == ("a note",)


def test_what_trials_could_not_compare_is_recommended_only_by_the_check() -> None:
    alone = {"speedup": None, "benefit": False}
    program = Trains(0.1, 0.05)
    result = check(result_of(program, **alone), program, 20.0, clock=program.clock)
    assert result.best == BEST
    assert result.benefit
    assert result.checked is not None
    assert result.speedup == result.checked.speedup
    slower = Trains(0.1, 0.2)
    result = check(result_of(slower, **alone), slower, 20.0, clock=slower.clock)
    assert (result.best, result.benefit) == (OWN, False)
    assert "worked in trials, but was only 0.5" in result.notes[0]
    result = check(result_of(slower, **alone), slower, 0.0, clock=slower.clock)
    assert (result.best, result.benefit) == (OWN, False)
    assert "neither in trials nor in the program's own steps (--check 0s)" in result.notes[0]


class Busier(Trains):
    """Another program begins during the check: from then on two settings are not what they were."""

    def _batch(self, setting: Setting) -> float:
        begun = self.now >= 54.0
        return super()._batch(setting) * (8.0 if begun and setting == self.best else 1.0)


def test_a_gain_that_ends_when_the_machine_gets_busy_is_not_recommended() -> None:
    result = checked(Busier(0.1, 0.08))
    assert (result.best, result.benefit) == (OWN, False)
    assert result.checked is not None
    assert result.checked.speedup.low < 1


class Drifting(Trains):
    """The machine gets steadily busier: each setting takes twice as long after 16 seconds."""

    def _batch(self, setting: Setting) -> float:
        return super()._batch(setting) * 2 ** ((self.now - 50.0) / 16)


def test_a_machine_that_gets_steadily_busier_favours_no_setting() -> None:
    program = Drifting(0.1, 0.1)
    result = checked(program)
    assert not result.benefit
    assert result.checked is not None
    assert result.checked.speedup.mean == pytest.approx(1, abs=0.08)


def test_what_trials_left_open_is_decided_by_the_check() -> None:
    doubt = "no benefit was shown for it"
    for best_s, faster in ((0.05, True), (0.12, False)):
        program = Trains(0.1, best_s)
        open_result = result_of(
            program, best=OWN, benefit=False, speedup=Speedup(1.0, 1.0, 1.0, 0),
            left_open=LeftOpen(BEST, doubt), notes=(doubt, "a note"),
        )  # fmt: skip
        result = check(open_result, program, 20.0, clock=program.clock)
        assert result.benefit == faster
        assert result.best == (BEST if faster else OWN)
        assert doubt not in result.notes
        assert "a note" in result.notes
        unchecked = check(open_result, program, 0.0, clock=program.clock)
        assert (unchecked.best, unchecked.notes) == (OWN, (doubt, "a note"))


@pytest.mark.parametrize(
    ("shown", "note"),
    [
        (Speedup(1.3, 0.9, 1.9, 5), ()),
        (Speedup(1.02, 0.99, 1.05, 5), ("worked in trials, but was only 1.02 times as fast",)),
        (Speedup(0.8, 0.7, 0.9, 5), ("worked in trials, but was only 0.8 times as fast",)),
    ],
)
def test_what_the_check_leaves_open_is_said_once(shown: Speedup, note: tuple[str, ...]) -> None:
    program, found = Trains(0.1, 0.1), Checked(BEST, shown, 30, 30)
    doubt = {"benefit": False, "left_open": LeftOpen(BEST, "a doubt"), "notes": ("a doubt",)}
    nothing = {"benefit": False, "speedup": None, "notes": ()}
    for result in (
        promising(result_of(program, best=OWN, speedup=Speedup(1, 1, 1, 0), **doubt), found),
        judged(result_of(program, **nothing), found),
    ):
        assert len(result.notes) == len(note)
        assert all(words in text for words, text in zip(note, result.notes, strict=True))
        assert result.explain().count(f"{shown.mean:.3g} times as fast") == 1


def test_the_option_that_gives_the_check_more_time_is_named() -> None:
    program, shown = Trains(0.1, 0.1), Checked(BEST, Speedup(1.3, 0.9, 1.9, 5), 30, 30)
    own: dict[str, Any] = {"best": OWN, "benefit": False, "speedup": Speedup(1.0, 1.0, 1.0, 0)}
    for changes, option in (
        ({"checked": shown, "check_s": 10.0}, "--check 20s"),
        ({"threads_checked": (shown,), "check_s": 10.0}, "--check 20s"),
        ({"checked": shown}, "--budget 120s"),
        ({"left_open": LeftOpen(BEST, "a doubt"), "check_s": 0.0}, "--budget 120s"),
    ):
        result = result_of(program, **own, **changes)
        assert f"next: more time: lotus tune {option}; or" in result.explain()
        text = io.StringIO()
        tune_report.write(plain_console(text, 200), result, words=["train.py"], output=None)
        assert f"more time: lotus tune {option} -- train.py\n" in text.getvalue()
        assert "written" not in text.getvalue()
        path, options = Path("t.json"), ["--loader", "a b"]
        tune_report.write(
            plain_console(text, 60), result, words=["x.py"], output=path, options=options
        )
        assert f"more time: lotus tune {option} --loader 'a b' -- x.py\n" in text.getvalue()
        assert "  written     t.json, with the program's own settings\n" in text.getvalue()


def test_the_check_goes_on_while_it_is_not_decided() -> None:
    even, uneven = Trains(0.1, 0.08, noise=0.01), Trains(0.1, 0.08, noise=1.0)
    checked(even, seconds=60.0)
    checked(uneven, seconds=60.0)
    assert 8 <= len(even.blocks) < 20
    assert uneven.now - 50.0 > 50.0


def test_nothing_counts_but_stretches_next_to_each_other() -> None:
    """The batches that were watched before all trials are the first ones of the program."""
    program = Trains(0.1, 0.05)
    cold = tuple(3 * step for step in program.watched.steps_s)
    program.watched = dataclasses.replace(program.watched, steps_s=cold)
    result = checked(program)
    assert [setting for setting, _, _ in program.blocks][:2] == [BEST, OWN]
    assert result.checked is not None
    assert result.checked.own_batches == sum(
        n for setting, n, _ in program.blocks if setting == OWN
    )
    assert result.checked.speedup.mean == pytest.approx(2, rel=0.05)


def test_persistent_workers_have_the_first_batches_to_wait_for_in_each_epoch() -> None:
    own = Setting(2, prefetch_factor=2)
    best = dataclasses.replace(own, persistent_workers=True)
    program = Trains(0.1, 0.1, own=own, best=best, batches=80, noise=0.0, startup_s=2.1)
    result = checked(program, seconds=60)
    assert result.checked is not None
    truth = (2.0 + 80 * 0.1) / (0.1 + 80 * 0.1)
    assert result.checked.speedup.mean == pytest.approx(truth)


@pytest.mark.parametrize("batches", [15, 20, 38, 45, 60, 100])
def test_a_short_epoch_gives_what_it_has(batches: int) -> None:
    program = Trains(0.1, 0.05, batches=batches)
    result = checked(program)
    if batches < 45:  # in two rounds 12 pass uncounted, and 12 had been watched
        assert (result.checked, program.blocks) == (None, [])
        assert result.notes[0] == search_notes.not_checked(search_notes.FEW_LEFT)
        return
    assert result.checked is not None
    assert result.checked.speedup.low > 1.1
    assert min(result.checked.batches, result.checked.own_batches) >= 8


def endless(program: Trains, *, dies: bool = False) -> Trains:
    """Let the epoch begin again at its end, or the program end in the third round."""
    program.watched = dataclasses.replace(program.watched, endless=True)
    program.left = math.inf
    if dies:
        program.raises[4] = TrialError("the program ended")
        program.problem = "the program ended"
    return program


@pytest.mark.parametrize("batches", [15, 60, 100])
def test_an_epoch_that_begins_again_is_as_good_as_a_long_one(batches: int) -> None:
    short = checked(Trains(0.1, 0.08, batches=batches, noise=0.3))
    again = checked(endless(Trains(0.1, 0.08, batches=batches, noise=0.3)))
    assert again.checked is not None
    if short.checked is not None:
        assert again.checked.batches > 2 * short.checked.batches
        assert again.checked.speedup.precision < short.checked.speedup.precision


def test_the_rest_of_the_epoch_is_compared_before_it_begins_again() -> None:
    program = endless(Trains(0.1, 0.05, batches=60), dies=True)
    result = checked(program)
    assert result.checked is not None
    assert sum(count for _, count, _ in program.blocks[:4]) < 48
    assert result.benefit
    assert search_notes.BEYOND_EPOCH not in result.notes  # it was not beyond
    program = endless(Trains(0.1, 0.05, batches=20), dies=True)
    assert search_notes.BEYOND_EPOCH in checked(program).notes


def test_what_is_prefetched_fits_into_a_short_epoch() -> None:
    best, fewer = Setting(2, prefetch_factor=16), Setting(2, prefetch_factor=2)
    program = Trains(0.1, 0.05, best=best, batches=60)
    program.batch_s[fewer] = 0.06
    result = checked(program)
    assert {setting for setting, _, _ in program.blocks} == {fewer, OWN}
    assert result.best == best
    assert result.checked is not None
    assert result.checked.setting == fewer
    assert "with prefetch 2, as the epoch is short" in result.explain()
    longer = checked(Trains(0.1, 0.05, best=best, batches=120)).checked
    assert longer is not None
    assert longer.setting == best


def test_it_takes_no_longer_than_it_may() -> None:
    for seconds in (1.0, 3.0, 20.0):
        program = Trains(0.1, 0.08, noise=0.5)
        checked(program, seconds=seconds)
        assert program.blocks
        # Twice as long, for four rounds. One stretch more may begin, and it ends in time.
        assert program.now - 50.0 <= 2 * seconds + 2 * program.startup_s + 0.5


class Erratic(Trains):
    """One whose stretches with the best setting take these parts of the own one's, in turn."""

    def __init__(self, parts: tuple[float, ...]) -> None:
        super().__init__(0.05, 0.05, batches=None)
        self.parts = itertools.cycle(parts)

    def train(self, setting: Setting, batches: int, discard: int, seconds: float) -> TrainedBatches:
        if setting == BEST:
            self.batch_s[BEST] = 0.05 * next(self.parts)
        return super().train(setting, batches, discard, seconds)


@pytest.mark.parametrize(("parts", "told"), [((1.2, 0.5), True), ((1.6, 0.1), False)])
def test_no_more_time_is_spent_where_rounds_differ_too_much_to_tell(
    parts: tuple[float, ...], told: bool
) -> None:
    program = Erratic(parts)
    result = checked(program, seconds=20.0)
    assert (program.now - 50.0 > 25.0) == told  # the time is doubled
    assert result.best == OWN
    text = result.explain()
    assert ("rounds differ too much to tell; " in text) != told
    assert ("95 % interval" in text) == told
    assert ("next: more time: lotus tune " in text) == told
    again = Erratic(parts)
    undecided = check(
        result_of(again, speedup=None, benefit=False), again, 20.0, clock=again.clock
    ).explain()
    assert "not decided: 2 workers x prefetch 2" in undecided
    assert ("next: more time: lotus tune " in undecided) == told
    assert ("next: tune while the machine does nothing else: " in undecided) != told


def test_nothing_is_checked_that_promises_nothing() -> None:
    program = Trains(0.1, 0.05)
    same = result_of(program, best=OWN)
    assert check(same, program, 20.0) is same
    for more, seconds, why in (
        ({"interrupted": True}, 20.0, "interrupted"),
        ({"objective": "throughput"}, 20.0, "--objective throughput leaves out the step"),
        ({}, 0.0, "--check 0s"),
    ):
        result = result_of(program, **more)
        reason = search_notes.not_checked(why)
        assert check(result, program, seconds) == dataclasses.replace(
            result, notes=(reason, "a note")
        )
    assert program.blocks == []


def test_why_it_could_not_be_checked_is_said() -> None:
    program = Trains(0.1, 0.05)
    program.refused = "OSError: no processes left"
    assert checked(program).notes[0] == search_notes.not_checked("OSError: no processes left")
    program = Trains(0.1, 0.05)
    program.raises[0] = TrialError("the job has several ranks")
    result = checked(program)
    assert result.notes[0] == search_notes.not_checked("the job has several ranks")
    assert not result.interrupted


def test_an_interrupt_leaves_what_is_known() -> None:
    program = Trains(0.1, 0.05)
    program.raises[0] = KeyboardInterrupt()
    result = checked(program)
    assert result.interrupted
    assert result.best == BEST
    assert result.notes[0] == search_notes.not_checked("interrupted")
    program = Trains(0.1, 0.05, noise=0.3)
    program.raises[4] = KeyboardInterrupt()
    assert checked(program).checked is not None
    # The program has gone by itself: nobody interrupted lotus.
    program = Trains(0.1, 0.05)
    program.raises[0], program.problem = KeyboardInterrupt(), "the program ended"
    result = checked(program)
    assert not result.interrupted
    assert result.notes[0] == search_notes.not_checked("the program ended")


class Alike(Trains):
    """Batches that follow each other take about as long (a first-order autoregression)."""

    state = 0.0

    def _batch(self, setting: Setting) -> float:
        self.state = 0.8 * self.state + 0.6 * self.chance.gauss(0, self.noise)
        return self.batch_s[setting] * math.exp(self.state)


class Rarely(Trains):
    """Each 50th batch has a step that is long, as for a validation."""

    count = 0

    def _batch(self, setting: Setting) -> float:
        self.count += 1
        return super()._batch(setting) + 1.0 * (self.count % 50 == 0)


def holds_the_truth(kind: type[Trains], batches: int, seed: int) -> bool:
    program = kind(0.1, 0.08, batches=batches, noise=0.2)
    program.chance = random.Random(seed)
    shown = checked(program).checked
    assert shown is not None
    truth = batches * 0.1 / (0.2 + (batches - 1) * 0.08)
    return shown.speedup.low <= truth <= shown.speedup.high


@pytest.mark.parametrize("batches", [100, 1000])
def test_its_interval_is_no_narrower_where_batches_are_alike(batches: int) -> None:
    assert sum(holds_the_truth(Alike, batches, seed) for seed in range(400)) >= 368


def test_a_step_that_is_rare_and_long_refutes_nothing() -> None:
    """It falls to the one setting or to the other, by chance."""
    for start in range(50):
        program = Rarely(0.1, 0.08, noise=0.05)
        program.count = start
        assert checked(program, trials=1.25).best == BEST


def test_its_interval_holds_the_truth() -> None:
    """Of 300 programs whose batches vary by a fifth, drawn independently."""
    cases = itertools.product((40, 100, 1000), range(100))
    held = sum(holds_the_truth(Trains, batches, seed) for batches, seed in cases)
    assert held >= 0.93 * 300

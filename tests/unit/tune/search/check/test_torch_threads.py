"""Fewer threads of torch beside workers: which are tried, which is chosen, what is reported."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from lotus.inside.tune.candidates.trial_requests import Reply, Request
from lotus.reporters.base.console import plain_console
from lotus.reporters.tune import tune_report
from lotus.settings.space import Measurement, Observed, Setting
from lotus.tune.program.program import TrialError
from lotus.tune.search.check import step_check, torch_threads
from lotus.tune.search.check.torch_threads import variants
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.rejected_settings import passed_over
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from lotus.tune.search.trials.trial_runner import TrialRow
from tests.unit.trained_program import BEST, OWN, Trains, result_of

SLOWED = "a step takes 90 ms beside 2 workers"
OWN_1, BEST_1 = (dataclasses.replace(setting, torch_threads=1) for setting in (OWN, BEST))
SPARED_1 = dataclasses.replace(BEST_1, num_workers=1)  # leaves a core to the step
COSTLY_S = 0.3  # CPU time of a batch, for which a worker alone is too slow


def threaded(program: Trains, threads: int = 2, busy: float = 1.6) -> Trains:
    """The program, with steps on several threads of torch that keep so many cores busy."""
    steps = program.watched.steps_s
    program.watched = dataclasses.replace(
        program.watched, threads=threads, step_cpu_s=tuple(busy * step for step in steps)
    )
    return program


def found(program: Trains, trials: float = 1.5, **more: object) -> Result:
    """What a search found: the best setting, and that workers slow the step down."""
    facts: dict[str, object] = {"notes": (SLOWED, "a note"), "slowed_step": SLOWED, **more}
    return result_of(program, trials, **facts)


def nothing_found(program: Trains) -> Result:
    """A search that tried the best setting, and kept the own one."""
    rows = (trial(OWN, 0.05), trial(BEST, 0.03, COSTLY_S))
    return found(program, 1.0, best=OWN, measured=rows)


def trial(
    setting: Setting, capacity_s: float, cpu_s: float = 0.05, queued_s: float = 0.0
) -> TrialRow:
    seen = Observed(capacity_s, cpu_s, queued_s, 0.001, 0.0, 0.1, 0.05, 0.05, 16.0)
    rate = 16 / (capacity_s + 0.05)
    return TrialRow(Measurement(setting, rate, rate, rate, 5.0, observed=seen), "tried")


def check(program: Trains, result: Result, seconds: float = 20.0) -> Result:
    return step_check.check(result, program, seconds, clock=program.clock)


def timed(own: float, best: float, own_1: float, best_1: float, **more: object) -> Trains:
    """A program with two threads; seconds per batch of each setting."""
    program = threaded(Trains(own, best, **more))  # type: ignore[arg-type]
    program.batch_s |= {OWN_1: own_1, BEST_1: best_1}
    return program


def test_fewer_threads_are_the_cores_that_workers_leave_and_one() -> None:
    program = Trains(0.1, 0.05)
    assert variants(found(threaded(program))) == (BEST_1, OWN_1)
    eight = found(threaded(program, threads=8), cores=8.0)
    assert variants(eight) == tuple(
        dataclasses.replace(setting, torch_threads=threads)
        for setting, threads in ((BEST, 6), (BEST, 1), (OWN, 1))
    )


def test_where_threads_of_workers_fight_the_step_alone_cannot_mend_it() -> None:
    program = threaded(Trains(0.1, 0.05))
    own = Setting(2, prefetch_factor=2)
    limited = dataclasses.replace(own, threads=1)
    rows = (trial(own, 0.3), trial(limited, 0.03, COSTLY_S))
    result = found(program, own=own, best=limited, measured=rows)
    assert variants(result) == (dataclasses.replace(limited, torch_threads=1),)


@pytest.mark.parametrize(
    ("threads", "busy", "more"),
    [(1, 1.6, {}), (2, 1.0, {}), (2, 1.6, {"untried": "no memory"}), (2, 1.6, {"failure": "bad"})],
)
def test_where_threads_cannot_matter_none_are_tried(
    threads: int, busy: float, more: dict[str, object]
) -> None:
    program = threaded(Trains(0.1, 0.05), threads, busy)
    assert variants(found(program, **more)) == ()


def test_a_result_without_workers_tries_what_would_feed_the_step() -> None:
    program = threaded(Trains(0.1, 0.05), busy=2.0)  # the step takes 0.05 s, or 0.1 s on one core
    rows = [
        trial(OWN, 0.1),
        trial(Setting(1, 2), 0.15),
        trial(Setting(2, 2), 0.05),
        trial(Setting(4, 2), 0.049),
        trial(Setting(6, 2), 0.02, cpu_s=0.2),
    ]
    failed = TrialRow(Measurement.failure(Setting(3, 2), "no memory"), "tried")
    result = found(program, best=OWN, measured=(*rows, failed))
    assert variants(result)[0] == Setting(2, 2, torch_threads=1)
    assert variants(dataclasses.replace(result, measured=())) == (OWN_1,)


def test_workers_that_compute_get_a_core_each() -> None:
    program = threaded(Trains(0.1, 0.05), busy=2.0)
    rows = [trial(OWN, 0.1), trial(Setting(1, 2), 0.15, 0.15), trial(Setting(4, 4), 0.05, 0.15)]
    for best in (OWN, Setting(4, 4)):  # beside other programs, four were faster than two
        result = found(program, best=best, measured=tuple(rows))
        assert variants(result)[0] == Setting(2, 4, torch_threads=1)
    rows[-1] = trial(Setting(4, 4), 0.05, cpu_s=0.02)  # they wait for storage
    result = found(program, best=Setting(4, 4), measured=tuple(rows))
    assert variants(result)[0] == Setting(4, 4, torch_threads=1)


def test_workers_that_leave_the_step_a_core_are_tried_where_they_may_suffice() -> None:
    program = timed(0.1, 0.12, own_1=0.11, best_1=0.07)
    program.batch_s[SPARED_1] = 0.06
    rows = (trial(OWN, 0.05), trial(BEST, 0.03))
    result = found(program, 1.0, best=OWN, measured=rows)
    assert variants(result) == (BEST_1, OWN_1, SPARED_1)
    checked = check(program, result)
    assert (checked.best, checked.benefit) == (SPARED_1, True)
    # AND not where they are too slow, nor where the workers leave cores, nor with one core.
    slow = (trial(OWN, 0.05), trial(BEST, 0.03, COSTLY_S))
    assert SPARED_1 not in variants(dataclasses.replace(result, measured=slow))
    assert torch_threads.leaving_a_core(dataclasses.replace(result, cores=4.0)) is None
    assert torch_threads.leaving_a_core(dataclasses.replace(result, cores=1.0)) is None


@pytest.mark.parametrize("backwards", [False, True])
def test_what_workers_with_a_core_each_take_comes_from_the_nearest_trial(backwards: bool) -> None:
    program = threaded(Trains(0.1, 0.05), busy=2.0)
    rows = [trial(Setting(4, 2), 0.05, 0.15), trial(Setting(3, 2), 0.3, 0.9)]
    measured = (trial(Setting(1, 2), 0.4, 0.4), *rows[:: -1 if backwards else 1])
    result = found(program, best=OWN, measured=(trial(OWN, 0.1), *measured))
    assert torch_threads._loaders(result)[Setting(2, 2)].capacity_s == pytest.approx(0.45)


def test_the_step_on_one_thread_says_how_many_workers_feed_it() -> None:
    three = dataclasses.replace(OWN_1, num_workers=3, prefetch_factor=2)
    program = threaded(Trains(1.0, 1.2), busy=1.9)  # its threads wait for each other
    program.batch_s |= {OWN_1: 0.04, BEST_1: 0.04, three: 0.05}
    # A third process has a core, so another worker gained nothing in trials.
    rows = (
        trial(Setting(1, 2), 0.06, queued_s=0.01),
        trial(BEST, 0.06, queued_s=0.07),
        trial(Setting(3, 2), 0.06, queued_s=0.13),
    )
    result = found(program, 1.0, best=OWN, measured=rows)
    assert variants(result)[0].num_workers == 1  # as its long steps would suffice for that
    check(program, result, seconds=60.0)
    assert [setting for setting, _, _ in program.blocks][:3] == [OWN, OWN_1, BEST_1]


def test_what_a_step_with_fewer_threads_needs_is_worth_a_trial() -> None:
    program = threaded(Trains(0.03, 0.05))  # the step takes 0.015 s
    trials = [row.measurement for row in (trial(OWN, 0.05), trial(Setting(1, 2), 0.05))]
    wanted = torch_threads.worth_a_trial(program.watched, OWN, trials, (1, 2), 2.0)
    assert wanted == BEST
    more = [*trials, trial(BEST, 0.06).measurement]
    assert torch_threads.worth_a_trial(program.watched, OWN, more, (1, 2), 2.0) is None
    assert torch_threads.worth_a_trial(program.watched, OWN, trials, (1,), 2.0) is None
    assert torch_threads.worth_a_trial(program.watched, OWN, [], (1, 2), 2.0) is None
    failed = [*trials, Measurement.failure(BEST, "no memory")]
    assert torch_threads.worth_a_trial(program.watched, OWN, failed, (1, 2), 2.0) is None
    single = threaded(Trains(0.03, 0.05), threads=1)
    assert torch_threads.worth_a_trial(single.watched, OWN, trials, (1, 2), 2.0) is None


def test_the_loss_that_threads_hide_is_a_gain_with_fewer() -> None:
    program = timed(0.1, 0.12, own_1=0.11, best_1=0.06)
    result = check(program, nothing_found(program))
    assert (result.best, result.benefit) == (BEST_1, True)
    assert result.checked is not None
    assert result.speedup == result.checked.speedup
    assert result.speedup.low < 0.1 / 0.06 < result.speedup.high
    assert [each.setting for each in result.threads_checked] == [OWN_1, BEST_1]
    assert SLOWED not in result.notes
    assert result.notes[0] == search_notes.torch_threads(BEST_1, 2)
    assert search_notes.augmentations(BEST, OWN, False) in result.notes
    assert result.tuned(["python", "train.py"]).loaders[0].setting == BEST_1
    settings = [setting for setting, _, _ in program.blocks]
    assert settings[:3] == [OWN, OWN_1, BEST_1]


def test_both_reports_show_the_threads() -> None:
    program = timed(0.1, 0.12, own_1=0.11, best_1=0.06)
    result = check(program, nothing_found(program))
    text = io.StringIO()
    words = ["python", "train.py"]
    console, output = plain_console(text, 500), Path("tuned.json")
    tune_report.write(console, result, words=words, output=output, table=True)
    own_1 = next(each for each in result.threads_checked if each.setting == OWN_1)
    for shown in (" ".join(text.getvalue().split()), result.explain()):
        assert (
            "2 workers x prefetch 2 and 1 torch thread instead of no workers and 2 torch threads: "
            in shown
        )
        assert "these rates were measured with 2 torch threads" in shown
        assert "not chosen" not in shown
        assert f"no workers, 1 torch thread: {search_notes.checked(own_1, OWN_1)}" in shown
        assert "torch.set_num_threads(1)" in shown
        assert "in trials" not in shown
    assert "  lotus run -- python train.py" in text.getvalue()
    assert "  written     tuned.json\n" in text.getvalue()
    (star,) = (line for line in text.getvalue().splitlines() if line.strip().startswith("*"))
    assert star.split()[1:3] == ["2", "2"]
    assert [each["setting"]["torch_threads"] for each in result.as_json()["threads_checked"]] == [
        1, 1,
    ]  # fmt: skip


def test_what_was_faster_in_trials_is_accounted_for() -> None:
    program = timed(0.1, 0.12, own_1=0.11, best_1=0.06)
    rows = (trial(OWN, 0.05), trial(BEST, 0.03, COSTLY_S), trial(Setting(3, 2), 0.02))
    result = check(program, found(program, measured=rows))
    assert result.best == BEST_1
    (why,) = passed_over(result).values()
    assert why.startswith("not chosen: trials have torch's threads as they are")


def test_of_equal_gains_the_most_threads_stay() -> None:
    six, one = (dataclasses.replace(BEST, torch_threads=threads) for threads in (6, 1))
    program = threaded(Trains(0.1, 0.08), threads=8)
    program.batch_s |= {six: 0.0505, one: 0.05, OWN_1: 0.3}
    assert check(program, found(program, cores=8.0)).best == six


def test_of_two_gains_the_larger_is_chosen() -> None:
    program = timed(0.1, 0.08, own_1=0.1, best_1=0.05)
    result = check(program, found(program))
    assert (result.best, result.benefit) == (BEST_1, True)


def test_a_refuted_setting_may_be_right_with_fewer_threads() -> None:
    program = timed(0.1, 0.13, own_1=0.2, best_1=0.05)
    result = check(program, found(program))
    assert result.best == BEST_1
    assert any("1.5 times as fast in trials" in note for note in result.notes)
    random = search_notes.augmentations(BEST, OWN, False)
    assert result.notes.count(random) == 1


def test_what_is_as_fast_with_the_threads_as_they_are_keeps_them() -> None:
    program = timed(0.1, 0.05, own_1=0.1, best_1=0.0497)
    result = check(program, found(program))
    assert (result.best, result.benefit) == (BEST, True)
    assert [each.setting for each in result.threads_checked] == [OWN_1, BEST_1]
    assert SLOWED not in result.notes


def test_fewer_threads_without_workers_may_be_enough() -> None:
    program = timed(0.1, 0.12, own_1=0.05, best_1=0.0498)
    result = check(program, nothing_found(program))
    assert (result.best, result.benefit) == (OWN_1, True)
    assert not any("random augmentations" in note for note in result.notes)


def test_no_gain_keeps_the_own_setting_and_says_what_was_tried() -> None:
    program = timed(0.1, 0.12, own_1=0.12, best_1=0.11)
    result = check(program, nothing_found(program))
    assert (result.best, result.benefit) == (OWN, False)
    assert SLOWED not in result.notes
    assert len(result.other_threads()) == 2
    assert "torch's threads: 2 workers x prefetch 2, 1 torch thread: 0.9" in result.explain()


def test_a_gain_that_the_check_did_not_decide_is_no_recommendation() -> None:
    program = threaded(Trains(0.1, 0.12))
    slow = Checked(OWN_1, Speedup(0.5, 0.4, 0.7, 4), 30, 30)
    open_one = Checked(BEST_1, Speedup(1.4, 0.7, 2.8, 4), 30, 30)
    result = dataclasses.replace(nothing_found(program), threads_checked=(slow, open_one))
    text = io.StringIO()
    tune_report.write(plain_console(text, 500), result, words=["train.py"], output=Path("t.json"))
    sentence = search_notes.undecided(open_one, OWN, 2)
    for shown in (" ".join(text.getvalue().split()), result.explain()):
        assert sentence in shown
        assert "more time: lotus tune --budget 120s" in shown
        assert "no benefit" not in shown
        assert "lotus run" not in shown


def test_a_setting_that_is_much_slower_is_not_trained_with_again() -> None:
    program = timed(0.1, 0.08, own_1=0.5, best_1=0.05)
    check(program, found(program), seconds=60)
    settings = [setting for setting, _, _ in program.blocks]
    assert settings.count(OWN_1) == 1
    assert settings.count(BEST_1) > 3


@pytest.mark.parametrize(("batches", "tried"), [(50, 2), (70, 3), (80, 4), (200, 4)])
def test_a_short_epoch_leaves_out_what_promises_least(batches: int, tried: int) -> None:
    program = timed(0.1, 0.08, own_1=0.1, best_1=0.05, batches=batches)
    result = check(program, found(program))
    settings = {setting for setting, _, _ in program.blocks}
    assert settings == {*[BEST, OWN, BEST_1, OWN_1][:tried]}
    assert (SLOWED in result.notes) == (tried < 3)
    assert (result.best == BEST_1) == (tried > 2)


def test_little_time_leaves_out_what_promises_least() -> None:
    program = timed(0.1, 0.08, own_1=0.1, best_1=0.05)
    check(program, found(program), seconds=3.5)
    settings = dict.fromkeys(setting for setting, _, _ in program.blocks)
    assert list(settings) == [BEST, OWN, BEST_1]
    assert program.now - 50.0 <= 7.0 + 2 * program.startup_s + 0.5


def test_a_stretch_of_slow_steps_leaves_time_to_others() -> None:
    program = timed(0.05, 0.12, own_1=0.05, best_1=0.04)
    program.batch_s[OWN] = 0.6  # other work has begun on the machine since it was watched
    result = check(program, nothing_found(program))
    assert result.best in (OWN_1, BEST_1)
    assert len(result.threads_checked) == 2


def test_stretches_that_were_too_short_count_together() -> None:
    program = timed(0.05, 0.12, own_1=0.05, best_1=0.05)
    program.batch_s[OWN] = 1.3  # a stretch has three batches
    result = check(program, nothing_found(program), seconds=30.0)
    assert len(result.threads_checked) == 2
    assert result.best in (OWN_1, BEST_1)


def test_very_slow_steps_leave_time_for_fewer_threads() -> None:
    """As two threads beside others on two cores: each batch takes longer than a second."""
    program = timed(1.2, 1.3, own_1=0.05, best_1=0.05)
    result = check(program, nothing_found(program))
    assert len(result.threads_checked) == 2
    assert result.benefit
    assert program.now - 50.0 <= 2 * 20.0 + 6.5


class Ending(Trains):
    """Ends, or is interrupted, at a stretch."""

    at, error = 0, BaseException()

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        if len(self.blocks) == self.at:
            raise self.error
        return super().perform(setting, request)


class Streaming(Trains):
    """Cannot change the setting of its loader; torch's threads it can."""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        if dataclasses.replace(setting, torch_threads=None) != self.own:
            raise TrialError("it cannot change")
        return super().perform(setting, request)


@pytest.mark.parametrize(
    ("best", "iterable", "why"),
    [
        (OWN, False, "it cannot change"),
        (BEST, False, "it cannot change"),
        (BEST, True, search_notes.STREAM),
    ],
)
def test_what_cannot_be_trained_with_leaves_the_others_in_the_comparison(
    best: Setting, iterable: bool, why: str
) -> None:
    program = threaded(Streaming(0.1, 0.05))
    program.batch_s |= {OWN_1: 0.06}
    program.watched = dataclasses.replace(program.watched, iterable=iterable)
    result = check(program, dataclasses.replace(nothing_found(program), best=best))
    assert (result.best, result.benefit) == (OWN_1, True)
    assert [shown.setting for shown in result.threads_checked] == [OWN_1]
    assert {setting for setting, _, _ in program.blocks} == {OWN, OWN_1}
    told = [note for note in result.notes if why in note]
    assert len(told) == (1 if best == BEST else 0)


def test_a_stream_with_a_length_is_compared_over_several_epochs() -> None:
    program = threaded(Streaming(0.1, 0.05))
    program.batch_s |= {OWN_1: 0.06}
    program.watched = dataclasses.replace(program.watched, iterable=True, batches=20)
    assert check(program, nothing_found(program)).best == OWN_1


@pytest.mark.parametrize("error", [TrialError("the job has several ranks"), KeyboardInterrupt()])
def test_where_it_cannot_train_the_note_stays(error: BaseException) -> None:
    program = threaded(Ending(0.1, 0.08))
    assert isinstance(program, Ending)
    program.error = error
    result = check(program, nothing_found(program))
    assert (result.best, result.threads_checked) == (OWN, ())
    assert result.notes == (SLOWED, "a note")
    assert result.interrupted == isinstance(error, KeyboardInterrupt)
    assert check(program, nothing_found(program), seconds=0.0).notes == (SLOWED, "a note")

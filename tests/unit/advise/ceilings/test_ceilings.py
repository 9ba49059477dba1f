"""Ceilings from blocks, and the blocks of a program that is a formula with a clock of its own."""

from __future__ import annotations

import io
import math
import os
import random
from typing import Any, cast

import pytest

from lotus.advise.ceilings import ceiling_blocks
from lotus.advise.ceilings.ceilings import ALL, EXACT, FREE, REAL, SAME, UNSENT, Ceilings, FedBlock
from lotus.inside.tune.candidates.trial_requests import Feed, Reply, Request, TrainedBatches
from lotus.reporters.advise import ceilings_report
from lotus.reporters.base.console import plain_console
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError, Watched
from lotus.tune.search.trials.trial_rates import Speedup
from tests.unit.trained_program import Trains

STORAGE, MAKING, SENDING, BESIDE, STEP = 0.004, 0.010, 0.003, 0.002, 0.020  # seconds of a batch


class Fed:
    """A program that is fed; the seconds of a batch are the constants above, with noise."""

    def __init__(
        self,
        *,
        workers: int = 0,
        noise: float = 0.01,
        slower: float = 1.0,
        refuses: dict[str, str] | None = None,
        interrupt_at: int = -1,
        wraps: bool = False,
        step_s: float = STEP,
    ) -> None:
        batch_s = slower * (STORAGE + MAKING + BESIDE + step_s)
        self.watched: Watched = Trains(batch_s, 0.04, own=Setting(workers)).watched
        self.problem, self.now, self.slower, self.step_s = "", 7.0, slower, step_s
        self.refuses, self.interrupt_at, self.wraps = refuses or {}, interrupt_at, wraps
        self.noise, self.chance = noise, random.Random(1)
        self.kinds: list[str] = []

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        assert isinstance(request, Feed)
        if len(self.kinds) == self.interrupt_at:
            raise KeyboardInterrupt
        self.kinds.append(request.kind)
        if request.kind in self.refuses:
            raise TrialError(self.refuses[request.kind])
        return cast("Reply", self.feed(request))

    def feed(self, request: Feed) -> TrainedBatches:
        alternatives = {EXACT: STORAGE + MAKING, ALL: STORAGE + MAKING / 4}
        least = {SAME: MAKING, UNSENT: MAKING - SENDING, FREE: 0.0}
        wait_s = {REAL: STORAGE + MAKING, **least, **alternatives}[request.kind]
        step_s = self.step_s + (0.0 if request.kind == FREE else BESIDE)
        waits, steps = (
            [seconds * self.slower * math.exp(self.chance.gauss(0, self.noise)) for _ in range(400)]
            for seconds in (wait_s, step_s)
        )
        count = min(request.batches, int(request.seconds / (wait_s + step_s) / self.slower))
        self.now += sum(waits[: count + 4]) + sum(steps[: count + 4])
        over = self.wraps and len(self.kinds) > 4
        made = (tuple(waits[:count]), tuple(steps[:count]), (16,) * count)
        return TrainedBatches(*made, None, count, over)

    def clock(self) -> float:
        return self.now


def measured(program: Fed, budget_s: float = 60.0, **more: Any) -> Ceilings:
    return ceiling_blocks.measure(program, budget_s, clock=program.clock, **more)


def rounds(*each: tuple[float, float, float]) -> Ceilings:
    """Rounds of (wait, step) with real data and the step with data always ready."""
    made = tuple(
        {REAL: FedBlock(REAL, wait, step, 10, 10), FREE: FedBlock(FREE, 0.0, free, 10, 10)}
        for wait, step, free in each
    )
    return Ceilings(Fed().watched, made, 1.0, 60.0)


def test_the_ceiling_and_all_shares_hold_the_truth() -> None:
    result = measured(Fed())
    whole = STORAGE + MAKING + BESIDE + STEP
    for speedup, truth in (
        (result.speedup, whole / STEP),
        (result.storage_speedup, whole / (whole - STORAGE)),
    ):
        assert speedup is not None
        assert speedup.low * 0.995 <= truth <= speedup.high * 1.005
        assert speedup.precision < 0.03
    truths = {"storage": STORAGE, "making": MAKING, "interference": BESIDE, "step": STEP}
    assert {each.stall for each in result.shares()} == truths.keys()
    for each in result.shares():
        assert each.low - 0.005 <= truths[each.stall] / whole <= each.high + 0.005
    assert sum(each.mean for each in result.shares()) == pytest.approx(1)
    assert result.sentence().startswith("With data always ready this loop would be at most 1.8")
    assert not result.notes_on()
    assert result.waits_for_storage


def test_a_loop_without_a_share_of_storage_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rounds((0.01, 0.02, 0.02), (0.01, 0.02, 0.02)).waits_for_storage  # nobody knows
    monkeypatch.setitem(globals(), "STORAGE", 0.0)
    assert not measured(Fed()).waits_for_storage


def test_what_workers_send_is_told_from_what_they_make() -> None:
    program = Fed(workers=2)
    result = measured(program)
    assert program.kinds[:8] == [REAL, FREE, SAME, UNSENT, UNSENT, SAME, FREE, REAL]
    whole = STORAGE + MAKING + BESIDE + STEP
    truths = {"storage": STORAGE, "making": MAKING - SENDING, "delivery": SENDING}
    shares = {each.stall: each for each in result.shares()}
    assert [*shares] == ["storage", "making", "delivery", "interference", "step"]
    for stall, seconds in truths.items():
        assert shares[stall].low - 0.005 <= seconds / whole <= shares[stall].high + 0.005
    assert sum(each.mean for each in shares.values()) == pytest.approx(1)


def test_workers_that_send_all_the_same_leave_delivery_in_the_rest() -> None:
    result = measured(Fed(workers=2, refuses={UNSENT: "its workers send all that they make"}))
    assert [each.stall for each in result.shares()] == ["storage", "making", "interference", "step"]
    assert result.notes == (
        "delivery cannot be separated from the rest of the wait: its workers send all that they "
        "make",
    )
    # AND a stream's delivery is told from the rest of its wait.
    stream = measured(Fed(workers=2, refuses={SAME: "it is a stream"}))
    assert [each.stall for each in stream.shares()] == [
        "waiting", "delivery", "interference", "step",
    ]  # fmt: skip
    assert sum(each.mean for each in stream.shares()) == pytest.approx(1)


def test_each_kind_is_first_in_its_turn_and_a_precise_answer_ends_early() -> None:
    program = Fed()
    result = measured(program, 300.0)
    assert program.kinds[:6] == [REAL, FREE, SAME, SAME, FREE, REAL]
    assert len(result.rounds) == 4
    assert result.seconds < 100


def test_noise_takes_the_whole_budget_and_no_more() -> None:
    program = Fed(noise=1.0)
    result = measured(program, 60.0)
    assert 45 <= result.seconds <= 66
    assert len(result.rounds) >= 6


def test_without_repeated_samples_the_wait_stays_whole() -> None:
    program = Fed(refuses={SAME: "it is a stream"})
    result = measured(program)
    assert program.kinds.count(SAME) == 1
    assert [each.stall for each in result.shares()] == ["waiting", "interference", "step"]
    assert result.notes == (
        "storage cannot be separated from the rest of the wait: it is a stream",
    )
    assert result.storage_speedup is None
    assert result.speedup is not None


def test_little_time_is_for_the_ceiling_first() -> None:
    program = Fed(slower=40.0)  # 1.4 s a batch
    result = measured(program, 60.0)
    assert len(result.rounds) >= 2
    assert result.speedup is not None
    (note,) = result.notes
    assert note.endswith("the time was too short: give more with --budget")


def test_a_slow_loop_leaves_out_what_the_ceiling_does_not_need() -> None:
    program = Fed(slower=60.0)  # 2.2 s a batch
    result = measured(program, 60.0, alternatives=True)
    assert set(program.kinds) == {REAL, FREE}
    assert result.speedup is not None
    assert set(result.refused) == {EXACT, ALL}


def test_alternatives_are_measured_rather_than_parts_of_the_wait() -> None:
    program = Fed(slower=17.0)  # 0.6 s a batch: three more rounds of five blocks do not fit
    result = measured(program, 60.0, alternatives=True)
    assert program.kinds.count(SAME) == 1
    assert not result.refused
    assert [result.over(kind) is not None for kind in (EXACT, ALL)] == [True, True]
    (note,) = result.notes
    assert note.startswith("storage cannot be separated from the rest of the wait: the time was")


def test_slow_batches_of_many_workers_are_measured() -> None:
    result = measured(Fed(workers=8, slower=40.0), 300.0)
    assert result.speedup is not None
    assert all(block.batches == 8 for each in result.rounds for block in each.values())


def test_alternatives_are_measured_in_the_loop() -> None:
    program = Fed()
    result = measured(program, alternatives=True)
    shown = result.over(ALL)
    whole_s = STORAGE + MAKING + BESIDE + STEP
    assert shown is not None
    assert shown.mean == pytest.approx(whole_s / (whole_s - 0.75 * MAKING), rel=0.05)
    assert math.isclose(sum(each.mean for each in result.shares()), 1)
    assert set(program.kinds) == {REAL, SAME, FREE, EXACT, ALL}
    assert not set(measured(Fed()).rounds[0]) & {EXACT, ALL}


def test_alternatives_that_do_not_fit_leave_the_ceiling() -> None:
    program = Fed(refuses={ALL: "none that may change values fits its operations"})
    result = measured(program, alternatives=True)
    assert result.refused == {ALL: "none that may change values fits its operations"}
    assert (program.kinds.count(ALL), result.over(ALL), result.notes) == (1, None, ())
    assert result.speedup is not None


def test_too_slow_a_loop_has_a_reason_and_a_next_step() -> None:
    result = measured(Fed(slower=400.0), 60.0)
    assert result.speedup is None
    assert result.failure.startswith("too few blocks fitted into 60.0 s, as a batch takes ")
    # AND what is known from the batches before is said.
    assert (
        "of 11 batches that were watched, 50% of the time was the wait for data" in result.failure
    )
    assert result.failure.endswith("lotus advise --budget 5m -- COMMAND")
    assert (result.shares(), result.sentence()) == ([], result.failure)


def test_a_program_that_cannot_be_fed_says_why() -> None:
    result = measured(Fed(refuses={REAL: "the job has several ranks"}))
    assert result.failure == "the ceiling cannot be measured: the job has several ranks"


@pytest.mark.parametrize(("at", "known"), [(3, False), (7, True)])
def test_ctrl_c_keeps_the_rounds_so_far(at: int, known: bool) -> None:
    result = measured(Fed(interrupt_at=at))
    assert (result.interrupted, result.failure) == (True, "")
    assert (result.speedup is not None) == known


def test_an_epoch_that_begins_again_is_noted_once() -> None:
    (note,) = measured(Fed(wraps=True)).notes
    assert note.startswith("the epoch was over meanwhile")


def test_workers_give_whole_bursts() -> None:
    result = measured(Fed(workers=3))
    assert all(block.batches % 3 == 0 for each in result.rounds for block in each.values())


def test_a_loop_of_steps_has_nothing_to_gain() -> None:
    steps = [(0.00001, 0.02, 0.02), (0.00001, 0.0201, 0.0201), (0.00001, 0.02, 0.02)]
    assert rounds(*steps).sentence().startswith("Nothing to gain from the loader: ")
    waits = rounds((1.0, 0.001, 0.00001), (1.0, 0.001, 0.000011), (1.0, 0.001, 0.00001))
    assert "more than 100 times" in waits.sentence()
    little = [(0.0001, 0.02, 0.02), (0.0, 0.0201, 0.0204), (0.0002, 0.02, 0.0199)]
    assert rounds(*little).sentence().startswith("No gain from the loader is shown: with data ")
    unclear = [(0.01, 0.02, 0.02), (0.0, 0.02, 0.03), (0.01, 0.02, 0.022)]
    assert rounds(*unclear).sentence().endswith("which is not significant")


def test_one_round_is_no_answer() -> None:
    result = rounds((0.01, 0.02, 0.02))
    assert (result.speedup, result.shares()) == (None, [])
    assert result.sentence() == "the ceiling is not known: too few blocks were measured"
    text = io.StringIO()
    ceilings_report.write(plain_console(text, 80), result)
    assert "Where the loop's time goes" not in text.getvalue()


def test_the_report_ends_with_the_sentence() -> None:
    result = measured(Fed())
    text = io.StringIO()
    ceilings_report.write(plain_console(text, 100), result)
    lines = text.getvalue().strip().splitlines()
    assert lines[0].startswith("Ceilings: the loader of Pictures")
    assert " ".join(text.getvalue().split()).endswith(f"{result.sentence()}.")
    for name in ("storage", "making", "slowed step", "step", "data always ready"):
        assert any(line.strip().startswith(name) for line in lines)
    assert max(map(len, lines)) <= 100


def test_an_interval_that_holds_any_result_is_not_printed() -> None:
    assert ceilings_report._times(Speedup(1.78, 0.001, 13332.0, 3)) == "cannot be told"
    assert ceilings_report._times(Speedup(1.78, 1.5, 2.1, 3)) == "1.78 (1.50 to 2.10)"


def test_blocks_that_end_early_say_why() -> None:
    def shown(result: Ceilings) -> str:
        text = io.StringIO()
        ceilings_report.write(plain_console(text, 100), result)
        return " ".join(text.getvalue().split())

    precise = measured(Fed())
    assert precise.seconds < precise.budget_s / 2
    assert "They ended early: the speed-ups are known within 2.0%." in shown(precise)
    slow = measured(Fed(slower=40.0), 59.0)
    assert slow.seconds < 0.9 * slow.budget_s
    assert "They ended early: another round of blocks takes " in shown(slow)
    noisy = measured(Fed(noise=1.0), 60.0)
    assert (noisy.seconds < 54.0) == ("They ended early: " in shown(noisy))


def test_blocks_that_differ_much_say_how_far_they_are_apart() -> None:
    result = rounds((1.0, 0.001, 0.01), (0.1, 0.001, 0.01), (0.3, 0.001, 0.01))
    (note,) = result.notes_on()
    assert note.startswith("the blocks differ a lot, as they do while other programs use the ")
    assert result.sentence().endswith("times as fast: the blocks differ too much to say more")
    assert "(" not in result.sentence()
    assert "1.00 to 9.90 samples/s with the loader as it is, 100 samples/s with" in note


def test_progress_is_a_bar_or_a_line_a_round(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((120, 30)))
    for terminal in (True, False):
        live = ceilings_report.CeilingProgress(terminal)
        measured(Fed(), on_progress=live)
        live.clear()
        shown = capfd.readouterr().err
        assert ("[#" in shown) == terminal
        assert ("2 rounds of blocks, 1." in shown) == (not terminal)
        assert "times so far" in shown

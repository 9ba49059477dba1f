"""Who makes batches at each moment: uneven data, batches of unequal cost, too few made ahead."""

from collections.abc import Callable

import pytest

from lotus.analysis.attached.verdict.sampled_verdict import summarise
from lotus.analysis.verdict.verdict import Cause
from tests.unit.sampled_program import IDLE, STEP, WAIT, At, Program, operation, turns

BLUR = operation("Blur")
STARTUP = ("start-up", "")


def first_of(program: Program) -> Cause:
    verdict = summarise(program.evidence()).verdict
    assert verdict is not None
    return verdict.causes[0]


def until(ticks: int, period: int) -> Callable[[int], At]:
    """A worker that has nothing to do from this tick of each epoch on."""
    return lambda tick: BLUR if tick % period < ticks else IDLE


def test_a_worker_with_more_data_is_not_called_slow() -> None:
    # The loop goes on with its batches while the others have reached the end.
    main = turns((WAIT, 4), (STEP, 2))
    workers = [until(120, 120), until(30, 120), until(20, 120)]
    cause = first_of(Program(main, workers, ticks=480, settings=[{"iterable": 1}] * 3))
    assert cause.kind == "starved-workers"
    assert cause.title.startswith("uneven data: one of the 3 workers has more than the others")
    assert cause.evidence["largest_making_share"] == pytest.approx(120 / 170, abs=0.01)
    assert "shards of equal size" in cause.advice
    # The data set of indices is divided by the loader.
    assert first_of(Program(main, workers, settings=[{"iterable": 0}] * 3)).kind == "slow-worker"


def test_a_slow_worker_of_a_stream_is_not_said_to_have_more_data() -> None:
    # All wait for each of its batches; with the step that takes it, the others begin anew.
    main = turns((WAIT, 10), (STEP, 2))
    fast = turns((IDLE, 10), (BLUR, 2))
    program = Program(main, [turns((BLUR, 12)), fast, fast], settings=[{"iterable": 1}] * 3)
    cause = first_of(program)
    assert cause.kind == "slow-worker"
    assert "own_ns" not in cause.evidence  # the time of a sample is not known
    assert cause.reason.startswith("Worker 0 made batches for 10.0 s, a usual one of the others")


def taken_in_turn(worker: int, quick: int, slow: int) -> Callable[[int], At]:
    """Batches of two workers; every other slow one is of this worker."""
    period = 2 * (quick + slow)

    def at(tick: int) -> At:
        place = tick % period
        turn, place = place // (quick + slow), place % (quick + slow)
        return BLUR if place < quick or turn == worker else IDLE

    return at


def test_batches_that_all_wait_for_whoever_makes_them_are_of_unequal_cost() -> None:
    workers = [taken_in_turn(place, 6, 14) for place in (0, 1)]
    cause = first_of(Program(turns((WAIT, 19), (STEP, 1)), workers))
    assert (cause.kind, cause.title.partition(":")[0]) == (
        "slow-batches",
        "batches of unequal cost",
    )
    assert cause.evidence["lone_share"] == pytest.approx(13 / 19, abs=0.05)
    assert "lotus trace" in cause.advice


def test_whose_batch_is_late_is_chance_while_workers_lack_cores() -> None:
    workers = [taken_in_turn(place, 6, 14) for place in (0, 1)]
    program = Program(turns((WAIT, 19), (STEP, 1)), workers, ready=0.6)
    assert first_of(program).kind != "slow-batches"


def test_alike_batches_are_not_of_unequal_cost() -> None:
    workers = [taken_in_turn(place, 18, 2) for place in (0, 1)]
    assert first_of(Program(turns((WAIT, 19), (STEP, 1)), workers)).kind == "operation"


def test_the_last_batches_of_short_epochs_are_not_slow() -> None:
    main = turns((STARTUP, 2), (WAIT, 6), (STEP, 1), (WAIT, 10), (STEP, 1))
    both = turns((BLUR, 8), (IDLE, 12))
    alone = turns((BLUR, 18), (IDLE, 2))
    kinds = {
        each.kind
        for each in summarise(Program(main, [both, alone]).evidence()).loops[0].verdict.causes
    }
    assert "slow-batches" not in kinds


@pytest.mark.parametrize("rests_in_steps", [True, False])
def test_workers_that_rest_in_long_steps_and_are_late_after_them(rests_in_steps: bool) -> None:
    # One long step, then several short ones that wait.
    main = turns((STEP, 24), *[(WAIT, 3), (STEP, 1)] * 4)
    resting = turns((BLUR, 2), (IDLE, 22), (BLUR, 16))
    steady = turns((BLUR, 24), (BLUR, 16))
    worker = resting if rests_in_steps else steady
    cause = first_of(Program(main, [worker, worker]))
    assert (cause.kind == "prefetch") is rests_in_steps
    if rests_in_steps:
        assert "prefetch_factor" in cause.advice
        assert not cause.remedy.setting  # no number is known

"""What a tired reader takes from the first lines: no loop is called well that lacks cores."""

import pytest

from lotus.analysis.verdict.ruled_out import RULED_OUT
from lotus.reporters.run.parts.coverage import verdict_words
from tests.unit.analysis.machine.test_core_use import QUIET, cores, judged
from tests.unit.analysis.verdict.causes.test_step_delay import loop
from tests.unit.simulated import Plan


def test_a_step_whose_threads_fight_for_cores_is_not_only_called_not_input_bound() -> None:
    plan = Plan(operations={"Slow": 8.0}, workers=2, batch_size=4, step=100.0, cores=2)
    judgement = judged(cores(plan.run(), (0.5, 0.5, 0.0), (0.25, 0.7, 0.5)))
    assert judgement.kind == "consumer-bound"
    assert judgement.causes[0].kind == "step-threads"
    assert verdict_words(judgement) == "NOT INPUT-BOUND, BUT SHORT OF CORES"
    lost = f"{judgement.causes[0].share:.0%} of the loop is lost"
    assert f"{lost}, because the training step's threads have fewer cores" in judgement.summary


@pytest.mark.parametrize(("delay", "enough"), [(0.0, True), (0.5, False)])
def test_cores_are_not_ruled_out_where_steps_lack_them(delay: float, enough: bool) -> None:
    plan = Plan(operations={"Slow": 8.0}, workers=2, step=100.0, cores=2)
    judgement = judged(cores(plan.run(), (1.0, 0.0, 0.0), (1.0 - delay, delay, 0.0)))
    assert ("too few cores" in judgement.ruled_out) == enough


def test_a_step_that_workers_keep_from_the_cores_is_said_to_be() -> None:
    delayed, quiet = judged(loop(beside=1.6)), judged(loop(beside=0.0))
    assert delayed.causes[0].kind == "step-delay"
    assert verdict_words(delayed) == "NOT INPUT-BOUND, BUT SHORT OF CORES"
    assert "is lost, because threads that the workers keep running use the cores" in delayed.summary
    assert verdict_words(quiet) == "NOT INPUT-BOUND"
    assert "is lost" not in quiet.summary


@pytest.mark.parametrize(
    "plan",
    [
        Plan(step=100.0, pickle=2.0, write=1.0),
        Plan(operations={"Slow": 5.0}, unpickle=0.5),
        Plan(operations={"Slow": 5.0}, collate=0.2, sampler=0.3),
        Plan(batches=8, spawn=100.0, shutdown=5.0),
        Plan(batches=200, step=5.0, operations={"Slow": lambda s, w: 30.0 if s == 99 else 0.5}),
        Plan(batches=400, operations={"Slow": 5.0}, spawn=20.0, shutdown=20.0),
    ],
)
def test_what_is_listed_as_a_cause_is_never_ruled_out(plan: Plan) -> None:
    judgement = judged(cores(plan.run(), QUIET, QUIET))
    listed = {cause.kind for cause in judgement.causes}
    assert listed & set(RULED_OUT)
    assert not {RULED_OUT.get(kind) for kind in listed} & set(judgement.ruled_out)


@pytest.mark.parametrize(("unpickle", "kind"), [(1.5, "consumer-bound"), (4.0, "input-bound")])
def test_the_way_of_batches_alone_makes_no_loop_input_bound_below_a_tenth(
    unpickle: float, kind: str
) -> None:
    judgement = judged(Plan(step=20.0, unpickle=unpickle).run())
    sending = next(cause for cause in judgement.causes if cause.kind == "send")
    assert judgement.input_share > 0.05
    assert sending.share > 0.05
    assert judgement.kind == kind
    assert ("on their way from the workers" in judgement.summary) == (kind == "consumer-bound")


@pytest.mark.parametrize(
    ("unpickle", "operation", "kind"),
    [(1.2, 2.0, "consumer-bound"), (1.2, 0.02, "input-bound"), (6.0, 2.0, "input-bound")],
)
def test_the_usual_way_of_batches_is_no_finding_where_no_change_makes_it_shorter(
    unpickle: float, operation: float, kind: str
) -> None:
    # GIVEN batches of which the way takes a tenth to a fifth of the loop
    small = {"operations": {"Read": operation}, "own": 0.02, "collate": 0.05, "workers": 4}
    plan = Plan(step=7.0 * unpickle, unpickle=unpickle, batches=200, **small)  # type: ignore[arg-type]
    run = cores(plan.run(), QUIET, QUIET)
    run.waits["wait_cpu_ns"] = 0.9 * run.waits["wait_ns"]
    run.batches["bytes"] = run.batches["send_bytes"] = 400
    judgement = judged(run)
    assert 0.1 < judgement.input_share < 0.2
    # THEN it is one where the main process makes them sooner, or where they take unusually long
    assert judgement.kind == kind
    assert ("on their way from the workers" in judgement.summary) == (kind == "consumer-bound")


@pytest.mark.parametrize(
    ("spawn", "epochs", "first"),
    [(1500.0, 1, "operation"), (3000.0, 1, "start-up"), (300.0, 3, "start-up")],
)
def test_a_brief_start_up_that_comes_once_is_no_finding(
    spawn: float, epochs: int, first: str
) -> None:
    plan = Plan(batches=10, operations={"Slow": 10.0}, step=4.0, spawn=spawn, epochs=epochs)
    causes = judged(plan.run()).causes
    assert causes[0].kind == first
    # It takes the largest part of this short loop, and is listed.
    assert max(causes, key=lambda cause: cause.share).kind == "start-up"


def test_waits_of_which_no_cause_takes_5_percent_do_not_make_a_loop_input_bound() -> None:
    small = {"operations": {"One": 0.3}, "collate": 2.0, "own": 0.3, "workers": 0, "step": 55.0}
    judgement = judged(Plan(**small).run())  # type: ignore[arg-type]
    assert judgement.input_share > 0.05
    assert judgement.kind == "consumer-bound"
    assert "and no single cause takes 5%" in judgement.summary
    large = judged(Plan(**(small | {"operations": {"One": 0.9}})).run())  # type: ignore[arg-type]
    assert large.causes[0].title == "One"


@pytest.mark.parametrize(("batches", "words"), [(1, "1 batch was"), (2, "2 batches were")])
def test_one_or_two_batches_are_not_judged(batches: int, words: str) -> None:
    judgement = judged(Plan(batches=batches).run())
    assert verdict_words(judgement) == "NO VERDICT"
    assert judgement.summary == f"Only {words} taken: too few to judge."
    assert judged(Plan(batches=3).run()).causes


def test_a_slow_iter_without_workers_says_nothing_of_workers() -> None:
    run = Plan(workers=0, epochs=3, batches=4, iter=2000.0).run()
    first = judged(run).causes[0]
    assert first.kind == "start-up"
    assert "__iter__ of the sampler" in first.advice


@pytest.mark.parametrize(("work", "words"), [(5.0, "workers are idle"), (39.0, "only just")])
def test_workers_that_are_hardly_idle_keep_up_only_just(work: float, words: str) -> None:
    plan = Plan(batches=60, step=40.0, workers=2, batch_size=2, operations={"Slow": work})
    first = judged(plan.run()).causes[0]
    assert first.kind == "consumer"
    assert words in first.advice

"""The verdict on a program that was sampled from outside."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.clock_offset import labels_of_looks
from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, summarise
from lotus.reporters.run.attached import attached_report
from tests.unit.sampled_program import (
    IDLE,
    MAIN,
    START,
    STEP,
    WAIT,
    At,
    Program,
    always,
    between,
    job,
    operation,
    turns,
)

BLUR, DECODE = operation("Blur"), operation("Loader")
STARVING = turns((WAIT, 7), (STEP, 3))
_ORDER = np.random.default_rng(1).random(500) < 0.7


def judged(program: Program) -> AttachedSummary:
    return summarise(program.evidence())


def first_of(program: Program) -> str:
    summary = judged(program)
    assert summary.verdict is not None
    return f"{summary.verdict.causes[0].kind}: {summary.verdict.causes[0].title}"


def test_an_operation_that_computes() -> None:
    makers = [turns((BLUR, 6), (DECODE, 2))] * 2
    summary = judged(Program(lambda tick: WAIT if _ORDER[tick] else STEP, makers))
    verdict = summary.verdict
    assert verdict is not None
    assert (verdict.kind, verdict.degree) == ("input-bound", "highly")
    assert verdict.input_share == pytest.approx(0.7, abs=0.05)
    assert verdict.input_low < 0.7 < verdict.input_high
    first = verdict.causes[0]
    assert (first.kind, first.title) == ("operation", "Blur")
    assert first.share == pytest.approx(0.7 * 0.75, abs=0.05)
    assert first.advice.startswith("Raise num_workers from 2 to")
    assert first.low < first.share < first.high
    assert summary.loops[0].ceiling == pytest.approx(1 / 0.3, rel=0.2)
    assert sum(cause.share for cause in verdict.causes) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("sleep", "operation: Blur (sleeps, not computing)"),
        ("socket", "operation: Blur (waits for the network, not computing)"),
        ("shared-lock", "shared-lock: Blur (waits for a lock that processes share, not computing)"),
        ("pipe", "operation: Blur (waits for another process, over a pipe, not computing)"),
    ],
)
def test_an_operation_that_is_blocked(reason: str, cause: str) -> None:
    program = Program(STARVING, [turns((BLUR, 9), (DECODE, 1))] * 2, blocked={BLUR: reason})
    assert first_of(program) == cause


@pytest.mark.parametrize("offset_ms", [-70, 0, 45])
def test_what_blocks_is_found_whatever_the_clock_of_the_stacks(offset_ms: int) -> None:
    maker = turns((BLUR, 5), (DECODE, 4), (IDLE, 3))
    evidence = Program(STARVING, [maker], blocked={BLUR: "sleep"}).evidence(offset_ms * 1_000_000)
    number = labels_of_looks(evidence.looks, evidence.samples, 100e6)
    asleep = evidence.looks["reason"].to_numpy() == "sleep"
    names = evidence.labels["name"].to_numpy()[number]
    assert np.mean(names[asleep] == "Blur") > 0.9


def test_a_loop_whose_batches_are_ready_has_nothing_to_gain() -> None:
    maker = turns((BLUR, 2), (IDLE, 8))
    verdict = judged(Program(turns((WAIT, 1), (STEP, 49)), [maker] * 2)).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.degree) == ("consumer-bound", "not")
    assert verdict.causes[0].kind == "consumer"
    assert "Loading keeps up" in verdict.causes[0].advice


def test_what_the_samples_cannot_tell_is_no_reason_for_a_change() -> None:
    wait = np.random.default_rng(5).random(200) < 0.05
    maker = turns((BLUR, 2), (IDLE, 8))
    program = Program(lambda tick: WAIT if wait[tick] else STEP, [maker] * 2, ticks=200)
    verdict = judged(program).verdict
    assert verdict is not None
    assert verdict.input_low < 0.05 < verdict.input_share
    assert (verdict.kind, verdict.causes[0].kind) == ("consumer-bound", "consumer")
    assert "not significantly more than 5%" in verdict.summary


def test_without_workers_the_making_is_in_next() -> None:
    verdict = judged(Program(turns((BLUR, 5), (STEP, 5)))).verdict
    assert verdict is not None
    assert verdict.input_share == pytest.approx(0.5)
    assert verdict.causes[0].title == "Blur"
    assert "num_workers=" in verdict.causes[0].advice


@pytest.mark.parametrize(
    ("main", "kind"),
    [
        (turns(((phases.SAMPLER, ""), 6), (STEP, 4)), "main-process"),
        (turns(((phases.RECEIVE, ""), 6), (STEP, 4)), "send"),
        (turns(((phases.STARTUP, ""), 3), (WAIT, 3), (STEP, 4)), "start-up"),
        (turns(((phases.SHUTDOWN, ""), 5), (STEP, 5)), "shut-down"),
    ],
)
def test_what_the_main_process_does_itself(main: object, kind: str) -> None:
    program = Program(main, [turns((BLUR, 3), (IDLE, 1))])  # type: ignore[arg-type]
    assert first_of(program).partition(":")[0] == kind


def test_the_start_of_the_program_is_no_cause() -> None:
    startup = (phases.STARTUP, "")
    maker = turns((BLUR, 2), (IDLE, 8))

    def main(tick: int) -> At:
        return startup if tick < 100 else WAIT if tick < 130 else STEP

    summary = judged(Program(main, [maker] * 2))
    assert summary.verdict is not None
    assert summary.verdict.kind == "consumer-bound"
    assert any("its start-up of" in remark for remark in summary.remarks)


@pytest.mark.parametrize("ends", [True, False])
def test_the_start_up_of_an_epoch_that_was_seen_to_its_end_counts(ends: bool) -> None:
    startup, shutdown = (phases.STARTUP, ""), (phases.SHUTDOWN, "")

    def main(tick: int) -> At:
        return startup if tick < 250 else WAIT if tick % 2 else STEP if tick < 490 else shutdown

    summary = judged(Program(main, [always(BLUR)] * 2, ticks=500 if ends else 490))
    assert summary.verdict is not None
    assert (summary.verdict.causes[0].kind == "start-up") is ends
    assert (summary.loops[0].left_out_ns == 0) is ends


def test_what_was_left_out_counts_where_the_program_has_ended() -> None:
    main = turns(((phases.STARTUP, ""), 250), (WAIT, 25), (STEP, 25))
    program = Program(main, [always(BLUR)] * 2, ticks=300)
    assert judged(program).verdict.kind == "unknown"  # type: ignore[union-attr]
    assert first_of(replace(program, facts={"state": "ended"})).startswith("start-up:")


def test_a_wait_for_workers_of_which_some_still_start_is_start_up() -> None:
    main = turns(((phases.STARTUP, ""), 2), (WAIT, 40), (STEP, 8))
    late = turns(((phases.STARTUP, ""), 40), (BLUR, 2), (IDLE, 8))
    summary = judged(Program(main, [always(IDLE), late]))
    assert summary.verdict is not None
    assert summary.verdict.causes[0].kind == "start-up"
    # The bars say the same as the causes.
    assert summary.time is not None
    shares = {part.kind: part.ns / summary.time.wall_ns for part in summary.time.parts}
    assert shares["start-up"] == pytest.approx(summary.verdict.startup_share, abs=0.01)


def test_workers_that_start_anew_in_each_epoch_are_to_be_kept() -> None:
    startup, shutdown = (phases.STARTUP, ""), (phases.SHUTDOWN, "")
    main = turns((startup, 30), (WAIT, 10), (STEP, 55), (shutdown, 5))
    worker = turns((startup, 30), (BLUR, 70))
    workers = [between(at, at + 95, worker) for at in range(0, 500, 100)]
    verdict = judged(Program(main, workers)).verdict
    assert verdict is not None
    assert verdict.causes[0].kind == "start-up"
    assert "In at least 5 epochs" in verdict.causes[0].reason
    assert "persistent_workers=True" in verdict.causes[0].advice


def test_workers_that_are_kept_but_start_anew_belong_to_loaders_that_are_made_anew() -> None:
    startup, shutdown = (phases.STARTUP, ""), (phases.SHUTDOWN, "")
    main = turns((startup, 30), (WAIT, 10), (STEP, 55), (shutdown, 5))
    worker = turns((startup, 30), (BLUR, 70))
    workers = [between(at, at + 95, worker) for at in range(0, 500, 100)]
    verdict = judged(Program(main, workers, settings=[{"persistent": 1}] * 2)).verdict
    assert verdict is not None
    assert verdict.causes[0].kind == "start-up"
    assert "The program creates this loader 5 times: create it once" in verdict.causes[0].advice


def test_settings_are_told_where_all_frames_agree() -> None:
    told = {"workers": 2, "iterable": 0, "persistent": 0, "in_sequence": 1, "dataset": "Pictures"}
    frames = [{**told, "batch": 16}, {**told, "batch": 12, "persistent": 1}]
    settings = judged(Program(STARVING, [always(BLUR)] * 2, settings=frames)).loops[0].settings
    assert (settings.workers, settings.dataset, settings.in_sequence) == (2, "Pictures", True)
    assert settings.batch_sizes == (12, 16)
    assert settings.persistent_workers is None  # they do not agree
    assert settings.drop_last is None  # nobody told it
    words = attached_report.loader_words(settings)
    assert words.startswith("Pictures, samples in sequence, batches of 12 to 16 samples")
    assert "persistent_workers" not in words
    nothing = judged(Program(STARVING, [always(BLUR)])).loops[0].settings
    assert attached_report.loader_words(nothing) == ""


def test_a_loop_that_has_just_begun_has_no_verdict() -> None:
    startup = (phases.STARTUP, "")
    summary = judged(Program(lambda tick: startup if tick < 460 else WAIT, [always(BLUR)] * 2))
    assert summary.verdict is not None
    assert summary.verdict.kind == "unknown"
    assert not summary.verdict.causes
    assert "start-up took 9.20 s" in summary.verdict.summary


def test_the_rank_that_the_others_wait_for_is_judged() -> None:
    held = Program(lambda tick: STEP, [turns((BLUR, 1), (IDLE, 9))], blocked={STEP: "events"})
    late = Program(STARVING, [always(BLUR)])
    summary = summarise(job(held, late))
    loop = summary.loops[0]
    assert loop.held_up_by == MAIN + 100
    assert loop.verdict.input_share == pytest.approx(0.7, abs=0.01)
    assert loop.verdict.causes[0].title == "Blur"
    assert "All this is about rank 1 (process 200)" in loop.verdict.flaws[0]
    assert "rank 0 (process 100) waits 0%" in loop.verdict.flaws[0]
    computes = Program(lambda tick: STEP, [turns((BLUR, 1), (IDLE, 9))])
    assert summarise(job(computes, late)).loops[0].held_up_by == 0
    assert summarise(job(late, late)).loops[0].held_up_by == 0


RECEIVE = (phases.RECEIVE, "")


@pytest.mark.parametrize(
    ("maker", "kind"),
    [(always((phases.COLLATE, "")), "collate"), (turns((BLUR, 1), (IDLE, 9)), "send")],
)
def test_a_batch_that_a_busy_worker_does_not_hand_over(maker: object, kind: str) -> None:
    main = turns((RECEIVE, 6), (STEP, 4))
    program = Program(main, [maker] * 2, blocked={RECEIVE: "socket"})  # type: ignore[list-item]
    assert first_of(program).partition(":")[0] == kind


def test_snapshots_of_the_state_are_told_as_such() -> None:
    program = Program(STARVING, [turns(((phases.SNAPSHOT, ""), 8), (BLUR, 2))])
    verdict = judged(program).verdict
    assert verdict is not None
    assert verdict.causes[0].kind == "snapshots"
    assert "80% of the time in which batches are made" in verdict.causes[0].reason
    in_next = judged(Program(turns(((phases.STATE, ""), 6), (STEP, 4)), [turns((IDLE, 1))])).verdict
    assert in_next is not None
    assert in_next.causes[0].kind == "snapshots"


def test_a_sampler_that_draws_before_each_epoch_is_no_start_up() -> None:
    drawing, startup = (phases.DRAW, ""), (phases.STARTUP, "")
    main = turns((startup, 2), (drawing, 38), (WAIT, 5), (STEP, 55))
    verdict = judged(Program(main, [turns((BLUR, 2), (IDLE, 8))] * 2)).verdict
    assert verdict is not None
    first = verdict.causes[0]
    assert first.title == "the sampler, in the main process, before the first batch of each epoch"
    assert first.share == pytest.approx(0.38, abs=0.02)
    once = lambda tick: drawing if tick < 100 else WAIT if tick < 130 else STEP  # noqa: E731
    assert judged(Program(once, [turns((BLUR, 2), (IDLE, 8))])).loops[0].left_out_ns > 0


def test_a_process_that_the_program_keeps_is_no_other_program() -> None:
    alone = Program(STARVING, [always(BLUR)], ready=0.3, cores=2.0, machine_cores=2.0)

    def kinds(program: Program) -> set[str]:
        verdict = judged(program).verdict
        assert verdict is not None
        return {cause.kind for cause in verdict.causes}

    assert "other-programs" in kinds(replace(alone, others=0.45))
    assert "other-programs" not in kinds(replace(alone, kept=0.9))
    asks = replace(alone, kept=0.9, blocked={BLUR: "local-socket"})
    verdict = judged(asks).verdict
    assert verdict is not None
    assert "over a local socket" in verdict.causes[0].title
    assert "more workers will not help" in verdict.causes[0].advice


@pytest.mark.parametrize(("made", "alone"), [(1, True), (8, False)])
def test_batches_whose_sending_takes_longer_than_their_making(made: int, alone: bool) -> None:
    worker = turns((BLUR, made), (IDLE, 20 - made))
    verdict = judged(Program(turns((RECEIVE, 6), (STEP, 4)), [worker] * 2)).verdict
    assert verdict is not None
    assert verdict.causes[0].kind == "send"
    advice = verdict.causes[0].advice
    assert ("with num_workers=0" in advice) is alone
    # The sizes of batches are not seen: nothing is said as if they were known to be large.
    assert ("If batches are large, make them smaller" in advice) is not alone
    assert "If they are small, or of many tensors, use larger batches of fewer tensors." in advice


def test_collate_and_own_code() -> None:
    assert first_of(Program(STARVING, [always((phases.COLLATE, ""))])).startswith("collate:")
    assert first_of(Program(STARVING, [always((phases.DATASET, ""))])).startswith("dataset:")


def test_workers_without_data() -> None:
    program = Program(STARVING, [always(BLUR), always(IDLE), always(IDLE)])
    assert first_of(program) == "starved-workers: 2 of the 3 workers have no data"


def test_workers_of_one_epoch_after_the_other_are_the_same_workers() -> None:
    one_epoch = [always(BLUR), always(IDLE), always(IDLE)]
    workers = [between(at, at + 125, each) for at in range(0, 500, 125) for each in one_epoch]
    summary = judged(Program(STARVING, workers))
    assert summary.loops[0].workers == 3
    assert summary.loops[0].verdict.causes[0].title == "2 of the 3 workers have no data"
    assert len(summary.loops[0].worker_rows) == 3


def test_one_slow_worker() -> None:
    def slow(tick: int) -> At:
        return BLUR

    fast = turns((BLUR, 2), (IDLE, 8))
    assert first_of(Program(STARVING, [fast, slow, fast])).startswith(
        "slow-worker: one slow worker"
    )


def test_which_worker_is_slow_is_not_told_where_they_mostly_lack_a_core() -> None:
    fast = turns((BLUR, 2), (IDLE, 8))
    program = Program(STARVING, [fast, always(BLUR), fast], ready=0.6, others=0.7)
    verdict = judged(program).verdict
    assert verdict is not None
    assert "slow-worker" not in {cause.kind for cause in verdict.causes}


def test_threads_beyond_the_cores_come_before_a_slow_worker() -> None:
    fast = turns((BLUR, 2), (IDLE, 8))
    crowded = {"ready": 0.7, "helpers": 1.0, "cores": 2.0, "machine_cores": 2.0}
    program = Program(STARVING, [fast, always(BLUR), fast], **crowded)
    assert first_of(program).startswith("worker-threads:")


def test_threads_of_the_workers_beyond_the_cores() -> None:
    program = Program(STARVING, [always(BLUR)] * 2, ready=0.5, helpers=1.0, cores=2.0,
                      machine_cores=2.0)  # fmt: skip
    assert first_of(program).startswith("worker-threads:")


def test_threads_of_the_step_beyond_the_cores() -> None:
    main = turns((WAIT, 1), (STEP, 49))
    program = Program(main, [turns((BLUR, 2), (IDLE, 8))], ready=0.6, helpers=1.0)
    assert first_of(program).startswith("step-threads:")


def test_too_few_cores_for_the_program() -> None:
    program = Program(STARVING, [always(BLUR)] * 2, ready=0.6, cores=1.0)
    assert first_of(program).startswith(
        "affinity: the program may use only 1 of the machine's 4 cores"
    )


def test_other_programs_are_a_doubt() -> None:
    verdict = judged(Program(STARVING, [always(BLUR)] * 2, ready=0.5, others=0.7)).verdict
    assert verdict is not None
    assert "The machine was busy" in verdict.doubt
    assert "other-programs" in [cause.kind for cause in verdict.causes]


def test_memory_that_grows_is_forecast() -> None:
    program = Program(STARVING, [always(BLUR)] * 2, grows=50e6)
    verdict = judged(program).verdict
    assert verdict is not None
    (memory,) = [cause for cause in verdict.causes if cause.kind == "memory"]
    assert memory.evidence["left_ns"] == pytest.approx((1 << 33) / 100e6 * 1e9, rel=0.1)
    assert any("would fill the machine's memory in" in flaw for flaw in verdict.flaws)


def test_workers_of_another_loop_do_not_count() -> None:
    """Though not all of their stacks tell of which loop they are."""
    evidence = Program(STARVING, [always(BLUR)] * 3).evidence()
    count, samples = len(evidence.labels), evidence.samples
    labels = [*evidence.labels.to_numpy().tolist(), [*BLUR, 1], [phases.STARTUP, "", -1]]
    other = samples["pid"] == MAIN + 3
    early = other & (samples["time_ns"] < samples["time_ns"].median())
    label = samples["label"].mask(other, count).mask(early, count + 1)
    loops = summarise(
        replace(
            evidence,
            labels=pd.DataFrame(labels, columns=list(evidence.labels.columns)),
            samples=samples.assign(label=label),
            loops=pd.concat([evidence.loops] * 2, ignore_index=True),
        )
    ).loops
    assert [loop.workers for loop in loops] == [2]
    assert loops[0].worker_rows["worker"].tolist() == [0, 1]


def test_what_workers_copy_as_they_start_is_no_growth() -> None:
    """Of modules, and by the first collection of garbage: the data set has no part in it."""
    evidence = Program(STARVING, [always(BLUR)] * 2).evidence()
    memory = evidence.memory.assign(shared=float(200 << 20))
    for since_s, copied in ((1.0, True), (4.0, False)):
        late = memory["time_ns"] >= START + since_s * 1e9
        grown = memory.assign(private=memory["private"] + late * float(200 << 20))
        verdict = summarise(replace(evidence, memory=grown)).verdict
        assert verdict is not None
        assert ("memory" in [cause.kind for cause in verdict.causes]) != copied


def test_what_only_idle_workers_are_blocked_in_is_no_reason_of_an_operation() -> None:
    """Clocks differ: some looks at a short operation are of a worker that waits for its next."""
    maker = turns((BLUR, 5), (IDLE, 5))
    evidence = Program(STARVING, [maker], blocked={BLUR: "computing"}).evidence()
    looks, rare = evidence.looks, np.arange(len(evidence.looks)) % 8 == 1
    at_blur = (looks["pid"] == MAIN + 1) & (looks["reason"] == "computing")

    def reason(of: str) -> str:
        changed = looks.assign(reason=looks["reason"].mask(at_blur & rare, of))
        table = summarise(replace(evidence, looks=changed)).loops[0].operations
        return str(table.loc[table["name"] == "Blur", "reason"].iloc[0])

    assert (reason("events"), reason("socket")) == ("", "socket")


def test_batches_of_unequal_cost_are_remarked() -> None:
    makers = [turns((BLUR, 8), (IDLE, 8)), turns((IDLE, 8), (BLUR, 8))]
    assert any("unequal cost" in remark for remark in judged(Program(STARVING, makers)).remarks)
    assert judged(Program(STARVING, [always(BLUR)] * 2)).remarks == ()


def test_time_outside_of_the_loop_is_no_step() -> None:
    outside = (phases.OUTSIDE, "")
    main = turns((STEP, 30), (WAIT, 1), (outside, 60))
    verdict = judged(Program(main, [turns((BLUR, 1), (IDLE, 9))])).verdict
    assert verdict is not None
    assert verdict.kind == "outside"


def test_a_loop_in_a_thread_is_told_not_to_be_the_trainings() -> None:
    evidence = Program(turns((BLUR, 9), (STEP, 1))).evidence()
    assert not any("in a thread" in remark for remark in summarise(evidence).remarks)
    thread = MAIN + 1000
    names = evidence.threads.assign(tid=thread, name="prefetch")
    samples = evidence.samples.assign(tid=thread)
    (remark,) = summarise(replace(evidence, samples=samples, threads=names)).remarks
    assert "in a thread beside the main thread (prefetch)" in remark


def test_lightnings_loops_have_names() -> None:
    evidence = Program(STARVING, [always(BLUR)] * 2).evidence()
    file = "/env/site-packages/lightning/pytorch/loops/training_epoch_loop.py"
    loop = summarise(replace(evidence, loops=evidence.loops.assign(file=file))).loops[0]
    assert loop.title == "Lightning's training loop (training_epoch_loop.py:59)"
    assert loop.name == "training"
    loop = summarise(evidence).loops[0]
    assert (loop.title, loop.name) == ("the loop at train.py:59", "train.py:59")

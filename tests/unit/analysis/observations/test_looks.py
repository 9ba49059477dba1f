"""What threads were found blocked in, and the advice that stands on it."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.observations.looks import Looks, looks_at, of_makers
from lotus.analysis.verdict.causes.making import work
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def with_looks(run: SimpleNamespace, **looks: int) -> SimpleNamespace:
    """Give a run looks at the operation Slow: reason -> how many."""
    pid = int(run.batches["pid"].iloc[0])
    rows = [
        {"pid": pid, "worker": 0, "operation": "Slow", "reason": reason, "looks": count}
        for reason, count in looks.items()
    ]
    run.blocking = pd.DataFrame(rows)
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


def slow(cpu: float = 0.05, **plan: float) -> SimpleNamespace:
    return Plan(operations={"Slow": 20.0}, cpu=cpu, cores=8, **plan).run()


@pytest.mark.parametrize(
    ("reason", "title", "advice"),
    [
        ("sleep", "Slow (sleeps, not computing)", "more workers overlap these waits"),
        (
            "socket",
            "Slow (waits for the network, not computing)",
            "more workers overlap these waits",
        ),
        ("file", "Slow (waits for files, not computing)", "faster or local disk"),
        ("storage", "Slow (waits for storage, not computing)", "faster or local disk"),
        ("lock", "Slow (waits for other threads of its process, not computing)", "what they do"),
    ],
)
def test_the_reason_is_in_the_title_and_decides_the_advice(
    reason: str, title: str, advice: str
) -> None:
    first = judged(with_looks(slow(), **{reason: 90, "computing": 10})).causes[0]
    assert (first.kind, first.title) == ("operation", title)
    assert advice in first.advice
    assert "90%" in first.reason


def test_workers_that_take_turns_at_a_lock_are_not_advised_to_be_more() -> None:
    first = judged(with_looks(slow(workers=4), **{"shared-lock": 60, "sleep": 30, "computing": 10}))
    assert first.causes[0].kind == "shared-lock"
    # Without the lock they work side by side, and no faster.
    assert first.causes[0].gain == first.causes[0].at_once == 4.0
    assert "waits for a lock that processes share" in first.causes[0].title
    assert "more workers will not help" in first.causes[0].advice
    assert "Raise num_workers" not in first.causes[0].advice


def test_a_process_that_waits_itself_may_answer_more_workers() -> None:
    first = judged(with_looks(slow(workers=2), **{"local-socket": 95, "computing": 5})).causes[0]
    assert "waits for another process of this machine, over a local socket" in first.title
    assert "if that process answers several at a time" in first.advice
    assert "Raise num_workers" in first.advice


def test_behind_a_limit_that_they_share_workers_are_not_advised_to_be_more() -> None:
    run = with_looks(slow(workers=4), sleep=90, computing=10)
    apart = judged(run).causes[0]
    assert "Raise num_workers" in apart.advice
    assert "unless all of them share one limit" in apart.advice
    # GIVEN samples of which one ends every 5 ms, whichever worker makes it
    end = (run.samples["start_ns"] + run.samples["duration_ns"]).rank(method="first") * 5e6
    run.samples["start_ns"] = (end - run.samples["duration_ns"]).astype("int64")
    shared = judged(run).causes[0]
    assert (apart.kind, shared.kind) == ("operation", "shared-limit")
    assert shared.title == apart.title
    assert "Samples arrived at even intervals of 5.00 ms" in shared.reason
    assert "shared a rate limit or one connection" in shared.advice
    assert "Raise num_workers" not in shared.advice
    assert not shared.remedy.setting


@pytest.mark.parametrize(
    ("reason", "kind", "limit"),
    [
        ("sleep", "operation", "shared a rate limit or one connection"),
        ("socket", "latency", "shared a rate limit or one connection"),
        ("local-socket", "latency", "answered the workers one after the other"),
    ],
)
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_samples_that_slow_each_other_down_share_a_limit(
    monkeypatch: pytest.MonkeyPatch, exponent: float, reason: str, kind: str, limit: str
) -> None:
    monkeypatch.setattr(work, "mutual_slowing", lambda scope: exponent)
    first = judged(with_looks(slow(workers=4), **{reason: 90, "computing": 10})).causes[0]
    shares_it = exponent == 1.0
    assert first.kind == ("shared-limit" if shares_it else kind)
    assert ("each sample took 50% less" in first.reason) == shares_it
    assert (limit in first.advice) == shares_it
    assert ("Raise num_workers" in first.advice) != shares_it
    assert bool(first.remedy.setting) != shares_it
    assert ("took as long when fewer were made" in first.reason) != shares_it
    assert "unless all of them share one limit" not in first.advice
    assert "if that process answers several" not in first.advice


@pytest.mark.parametrize(("awaited", "cores"), [(20, 0.0), (60, 0.0), (95, 0.9)])
def test_samples_that_another_process_keeps_are_to_be_shared_not_asked_for(
    awaited: int, cores: float
) -> None:
    # The worker unpacks answers for a part of its time, or that process computes all the time.
    looks = {"local-socket": awaited, "computing": 100 - awaited}
    run = with_looks(slow(cpu=1 - awaited / 100, workers=2), **looks)
    row = {"pid": int(run.waits["pid"].iloc[0]), "worker": -1, "own_ns": 1e9}
    run.children = pd.DataFrame([row | {"kept_cpu_ns": cores * 1e9}])
    first = judged(run).causes[0]
    assert "waits for another process of this machine, over a local socket" in first.title
    # Who packs and unpacks computes meanwhile.
    assert ("not computing" in first.title) == (awaited > 50)
    assert "multiprocessing.Manager()" in first.advice
    assert "more workers will not help" in first.advice
    assert not first.remedy.setting


@pytest.mark.parametrize(("reason", "epochs"), [("socket", 3), ("socket", 1), ("sleep", 3)])
def test_what_is_asked_for_in_each_epoch_may_be_kept(reason: str, epochs: int) -> None:
    run = Plan(operations={"Slow": 20.0}, cpu=0.05, cores=8, epochs=epochs).run()
    advice = judged(with_looks(run, **{reason: 95, "computing": 5})).causes[0].advice
    kept = "If each of the 3 epochs asks for the same again, keep a copy" in advice
    assert kept == (reason == "socket" and epochs > 1)


@pytest.mark.parametrize("reason", ["child", "pipe", "events"])
def test_programs_that_it_starts_and_that_compute_need_cores(reason: str) -> None:
    run = with_looks(slow(cpu=0.2), **{reason: 90, "computing": 10})
    waits = judged(run).causes[0]
    assert "more workers overlap these waits" in waits.advice
    made = run.batches.groupby("pid")["fetch_ns"].sum()
    run.children = pd.DataFrame({"pid": made.index, "worker": 0, "cpu_ns": 0.7 * made.to_numpy()})
    starts = judged(run).causes[0]
    assert "programs that it starts" in starts.title
    assert "starts a program" in starts.advice
    assert "overlap these waits" not in starts.advice


UNEVEN = {sample: 200.0 + 80.0 * (sample // 37 % 9) for sample in range(30, 400, 37)}


def awaiting(slow: dict[int, float], **looks: int) -> SimpleNamespace:
    """A run in which these samples wait so many milliseconds, as others do not."""
    cost = {"Slow": lambda sample, _: slow.get(sample, 1.0)}
    run = Plan(operations=cost, batches=120, cores=8).run()
    long = run.batches["fetch_ns"] > 50e6
    run.batches["process_cpu_ns"] = run.batches["cpu_ns"].where(~long, 5e6)
    run.batches["cpu_ns"] = run.batches["process_cpu_ns"]
    run.batches["run_delay_ns"] = 0.0
    return with_looks(run, **looks)


@pytest.mark.parametrize(
    ("reason", "words"), [("sleep", "locked"), ("shared-lock", "hold it for less time")]
)
def test_what_waits_now_and_then_for_its_turn_is_no_slow_sample(reason: str, words: str) -> None:
    # GIVEN samples that wait for uneven times, as for a data base that another one has locked
    first = judged(awaiting(UNEVEN, **{reason: 80, "computing": 20})).causes[0]
    assert first.kind == "stalls"
    assert "samples waited, some for far longer than others, in Slow, which" in first.title
    assert words in first.advice
    assert "No sample is to blame" in first.advice


@pytest.mark.parametrize(
    ("slow", "reason"),
    [
        (dict.fromkeys(UNEVEN, 300.0), "sleep"),  # always as long: it may be theirs
        (dict(list(UNEVEN.items())[:4]), "sleep"),  # too few to tell
        (UNEVEN, "socket"),  # the longer, the more there is to receive
    ],
)
def test_samples_that_may_wait_by_themselves_are_slow_samples(
    slow: dict[int, float], reason: str
) -> None:
    words = {"sleep": "sleeps", "socket": "waits for the network"}[reason]
    first = judged(awaiting(slow, **{reason: 80, "computing": 20})).causes[0]
    assert first.kind == "slow-samples"
    assert f"in Slow, which {words}, not computing" in first.title
    assert f"Their code {words}" in first.advice


def test_an_operation_that_was_found_computing_does_not_wait() -> None:
    # GIVEN batches of which half the time was off the CPU, in other operations than this one
    first = judged(with_looks(slow(cpu=0.3), computing=95, sleep=5)).causes[0]
    assert first.title == "Slow"
    assert first.evidence["waiting_share"] == pytest.approx(0.05)


def test_few_looks_tell_nothing() -> None:
    first = judged(with_looks(slow(), sleep=3)).causes[0]
    assert first.title == "Slow (waits, not computing)"
    assert "looks" not in first.reason


def test_what_was_met_far_more_often_than_its_time_is_not_believed() -> None:
    table = pd.DataFrame(
        [(7, 0, "Quick", "sleep", 80), (7, 0, "Slow", "computing", 20)],
        columns=["pid", "worker", "operation", "reason", "looks"],
    )
    assert looks_at(table, "Quick", 0.05) == Looks()
    assert looks_at(table, "Quick", 0.8).shares == {"sleep": 1.0}
    assert looks_at(table, "Slow", 0.2).blocked_share == 0.0


def test_looks_at_another_loader_s_making_do_not_count() -> None:
    """Of a main process that makes a validation's batches by itself, as that of the training."""
    run = slow()
    rows = [(100, "Slow", "computing", 50), (1, "Slow", "sleep", 50), (1, "(next)", "events", 50)]
    run.blocking = pd.DataFrame(rows, columns=["pid", "operation", "reason", "looks"])
    run.blocking["worker"] = 0
    scope = scopes(run)[0]
    assert of_makers(scope)[["pid", "looks"]].to_numpy().tolist() == [[100, 50]]
    assert judged(run).causes[0].evidence["looks"] == 50


def held(run: SimpleNamespace, operation: str, lock: int, threads: int = 1) -> SimpleNamespace:
    """Give a run looks at a lock of the main process, and threads of its own."""
    pid = int(run.waits["pid"].iloc[0])
    rows = [(pid, -1, operation, "lock", lock), (pid, -1, operation, "events", 100 - lock)]
    run.blocking = pd.DataFrame(rows, columns=["pid", "worker", "operation", "reason", "looks"])
    run.epochs["threads"] = threads
    return run


@pytest.mark.parametrize(("workers", "operation"), [(2, "(next)"), (0, "Slow")])
def test_a_thread_that_holds_the_interpreter_is_named(workers: int, operation: str) -> None:
    plan = Plan(operations={"Slow": 5.0}, workers=workers, cores=8)
    first = judged(held(plan.run(), operation, lock=70)).causes[0]
    assert first.kind == "interpreter"
    assert math.isnan(first.gain)  # all else is quicker without it
    assert ("More workers will not help" in first.advice) == (workers > 0)


@pytest.mark.parametrize("tid", [1, 5])
def test_a_main_thread_that_waits_for_the_one_that_takes_the_batches_is_held_by_nothing(
    tid: int,
) -> None:
    run = held(Plan(operations={"Slow": 5.0}, workers=2, cores=8).run(), "(next)", lock=70)
    run.waits["tid"] = tid  # that of the main thread is the number of the process
    scope = scopes(run)[0]
    assert scope.is_taken_aside == (tid == 5)
    assert (judged(run).causes[0].kind == "interpreter") == (tid == 1)
    assert len(scope.blocking) == (0 if tid == 5 else 2)


@pytest.mark.parametrize("threads", [0, 1])
def test_samples_that_are_slow_by_chance_are_due_to_the_thread_that_holds_it(threads: int) -> None:
    # GIVEN without workers, in each of three epochs other samples that take 30 times as long
    stalled = iter([20, 33, 47, 150, 171, 188, 300, 322, 341])
    taken = {next(stalled) for _ in range(9)}
    counter = iter(range(10**6))
    cost = {"Slow": lambda sample, _: 60.0 if next(counter) in taken else 2.0}
    run = Plan(operations=cost, workers=0, epochs=3, cores=8).run()
    causes = {cause.kind: cause for cause in judged(held(run, "Slow", 40, threads)).causes}
    assert ("interpreter" in causes) == (threads > 0)
    assert ("stalls" in causes or "slow-batches" in causes) == (threads == 0)
    if threads:
        assert causes["interpreter"].evidence["stalls_ns"] > 0
        assert "slow by chance" in causes["interpreter"].reason


@pytest.mark.parametrize(("lock", "threads"), [(70, 0), (10, 2)])
def test_without_other_threads_or_locks_nothing_holds_it(lock: int, threads: int) -> None:
    run = Plan(operations={"Slow": 5.0}, workers=2, cores=8).run()
    causes = judged(held(run, "(next)", lock, threads)).causes
    assert "interpreter" not in {cause.kind for cause in causes}


@pytest.mark.parametrize(
    ("lock", "on_device", "told"), [(60, False, True), (5, False, False), (60, True, False)]
)
def test_a_step_that_waits_for_the_interpreter_as_well_is_a_part_of_it(
    lock: int, on_device: bool, told: bool
) -> None:
    # GIVEN a thread that holds up `next`, and no stacks
    run = held(Plan(operations={"Slow": 5.0}, workers=2, cores=8).run(), "(next)", lock=70)
    of_step = run.blocking.assign(operation="(step)", looks=[lock, 0])
    computing = of_step.iloc[:1].assign(reason="computing", looks=100 - lock)
    run.blocking = pd.concat([run.blocking, of_step, computing], ignore_index=True)
    if on_device:  # its steps wait for locks of torch's own
        run.waits = run.waits.assign(device_idle_ns=0.0, device_busy_ns=1e6)
    judgement = judged(run)
    first = judgement.causes[0]
    assert first.kind == "interpreter"
    assert ("60% of observations, so the step is slowed" in first.reason) == told
    steps = {cause.kind: cause.share for cause in judgement.causes}["consumer"]
    left = 1.0 - 0.6 * told
    assert steps == pytest.approx(left * judgement.step_share, rel=0.05)


STEP_AND_THREAD = pd.DataFrame(
    [
        ("step", 0, 0, "train", "t.py", 5, "", 60),
        ("beside", 1, 0, "Log.run", "log.py", 3, "", 20),
        ("beside", 2, 0, "Log.run", "log.py", 4, "", 18),
    ],
    columns=["part", "stack", "depth", "function", "file", "line", "text", "samples"],
)


@pytest.mark.parametrize(
    ("lock", "threads", "seen", "told"),
    [(40, 1, 3, True), (10, 1, 3, False), (40, 0, 3, False), (40, 1, 1, False)],
)
def test_a_thread_that_holds_up_the_step_alone_is_named(
    lock: int, threads: int, seen: int, told: bool
) -> None:
    run = Plan(operations={"Quick": 0.1}, workers=0, step=20.0, cores=8).run()
    run = held(run, "(step)", lock, threads)
    run.own_code = STEP_AND_THREAD.iloc[:seen]
    judgement = judged(run)
    shares = {cause.kind: cause.share for cause in judgement.causes}
    assert judgement.kind == "consumer-bound"
    assert (judgement.causes[0].kind == "step-held") == told
    if told:
        assert shares["step-held"] == pytest.approx(0.4 * judgement.step_share, rel=0.01)
        assert "in Log.run (log.py:3), holds" in judgement.causes[0].title
        assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
        run.waits = run.waits.assign(device_idle_ns=0.0, device_busy_ns=1e6)
        assert judged(run).causes[0].kind == "consumer"


@pytest.mark.parametrize("step", [20.0, 0.5])
def test_a_thread_that_holds_up_both_is_one_cause(step: float) -> None:
    # GIVEN a main thread that is at a lock in `next` and in the step
    run = Plan(operations={"Slow": 5.0}, workers=2, step=step, cores=8).run()
    run = held(run, "(next)", lock=70)
    of_step = run.blocking.assign(operation="(step)", looks=[40, 60])
    run.blocking = pd.concat([run.blocking, of_step], ignore_index=True)
    run.own_code = STEP_AND_THREAD
    judgement = judged(run)
    first = judgement.causes[0]
    assert first.kind == "interpreter"
    assert "in Log.run (log.py:3), holds" in first.title
    # THEN it has its part of the steps beside its part of the waits
    shares = {cause.kind: cause.share for cause in judgement.causes}
    of_step_share = shares["consumer"] + shares.get("tracing", 0.0)
    assert of_step_share == pytest.approx(0.6 * judgement.step_share, rel=0.05)
    assert first.share > first.wait_share * judgement.input_share
    assert first.low <= first.share <= first.high
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)
    assert "step-held" not in shares


@pytest.mark.parametrize(
    ("text", "helpers", "told"),
    [
        ("total = sum(value * value for value in self.values)", 0.7, True),
        ("total = sum(value * value for value in self.values)", 0.1, False),
        ("time.sleep(1)", 0.7, False),
        ("for message in self.connection:", 0.7, False),
        ("", 0.7, False),
    ],
)
def test_a_thread_that_stays_at_a_line_computes_only_if_nothing_there_waits(
    text: str, helpers: float, told: bool
) -> None:
    run = Plan(operations={"Quick": 0.1}, workers=0, step=20.0, cores=8).run()
    run = held(run, "(step)", lock=40)
    run.own_code = STEP_AND_THREAD.iloc[:2].assign(text=text)
    run.waits["step_process_cpu_ns"] = run.waits["step_ns"]
    run.waits["step_cpu_ns"] = (1 - helpers) * run.waits["step_ns"]
    assert (judged(run).causes[0].kind == "step-held") == told
    # that a loop was broken off, and its threads were not counted, makes them no number
    run.epochs["threads"] = -1
    first = judged(run).causes[0]
    assert (first.kind == "step-held") == told
    assert "python_threads" not in first.evidence
    assert not told or "while another Python thread of the program ran" in first.reason


def test_where_a_thread_was_seen_running_fewer_looks_at_a_lock_are_enough() -> None:
    run = Plan(operations={"Quick": 0.1}, workers=0, step=20.0, cores=8).run()
    run = held(run, "(step)", lock=16)
    run.own_code = STEP_AND_THREAD
    first = judged(run).causes[0]
    assert first.kind == "step-held"
    assert first.evidence["step_held_looks_share"] == pytest.approx(0.16)
    run.own_code = STEP_AND_THREAD.iloc[:1]
    assert judged(run).causes[0].kind == "consumer"


@pytest.mark.parametrize(("lock", "told"), [(8, True), (2, False)])
def test_a_step_without_a_core_is_found_at_locks_less_often(lock: int, told: bool) -> None:
    run = Plan(operations={"Quick": 0.1}, workers=0, step=20.0, cores=8).run()
    run = held(run, "(step)", lock)
    run.blocking["reason"] = ["lock", "computing"]
    run.own_code = STEP_AND_THREAD
    assert judged(run).causes[0].kind == "consumer"
    # of its time with a core, or at the lock, it was at the lock for more
    run.waits["step_run_delay_ns"] = 0.8 * run.waits["step_ns"]
    assert (judged(run).causes[0].kind == "step-held") == told


def test_with_pinned_memory_next_always_waits_at_a_lock() -> None:
    run = Plan(operations={"Slow": 5.0}, workers=2, pin=1.0, cores=8).run()
    run.loaders["pin_memory"] = True
    causes = judged(held(run, "(next)", 90)).causes
    assert "interpreter" not in {cause.kind for cause in causes}

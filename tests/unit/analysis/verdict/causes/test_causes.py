"""Loops with a planted cause, simulated: the planted one comes out first, and the books close."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan

PLANTED = {
    "slow operation": (Plan(operations={"Loader": 2.0, "Slow": 20.0}), "operation"),
    "slow operation, many workers": (
        # The loop sees little but sending, yet the making sets the pace.
        Plan(workers=4, batches=80, operations={"Loader": 2.0, "Slow": 20.0}, pickle=60),
        "operation",
    ),
    "own code": (Plan(own=20.0), "dataset"),
    "one slow sample": (
        Plan(step=6, operations={"Loader": lambda sample, _: 800.0 if sample == 53 else 2.0}),
        "slow-samples",
    ),
    "a few slow samples": (
        Plan(batches=100, operations={"Loader": lambda s, _: 200.0 if s % 101 == 53 else 2.0}),
        "slow-samples",
    ),
    "one slow sample, in every epoch": (
        Plan(epochs=3, step=6, operations={"Loader": lambda s, _: 800.0 if s == 53 else 2.0}),
        "slow-samples",
    ),
    "slow step": (Plan(step=30), "consumer"),
    "start-up of workers": (Plan(epochs=4, batches=4, spawn=300), "start-up"),
    "start-up in the first sample": (Plan(epochs=2, batches=8, first_sample=500), "start-up"),
    "start-up in the first sending": (Plan(epochs=2, batches=8, first_pickle=500), "start-up"),
    "start-up in iter()": (Plan(epochs=2, batches=8, iter=500), "start-up"),
    "one slow worker of four": (
        Plan(workers=4, step=4, operations={"Loader": lambda _, w: 20.0 if w == 2 else 2.0}),
        "slow-worker",
    ),
    "one slow worker of two": (
        Plan(workers=2, step=4, operations={"Loader": lambda _, w: 20.0 if w == 1 else 2.0}),
        "slow-worker",
    ),
    "big collate": (Plan(collate=40), "collate"),
    "big send": (Plan(pickle=30, write=20, unpickle=20), "send"),
    "big send, lock": (Plan(workers=4, pickle=1, write=20, unpickle=10), "send"),
    "big send, unpickled slowly": (Plan(unpickle=40, operations={"Loader": 8.0}), "send"),
    "cold files": (Plan(operations={"Loader": 20.0}, cpu=0.1, read_bytes=110_000), "cold-files"),
    "waits for the network": (Plan(operations={"Fetch": 20.0}, cpu=0.1), "operation"),
    "no workers": (Plan(workers=0), "operation"),
    "slow sampler": (Plan(sampler=50), "main-process"),
    "slow sampler, no workers": (Plan(workers=0, sampler=50), "main-process"),
    "pinning": (Plan(pin=50), "pin"),
    "snapshots in workers": (Plan(snapshot=40), "snapshots"),
    "snapshots in next": (Plan(main_snapshot=50), "snapshots"),
}


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first(name: str) -> None:
    plan, kind = PLANTED[name]
    judgement = judged(plan.run())
    assert judgement.causes[0].kind == kind, [
        (cause.kind, cause.share) for cause in judgement.causes
    ]
    assert judgement.causes[0].share > 0.5
    assert judgement.causes[0].advice


@pytest.mark.parametrize("name", PLANTED)
def test_every_nanosecond_of_the_loop_is_charged_once(name: str) -> None:
    plan, _ = PLANTED[name]
    loop_account = account(scopes(plan.run())[0])
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )
    assert all(charge.ns > 0 for charge in loop_account.charges)
    assert not [charge for charge in loop_account.charges if charge.kind == "unseen"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("slow operation", "input-bound"),
        ("slow step", "consumer-bound"),
        ("start-up of workers", "start-up-bound"),
    ],
)
def test_the_verdict_is_of_three_kinds(name: str, kind: str) -> None:
    judgement = judged(PLANTED[name][0].run())
    assert judgement.kind == kind
    shares = (
        judgement.input_share,
        judgement.startup_share,
        judgement.step_share,
        judgement.shutdown_share,
    )
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize(("step", "degree"), [(0.5, "highly"), (9.6, "moderately"), (14.0, "not")])
def test_the_degree_follows_the_share_of_waiting(step: float, degree: str) -> None:
    plan = Plan(workers=1, batches=200, step=step, pickle=0, write=0, unpickle=0)
    assert judged(plan.run()).degree == degree


def test_titles_name_the_operation_the_sample_the_worker() -> None:
    assert judged(PLANTED["slow operation"][0].run()).causes[0].title == "Slow"
    assert "53" in judged(PLANTED["one slow sample"][0].run()).causes[0].title
    assert "worker 2" in judged(PLANTED["one slow worker of four"][0].run()).causes[0].title
    assert "(in decode (default_loader))" in judged(PLANTED["cold files"][0].run()).causes[0].title
    assert "waits" in judged(PLANTED["waits for the network"][0].run()).causes[0].title


@pytest.mark.parametrize(
    ("name", "random"),
    [
        ("RandomResizedCrop", True),
        ("RandGaussianNoised", True),
        ("ColorJitter", True),
        ("Resize", False),
        ("Brand", False),
    ],
)
def test_what_draws_random_numbers_is_not_to_be_done_ahead(name: str, random: bool) -> None:
    first = judged(Plan(operations={name: 20.0}).run()).causes[0]
    assert first.title == name
    assert ("it would be the same in each epoch" in first.advice) == random
    assert ("do it once, ahead of time" in first.advice) != random


@pytest.mark.parametrize(
    ("folder", "gone"),
    [("/data", False), ("/tmp/tmpab12cd_9/x", True), ("/nvme/tmpab12cd_9", True)],
)
def test_a_file_in_a_temporary_folder_is_called_so(folder: str, gone: bool) -> None:
    run = PLANTED["one slow sample"][0].run()
    run.paths["path"] = run.paths["path"].str.replace("/data", folder)
    advice = judged(run).causes[0].advice
    assert f"Look at {folder}/53.jpg" in advice
    assert ("(in a temporary folder, which may be gone)" in advice) == gone


def test_a_sample_fetched_in_two_epochs_is_one_slow_sample() -> None:
    plan = dataclasses.replace(PLANTED["one slow sample"][0], epochs=2)
    first = judged(plan.run()).causes[0]
    assert first.title == "one slow sample: index 53, in decode (default_loader)"
    assert first.evidence["times_fetched"] == 2


def in_one_epoch(took: float, epochs: int) -> SimpleNamespace:
    """A run in which sample 53 took so many milliseconds in the last epoch alone."""
    calls = []

    def loader(sample: int, worker: int) -> float:
        calls.extend([1] * (sample == 53))
        return took if sample == 53 and len(calls) == epochs else 2.0

    return Plan(epochs=epochs, step=6, operations={"Loader": loader}).run()


@pytest.mark.parametrize("epochs", [2, 3, 4])
def test_a_stall_in_one_of_several_epochs_is_no_slow_sample(epochs: int) -> None:
    run = in_one_epoch(3000.0, epochs)
    causes = judged(run).causes
    assert causes[0].kind == "stalls"
    assert causes[0].share > 0.5
    assert (causes[0].evidence["times_fetched"], causes[0].evidence["slowest_sample"]) == (1, 53)
    assert "no sample is to blame" in causes[0].advice
    assert "when fetched again, they were not slow" in causes[0].reason
    assert not [cause for cause in causes if cause.kind == "slow-samples"]
    loop_account = account(scopes(run)[0])
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )


def test_one_epoch_cannot_tell_a_slow_sample_from_a_stall() -> None:
    cause = judged(in_one_epoch(3000.0, 1)).causes[0]
    assert (cause.kind, cause.evidence["most_fetches"]) == ("slow-samples", 1)
    assert "a second epoch would tell slow samples from random stalls" in cause.reason
    again = judged(PLANTED["one slow sample, in every epoch"][0].run()).causes[0]
    assert again.evidence["most_fetches"] == 3
    assert "cannot tell" not in again.reason


def test_samples_without_an_index_are_not_recognised_in_another_epoch() -> None:
    run = in_one_epoch(3000.0, 3)
    run.samples["sample"] = -1
    first = judged(run).causes[0]
    assert first.kind == "slow-samples"
    assert first.title == "one slow sample, in decode (default_loader)"
    assert math.isnan(first.evidence["slowest_sample"])


def test_pickling_that_stops_the_fetch_is_charged_to_sending() -> None:
    run = Plan(workers=1, pickle=9, operations={"Loader": 4.0}).run()
    batches = run.batches
    before = judged(run).causes[0]
    # The same wall times, but the fetch had no CPU while its own process pickled.
    run.batches = batches.assign(cpu_ns=batches["fetch_ns"] - batches["pickle_ns"])
    after = next(cause for cause in judged(run).causes if cause.kind == "send")
    assert before.kind == "operation"
    assert after.share > 0.3


def test_more_workers_are_advised_only_where_there_are_cores() -> None:
    plan = Plan(operations={"Slow": 20.0}, step=30.0)
    assert "from 2 to" in judged(plan.run()).causes[0].advice
    few = dataclasses.replace(plan, cores=2)
    assert "will not help" in judged(few.run()).causes[0].advice


def test_no_more_workers_are_advised_than_an_epoch_has_batches() -> None:
    plan = Plan(workers=0, batches=20, operations={"Slow": 100.0}, step=1.0, cpu=0.0)
    run = plan.run()
    assert "num_workers=20 " in judged(run).causes[0].advice
    run.epochs["exhausted"] = False  # it was left: more may have followed
    assert "num_workers=32 " in judged(run).causes[0].advice  # four for each of the 8 cores


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_that_would_each_read_all_of_the_data_are_not_advised(workers: int) -> None:
    plan = Plan(workers=workers, batches=60, operations={"Slow": 20.0}, step=5.0, cpu=0.0)
    run = plan.run()
    assert judged(run).causes[0].remedy.setting["num_workers"] > 1
    run.loaders["dataset_kind"] = "iterable"
    first = judged(run).causes[0]
    assert "torch.utils.data.get_worker_info" in first.advice
    assert first.remedy.setting.get("num_workers", 1) == 1


def test_too_many_workers_are_told() -> None:
    judgement = judged(Plan(workers=8, batches=100, step=30).run())
    assert judgement.kind == "consumer-bound"
    assert "and 1 would be enough" in judgement.causes[0].advice
    assert "Work on data in it, such as transforms, can move" in judgement.causes[0].advice


def test_workers_that_are_never_idle_are_not_too_many() -> None:
    run = Plan(workers=2, step=100.0).run()
    of_two = judged(run).causes[0]
    assert (of_two.kind, "would be enough" in of_two.advice) == ("consumer", True)
    assert "can move to the workers" in of_two.advice
    # GIVEN workers that without a core take as long for their batches as the steps last
    run.batches["idle_ns"] = run.batches["idle_in_loop_ns"] = 0
    advice = judged(run).causes[0].advice
    assert "would be enough" not in advice
    assert "can move to the workers" not in advice


@pytest.mark.parametrize("level", ["batch", "sample"])
def test_lower_levels_still_have_a_verdict(level: str) -> None:
    run = Plan(operations={"Loader": 2.0, "Slow": 20.0}, level=level).run()
    run.ops = run.ops.iloc[:0]
    if level == "batch":
        run.samples = run.samples.iloc[:0]
    else:
        run.samples = run.samples.assign(self_ns=np.nan, ops_ns=np.nan)
    judgement = judged(run)
    assert judgement.kind == "input-bound"
    assert "--level op" in judgement.causes[0].advice


def test_what_was_recorded_of_every_tenth_batch_stands_for_all() -> None:
    run = Plan(operations={"Loader": 2.0, "Slow": 20.0}, batches=200).run()
    whole = judged(run).causes[0]
    run.manifest["every"] = 10
    skipped = run.batches["batch"] % 10 != 0
    making = ["fetch_start_ns", "fetch_ns", "put_ns", "idle_ns", "send_start_ns", "pickle_ns"]
    run.batches[making] = run.batches[making].astype("float64")
    run.batches.loc[skipped, making] = np.nan
    run.batches["worker"] = run.batches["worker"].where(~skipped, -1)
    run.ops = run.ops[run.ops["batch"] % 10 == 0]
    run.samples = run.samples[run.samples["batch"] % 10 == 0]
    part = judged(run).causes[0]
    assert part.title == whole.title
    assert part.share == pytest.approx(whole.share, abs=0.1)


def test_a_run_that_was_killed_has_a_verdict() -> None:
    run = Plan(operations={"Slow": 20.0}).run()
    run.epochs = run.epochs.assign(end_ns=np.nan, exhausted=False, shutdown_ns=np.nan)
    run.waits["step_ns"] = run.waits["step_ns"].astype("float64")
    run.waits.loc[len(run.waits) - 1, "step_ns"] = np.nan
    assert judged(run).causes[0].title == "Slow"


def test_a_worker_whose_log_is_lost_leaves_a_remainder() -> None:
    run = Plan(operations={"Slow": 20.0}).run()
    run.batches["fetch_start_ns"] = run.batches["fetch_start_ns"].astype("float64")
    run.batches["fetch_ns"] = run.batches["fetch_ns"].astype("float64")
    lost = run.batches["worker"] == 0
    run.batches.loc[lost, ["fetch_start_ns", "fetch_ns"]] = np.nan
    run.ops = run.ops[run.ops["worker"] == 1]
    run.samples = run.samples[run.samples["worker"] == 1]
    loop_account = account(scopes(run)[0])
    unseen = sum(charge.ns for charge in loop_account.charges if charge.kind == "unseen")
    assert unseen > 0
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )
    assert verdict(scopes(run)[0]).causes[-1].kind == "unseen"


def test_a_wait_that_was_broken_off_is_the_cause_where_it_is_most_of_the_waiting() -> None:
    run = Plan(operations={"Slow": 2.0}, step=1.0).run()
    assert judged(run).causes[0].kind == "operation"
    last = run.waits.index[-1]
    batch = run.waits.loc[last, "batch"]
    hung = 10 * int(run.waits["wait_ns"].sum())
    run.waits.loc[last, "wait_ns"] += hung
    run.waits["failed"] = run.waits.index == last
    run.epochs["end_ns"] += hung
    run.batches["fetch_start_ns"] = run.batches["fetch_start_ns"].astype("float64")
    run.batches["fetch_ns"] = run.batches["fetch_ns"].astype("float64")
    run.batches.loc[run.batches["batch"] == batch, ["fetch_start_ns", "fetch_ns"]] = np.nan
    judgement = judged(run)
    assert judgement.causes[0].kind == "unseen"
    assert judgement.causes[0].share > 0.8
    assert "lotus top RUN" in judgement.causes[0].advice
    assert judgement.causes[1].kind == "operation"


def test_a_loader_of_which_no_batch_was_taken_has_no_verdict() -> None:
    run = Plan().run()
    for name in ("ops", "samples", "batches", "waits"):
        setattr(run, name, getattr(run, name).iloc[:0])
    run.epochs = run.epochs.assign(iter_ns=0, shutdown_ns=0, exhausted=False)
    assert judged(run).kind == "unknown"


def test_ranks_are_added_up() -> None:
    first, other = (
        Plan(operations={"Slow": 20.0}).run(),
        Plan(operations={"Slow": 20.0}, rank=1).run(),
    )
    names = ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders")
    for name in names:
        setattr(
            first, name, pd.concat([getattr(first, name), getattr(other, name)], ignore_index=True)
        )
    loaders = scopes(first)
    assert len(loaders) == 1
    assert loaders[0].ranks == [0, 1]
    loop_account = account(loaders[0])
    assert loop_account.loop_ns == pytest.approx(2 * account(scopes(other)[0]).loop_ns)
    assert verdict(loaders[0]).causes[0].title == "Slow"


def test_more_workers_than_cores_wait_for_a_core() -> None:
    plan = Plan(workers=8, operations={"Loader": 20.0}, cpu=0.25, read_bytes=110_000, cores=2)
    first = judged(plan.run()).causes[0]
    assert (first.kind, first.title) == ("operation", "decode (default_loader)")
    assert "will not help" in first.advice
    roomy = dataclasses.replace(plan, cores=64)
    assert judged(roomy.run()).causes[0].kind == "cold-files"


def test_the_gain_is_that_of_the_loop_without_the_cause() -> None:
    first = judged(PLANTED["slow operation"][0].run()).causes[0]
    assert first.gain == pytest.approx(1 / (1 - first.share))
    step = judged(PLANTED["slow step"][0].run()).causes[0]
    assert np.isnan(step.gain)


def test_what_was_measured_and_takes_nothing_is_ruled_out() -> None:
    ruled_out = judged(PLANTED["slow operation"][0].run()).ruled_out
    assert "the sampler" in ruled_out
    assert "collate" not in judged(PLANTED["big collate"][0].run()).ruled_out
    assert "sending batches" not in judged(PLANTED["no workers"][0].run()).ruled_out


def test_lotus_s_own_work_is_no_part_of_the_training_step() -> None:
    run = Plan(batches=100, step=30).run()
    whole = judged(run).causes[0]
    run.epochs["own_ns"] = 0.1 * whole.ns
    causes = {cause.kind: cause for cause in judged(run).causes}
    assert causes["consumer"].ns == pytest.approx(0.9 * whole.ns)
    assert causes["tracing"].ns == pytest.approx(0.1 * whole.ns)
    assert next(iter(causes)) == "consumer"
    assert list(causes)[-1] == "tracing"


def test_what_no_number_of_cores_makes_up_for_is_to_be_made_cheaper_first() -> None:
    plan = Plan(workers=0, operations={"Slow": 50.0}, step=1.0, cores=2)
    advice = judged(plan.run()).causes[0].advice
    assert advice.startswith("Make Slow cheaper, or do it once, ahead of time.")
    loader = "The loader: train.py:31."
    assert advice.endswith(f"set num_workers=2 to make batches in parallel. {loader}")
    little = dataclasses.replace(plan, operations={"Slow": 5.0}, step=20.0)
    assert "to overlap this with the step" in judged(little.run()).causes[0].advice


@pytest.mark.parametrize(
    ("cpu", "words"), [(0.05, "Their code waits"), (1.0, "Reduce or re-encode")]
)
def test_slow_samples_that_wait_are_not_to_be_re_encoded(cpu: float, words: str) -> None:
    def slow(index: int, worker: int) -> float:
        return 300.0 if index % 53 == 20 else 2.0

    run = Plan(operations={"Read": slow}, batches=60).run()
    made = run.batches["fetch_ns"]
    run.batches = run.batches.assign(
        cpu_ns=cpu * made, process_cpu_ns=cpu * made, run_delay_ns=0 * made
    )
    first = next(cause for cause in judged(run).causes if cause.kind == "slow-samples")
    assert words in first.advice
    assert ("in Read, which waits, not computing" in first.title) == (cpu < 0.5)


@pytest.mark.parametrize(("part", "title"), [(0.7, "Views, most of it Blur"), (0.4, "Views")])
def test_the_operation_within_one_that_has_most_of_its_time_is_named(
    part: float, title: str
) -> None:
    run = Plan(operations={"Views": 20.0}).run()
    took = run.ops["duration_ns"]
    inside = run.ops.assign(parent="Views", operation="Views/Maybe", nested=True)
    inside["duration_ns"] = part * took + 1e5
    innermost = inside.assign(parent="Views/Maybe", operation="Views/Maybe/Blur")
    innermost["duration_ns"] = part * took
    other = inside.assign(operation="Views/Flip", duration_ns=0.2 * took)
    run.ops = pd.concat([run.ops, inside, innermost, other], ignore_index=True)
    first = judged(run).causes[0]
    assert (first.kind, first.title) == ("operation", title)


def test_few_batches_that_take_most_of_the_making_are_named_where_samples_have_no_times() -> None:
    slow = {5, 17, 21, 40, 58, 66, 71, 90, 103, 118}
    plan = Plan(
        workers=3,
        batches=120,
        operations={"Read": lambda sample, _: 40.0 if sample // 4 in slow else 0.5},
    )
    run = plan.run()
    run.samples["many"] = True  # a data set with __getitems__
    first = judged(run).causes[0]
    assert first.kind == "slow-batches"
    assert first.title == "10 batches that cost far more than the others, in Read"
    assert first.advice.startswith("Make them cheaper")
    assert first.reason.endswith("a usual one 2.70 ms.")
    # BUT batches that are all alike have no such ones.
    run = Plan(workers=3, batches=120, operations={"Read": 2.0}).run()
    run.samples["many"] = True
    assert judged(run).causes[0].kind == "operation"

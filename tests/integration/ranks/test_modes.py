"""`lotus run --mode`: how ranks come to one model, against one process that does the same."""

import json

import pytest

from tests.integration.conftest import LOTUS, Ended, Start, command_of

SCRIPT = "ranks/mode_ranks.py"
RATE = 0.05  # of the program
BATCHES = 26  # of 8 of its 203 samples
REFUSED = {
    "hosts": "all ranks are on one host; --groups says which are alike",
    "groups": "--groups has 2 ranks, here are 3",
    "unused": "Net looks for unused parameters, of which all ranks tell each other in each step",
    "hook": "Net has a communication hook already; torch takes one",
    "static": "a static graph must be averaged in its first steps; --after 2 does that",
    "sync_norm": "idle is SyncBatchNorm, for which all ranks wait in each step",
    "two_models": "2 models are in DistributedDataParallel",
    "without": "rank 1 did not answer within 0.2 s",
}


class Job:
    """The job that ran, and what each rank wrote of each case."""

    def __init__(self, ended: Ended, ranks: list[dict]) -> None:
        self.ended, self.ranks = ended, ranks

    def case(self, name):
        return self.ranks[0][name]


@pytest.fixture(scope="module")
def job(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modes")
    mode = ["--mode", "local", "--every", "4"]
    words = [*LOTUS, "run", *mode, "--", *command_of(SCRIPT, [])]
    ended = Start(words, folder, "job", {}).end()
    assert ended.code == 0, ended.err.decode()[-3000:]
    truths = [ended.truth.with_name(f"{ended.truth.name}.{rank}") for rank in range(3)]
    return Job(ended, [json.loads(truth.read_text()) for truth in truths])


def apart(truth, other):
    """How far the parameters of two cases are from each other at most."""
    pairs = zip(truth["ends"], other["ends"], strict=True)
    return max(
        abs(a - b)
        for mine, its in pairs
        for end, its_end in zip(mine, its, strict=True)
        for a, b in zip(end, its_end, strict=True)
    )


def test_the_command_line_alone_puts_a_mode_on(job):
    assert job.case("outside")["far"] < 1e-12
    lines = job.ended.err.decode().splitlines()
    # Each line is written by the rank that was first to say it, so either may come first.
    assert set(lines[:2]) == {
        "lotus: parameters are averaged over all ranks every 4 batches of the loader of Points "
        "(203 samples, DistributedSampler) and at the end of an epoch",
        "lotus: --mode local learns otherwise than the program as it is written: compare the "
        "loss at equal epochs",
    }
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    "name",
    [
        *("local_1", "local_4", "local_after", "local_static", "local_replaced"),
        "local_tuned",
        *("hybrid_1", "hybrid_3", "hybrid_hosts", "async_0"),
    ],
)
def test_parameters_are_those_of_one_process_that_averages_so(job, name):
    truth = job.case(name)
    assert truth["far"] < 1e-12
    moved = [abs(end - begin) for begin, end in zip(*truth["ends"][0], strict=True)]
    assert max(moved) > 0.001  # or nothing would be shown
    assert all(rank["ends"] == truth["ends"] for rank in (rank[name] for rank in job.ranks))


def test_averaging_after_each_step_is_what_the_program_does_as_it_is_written(job):
    for name in ("local_1", "hybrid_1", "sync"):
        assert apart(job.case(name), job.case("plain")) < 1e-12
    # AND later averaging is not
    assert apart(job.case("local_4"), job.case("plain")) > 1e-6


@pytest.mark.parametrize(
    "name",
    [
        *("local_4", "local_uneven", "local_anew", "local_folds", "local_look"),
        *("hybrid_3", "hybrid_copy"),
        *("async_0", "async_3", "async_uneven", "async_anew", "async_peek", "async_meet"),
        *("local_replaced", "async_replaced", "local_grown", "async_grown", "local_read"),
        "async_tuned",
    ],
)
def test_all_ranks_have_one_model_when_their_loop_is_over(job, name):
    ends = job.case(name)["ends"]
    assert ends[0] == ends[1] == ends[2]


def test_batch_norms_statistics_are_averaged_too(job):
    means = [rank[0] for rank in job.case("local_norm")["buffers"]]
    assert means[0] == means[1] == means[2]
    assert max(map(abs, means[0])) > 0.01


@pytest.mark.parametrize("name", ["local_replaced", "async_replaced"])
def test_a_buffer_that_is_another_tensor_in_each_step_is_averaged(job, name):
    for epoch in (0, 1):
        owns = [rank[epoch] for rank in job.case(name)["buffers"]]
        assert owns[0] == owns[1] == owns[2]
        assert max(map(abs, owns[0])) > 1e-4


@pytest.mark.parametrize("name", ["local_grown", "async_grown"])
def test_a_parameter_that_came_later_is_averaged_too(job, name):
    first, last = job.case(name)["ends"][0]
    assert len(last) == len(first) + 3
    assert [round(number, 12) for number in last[:3]] == [1, 1, 1]  # of 0, 1 and 2
    assert not [line for line in job.case(name)["said"] if "other tensors" in line]


@pytest.mark.parametrize("name", ["local_differ", "async_differ"])
def test_what_ranks_have_in_common_is_averaged_where_they_differ(job, name):
    ends = [rank[1] for rank in job.case(name)["ends"]]
    many = len(ends[0])
    assert [len(end) for end in ends] == [many, many + 3, many]
    assert ends[0] == ends[1][3:] == ends[2]
    assert ends[1][:3] == [1, 1, 1]
    messages = [line for line in job.case(name)["said"] if "other tensors than each other" in line]
    assert len(messages) == 1


@pytest.mark.parametrize("name", ["local_dead", "async_dead", "sync_dead"])
def test_a_model_that_the_program_has_no_more_is_not_kept(job, name):
    assert [rank[name]["kept"] for rank in job.ranks] == [0, 0, 0]


@pytest.mark.parametrize("name", ["local_tuned", "async_tuned"])
def test_settings_are_put_on_beside_a_mode(job, name):
    messages = job.case(name)["said"]
    assert any(line.startswith("workers stay from epoch to epoch") for line in messages)
    assert any("learns otherwise than the program" in line for line in messages)


def test_only_the_experimental_mode_says_that_it_is_experimental(job):
    for name in ("local_4", "hybrid_3", "sync", "async_3"):
        said = [line for line in job.case(name)["said"] if "--mode async is experimental" in line]
        assert len(said) == (name == "async_3")


def test_a_loader_whose_workers_stay_follows_a_model_that_is_made_later(job):
    assert apart(job.case("local_read"), job.case("plain")) > 1e-6
    messages = job.case("local_read")["said"]
    assert any(line.startswith("parameters are averaged over all ranks") for line in messages)


def test_what_the_program_leaves_to_each_rank_is_left_to_it(job):
    assert [rank[0] for rank in job.case("local_own")["buffers"]] == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize("name", ["async_0", "async_3", "async_peek", "async_tuned"])
def test_batches_go_to_who_asks_and_each_sample_is_taken_once_an_epoch(job, name):
    orders = []
    for epoch in (0, 1):
        batches = [batch for rank in job.case(name)["seen"] for batch in rank[epoch]]
        assert len(batches) == BATCHES
        assert sorted(map(len, batches))[:2] == [203 % 8, 8]
        assert sorted(sample for batch in batches for sample in batch) == list(range(203))
        orders.append(sorted(batches))
    assert orders[0] != orders[1]


@pytest.mark.parametrize(("name", "batches"), [("async_3", BATCHES), ("async_uneven", 6)])
def test_every_step_of_every_rank_counts_once(job, name, batches):
    # Its gradient is 0, 1, 2, 3 wherever it is, so it does not matter who was ahead of whom.
    for epoch, end in enumerate(job.case(name)["ends"][0], 1):
        steps = epoch * batches / 3
        assert end == pytest.approx([-RATE * steps * slope for slope in range(4)], abs=1e-12)


def test_ranks_with_unequal_numbers_of_batches_come_to_an_end(job):
    for name in ("sync_uneven", "local_uneven", "async_uneven"):
        truth = job.case(name)
        assert [[len(epoch) for epoch in rank] for rank in truth["seen"]] == [
            [1] * 2,
            [2] * 2,
            [3] * 2,
        ]
    messages = job.case("sync_uneven")["said"]
    assert messages == [
        "gradients are averaged over all ranks in each step, as the program is written, within "
        "torch's Join: how many batches each rank has is not known"
    ]


def test_ranks_that_meet_in_their_steps_have_as_many_batches(job):
    truth = job.case("async_meet")
    assert [[len(epoch) for epoch in rank] for rank in truth["seen"]] == [[9] * 2] * 3
    for epoch in (0, 1):
        batches = [batch for rank in truth["seen"] for batch in rank[epoch]]
        assert {sample for batch in batches for sample in batch} == set(range(203))


@pytest.mark.parametrize("name", ["local_thread", "hybrid_thread", "async_thread"])
def test_a_loader_that_another_thread_reads_takes_the_mode_back(job, name):
    truth = job.case(name)
    assert "batches are asked for in another thread" in "".join(truth["said"])
    if name == "async_thread":  # who has which batch was settled before
        assert truth["ends"][0] == truth["ends"][1] == truth["ends"][2]
        assert {len(epoch) for rank in truth["seen"] for epoch in rank} == {9}
    else:
        assert apart(truth, job.case("plain")) < 1e-12


def test_batch_norm_is_given_no_batch_of_one_sample(job):
    for epoch in (0, 1):
        batches = [batch for rank in job.case("async_one")["seen"] for batch in rank[epoch]]
        assert sorted(map(len, batches))[:2] == [2, 8]
        assert {sample for batch in batches for sample in batch} == set(range(201))


def test_a_program_that_reads_a_batch_ahead_is_told_that_ranks_may_differ(job):
    warning = "ranks may differ by that step"
    assert warning in "".join(job.case("local_ahead")["said"])
    for name in ("local_4", "async_0", "local_anew", "local_join"):
        assert warning not in "".join(job.case(name)["said"])


def test_who_leaves_its_loop_holds_up_no_other_rank(job):
    truth = job.case("async_leave")
    assert [[len(epoch) for epoch in rank] for rank in truth["seen"]] == [[2] * 2] * 2 + [[12] * 2]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_goes_on_as_written_in_all_ranks(job, name):
    messages = [rank[name]["said"] for rank in job.ranks if "said" in rank[name]]
    assert all(message == messages[0] for message in messages)
    assert len(messages[0]) == 1
    assert REFUSED[name] in messages[0][0]
    assert messages[0][0].startswith("--mode ")
    assert messages[0][0].endswith("; the program goes on as it is written")
    if name in ("hosts", "groups", "unused", "without"):
        assert apart(job.case(name), job.case("plain")) < 1e-12


@pytest.mark.parametrize(
    ("how", "codes"), [("leaves", b"0 0\n"), ("raises", b"1 1\n")], ids=["leaves", "raises"]
)
def test_a_rank_that_ends_before_its_epoch_does(torch, tmp_path, how, codes):
    # GIVEN a rank that leaves its loop and ends, or is ended by an exception, WHEN the other one
    # has batches left, or waits for it at the end of its epoch
    mode = ["--mode", "async", "--staleness", "99"]
    words = [*LOTUS, "run", *mode, "--", *command_of("ranks/mode_ends.py", [how])]
    ended = Start(words, tmp_path, "job", {}).end()
    # THEN that one goes on alone, or fails too, as it would as the program is written
    assert (ended.code, ended.out) == (0, codes), ended.err.decode()[-3000:]
    left = "lotus: a rank left its loop before its epoch was over: ranks differ"
    assert (left in ended.err.decode().splitlines()) == (how == "leaves")

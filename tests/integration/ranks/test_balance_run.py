"""`lotus run --settings balance.json`: training with shares is training on the whole batch."""

import json
import subprocess
import sys

import pytest

from lotus.settings import share_plan as plans
from tests.integration.conftest import LOTUS, PYTHON, ROOT, Ended, Start, command_of

SCRIPT = "ranks/balance_ranks.py"
EXACT = 1e-12  # for float64; the aim of 1e-5 is held to float32
TRAINED = {  # how many samples each rank takes in its first, and in its last step
    "outside": ((11, 5), (8, 3)),
    "unequal_float32": ((11, 5), (8, 3)),
    "halves_float32": ((11, 5), (8, 3)),  # gradients are sent as float16
    "unequal_lopsided": ((15, 1), (10, 1)),
    "equal": ((8, 8), (6, 5)),
    "equal_even": ((8, 8), (8, 8)),
    "dropped": ((11, 5), (11, 5)),
    "sampler_drops": ((3, 13), (2, 8)),
    "padded": ((11, 5), (1, 1)),
    "accumulated": ((11, 5), (11, 5)),
    "ahead": ((13, 3), (9, 2)),
    "unused": ((11, 5), (8, 3)),
    "static": ((11, 5), (8, 3)),
    "sum": ((11, 5), (8, 3)),
    "penalty_workers": ((11, 5), (8, 3)),
    "checkpoint": ((11, 5), (8, 3)),
    "other_whole": ((17, 5), (3, 2)),
    "early": ((11, 5), (8, 3)),
    "beside": ((11, 5), (8, 3)),
    "tuned": ((11, 5), (8, 3)),
    "mode": ((11, 5), (8, 3)),
    "mode_tuned": ((11, 5), (8, 3)),
}
REFUSED = {
    "sampler": "its sampler is RandomSampler; only torch's own DistributedSampler can be",
    "own_sampler": "its sampler is OwnSampler; only torch's own DistributedSampler can be",
    "batch_sampler": "the program's own BatchesOfMine makes its batches",
    "stream": "its data set is iterable and says itself who takes what",
    "hook": "Net has a communication hook of its own (own_hook)",
    "no_model": "there is no model in DistributedDataParallel before the first batch",
    "other_world": "balance.json is for 3 ranks, here are 2",
    "other_model": "balance.json is for a model of 5 parameters, here is another one of 83",
    "norm_of_one": "a rank would have one sample, on which batch norm (norm) cannot train",
    "two_loaders": "may both be meant; its entry `loader` can say which",
    "one_rank": "its sampler is OwnSampler; only torch's own DistributedSampler can be",
    "uneven_data": "the data set's length is 64 on rank 0 and 80 on rank 1",
    "too_few": "1 sample for 2 ranks",
    "without": "rank 1 did not answer within 0.2 s",
}


class Job:
    """The job that ran, and what each rank wrote of each case."""

    def __init__(self, ended: Ended, ranks: list[dict]) -> None:
        self.ended, self.ranks = ended, ranks

    def case(self, name):
        return [rank[name] for rank in self.ranks]


@pytest.fixture(scope="module")
def job(torch, tmp_path_factory):
    folder = tmp_path_factory.mktemp("balance")
    path = folder / "balance.json"
    plans.write(path, plans.SharePlan((11, 5), "lotus"))
    words = [*LOTUS, "run", "--settings", str(path), "--", *command_of(SCRIPT, [])]
    ended = Start(words, folder, "job", {}).end()
    assert ended.code == 0, ended.err.decode()[-3000:]
    truths = [ended.truth.with_name(f"{ended.truth.name}.{rank}") for rank in (0, 1)]
    return Job(ended, [json.loads(truth.read_text()) for truth in truths])


@pytest.mark.parametrize("name", TRAINED)
def test_parameters_are_those_of_one_process_with_the_whole_batches(job, name):
    ranks = job.case(name)
    for rank in ranks:
        assert rank["far"] < {"halves_float32": 1e-3, "unequal_float32": 1e-5}.get(name, EXACT)
        assert rank["ranks_far"] == 0
        assert rank["moved"] > 0.01  # or nothing would be shown
    # AND each step's shares are those of the plan, of 20 steps or more
    steps = list(zip(*(rank["mine"] for rank in ranks), strict=True))
    assert len(steps) >= (18 if name == "other_whole" else 20)
    sizes = [tuple(len(part) for part in step) for step in steps]
    assert (sizes[0], sizes[-1]) == TRAINED[name]
    # AND the program sees its own batch size, and the right length from the beginning
    for rank in ranks:
        assert rank["batch_size"] == 8
        assert rank["length"] == len(steps) / 2


def test_what_is_put_on_beside_shares_is_put_on_too(job):
    mode = "gradients are averaged over all ranks in each step, as the program is written"
    kept = "workers stay from epoch to epoch at "
    for name in ("tuned", "mode", "mode_tuned"):
        messages = job.case(name)[0]["said"]
        assert (mode in messages) == ("mode" in name)
        assert any(line.startswith(kept) for line in messages) == ("tuned" in name)


@pytest.mark.skipif(sys.executable != PYTHON, reason="it starts lotus and ranks by one Python")
def test_everything_that_may_act_on_ranks_together_is_exact(torch, lotus_on_path):
    # GIVEN tuned settings, shares that change and --mode sync, in a traced job
    words = [sys.executable, str(ROOT / "tools" / "bench" / "ranks" / "balance_exact.py"), "--last"]
    ended = subprocess.run(words, capture_output=True, text=True)
    # THEN both ranks' weights are those of one process with the whole batches
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "--mode sync --settings tuned.json --settings balance.json" in ended.stdout


@pytest.mark.parametrize("name", TRAINED)
def test_each_step_has_its_slice_of_the_epochs_order_and_each_sample_once(job, name):
    rank = job.case(name)[0]
    half = len(rank["whole"]) // 2
    for order, whole in (
        (rank["order"][0], rank["whole"][:half]),
        (rank["order"][1], rank["whole"][half:]),
    ):
        size = sum(TRAINED[name][0])
        used = len(order)
        used -= used % size if name == "dropped" else 0
        used -= used % 2 if name == "sampler_drops" else 0
        assert [sorted(step) for step in whole] == [
            sorted(order[start : min(start + size, used)]) for start in range(0, used, size)
        ]
    assert rank["order"][0] != rank["order"][1]


def test_equal_shares_of_even_batches_are_torchs_own(job):
    for number, rank in enumerate(job.case("equal_even")):
        own = [sample for order in rank["order"] for sample in order[number::2]]
        assert [sample for step in rank["mine"] for sample in step] == own


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shared_out_goes_on_as_written_in_all_ranks(job, name):
    ranks = job.case(name)
    messages = [rank["said"] for rank in ranks if "said" in rank]
    assert len(messages[0]) == 1
    assert all(message == messages[0] for message in messages)
    assert REFUSED[name] in messages[0][0]
    assert messages[0][0].startswith("balance.json is not applied to the loader of ")
    assert messages[0][0].endswith("; the program goes on as it is written")
    if name == "one_rank":
        assert "(on rank 1)" in messages[0][0]
    for rank in ranks:
        assert rank["far"] < 1e-6
        assert rank["own"] is None or rank["samples"] == rank["own"]


def test_what_is_assumed_and_what_differs_is_said_once(job):
    lines = [line for line in job.ended.err.decode().splitlines() if line.startswith("lotus: ")]
    assert len(lines) == len(set(lines))
    whole = "lotus: each step's 16 samples of the loader of Points (203 samples, Distributed"
    assert any(
        line.startswith(whole)
        and line.endswith("as 11, 5; a rank's loss is taken for a mean over its samples")
        for line in lines
    )
    assert any(
        "taken for a sum: they are not weighted" in line for line in job.case("sum")[0]["said"]
    )
    other = "a step trains on 22 samples, where the program's own 2 x 8 are 16"
    assert other in job.case("other_whole")[0]["said"]
    norms = [line for line in job.case("norm")[0]["said"] if line.startswith("batch norm (norm) ")]
    assert len(norms) == 1
    assert "SyncBatchNorm" in norms[0]
    # AND nothing else where there is nothing else to say
    line = line_of("loader = DataLoader(points, size, sampler=sampler")
    assert job.case("equal")[0]["said"] == [
        "each step's 16 samples of the loader of Points (203 samples, DistributedSampler) at "
        f"balance_ranks.py:{line} go to the ranks as 8, 8; a rank's loss is taken for a mean over "
        "its samples"
    ]


def line_of(text):
    from tests.integration.conftest import PROGRAMS

    lines = (PROGRAMS / SCRIPT).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)

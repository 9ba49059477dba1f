"""A job's store that hangs or dies: `lotus run` asks over it, the program needs it no more."""

import json

import pytest

from lotus.settings import share_plan as plans
from tests.integration.conftest import LOTUS, Start, command_of

WORDS = {"balance": ["--settings", "balance.json"], "mode": ["--mode", "local"]}


def run(tmp_path, what):
    """(what the ranks wrote, lines of stderr) of a job under `lotus run`."""
    plans.write(tmp_path / "balance.json", plans.SharePlan((6, 2), "lotus"))
    # The program puts on what its case says.
    options = WORDS.get(what, WORDS["mode"])
    words = [*LOTUS, "run", *options, "--", *command_of("ranks/store_stops.py", [what])]
    ended = Start(words, tmp_path, "job", {}).end()
    assert ended.code == 0, ended.err.decode()[-3000:]
    ranks = [json.loads((tmp_path / f"job.truth.{rank}").read_text()) for rank in (0, 1)]
    return ranks, ended.err.decode().splitlines()


@pytest.mark.parametrize("what", WORDS)
def test_a_store_that_hangs_leaves_the_job_as_it_was_written(torch, tmp_path, monkeypatch, what):
    # GIVEN ranks that have met, and then a store whose process is stopped
    monkeypatch.chdir(tmp_path)
    # WHEN all ranks are to agree over it
    ranks, messages = run(tmp_path, what)
    # THEN each trains on what its own sampler says, with averaged gradients, and it is told why
    assert [rank["seen"] for rank in ranks] == [rank["own"] for rank in ranks]
    assert sorted(ranks[0]["seen"] + ranks[1]["seen"]) == list(range(32))
    assert ranks[0]["parameters"] == ranks[1]["parameters"]
    (line,) = [line for line in messages if "store" in line]
    assert " is not applied to the loader of Points " in line
    assert "the job's store takes no answer (TimeoutError: it did not answer in 0.5 s)" in line
    assert line.endswith("; the program goes on as it is written")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("rebalance_dies", "from which step on the ranks have which shares cannot be known ("),
        ("async_stops", "which batch comes next cannot be known, as the job's store does not "),
        ("async_dies", "which batch comes next cannot be known, as the job's store does not "),
    ],
)
def test_ranks_stop_where_what_the_store_would_tell_is_needed(
    torch, tmp_path, monkeypatch, what, says
):
    # GIVEN ranks that train by what they ask of a store, which ends meanwhile
    monkeypatch.chdir(tmp_path)
    ranks, _ = run(tmp_path, what)
    # THEN each stops with one clear line, and never takes a sample that may be another's
    for rank, truth in enumerate(ranks):
        assert truth["stopped"].startswith(f"lotus: {says}"), truth
        assert truth["stopped"].endswith(f"; rank {rank} stops before it")
        assert len(truth["stopped"].splitlines()) == 1
    seen = ranks[0]["seen"] + ranks[1]["seen"]
    assert 16 <= len(seen) < 320
    assert len(set(seen)) == len(seen)

"""A job's store that hangs: `lotus run` asks over it, the program has no need of it any more."""

import json

import pytest

from lotus.balance import plan as plans
from tests.integration.conftest import LOTUS, Start, command_of

WORDS = {"balance": ["--settings", "balance.json"], "mode": ["--mode", "local"]}


@pytest.mark.parametrize("what", WORDS)
def test_a_store_that_hangs_leaves_the_job_as_it_was_written(torch, tmp_path, monkeypatch, what):
    # GIVEN ranks that have met, and then a store whose process is stopped
    monkeypatch.chdir(tmp_path)
    plans.write(tmp_path / "balance.json", plans.Plan((6, 2), "lotus"))
    words = [*LOTUS, "run", *WORDS[what], "--", *command_of("store_stops.py", [what])]
    # WHEN all ranks are to agree over it
    ended = Start(words, tmp_path, "job", {}).end()
    assert ended.code == 0, ended.err.decode()[-3000:]
    ranks = [json.loads((tmp_path / f"job.truth.{rank}").read_text()) for rank in (0, 1)]
    # THEN each trains on what its own sampler says, with averaged gradients, and it is told why
    assert [rank["seen"] for rank in ranks] == [rank["own"] for rank in ranks]
    assert sorted(ranks[0]["seen"] + ranks[1]["seen"]) == list(range(32))
    assert ranks[0]["parameters"] == ranks[1]["parameters"]
    (line,) = [line for line in ended.err.decode().splitlines() if "store" in line]
    assert " is not applied to the loader of Points " in line
    assert "the job's store takes no answer (TimeoutError: it did not answer in 0.5 s)" in line
    assert line.endswith("; the program goes on as it is written")

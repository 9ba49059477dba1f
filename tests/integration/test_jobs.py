"""Jobs of several ranks: synchronisation of gradients, hosts whose clocks differ, merged runs."""

import json
from functools import cache
from pathlib import Path

import pytest


@cache
def told(truth: Path, rank: int, path: str = ""):
    """What a rank of synchronised.py wrote."""
    return json.loads(Path(f"{truth}{path}.{rank}").read_text())


@pytest.fixture(scope="module")
def job(traced):
    got = traced("synchronised.py")
    assert (got.code, got.out) == (0, b""), got.err
    return got


def rows_of(run, rank):
    return run.syncs[run.syncs["rank"] == rank].reset_index(drop=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_and_exceptions_are_those_of_the_program_alone(job, rank):
    # GIVEN DDP with no_sync, a static graph, unused parameters, a communication hook of its own,
    # two models in one pass, checkpoints, an exception in a backward pass, and another group
    alone, watched = told(job.truth, rank, ".plain"), told(job.truth, rank)
    # WHEN the same is done with and without us, THEN each gradient is the same, bit for bit
    for without, with_us in zip(alone["cases"], watched["cases"], strict=True):
        kept = [[one[name] for name in ("digest", "error")] for one in without["passes"]]
        assert [[one[name] for name in ("digest", "error")] for one in with_us["passes"]] == kept
    assert len(watched["cases"]) == 13


@pytest.mark.parametrize("rank", [0, 1])
def test_each_pass_that_averages_has_a_row(job, rank):
    # WHEN its synchronisation is asked for, THEN there is a row for each pass that averaged
    rows, passes = rows_of(job.run, rank), 0
    for case in told(job.truth, rank)["cases"]:
        inside = sum(
            int(((rows["start_ns"] > one["before"]) & (rows["end_ns"] < one["after"])).sum())
            for one in case["passes"]
        )
        assert inside == case["averaged"], case["name"]
        passes += case["averaged"]
    assert len(rows) == passes
    # AND in it backward begins, then has all gradients, then their averages
    assert (rows["start_ns"] < rows["ready_ns"]).all()
    assert (rows["ready_ns"] < rows["end_ns"]).all()
    assert (rows["exposed_ns"] == rows["end_ns"] - rows["ready_ns"]).all()
    # AND the passes are counted, also those that cannot be timed, of which a note tells
    assert rows["step"].tolist() == [*range(15), 17, 18]
    assert [note for note in job.run.notes if "re-entrant checkpoints" in note]


def test_waiting_for_a_slow_rank_is_exposed(job):
    # GIVEN a pass that rank 1 began 50 ms after rank 0 had all its gradients
    first, second = (rows_of(job.run, rank).iloc[-1] for rank in (0, 1))
    # WHEN the ranks are compared, THEN rank 0 arrived before it said so, rank 1 after it began,
    assert first["ready_ns"] < told(job.truth, 0)["told"]
    assert second["ready_ns"] > second["start_ns"] > told(job.truth, 1)["late"]
    # and rank 0 waited for it
    assert first["end_ns"] > told(job.truth, 1)["late"]
    assert first["exposed_ns"] > 50_000_000

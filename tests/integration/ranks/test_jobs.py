"""Jobs of several ranks: synchronisation of gradients, hosts whose clocks differ, merged runs."""

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from lotus.reading.run import load
from lotus.recording import run_merge
from tests.integration.conftest import LOTUS, PYTHON, Start, command_of


@cache
def truth_of(truth: Path, rank: int, path: str = ""):
    """What a rank of synchronised.py wrote."""
    return json.loads(Path(f"{truth}{path}.{rank}").read_text())


@pytest.fixture(scope="module")
def job(traced):
    got = traced("ranks/synchronised.py")
    assert (got.code, got.out) == (0, b""), got.err
    return got


def rows_of(run, rank):
    return run.syncs[run.syncs["rank"] == rank].reset_index(drop=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_and_exceptions_are_those_of_the_program_alone(job, rank):
    # GIVEN DDP with no_sync, a static graph, unused parameters, a communication hook of its own,
    # two models in one pass, checkpoints, an exception in a backward pass, and another group
    alone, watched = truth_of(job.truth, rank, ".plain"), truth_of(job.truth, rank)
    # WHEN the same is done with and without us, THEN each gradient is the same, bit for bit
    for without, with_us in zip(alone["cases"], watched["cases"], strict=True):
        kept = [[backward[name] for name in ("digest", "error")] for backward in without["passes"]]
        assert [
            [backward[name] for name in ("digest", "error")] for backward in with_us["passes"]
        ] == kept
    assert len(watched["cases"]) == 13
    # AND it is told which models they were: the same on both ranks
    models = job.run.models
    mine, other = (
        models[models["rank"] == number]["shapes"].tolist() for number in (rank, 1 - rank)
    )
    assert mine == other
    assert {len(shapes) for shapes in mine} == {64}


@pytest.mark.parametrize("rank", [0, 1])
def test_each_pass_that_averages_has_a_row(job, rank):
    # WHEN its synchronisation is asked for, THEN there is a row for each pass that averaged
    rows, passes = rows_of(job.run, rank), 0
    for case in truth_of(job.truth, rank)["cases"]:
        start, end = rows["start_ns"], rows["end_ns"]
        inside = sum(
            int(((start > backward["before"]) & (end < backward["after"])).sum())
            for backward in case["passes"]
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
    assert first["ready_ns"] < truth_of(job.truth, 0)["told"]
    assert second["ready_ns"] > second["start_ns"] > truth_of(job.truth, 1)["late"]
    # and rank 0 waited for it
    assert first["end_ns"] > truth_of(job.truth, 1)["late"]
    assert first["exposed_ns"] > 50_000_000


# -- hosts whose clocks differ ---------------------------------------------------------------

AHEAD = 7200  # s, of the second host's clock


@pytest.fixture(scope="module")
def two_hosts(torch, tmp_path_factory):
    """(run of the first host, of the second, merged run): two ranks, each in a host's clothes."""
    folder = tmp_path_factory.mktemp("hosts")
    inside = ["unshare", "--time", "--uts", "--monotonic", str(AHEAD)]
    tried = subprocess.run([*inside, "hostname", "second"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no time name space: {tried.stderr.decode().strip()}")
    job = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    job |= {"PORT": str(folder / "port"), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank, name in enumerate(("first", "second")):
        words = [
            *LOTUS,
            "trace",
            "-q",
            "-o",
            str(folder / name),
            "--",
            *command_of("ranks/two_hosts.py", [], PYTHON),
        ]
        if rank:
            words = [*inside, "sh", "-c", 'hostname second; exec "$@"', "sh", *words]
        logs = str(folder / name / "events" / "*.ltr")
        env = job | {"RANK": str(rank), "LOGS": logs}
        ranks.append(Start(words, folder, name, env))
    for ended in [rank.end() for rank in ranks]:
        assert (ended.code, ended.out) == (0, b""), ended.err
    paths = [folder / name for name in ("first", "second")]
    return *map(load, paths), run_merge.merge(paths, folder / "whole")


def test_clocks_of_two_hosts_are_brought_onto_one(two_hosts):
    # GIVEN a job on two hosts, of which the second one's clock is two hours ahead
    first, second, whole = two_hosts
    assert second.syncs["start_ns"].min() - first.syncs["start_ns"].max() > 3600 * 10**9
    # WHEN their runs are merged, THEN its offset is found, as exactly as is said
    own, other = whole.manifest["hosts"]
    assert (own["offset_ns"], own["error_ns"], own["method"]) == (0, 0, "same clock")
    assert other["host"] == "second"
    assert other["error_ns"] > 0
    assert abs(other["offset_ns"] + AHEAD * 10**9) <= other["error_ns"]
    # AND all that was measured of it while the job ran is right to half a round trip
    met = [event for process in second._assembly.processes for event in process.events["clock"]]
    assert len(met) >= 2
    for meeting in met:
        assert abs(meeting["offset_ns"] + AHEAD * 10**9) <= meeting["round_trip_ns"] / 2 + 1
    # AND no average is there before both ranks began the pass that made it
    syncs, error = whole.syncs, other["error_ns"]
    for _, step in syncs.groupby("step"):
        assert len(step) == 2
        assert step["end_ns"].min() >= step["start_ns"].max() - error


def test_a_host_by_itself_says_what_is_missing(two_hosts):
    # GIVEN one host's part, WHEN it is read, THEN its own clock stays, and a note tells
    first, _, whole = two_hosts
    assert first.manifest["hosts"] == []
    assert "1 of the job's 2 ranks are not in this run (1)" in first.notes[0]
    assert whole.notes == []

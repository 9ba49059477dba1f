"""One run of the runs of several hosts: times on one clock, refusals, what is missing."""

import json
import os

import pandas as pd
import pytest
from jsonschema import Draft202012Validator

from lotus.analysis.ranks.rank_steps import UNDECIDED, rank_steps
from lotus.cli import main
from lotus.common.errors import LotusError
from lotus.export import formats
from lotus.export.export_request import ExportRequest
from lotus.format import job_ranks
from lotus.inside.trace.log import log_format
from lotus.reading.run import load
from lotus.reading.tables import frame_cache, table_pieces
from lotus.recording import run_merge
from lotus.schemas import documents
from tests.logs import MS, START_NS, RunBuilder, Sample, pack_frame

HOUR = 3600 * 10**9
DRIFT = 50e-6  # of the second host's clock
TRIP = 100_000


def of_other(time):
    """The second host's clock at a time of the first's."""
    return time + HOUR + round((time - START_NS) * DRIFT)


def report_clock(log, clock, reference="one", job="job", times=(), offset=0, trip=0):
    for time in times or (log.header_start,):
        there = 0 if clock == reference else offset(time)
        event = {"time_ns": time, "offset_ns": there, "round_trip_ns": trip}
        log.event("clock", clock=clock, reference=reference, job=job, **event)


def part(path, rank, host, clock, at=lambda time: time, job="job", world=2, pid=100, **header):
    """A host's run: one rank with a worker, a batch and a synchronisation a second for an hour."""
    run = RunBuilder(path, host=host, start_ns=at(START_NS), boot_id=clock)
    whose = {"host": host, "boot_id": clock, "clock": clock, "rank": rank, "world_size": world}
    log = run.process(pid, start_ns=at(START_NS), **whose, **header)
    log.loader(0, num_workers=1)
    log.iterator(0, 0, at(START_NS + MS), at(START_NS + 2 * MS), workers=[pid + 1])
    worker = run.process(pid + 1, ppid=pid, start_ns=at(START_NS + 2 * MS), **whose, **header)
    worker.worker(0, loop_ns=at(START_NS + 3 * MS), ready_ns=at(START_NS + 4 * MS))
    for batch in range(0, 3600, 60):
        begin = START_NS + 5 * MS + batch * 10**9
        sample = Sample(batch, 2 * MS, [("Loader", MS)])
        worker.batch(batch, start_ns=at(begin), samples=[sample], collate_ns=MS // 2)
        worker.sends((0, batch, at(begin) + 5 * MS // 2 + 1, 1000, 10, 100))
        log.wait(0, 0, batch, start_ns=at(begin), end_ns=at(begin + 4 * MS),
                 arrival_ns=at(begin + 3 * MS))  # fmt: skip
        times = {"start_ns": 5 * MS, "ready_ns": 6 * MS, "end_ns": 8 * MS}
        fixed = {name: at(begin + after) for name, after in times.items()}
        log.data += pack_frame(log_format.SYNC, {"step": batch // 60, "models": 1, **fixed})
    log.epoch_end(0, 0, at(START_NS + HOUR), 60)
    log.event("note", text=f"of {host}")
    if job:
        log.header_start = at(START_NS)
        times = [at(START_NS + second * 10**9) for second in (0, 1, 3, 1800, 3600)]
        # The offset as measured: right, but for ways that are not alike.
        offset = lambda time: START_NS + (time - START_NS - HOUR) / (1 + DRIFT) - time + TRIP // 3  # noqa: E731
        report_clock(log, clock, job=job, times=times, offset=lambda t: round(offset(t)), trip=TRIP)
    run.report("python", pid=pid)
    return run


@pytest.fixture
def hosts(tmp_path):
    """The runs of two hosts, of which the second one's clock is an hour ahead and runs fast."""
    first = part(tmp_path / "A", 0, "one", "one").end(end_ns=START_NS + HOUR)
    other = part(tmp_path / "B", 1, "two", "two", of_other).end(end_ns=of_other(START_NS + HOUR))
    return first, other


TABLES = {
    "batches": ["fetch_start_ns", "put_ns", "send_start_ns", "arrival_ns", "wait_start_ns"],
    "syncs": ["start_ns", "ready_ns", "end_ns"],
    "samples": ["start_ns"],
    "ops": ["start_ns"],
    "waits": ["start_ns"],
    "epochs": ["start_ns", "end_ns"],
    "workers": ["start_ns", "loop_ns", "ready_ns"],
}


def test_what_is_merged_is_for_its_user_alone(hosts, tmp_path):
    # GIVEN any umask, WHEN runs are merged, THEN the files are private, as those of a run are
    before = os.umask(0)
    try:
        assert main(["merge", *map(str, hosts), "-o", str(tmp_path / "R")]) == 0
    finally:
        os.umask(before)
    paths = [tmp_path / "R", *(tmp_path / "R").rglob("*")]
    assert {"events", "processes.jsonl", "run.json"} < {path.name for path in paths}
    for path in paths:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_all_times_are_on_the_first_hosts_clock(hosts, tmp_path, capfd):
    # WHEN the runs are merged
    assert main(["merge", *map(str, hosts), "-o", str(tmp_path / "R")]) == 0
    run = load(tmp_path / "R")
    # THEN what both ranks did at the same time stands at the same time, within the stated bound
    bound = run.manifest["hosts"][1]["error_ns"]
    assert 0 < bound <= TRIP
    for table, columns in TABLES.items():
        rows = getattr(run, table)
        first, second = (rows[rows["rank"] == rank] for rank in (0, 1))
        assert len(first) == len(second) > 0, table
        for column in columns:
            apart = (first[column].to_numpy() - second[column].to_numpy()).astype(float)
            # Within a frame what a clock drifts in its few milliseconds is not told apart.
            assert abs(apart).max() <= bound + 5 * MS * DRIFT + 5, (table, column)
            mine = load(hosts[0])
            assert (first[column].to_numpy() == getattr(mine, table)[column].to_numpy()).all()
    # AND durations are what they were, and nothing is lost
    assert set(run.ops["duration_ns"]) == {MS}
    assert not len(run.lost)
    # AND it is said how well the clocks are known
    err = capfd.readouterr().err
    assert "host two: ranks 1; clock by 5 meetings over the job's store" in err
    assert f"an error of at most {bound / 1e3:.0f} us" in err
    assert "lotus report" in err


def test_frames_that_are_read_again_are_on_the_same_clock(hosts, tmp_path, monkeypatch):
    # GIVEN a merged run of which frames were given back, WHEN they are needed once more
    assert main(["merge", *map(str, hosts), "-o", str(tmp_path / "R")]) == 0
    expected = load(tmp_path / "R").other_intervals
    monkeypatch.setattr(frame_cache, "MANY", 0)
    run = load(tmp_path / "R")
    assert all(len(getattr(run, name)) for name in ("batches", "waits", "epochs", "workers"))
    assert "fetch_ns" not in run._outline.batch.dtype.names
    # THEN they are what they were
    pd.testing.assert_frame_equal(run.other_intervals, expected)


def test_pieces_of_a_merged_run_are_its_tables(hosts, tmp_path, monkeypatch):
    # GIVEN a merged run, WHEN it is read in pieces, as by an export, of a few batches each
    monkeypatch.setattr(table_pieces, "ROWS", 1)
    run = run_merge.merge(hosts, tmp_path / "R")
    pieces = [piece for number in range(4) for piece in table_pieces.of_process(run, number)]
    loose = [table_pieces.loose_of(run, number) for number in range(4)]
    assert len(pieces) > 10
    # THEN all times are on the run's clock, as in its tables
    for table, parts in (
        ("samples", [piece.samples for piece in pieces]),
        ("ops", [*(piece.ops for piece in pieces), *loose]),
    ):
        joined = pd.concat([part for part in parts if len(part)])
        assert sorted(joined["start_ns"]) == sorted(getattr(run, table)["start_ns"]), table
    # AND it can be exported
    formats.export(run, ExportRequest("chrome", tmp_path / "R.json"), lambda *_: None)
    events = json.loads((tmp_path / "R.json").read_text())["traceEvents"]
    assert {event["cat"] for event in events if "cat" in event} >= {"operation", "sample", "sync"}


def test_a_merged_run_keeps_what_its_parts_told(hosts, tmp_path):
    # WHEN runs are merged, in which both hosts gave the same pids
    run = run_merge.merge(hosts, tmp_path / "R")
    # THEN both run.json are kept, notes and processes too, and the logs to the byte
    assert [host["host"] for host in run.manifest["merged"]] == ["one", "two"]
    assert run.notes == ["of one", "of two"]
    assert len(run.processes) == 2
    known = sorted(log.read_bytes() for path in hosts for log in path.glob("events/*.ltr"))
    assert sorted(log.read_bytes() for log in run.path.glob("events/*.ltr")) == known
    # AND ranks are joined, each with a pid of its own
    assert [(rank["rank"], rank["host"]) for rank in run.manifest["ranks"]] == [
        (0, "one"),
        (1, "two"),
    ]
    assert len(set(run.intervals["pid"])) == 4
    written = json.loads((run.path / "run.json").read_text())
    assert written["hosts"] == run.manifest["hosts"]
    # AND it is as its schema says, with the processor of each host
    validator = Draft202012Validator(documents.schema("run"))
    assert [error.message for error in validator.iter_errors(written)] == []
    assert [host["cpu"] for host in written["hosts"]] == [host["cpu"] for host in written["merged"]]


def test_what_is_not_merged_is_named(hosts, tmp_path, capfd):
    # GIVEN runs beside which perf and py-spy recorded, of which neither was killed
    for path, name in zip(
        (*hosts, hosts[1]), ("perf.data", "py-spy/0.json", "state/x.state"), strict=True
    ):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(b"")
    manifest = json.loads((hosts[0] / "run.json").read_text())
    manifest["recorders"] = {"perf": {}, "py_spy": {"slices": [{"file": "0.json"}]}}
    (hosts[0] / "run.json").write_text(json.dumps(manifest))
    # WHEN they are merged
    run = run_merge.merge(hosts, tmp_path / "R")
    # THEN the run says what it does not have, and where that is
    assert run.notes[:-2] == [
        "perf's samples stayed in the hosts' runs: A",
        "py-spy's stacks stayed in the hosts' runs: B",
    ]
    # AND nothing takes it for recorded here
    assert not len(run.python_functions)
    assert main(["map", str(run.path)]) == 2
    assert "they stayed in the hosts' runs: lotus map reads one of A" in capfd.readouterr().err
    validator = Draft202012Validator(documents.schema("run"))
    written = json.loads((run.path / "run.json").read_text())
    assert [error.message for error in validator.iter_errors(written)] == []


def test_where_rank_0_is_not_on_the_first_host(hosts, tmp_path):
    # WHEN the host of rank 0 is given last
    run = run_merge.merge(hosts[::-1], tmp_path / "R")
    # THEN times are on the other clock, as near to the truth
    (own, other) = run.manifest["hosts"]
    assert (own["host"], own["offset_ns"], own["error_ns"]) == ("two", 0, 0)
    syncs = run.syncs[run.syncs["rank"] == 0]
    truth = [of_other(int(time)) for time in load(hosts[0]).syncs["ready_ns"]]
    apart = abs(syncs["ready_ns"].to_numpy() - truth)
    assert apart.max() <= other["error_ns"] + MS * DRIFT + 5


def test_hosts_of_one_name_are_numbered(tmp_path):
    # GIVEN two hosts of one name, whose clocks are apart
    first = part(tmp_path / "A", 0, "node", "one").end(end_ns=START_NS + HOUR)
    other = part(tmp_path / "B", 1, "node", "two", of_other).end(end_ns=of_other(START_NS + HOUR))
    # WHEN their runs are merged, THEN each host has its ranks and its error
    run = run_merge.merge([first, other], tmp_path / "R")
    hosts = [(entry["host"], entry["clock"]) for entry in run.manifest["hosts"]]
    assert hosts == [("node", "one"), ("node (2)", "two")]
    for table in (run.syncs, run.batches, run.waits):
        for rank, host in enumerate(("node", "node (2)")):
            assert set(table[table["rank"] == rank]["host"].astype(str)) == {host}
    written = json.loads((run.path / "run.json").read_text())
    for manifest in (written, run.manifest):
        assert [rank["host"] for rank in manifest["ranks"]] == ["node", "node (2)"]
    assert run_merge.sentences(run)[1].startswith("host node (2): ranks 1; clock by 5 meetings")
    # AND who was last is told within the error of two clocks, not as if they were one
    steps = rank_steps(run)
    assert steps.clock_error_ns.tolist() == [0, run.manifest["hosts"][1]["error_ns"]]
    assert set(steps.last) == {UNDECIDED}


def test_clocks_that_nobody_compared(tmp_path):
    # GIVEN hosts that could not speak over the store, whose wall clocks are 5 ms apart
    runs = []
    for rank, host, at in ((0, "one", lambda time: time), (1, "two", of_other)):
        run = part(tmp_path / host, rank, host, host, at, job="")
        run.manifest["start_wall_ns"] += 5 * MS * rank
        runs.append(run.end(end_ns=at(START_NS + HOUR)))
    # WHEN they are merged, THEN the wall clocks serve, and the error is said to be unknown
    run = run_merge.merge(runs, tmp_path / "R")
    other = run.manifest["hosts"][1]
    assert (other["error_ns"], other["offset_ns"]) == (None, 5 * MS - HOUR)
    assert "unknown error" in run_merge.sentences(run)[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job": "another"}, "different jobs (job: job and another)"),
        ({"world": 4}, "different jobs (size of the job: 2 and 4)"),
        ({"rank": 0}, "rank 0 is in"),
    ],
)
def test_runs_of_other_jobs_are_refused(hosts, tmp_path, change, words):
    # GIVEN a run of another job
    other = part(tmp_path / "C", **({"rank": 1, "host": "two", "clock": "two"} | change)).end()
    # WHEN it is merged, THEN one line names both, says why and what to type; nothing is written
    with pytest.raises(LotusError) as raised:
        run_merge.merge([hosts[0], other], tmp_path / "R")
    assert words in str(raised.value)
    assert "lotus merge A B ... -o R" in str(raised.value)
    assert not (tmp_path / "R").exists()


def test_what_is_no_run_of_a_job_is_refused(hosts, tmp_path):
    # GIVEN a run alone, one that is merged already, one of a single process, and one of last year
    whole = run_merge.merge(hosts, tmp_path / "R").path
    single = part(tmp_path / "S", None, "one", "one", world=None, job="").end()
    last = part(tmp_path / "L", 1, "two", "two", job="")
    last.manifest["start_wall_ns"] -= 365 * 24 * HOUR
    old = last.end(end_ns=START_NS + HOUR)
    for paths, words in (
        ([hosts[0]], "merging takes two runs or more"),
        ([whole, hosts[0]], "merged already"),
        ([hosts[0], single], "not recorded in a job"),
        ([hosts[0], old], "one had ended when the other began"),
    ):
        # WHEN they are merged, THEN each is refused in a line of its own
        with pytest.raises(LotusError, match=words):
            run_merge.merge(paths, tmp_path / "N")
    with pytest.raises(LotusError, match="earlier run; -f overwrites"):
        run_merge.merge(hosts, tmp_path / "R")
    with pytest.raises(LotusError, match="one of the runs to merge"):
        run_merge.merge(hosts, hosts[0], force=True)
    assert run_merge.merge(hosts, tmp_path / "R", force=True).manifest["hosts"]


# -- ranks that are missing ------------------------------------------------------------------


def test_ranks_that_are_missing_are_named(hosts, tmp_path):
    # GIVEN one host's part of a job
    run = load(hosts[1])
    # WHEN it is read by itself, THEN it is readable, and says what is missing
    assert len(run.batches) == 60
    assert run.notes[0].startswith("1 of the job's 2 ranks are not in this run (0): ")
    assert "lotus merge" in run.notes[0]
    # AND whole runs, or such of one process, say nothing of the kind
    assert job_ranks.missing([]) == []
    assert not any("ranks are not" in note for note in run_merge.merge(hosts, tmp_path / "R").notes)


def test_many_missing_ranks_are_counted():
    ranks = [{"rank": rank, "world_size": 16} for rank in (0, 1)]
    assert job_ranks.missing(ranks)[0].startswith(
        "14 of the job's 16 ranks are not in this run (2, 3, 4, 5, 6, 7, 8, 9 and 6 more)"
    )


def test_ranks_that_died_or_were_restarted(tmp_path):
    # GIVEN rank 1, which was killed and started again by torchrun as another process, and rank 0,
    # which was restarted with it; the second time both did more steps
    run = RunBuilder(tmp_path / "run")
    for restart in (0, 1):
        for rank in (0, 1):
            place = {"rank": rank, "world_size": 2, "restart": str(restart)}
            start = START_NS + restart * 10**9
            log = run.process(100 + 10 * restart + rank, start_ns=start, **place)
            for step in range(3 - rank + restart):
                times = {"start_ns": start + step, "ready_ns": start + step + 1}
                fixed = {"step": step, **times, "end_ns": start + step + 2}
                log.data += pack_frame(log_format.SYNC, fixed)
    # The one that was killed left half a frame.
    run.logs[1].data += pack_frame(log_format.SYNC, {"step": 9})[:20]
    # WHEN it is read, THEN each process has its steps, and the torn end is a loss
    loaded = load(run.end(exit_code=1))
    counts = loaded.syncs.groupby(["rank", "pid"]).size().to_dict()
    assert counts == {(0, 100): 3, (1, 101): 2, (0, 110): 4, (1, 111): 3}
    assert [rank["pid"] for rank in loaded.manifest["ranks"]] == [100, 110, 101, 111]
    assert loaded.lost["what"].tolist() == ["truncated tail"]
    assert not any("ranks are not" in note for note in loaded.notes)


def test_killed_processes_are_counted_once_a_host_and_not_where_nobody_counted() -> None:
    told = [("a", 2), ("a", 2), ("b", 1), ("b", None)]
    manifests = [{"host": host, "memory_kills": count} for host, count in told]
    assert run_merge._killed(manifests) == 3
    assert run_merge._killed([{"host": "a"}]) is None

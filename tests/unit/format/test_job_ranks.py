"""Rank, local rank, world size and host: in every row, and in the manifest."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lotus.format import job_ranks
from lotus.format.manifest import TraceSettings
from lotus.reading.run import load
from lotus.recording import traced_command
from tests.logs import MS, START_NS, RunBuilder, Sample

TABLES = "ops samples batches waits workers loaders epochs resources paths".split()
WHOSE = ["rank", "local_rank", "world_size", "host", "pid"]


@pytest.fixture
def run(tmp_path):
    return RunBuilder(tmp_path / "run")


def train(run, pid, worker, *, of_worker=None, **header):
    """A main process with one worker, in which every table gets a row; returns its log."""
    boot = {"boot_id": header.get("host")}
    main = run.process(pid, **boot, **header)
    main.loader(0, num_workers=1)
    main.iterator(0, 0, START_NS + MS, workers=[worker])
    log = run.process(worker, ppid=pid, start_ns=START_NS + 2 * MS, **boot, **(of_worker or header))
    log.worker(0, ready_ns=START_NS + 3 * MS)
    log.batch(0, start_ns=START_NS + 4 * MS, samples=[Sample(7, 50, [("Loader", 40)])])
    log.resources(START_NS + 5 * MS, rss=1)
    log.event("sample_path", sample=7, path="/data/7.jpg", duration_ns=50)
    main.wait(0, 0, 0, start_ns=START_NS + 2 * MS, end_ns=START_NS + 6 * MS)
    return main


def rows(table, *names):
    return table[list(names)].drop_duplicates().to_numpy().tolist()


def test_every_row_tells_whose_it_is(run):
    # GIVEN a job of four ranks on two hosts, of which two ranks were traced
    train(run, 100, 101, rank=1, local_rank=1, world_size=4, host="node0")
    train(run, 100, 101, rank=2, local_rank=0, world_size=4, host="node1")
    loaded = load(run.end())
    for name in TABLES:
        # WHEN a table is asked for, THEN each row begins with the rank, and where that ran
        table = getattr(loaded, name)
        pid = 100 if name in ("waits", "loaders", "epochs") else 101
        assert list(table.columns[:5]) == WHOSE, name
        assert rows(table, *WHOSE) == [[1, 1, 4, "node0", pid], [2, 0, 4, "node1", pid]], name
        kinds = [str(table[column].dtype) for column in WHOSE[1:4]]
        assert kinds == ["int32", "int32", "category"], name


@pytest.mark.parametrize(
    ("place", "known"),
    [
        # No job at all: one process, which is rank 0 of 1.
        ({}, [0, -1, 1]),
        # torch.distributed without a launcher tells no local rank.
        ({"rank": 3, "world_size": 8}, [3, -1, 8]),
        ({"rank": 3}, [3, -1, -1]),
        ({"local_rank": 2}, [0, 2, 1]),
        # A header that somebody damaged.
        ({"rank": -5, "local_rank": "1", "world_size": 0}, [0, -1, 1]),
        ({"rank": True, "local_rank": 1 << 31, "world_size": 2.0}, [0, -1, 1]),
    ],
)
def test_what_the_job_did_not_tell(run, place, known):
    # GIVEN a process whose job told a part of its place
    train(run, 100, 101, **place)
    # WHEN tables are asked for, THEN what is not known is not made up
    loaded = load(run.end())
    for name in TABLES:
        assert rows(getattr(loaded, name), *WHOSE[:3]) == [known], name


def test_a_worker_has_the_place_of_its_maker(run):
    # GIVEN workers that know nothing of the job, or something else than the process that made them
    place = {"rank": 5, "local_rank": 1, "world_size": 8}
    train(run, 100, 101, **place, of_worker={"host": "host"}, host="host")
    other = {"rank": 0, "local_rank": 0, "world_size": 1, "host": "other"}
    train(run, 200, 201, rank=6, world_size=8, of_worker=other, host="other")
    # WHEN workers are asked for, THEN theirs is their maker's, and their own where it tells nothing
    workers = load(run.end()).workers
    assert rows(workers, *WHOSE) == [[5, 1, 8, "host", 101], [6, 0, 8, "other", 201]]


def test_a_rank_that_was_set_after_the_log_began(run):
    # GIVEN a process that joined its job between its first record and its first loader
    main = train(run, 100, 101, host="node")
    main.loader(0, rank=5, local_rank=2, world_size=8)
    # WHEN tables are asked for, THEN all rows have what the loader's event told, and the manifest
    path = run.end()
    loaded = load(path)
    for name in TABLES:
        assert rows(getattr(loaded, name), *WHOSE[:4]) == [[5, 2, 8, "node"]], name
    assert loaded.manifest["ranks"] == job_ranks.recorded(path)
    assert loaded.manifest["ranks"][0]["rank"] == 5


def test_a_batch_without_a_record_of_its_making_has_its_consumers_place(run):
    # GIVEN a `next` whose worker left no log
    main = run.process(100, rank=1, local_rank=1, world_size=2, host="node")
    main.wait(0, 0, 0, start_ns=1, end_ns=2)
    # WHEN batches are asked for, THEN all is known but the maker's pid
    assert rows(load(run.end()).batches, *WHOSE) == [[1, 1, 2, "node", -1]]


def test_more_hosts_than_fit_a_byte(run):
    # GIVEN a job on 300 hosts
    for rank in range(300):
        log = run.process(100, rank=rank, host=f"node{rank:03}", boot_id=str(rank))
        log.wait(0, 0, 0, start_ns=1, end_ns=2)
    # WHEN waits are asked for, THEN each rank has its own
    waits = load(run.end()).waits
    assert waits["host"].tolist() == [f"node{rank:03}" for rank in range(300)]


def test_a_log_that_does_not_tell_its_host(run):
    # GIVEN a damaged header
    run.process(100, host=None).wait(0, 0, 0, start_ns=1, end_ns=2)
    # WHEN waits are asked for, THEN the host is empty
    assert load(run.end()).waits["host"].tolist() == [""]


# -- the manifest ----------------------------------------------------------------------------


def job(run):
    """Two ranks with a worker each, in the order in which no sort would leave them."""
    train(run, 300, 301, rank=1, local_rank=1, world_size=2, host="node")
    train(run, 200, 201, rank=0, local_rank=0, world_size=2, host="node")
    return [
        {"rank": 0, "local_rank": 0, "world_size": 2, "host": "node", "pid": 200},
        {"rank": 1, "local_rank": 1, "world_size": 2, "host": "node", "pid": 300},
    ]


def test_the_manifest_names_the_ranks_that_recorded(run):
    # GIVEN a job of two ranks
    wanted = job(run)
    # WHEN it is loaded while it runs, and after it
    assert load(run.save()).manifest["ranks"] == wanted
    # THEN both are named, and no worker
    assert load(run.end()).manifest["ranks"] == wanted
    assert job_ranks.recorded(run.path) == wanted


def test_on_how_many_cores_a_rank_may_run_is_told(run):
    # GIVEN ranks that were bound to cores, and one that tells nonsense
    for rank, cores in enumerate((4, 8, "many")):
        run.process(100 + rank, rank=rank, world_size=3, affinity=cores)
    run.end()
    # THEN run.json says so, also by the tables' way
    core_counts = [rank.get("cpu") for rank in job_ranks.recorded(run.path)]
    assert core_counts == [{"affinity": 4}, {"affinity": 8}, None]
    assert [rank.get("cpu") for rank in load(run.path).manifest["ranks"]] == core_counts


def test_a_traced_job_leaves_its_ranks_in_run_json(run, tmp_path):
    # GIVEN a program that leaves event logs
    wanted = job(run)
    run.end()
    traced = tmp_path / "traced"
    # WHEN it is traced
    command = ["cp", "-r", str(run.path / "events"), str(traced)]
    traced_command.trace(command, traced, TraceSettings())
    # THEN run.json names its ranks, and who reads the run finds the same
    assert json.loads((traced / "run.json").read_text())["ranks"] == wanted
    assert load(traced).manifest["ranks"] == wanted


def test_a_program_that_recorded_nothing_has_no_ranks(tmp_path):
    # WHEN a program without a DataLoader is traced, THEN run.json says that nobody recorded
    traced_command.trace(["true"], tmp_path / "run", TraceSettings())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ranks"] == []


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_logs_do_not_end_a_trace_badly(tmp_path_factory, data):
    # GIVEN event logs of which anything may be damaged, and things that are none
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "run")
    wanted = job(run)
    run.end()
    events = run.path / "events"
    (events / "folder.ltr").mkdir()
    (events / "link.ltr").symlink_to(run.logs[0].path)
    (events / "empty.ltr").write_bytes(b"")
    assert job_ranks.recorded(run.path) == wanted
    damaged = data.draw(st.sampled_from(run.logs))
    path = damaged.path
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        if at < len(content) and data.draw(st.booleans()):
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del content[at : at + data.draw(st.integers(1, 2_000))]
    path.write_bytes(content)
    # WHEN the ranks are asked for, THEN those of sound logs are there
    ranks = job_ranks.recorded(run.path)
    assert all(rank in ranks for rank in wanted if rank["pid"] != damaged.pid)

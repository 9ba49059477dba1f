"""A run directory: its tables, and what of it was lost."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from lotus.common.errors import LotusError
from lotus.inside.distributed.clock_sync import NOT_COMPARED
from lotus.inside.trace.log import log_format, state_page
from lotus.reading.logs.event_log import EventLog
from lotus.reading.run import load
from tests.logs import MS, START_NS, RunBuilder, Sample, pack_header
from tests.simulation import simulate

WHOSE = "rank local_rank world_size host pid "
COLUMNS = {
    "ops": WHOSE + "tid worker loader epoch batch position sample operation parent index nested "
    "start_ns duration_ns",
    "samples": WHOSE + "worker loader epoch batch position sample start_ns duration_ns ops_ns "
    "self_ns many",
    "batches": WHOSE + "tid worker loader epoch batch size bytes flags idle_ns fetch_start_ns "
    "fetch_ns samples_ns collate_start_ns collate_ns self_ns cpu_ns minor_faults major_faults "
    "read_bytes voluntary_switches involuntary_switches run_delay_ns "
    "process_cpu_ns snapshot_ns put_ns send_start_ns pickle_ns lock_ns "
    "write_ns send_ns send_bytes send_tid "
    "pin_start_ns pin_ns ready_ns arrival_ns wait_start_ns wait_ns sampler_ns taken_ns delay_ns "
    "step_ns out_of_order order first",
    "waits": WHOSE + "tid loader epoch batch start_ns wait_ns step_ns wait_cpu_ns "
    "wait_run_delay_ns wait_process_cpu_ns step_cpu_ns step_run_delay_ns step_process_cpu_ns "
    "snapshot_ns sampler_ns arrival_ns failed",
    "workers": WHOSE + "worker loader start_ns loop_ns ready_ns startup_ns startup_cpu_ns "
    "startup_delay_ns import_ns unpickle_ns end_ns batches samples fetch_ns idle_ns cpu_ns cpus "
    "threads torch_threads reads_worker_info",
    "loaders": WHOSE
    + "loader name call_site iterated_at class dataset dataset_kind dataset_length "
    "length batch_size num_workers prefetch_factor pin_memory persistent_workers start_method "
    "drop_last in_order sampler batch_sampler collate_fn timeout snapshot_every_n_steps "
    "threads_set_at library_threads_set workers_needed_at",
    "epochs": WHOSE
    + "loader epoch start_ns startup_ns iter_ns iter_run_delay_ns iter_sampler_ns end_ns batches "
    "exhausted shutdown_ns peak_rss ahead sanity cpus threads torch_threads own_ns state_dict_ns"
    " callback_ns",
    "killed_workers": WHOSE + "worker worker_pid signal",
    "resources": WHOSE + "worker time_ns pss rss descriptors shm",
    "operations": "operation parent index kind file first last",
    "blocking": "pid worker operation reason looks",
    "places": "pid operation reason place file_system looks",
    "own_code": "part stack depth function file line text samples",
    "stack_times": "stack pid time_ns bound_ns",
    "memory": "time_ns pid worker rss pss private shared anonymous descriptor_limit",
    "children": "pid worker cpu_ns own_cpu_ns own_ns kept_cpu_ns "
    "own_system_ns own_minor_faults own_copied_bytes own_copies delay_before_ns",
    "machine": "time_ns busy_ns idle_ns stolen_ns swapped_bytes available_bytes throttled_ns "
    "memory_stall_ns memory_limit_bytes cpu_stall_ns io_stall_ns disk_read_bytes "
    "disk_written_bytes frequency_khz quota_millicores",
    "first_batches": WHOSE + "worker loader epoch content generator state tensor_bytes "
    "storage_bytes double_bytes zero_share",
    "sample_digests": WHOSE + "worker loader epoch samples of digest",
    "full_collections": WHOSE + "worker during time_ns count",
    "paths": WHOSE + "worker sample path duration_ns",
    "processes": "pid ppid time_ns executable argv python torch torch_ns",
    "lost": "what pid count bytes",
}


def tables(run):
    return {name: getattr(run, name) for name in COLUMNS}


def full_run(path):
    """A run in which every table has rows."""
    run = RunBuilder(path)
    simulate(path, builder=run, workers=1, batches=2)
    main, worker = run.logs
    main.event("worker_killed", worker=0, worker_pid=worker.pid, signal=9)
    worker.resources(START_NS, pss=1, rss=2, descriptors=3, shm=4)
    worker.event("sample_path", sample=3, path="/data/cat.jpg", duration_ns=9)
    row = {"pid": worker.pid, "worker": 0, "operation": -1, "reason": "sleep", "looks": 5}
    place = {**row, "reason": "file", "place": "/data/", "file_system": "ext4"}
    own = ["fetch (<lotus hook, as importlib._bootstrap>:1);__getitem__ (data.py:4) 3"]
    memory = [[START_NS, 7, 0, 9, 8, 4, 5, 6, -1], [START_NS, 7, 0, -2, 8, 4, 5, 6, -1], [START_NS]]
    machine = [[START_NS, 1, 2, 0, 0, 3, 4, 5], [START_NS + 1, 2, 2, 0, -1, -1]]
    (path / "blocking.json").write_text(
        json.dumps(
            {
                "rows": [row],
                "places": [place],
                "machine": machine,
                "memory": memory,
                "children": [[7, 0, 5], [8, 1, -1, 3, 4]],  # of an older lotus, and of today's
                "own_code": own,
                "stack_times": [[0, 7, START_NS, START_NS + 5], [0, 7, -1], "x"],
                "stack_times_bound_ns": 9,
            }
        )
    )
    worker.event("first_batch", worker=0, content=7, generators=["torch"], states=[5])
    worker.event("sample_digests", worker=0, samples=2, digests=[3, 5], series=[7])
    worker.event("full_collections", time_ns=START_NS, count=2)
    main.event("note", text="a remark")
    main.event("unseen", what="StatefulDataLoader", why="it has its own worker loop")
    main.event("stopped", why="max-log", bytes=500)
    return run.end()


@pytest.mark.parametrize("world", [2, 3])
def test_clocks_that_were_not_compared_are_told_unless_there_is_one(tmp_path, world):
    run = RunBuilder(tmp_path / "run")
    for rank in range(2):
        process = run.process(100 + rank, rank=rank, local_rank=rank, world_size=world)
        process.event("note", text=f"{NOT_COMPARED}: the job's store is a FileStore")
    notes = load(run.end()).notes
    assert any(note.startswith(NOT_COMPARED) for note in notes) == (world == 3)


def test_every_table_has_its_columns(tmp_path):
    run = load(full_run(tmp_path / "run"))
    for name, table in tables(run).items():
        # Of a run in which everything occurs it has rows, and the documented columns in that order
        assert list(table.columns) == COLUMNS[name].split(), name
        assert len(table), name
    unused = "2 readings in blocking.json not used: damaged, or of another version"
    assert run.notes == ["a remark", unused]
    assert run.unseen == [{"what": "StatefulDataLoader", "why": "it has its own worker loop"}]
    assert run.manifest["command"] == ["python", "train.py"]
    assert run.path == tmp_path / "run"


def test_a_run_without_a_loader_has_empty_tables(tmp_path):
    # GIVEN a program that ended without making a DataLoader, and a full run
    full = load(full_run(tmp_path / "full"))
    empty = load(RunBuilder(tmp_path / "empty").end())
    for name, table in tables(empty).items():
        # WHEN a table is asked for, THEN it is empty, with columns and types as ever
        assert list(table.columns) == COLUMNS[name].split(), name
        assert len(table) == 0, name
        expected = getattr(full, name).dtypes
        kinds = [(str(d), str(e)) for d, e in zip(table.dtypes, expected, strict=True)]
        if name != "processes":
            assert all(found == wanted for found, wanted in kinds), (name, kinds)
    assert empty.notes == []
    assert empty.unseen == []


def test_the_level_with_counters_has_their_columns(tmp_path):
    # GIVEN a run with level op+cpu and no events
    run = load(RunBuilder(tmp_path / "run", level="op+cpu").end())
    # WHEN the operations are asked for, THEN the columns of the counters are there
    extra = ["cpu_ns", "minor_faults", "major_faults", "read_bytes"]
    extra += ["run_delay_ns", "process_cpu_ns"]
    assert list(run.ops.columns) == [*COLUMNS["ops"].split(), *extra]


# -- what is refused -------------------------------------------------------------------------


def losses(run):
    return [tuple(row) for row in run.lost.itertuples(index=False)]


def test_every_loss_is_a_row(tmp_path):
    # GIVEN a run with a foreign file, an empty log, a link and a cut log in events/, lines of
    # processes.jsonl that cannot be read, and a tracer that gave up
    path = simulate(tmp_path / "run", workers=1, batches=2)
    events = path / "events"
    (events / "a.txt").write_bytes(b"hello")
    (events / "b.ltr").write_bytes(b"")
    (tmp_path / "outside.ltr").write_bytes(pack_header(pid=7) + b"12")
    (events / "c.ltr").symlink_to(tmp_path / "outside.ltr")
    (events / "d.ltr").write_bytes(pack_header(pid=7) + b"LTFR12")
    (events / "folder").mkdir()
    with (path / "processes.jsonl").open("ab") as file:
        file.write(b'{"event": "fault", "pid": 9, "time_ns": 1, "error": "disk full"}\n')
        file.write(b"garbage\n" + b'{"event": "python"}\n')
        file.write(b'{"event": "py')
    # WHEN it is loaded
    run = load(path)
    # THEN each is a row that says what, whose, how many and how much
    rows = losses(run)
    assert ("foreign file in events/", -1, 1, 5) in rows
    assert ("empty event log", -1, 1, 0) in rows
    assert ("truncated tail", 7, 1, 6) in rows
    assert ("tracer fault: disk full", 9, 1, 0) in rows
    assert ("unreadable line of processes.jsonl", -1, 3, 7 + 19 + 13) in rows
    assert sum("cannot be read" in what for what, *_ in rows) == 2
    assert len(rows) == 7
    # AND the rest is there
    assert len(run.batches) == 2


def test_a_linked_events_folder_is_not_followed(tmp_path):
    # GIVEN a run whose events/ leads out of it
    path = simulate(tmp_path / "run")
    (path / "events").rename(tmp_path / "elsewhere")
    (path / "events").symlink_to(tmp_path / "elsewhere")
    # WHEN it is loaded
    run = load(path)
    # THEN nothing is read through the link, and that is said
    assert len(run.waits) == 0
    assert losses(run) == [("events/ is a link and was not followed", -1, 1, 0)]


def test_what_the_tracer_left_out_is_a_row(tmp_path):
    # GIVEN a log limit that was reached, a worker that left no log, a batch without send times
    # (the two that failed or found no data are sent too, but are no batches), a strange event
    run = RunBuilder(tmp_path / "run")
    main = run.process(100)
    main.iterator(0, 0, 1_000, 2_000, [101, 102])
    main.event("stopped", why="max-log", bytes=1_000)
    main.event("wait")
    main.event("epoch_end", loader=0)
    worker = run.process(101, start_ns=1_500)
    worker.worker(0)
    worker.batch(0, start_ns=5_000, samples=[Sample(0, 10)])
    worker.batch(1, start_ns=6_000, samples=[Sample(1, 10)], sends=[(0, 0, 5_500, 1, 1, 1)])
    worker.batch(2, start_ns=7_000, flags=log_format.FAILED)
    worker.batch(3, start_ns=8_000, flags=log_format.STOPPED)
    # WHEN it is loaded, THEN each is a row
    assert sorted(losses(load(run.end()))) == [
        ("event that is not understood: epoch_end", 100, 1, 0),
        ("event that is not understood: wait", 100, 1, 0),
        ("recording stopped: max-log", 100, 1, 1_000),
        ("send times of a batch", 101, 1, 0),
        ("worker that left no log", 102, 1, 0),
    ]


# -- small tables ----------------------------------------------------------------------------


def test_waits_do_not_read_operations(tmp_path, monkeypatch):
    # GIVEN a run
    run = load(simulate(tmp_path / "run"))

    def refuse(*_):
        raise AssertionError("read the long arrays")

    monkeypatch.setattr(EventLog, "arrays", refuse)
    # WHEN tables without samples and operations are asked for, THEN those are not even read
    for name in COLUMNS:
        if name not in ("ops", "samples"):
            assert getattr(run, name) is getattr(run, name)


def test_workers(tmp_path):
    # GIVEN one worker that ended and one that was killed
    run = RunBuilder(tmp_path / "run")
    main = run.process(100)
    main.iterator(0, 0, 1_000, 2_000, [101, 102])
    for number, pid in enumerate((101, 102)):
        log = run.process(pid, start_ns=1_500)
        process_ns = 1_200 if number == 0 else None
        times = {"process_ns": process_ns, "imported_ns": 1_450, "ready_ns": 1_800}
        log.worker(number, loop_ns=1_600, **times)
        for batch in range(2):
            samples = [Sample(0, 10), Sample(1, 20)]
            log.batch(batch, start_ns=5_000, samples=samples, idle_ns=7, cpu_ns=4)
        log.batch(2, start_ns=6_000, flags=log_format.STOPPED, fetch_ns=3)
    log = run.logs[1]
    log.worker_end(9_000)
    # WHEN they are asked for
    first, second = load(run.end()).workers.to_dict("records")
    # THEN times and sums are theirs; an end of an iterable data set is time, but no batch
    assert first["start_ns"] == 1_200
    assert second["start_ns"] == 1_600
    assert first["startup_ns"] == 800
    assert (first["import_ns"], first["unpickle_ns"]) == (250, 150)
    assert np.isnan(second["import_ns"])
    assert (first["end_ns"], np.isnan(second["end_ns"])) == (9_000, True)
    assert (first["batches"], first["samples"], first["fetch_ns"]) == (2, 4, 63)
    assert (first["idle_ns"], first["cpu_ns"]) == (14, 8)


def test_epochs(tmp_path):
    # GIVEN an epoch that was exhausted and one in which the program was killed
    run = RunBuilder(tmp_path / "run")
    main = run.process(100)
    main.loader(0)
    main.iterator(0, 0, 1_000, 1_100)
    main.wait(0, 0, 0, start_ns=1_200, end_ns=1_500)
    main.epoch_end(0, 0, 2_000, batches=1, exhausted=True, last_next_ns=1_900, peak_rss=4096)
    main.shutdown(0, 0, 2_000, 2_050)
    main.iterator(0, 1, 3_000, 3_100)
    main.wait(0, 1, 0, start_ns=3_200, end_ns=3_300)
    main.wait(0, 1, 1, start_ns=3_400, end_ns=3_500)
    # WHEN they are asked for
    first, second = load(run.end()).epochs.to_dict("records")
    # THEN what was recorded is there and what was not is missing
    assert (first["startup_ns"], first["iter_ns"], first["shutdown_ns"]) == (500, 100, 50)
    assert (first["end_ns"], first["batches"], first["exhausted"]) == (2_000, 1, True)
    assert (second["batches"], second["exhausted"]) == (2, False)
    assert first["peak_rss"] == 4096
    assert np.isnan([second["end_ns"], second["shutdown_ns"], second["peak_rss"]]).all()


def test_loaders_of_strange_programs(tmp_path):
    # GIVEN a loader to which a program gave numpy numbers and worse
    run = RunBuilder(tmp_path / "run")
    strange = {"batch_size": "32", "length": "²", "timeout": 1e999, "drop_last": "yes"}
    run.process(100).loader(0, **strange, dataset=None, num_workers=[1], in_order=None)
    # WHEN it is asked for
    row = load(run.end()).loaders.iloc[0]
    # THEN what can be known is there, and the rest is missing
    assert row["batch_size"] == 32
    assert row[["length", "timeout", "drop_last", "dataset", "num_workers"]].isna().all()
    assert row["call_site"] == "train.py:31"


def test_resources_operations_paths_processes(tmp_path):
    # GIVEN a full run
    run = load(full_run(tmp_path / "run"))
    # WHEN its small tables are asked for, THEN they hold what was recorded
    whose = [0, -1, 1, "host", 101]
    assert run.resources.iloc[0].tolist() == [*whose, 0, START_NS, 1, 2, 3, 4]
    assert run.killed_workers.iloc[0].tolist() == [*whose[:4], 100, 0, 101, 9]
    assert run.operations["operation"].tolist() == ["Loader", "RandomResizedCrop", "ToTensor"]
    assert run.paths.iloc[0].tolist() == [*whose, 0, 3, "/data/cat.jpg", 9]
    (process,) = run.processes.to_dict("records")
    assert (process["pid"], process["torch"], process["argv"]) == (100, "2.14.1", ["train.py"])


def test_operations_are_the_same_in_every_worker(tmp_path):
    # GIVEN two workers that found the same pipeline in another order
    run = RunBuilder(tmp_path / "run")
    main = run.process(100)
    main.iterator(0, 0, 1_000, 2_000, [101, 102])
    for number, names in enumerate((["Loader", "Crop"], ["Crop", "Loader"])):
        log = run.process(101 + number, start_ns=1_500)
        log.worker(number)
        for name in names:
            log.operations(name, index=0)
        log.batch(number, start_ns=5_000, samples=[Sample(1, 9, [("Loader", 4), ("Crop", 3)])])
    # WHEN the operations are asked for
    loaded = load(run.end())
    # THEN each has one name, whatever its number was
    assert sorted(loaded.operations["operation"]) == ["Crop", "Loader"]
    assert loaded.ops["operation"].tolist() == ["Loader", "Crop", "Loader", "Crop"]


def test_root_is_not_needed_to_be_refused(tmp_path):
    # GIVEN a run that this user may not read
    path = simulate(tmp_path / "run")
    path.chmod(0)
    # WHEN it is loaded, THEN it is refused in one line (root may read it all the same)
    try:
        if os.geteuid():
            with pytest.raises(LotusError, match="cannot read"):
                load(path)
        else:
            assert isinstance(load(path).waits, pd.DataFrame)
    finally:
        path.chmod(0o700)


def test_the_books_of_a_simulated_run_close(tmp_path):
    # GIVEN a simulated run of two epochs with a slow sample
    def slow(epoch, batch, index, operation):
        return 50 * MS if (epoch, index, operation) == (1, 9, "Loader") else 0

    run = load(simulate(tmp_path / "run", epochs=2, extra_ns=slow))
    batches, samples, ops = run.batches, run.samples, run.ops
    # WHEN sums are taken, THEN operations and self make samples, and those the fetch
    top = ops[~ops["nested"]].groupby(["epoch", "batch", "position"])["duration_ns"].sum()
    by_sample = samples.set_index(["epoch", "batch", "position"]).sort_index()
    assert (top == by_sample["ops_ns"]).all()
    assert (samples["ops_ns"] + samples["self_ns"] == samples["duration_ns"]).all()
    made = samples.groupby(["epoch", "batch"])["duration_ns"].sum().to_numpy()
    assert (made == batches["samples_ns"]).all()
    parts = batches[["samples_ns", "collate_ns", "self_ns"]].sum(axis=1)
    assert (parts == batches["fetch_ns"]).all()
    # AND what was made was taken, in order, none lost
    assert len(batches) == 16
    assert batches["wait_ns"].notna().all()
    assert batches["first"].sum() == 2
    assert run.lost.empty
    assert samples.loc[samples["duration_ns"].idxmax(), ["epoch", "sample"]].tolist() == [1, 9]


def test_names_that_are_no_unicode_are_told_by_escapes(tmp_path):
    name = "caf\udce9"  # a byte of a file's name, as Python has it
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(pid=100)
    main.loader(dataset=name)
    main.event("note", text=name)
    sample = Sample(0, 2 * MS, [(name, MS)])
    main.batch(0, start_ns=START_NS, samples=[sample], collate_ns=MS)
    main.wait(start_ns=START_NS, end_ns=START_NS + 4 * MS)
    run = load(builder.end())
    escaped = "caf\\udce9"
    assert run.operations["operation"].tolist() == [escaped]
    assert run.ops["operation"].tolist() == [escaped]
    assert run.loaders["dataset"].tolist() == [escaped]
    assert run.notes == [escaped]


def test_times_of_reports_are_whole_however_large(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    builder.report("python", 7, ppid=None, time_ns=2**53 + 1)
    builder.report("torch", 8, torch="2")  # of which no time is known
    processes = load(builder.end()).processes.set_index("pid")
    assert processes.loc[7, "time_ns"] == 2**53 + 1
    assert processes["time_ns"].isna()[8]


def test_the_wait_in_which_a_run_was_killed_is_told(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(pid=100)
    main.loader()
    main.wait(start_ns=START_NS, end_ns=START_NS + 4 * MS)
    run = builder.end(end_ns=START_NS + 9_000 * MS)
    page = bytearray(state_page.SIZE)
    words = memoryview(page).cast("q")
    words[state_page.W_MAGIC], words[state_page.W_PID], words[state_page.W_WORKER] = (
        state_page.MAGIC,
        100,
        -1,
    )
    words[state_page.W_PHASE], words[state_page.W_SINCE] = state_page.WAIT, START_NS + 1_000 * MS
    words[state_page.W_BATCH] = 7
    (run / "state").mkdir(exist_ok=True)
    (run / "state" / "100.state").write_bytes(page)
    waits = load(run).open_waits
    assert waits[["pid", "batch", "wait_ns"]].to_numpy().tolist() == [[100, 7, 8_000 * MS]]
    words[state_page.W_PHASE] = state_page.ENDED
    (run / "state" / "100.state").write_bytes(page)
    assert not len(load(run).open_waits)

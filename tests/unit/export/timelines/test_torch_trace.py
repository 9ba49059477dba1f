"""Bringing a trace of torch.profiler onto the run's clock.

traces/torch_profiler/ has traces that torch 2.2.2 and 2.14.1 wrote while lotus recorded, without
what is not needed here, and the waits of the run.
"""

import gzip
import json
import os
import zlib
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.export.export_request import ExportRequest
from lotus.export.timelines import chrome, torch_trace
from lotus.reading.run import load
from tests.logs import MS, START_NS, RunBuilder, made

RECORDED = sorted((Path(__file__).parents[4] / "traces/torch_profiler").glob("*.json"))
WALL = 1_700_000_000_000_000_000


def recorded_run(path, recording, **manifest):
    run = recording["run"]
    clocks = {name: run[name] for name in ("start_ns", "start_wall_ns")}
    builder = RunBuilder(path, **{**clocks, **manifest})
    main = builder.process(run["pid"])
    main.loader(0, num_workers=2)
    first = run["waits"][0][0]
    main.iterator(0, 0, first - MS, first, [])
    for batch, (start, took) in enumerate(run["waits"]):
        main.wait(0, 0, batch, start_ns=start, end_ns=start + took)
    return load(builder.end(end_ns=run["end_ns"]))


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request, tmp_path):
    recording = json.loads(request.param.read_text())
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(recording["trace"]))
    return recording, trace


def test_both_versions_were_recorded():
    assert len(RECORDED) == 2


def test_the_clocks_of_the_run_are_borne_out_by_its_waits(recorded, tmp_path):
    recording, trace = recorded
    run = recorded_run(tmp_path / "run", recording)
    alignment = torch_trace.align(run, torch_trace.read(trace))
    assert alignment.offset_ns == recording["run"]["start_ns"] - recording["run"]["start_wall_ns"]
    assert alignment.error_ns < 200_000
    assert "bear out" in str(alignment)


@pytest.mark.parametrize("off_ns", [300_000_000, -300_000_000])
def test_a_wall_clock_that_was_corrected(recorded, tmp_path, off_ns):
    # GIVEN a run whose wall clock was set while it ran
    recording, trace = recorded
    wall = recording["run"]["start_wall_ns"] + off_ns
    run = recorded_run(tmp_path / "run", recording, start_wall_ns=wall)
    alignment = torch_trace.align(run, torch_trace.read(trace))
    # THEN its waits tell better than the clocks of its beginning
    right = recording["run"]["start_ns"] - recording["run"]["start_wall_ns"]
    assert abs(alignment.offset_ns - right) <= alignment.error_ns + 1000
    assert alignment.error_ns < 200_000
    assert "300 ms off" in str(alignment)


def test_without_the_clocks_the_waits_do(recorded, tmp_path):
    recording, trace = recorded
    run = recorded_run(tmp_path / "run", recording, start_wall_ns=None)
    alignment = torch_trace.align(run, torch_trace.read(trace))
    right = recording["run"]["start_ns"] - recording["run"]["start_wall_ns"]
    assert abs(alignment.offset_ns - right) < 200_000


def test_merged_events_are_on_the_run_s_clock(recorded, tmp_path):
    recording, trace = recorded
    compressed = tmp_path / "trace.json.gz"
    compressed.write_bytes(gzip.compress(trace.read_bytes()))
    run = recorded_run(tmp_path / "run", recording)
    notes = []
    text = b"".join(
        chrome.pieces(
            run, ExportRequest("chrome", torch_trace=compressed), notes, lambda done, whole: None
        )
    )
    events = json.loads(text)["traceEvents"]
    ranges = sorted(event["ts"] for event in events if event.get("name", "").endswith(".__next__"))
    for (start, _), ts in zip(recording["run"]["waits"], ranges, strict=False):
        assert abs(ts * 1000 - start) < 1_000_000
    assert len(notes) == 1
    # Of the profiler's names for a process that has one already only the threads' are kept.
    names = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
    assert names == [f"rank 0 on host (pid {recording['run']['pid']})"]
    assert sum(event.get("cat") == "cpu_op" for event in events) == 10


def synthetic(tmp_path, waits, pid=100, **manifest):
    builder = RunBuilder(tmp_path / "run", start_ns=START_NS, **manifest)
    main = builder.process(pid)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, START_NS, START_NS + 1, [])
    for batch, start in enumerate(waits):
        made(main, batch, START_NS + start + 5, loader=0)
        main.wait(0, 0, batch, start_ns=START_NS + start, end_ns=START_NS + start + 100_000)
    return load(builder.end(end_ns=START_NS + 1000 * MS))


def trace_of(tmp_path, starts, pid=100, base=0, **fields):
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        {"ph": "X", "name": name, "pid": pid, "tid": pid, "ts": start / 1000, "dur": 120.0}
        for start in starts
    ]
    events.append({"ph": "X", "name": "aten::add", "pid": pid, "tid": pid, "ts": 1.0, "dur": 1.0})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": base, **fields}))
    return torch_trace.read(path)


def test_what_the_accelerator_ran_is_shifted_too(tmp_path):
    # GIVEN a kernel, whose "process" is the number of the device
    starts = [0, 30 * MS, 70 * MS]
    run = synthetic(tmp_path, starts, start_wall_ns=WALL)
    trace = trace_of(tmp_path, [start - 10_000 for start in starts], base=WALL)
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 31000.5}
    trace.events.append({**kernel, "dur": 12.25})
    trace.path.write_text(
        json.dumps({"traceEvents": trace.events, "baseTimeNanoseconds": trace.base_ns})
    )
    text = b"".join(
        chrome.pieces(
            run, ExportRequest("chrome", torch_trace=trace.path), [], lambda done, whole: None
        )
    )
    events = json.loads(text)["traceEvents"]
    shifted = next(event for event in events if event.get("cat") == "kernel")
    # THEN it is as long after the run's beginning as it was on the wall clock
    assert shifted == {**kernel, "dur": 12.25, "ts": START_NS / 1000 + 31000.5}


def test_ranges_that_fit_nowhere_are_refused(tmp_path):
    run = synthetic(tmp_path, [at * 50 * MS for at in range(8)])
    trace = trace_of(tmp_path, [at * 77 * MS for at in range(8)], base=WALL)
    with pytest.raises(LotusError, match="do not fit the waits"):
        torch_trace.align(run, trace)


def test_evenly_spaced_waits_tell_nothing_without_clocks(tmp_path):
    waits = [at * 50 * MS for at in range(20)]
    run = synthetic(tmp_path, waits, start_wall_ns=None)
    with pytest.raises(LotusError, match="single offset"):
        torch_trace.align(run, trace_of(tmp_path, waits[:6], base=WALL))


def test_a_trace_without_a_loader_is_aligned_by_the_clocks_and_says_so(tmp_path):
    run = synthetic(tmp_path, [0], start_wall_ns=WALL)
    alignment = torch_trace.align(run, trace_of(tmp_path, []))
    assert alignment.offset_ns == START_NS - WALL
    assert "not known" in str(alignment)


def test_without_both_it_is_refused(tmp_path):
    run = synthetic(tmp_path, [0], start_wall_ns=None)
    with pytest.raises(LotusError, match="cannot be aligned"):
        torch_trace.align(run, trace_of(tmp_path, []))


def test_a_trace_of_another_process_is_refused(tmp_path):
    run = synthetic(tmp_path, [0])
    with pytest.raises(LotusError, match=r"another program.*\(4711\).*\(100\)"):
        torch_trace.align(run, trace_of(tmp_path, [0], pid=4711))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"traceEvents": 1}',
        b"[1",
        b"\x1f\x8bnot gzip",
        b'"text"',
        b"{}",
        b"[" * 100_000,
    ],
)
def test_what_is_no_trace_is_refused_in_a_line(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(LotusError, match="export_chrome_trace"):
        torch_trace.read(path)


def test_strange_events_are_kept_or_left_out_but_break_nothing(tmp_path):
    run = synthetic(tmp_path, [0], start_wall_ns=WALL)
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [1, null, {"ph": "X"}, {"ph": "X", "pid": 100, "ts": NaN, "dur": 1},'
        '{"ph": "X", "pid": 100, "ts": "x"}, {"ph": "i", "pid": "GPU 0", "ts": 1e300},'
        '{"ph": "X", "pid": 100, "ts": 5, "dur": 1, "name": "\t", "args": {"x": Infinity}}]}'
    )
    notes = []
    text = b"".join(
        chrome.pieces(
            run, ExportRequest("chrome", torch_trace=path), notes, lambda done, whole: None
        )
    )
    events = json.loads(text, parse_constant=lambda name: pytest.fail(name))["traceEvents"]
    assert [event["args"]["x"] for event in events if event.get("name") == "\t"] == ["inf"]
    assert not any(isinstance(event.get("ts"), str) for event in events)


def test_times_beyond_all_bounds_break_nothing(tmp_path):
    run = synthetic(tmp_path, [0], start_wall_ns=WALL)
    path = trace_of(tmp_path, [0]).path
    document = json.loads(path.read_text())
    for base in (2**63 - 1, -(2**63), 2**61 - 1):
        for time in (2**52, 2**51 - 1, 1e308):
            event = {**document["traceEvents"][0], "ts": time, "dur": 2**51 - 1}
            events = [event, *document["traceEvents"]]
            path.write_text(json.dumps({"traceEvents": events, "baseTimeNanoseconds": base}))
            trace = torch_trace.read(path)
            try:
                torch_trace.align(run, trace)
            except LotusError as error:
                assert "aligned" in str(error)  # noqa: PT017 - either is an answer


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_too_large_for_memory_is_refused_before_it_is_parsed(tmp_path, monkeypatch, name):
    text = json.dumps({"traceEvents": [{"name": "x" * 5000}]}).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert len(torch_trace.read(path).events) == 1
    monkeypatch.setattr(torch_trace, "_MOST", len(text) - 1)
    with pytest.raises(LotusError, match=r"record fewer steps .* torch.profiler.schedule"):
        torch_trace.read(path)


def test_what_a_small_file_unpacks_to_is_bounded(tmp_path, monkeypatch):
    # GIVEN a file that unpacks to a thousand times its size, and one that is padded to be larger
    monkeypatch.setattr(torch_trace, "_SMALL", 1 << 20)
    bomb = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
    path = tmp_path / "trace.json.gz"
    for content in (bomb, bomb + b"\0" * (8 << 20)):
        path.write_bytes(content)
        # WHEN it is read, THEN it is refused after what it may hold, not after all that it holds
        held = []
        unpacker = zlib.decompressobj

        def counting(*args, unpacker=unpacker, held=held, **kwargs):
            inner = unpacker(*args, **kwargs)
            return Counting(inner, held)

        monkeypatch.setattr(torch_trace.zlib, "decompressobj", counting)
        with pytest.raises(LotusError, match=r"64 times its size and more.*gunzip"):
            torch_trace.read(path)
        monkeypatch.setattr(torch_trace.zlib, "decompressobj", unpacker)
        assert sum(held) < 16 << 20


class Counting:
    """An unpacker that keeps what it gave."""

    def __init__(self, inner, held):
        self._inner, self._held = inner, held

    def decompress(self, *args):
        unpacked = self._inner.decompress(*args)
        self._held.append(len(unpacked))
        return unpacked

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_packed_trace_that_is_cut_or_whose_end_is_followed_by_zeros(tmp_path):
    packed = gzip.compress(json.dumps({"traceEvents": [{"name": "x"}]}).encode())
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed + b"\0" * 5000)
    assert len(torch_trace.read(path).events) == 1
    path.write_bytes(packed[:-9])
    with pytest.raises(LotusError, match="no trace that is complete"):
        torch_trace.read(path)


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"a":0}', b"0"])
def test_more_values_than_a_trace_has_are_refused_before_they_are_made(tmp_path, text):
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b",".join([text] * 2_000_000) + b"]")
    with pytest.raises(LotusError, match="no trace that is complete"):
        torch_trace.read(path)


def test_a_sparse_file_is_refused_at_its_first_hole(tmp_path, monkeypatch):
    """GIVEN a trace that goes on as a hole of 1 TB THEN no more of that is read than a chunk."""
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [')
    os.truncate(path, 1 << 40)
    read = []
    real = torch_trace._as_it_is

    class Counted:
        def __init__(self, file):
            self.file = file

        def read(self, size):
            part = self.file.read(size)
            read.append(len(part))
            return part

    monkeypatch.setattr(torch_trace, "_as_it_is", lambda path, file: real(path, Counted(file)))
    with pytest.raises(LotusError, match="no trace that is complete"):
        torch_trace.read(path)
    assert read == [torch_trace._CHUNK]


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"[]")  # what a reader that waits would take
    with pytest.raises(LotusError, match="not a plain file"):
        torch_trace.read(tmp_path / "pipe")
    os.close(writer)

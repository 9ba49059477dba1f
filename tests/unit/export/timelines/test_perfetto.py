"""Perfetto's packets, read back by its own schema."""

from collections import Counter

import numpy as np
import pytest

from lotus.export import formats, protobuf
from lotus.export.export_request import ExportRequest
from lotus.reading.run import load
from lotus.reading.tables import table_pieces
from tests.logs import MS, START_NS, RunBuilder, Sample, made
from tests.simulation import simulate

schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def packets(path, tmp_path):
    """(packets, notes) of the run's export."""
    output = tmp_path / "export.pftrace"
    request = ExportRequest("perfetto", output, force=True)
    done = formats.export(load(path), request, lambda done, whole: None)
    trace = schema.Trace()
    assert trace.ParseFromString(output.read_bytes())
    return list(trace.packet), done.notes


def slices(trace_packets):
    """(category, name, start, end, depth, annotations) of each, in order of their ends.

    As a viewer makes them: an end closes what was begun last on its track.
    """
    names, categories, annotations = {}, {}, {}
    for packet in trace_packets:
        data = packet.interned_data
        names |= {interned.iid: interned.name for interned in data.event_names}
        categories |= {interned.iid: interned.name for interned in data.event_categories}
        annotations |= {interned.iid: interned.name for interned in data.debug_annotation_names}
    tracks = {p.track_descriptor.uuid for p in trace_packets if p.HasField("track_descriptor")}
    events = [p for p in trace_packets if p.HasField("track_event")]
    # A stable order: of the same moment what stands first comes first.
    events.sort(key=lambda packet: packet.timestamp)
    open_, closed = {}, []
    for packet in events:
        event = packet.track_event
        assert event.track_uuid in tracks
        if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            open_.setdefault(event.track_uuid, []).append(packet)
        elif event.type == schema.TrackEvent.TYPE_SLICE_END:
            begun = open_[event.track_uuid].pop()
            begin = begun.track_event
            values = {annotations[a.name_iid]: a.int_value for a in begin.debug_annotations}
            closed.append(
                (
                    categories[begin.category_iids[0]], names[begin.name_iid], begun.timestamp,
                    packet.timestamp, len(open_[event.track_uuid]), values,
                )
            )  # fmt: skip
    assert not any(open_.values())
    return closed


def durations(run):
    """Of each kind how many and how long together, by the tables."""
    batches, waits = run.batches, run.waits
    values = {
        "fetch": batches["fetch_ns"].dropna(),
        "collate": batches["collate_ns"][batches["collate_start_ns"].notna()],
        "idle": batches["idle_ns"].dropna(),
        "send": batches["send_ns"].dropna(),
        "pin": batches["pin_ns"].dropna(),
        "sample": run.samples["duration_ns"],
        "operation": run.ops["duration_ns"],
        "wait": waits["wait_ns"],
        "step": waits["step_ns"].dropna(),
    }
    return {kind: (len(some), int(some.sum())) for kind, some in values.items() if len(some)}


def sums(closed):
    count, total = Counter(), Counter()
    for kind, _, start, end, _, _ in closed:
        count[kind] += 1
        total[kind] += end - start
    return {kind: (count[kind], total[kind]) for kind in count}


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("rows", [7, 1 << 18])
def test_all_that_the_tables_have(tmp_path, monkeypatch, workers, rows):
    # GIVEN a run of two epochs, read in pieces of a few rows or at once
    path = simulate(tmp_path / "run", workers=workers, batches=7, epochs=2)
    monkeypatch.setattr(table_pieces, "ROWS", rows)
    trace_packets, notes = packets(path, tmp_path)
    closed = slices(trace_packets)
    run = load(path)
    sums_of = sums(closed)
    assert sums_of.pop("epoch")[0] == 2
    sums_of.pop("start-up", None)
    assert sums_of == durations(run)
    # AND operations lie in samples, those in fetches
    depth = {kind: {d for k, *_, d, _ in closed if k == kind} for kind in ("fetch", "operation")}
    assert {d - min(depth["fetch"]) for d in depth["operation"]} == {2}
    # AND one arrow for each batch, of its own number
    out = [n for p in trace_packets for n in p.track_event.flow_ids]
    into = [n for p in trace_packets for n in p.track_event.terminating_flow_ids]
    assert len(out) == len(set(out)) == len(run.batches)
    assert sorted(out) == sorted(into)
    assert notes == []


def test_names_tracks_and_clocks(tmp_path):
    path = simulate(tmp_path / "run", workers=2)
    trace_packets, _ = packets(path, tmp_path)
    described = [p.track_descriptor for p in trace_packets if p.HasField("track_descriptor")]
    process = [track for track in described if track.HasField("process")]
    assert [track.process.process_name for track in process] == ["rank 0 on host (pid 100)"]
    assert process[0].process.pid == 100
    names = {track.name for track in described if not track.HasField("process")}
    assert {"worker 0 (pid 101)", "worker 1 (pid 102)", "worker 0 (pid 101), send"} <= names
    assert {track.parent_uuid for track in described if track.name} == {process[0].uuid}
    clocks = {clock.clock_id: clock.timestamp for clock in trace_packets[0].clock_snapshot.clocks}
    assert clocks == {3: START_NS - MS, 1: 1_700_000_000_000_000_000}
    assert trace_packets[0].clock_snapshot.primary_trace_clock == schema.BUILTIN_CLOCK_MONOTONIC
    assert (
        trace_packets[1].trace_packet_defaults.timestamp_clock_id == schema.BUILTIN_CLOCK_MONOTONIC
    )
    fetch = next(piece for piece in slices(trace_packets) if piece[0] == "fetch")
    assert fetch[5] == {"loader": 0, "epoch": 0, "batch": 0, "size": 4}


def test_ranks_with_the_same_pid_stay_apart(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    for rank, host in ((0, "a"), (1, "b")):
        main = builder.process(100, rank=rank, world_size=2, host=host)
        main.loader(0, num_workers=0)
        main.iterator(0, 0, START_NS, START_NS + MS, [])
        made(main, 0, START_NS + 2 * MS, loader=0)
        main.wait(0, 0, 0, start_ns=START_NS + MS, end_ns=START_NS + 3 * MS)
    trace_packets, notes = packets(builder.end(), tmp_path)
    processes = [
        p.track_descriptor.process for p in trace_packets if p.track_descriptor.process.pid
    ]
    assert {process.process_name for process in processes} == {
        "rank 0 on a (pid 100)",
        "rank 1 on b (pid 100)",
    }
    assert len({process.pid for process in processes}) == 2
    assert any("clocks are not aligned" in note for note in notes)
    flows = [n for p in trace_packets for n in p.track_event.flow_ids]
    assert len(flows) == len(set(flows)) == 2


def test_hostile_names_and_numbers(tmp_path):
    names = ["<script>", "a;b\n", "\ud800", "\x1b[2J", "n" * 5000, "名"]
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100, host="\x1b]0;h")
    main.loader(0, num_workers=0, call_site="/x/\x07<b>.py:1")
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    main.operations(*names)
    ops = [(name, 10) for name in names]
    huge = (1 << 62) + 5
    main.batch(0, start_ns=START_NS + 2 * MS, samples=[Sample(huge, 100, ops)], loader=0)
    main.wait(0, 0, 0, start_ns=START_NS + MS, end_ns=START_NS + 3 * MS)
    path = builder.end()
    trace_packets, _ = packets(path, tmp_path)
    closed = slices(trace_packets)
    mine = [name for kind, name, *_ in closed if kind == "operation"]
    assert mine[0] == "<script>"
    assert len(mine) == len(names)
    assert "名" in mine
    assert next(told["sample"] for kind, *_, told in closed if kind == "sample") == huge
    described = [p.track_descriptor for p in trace_packets if p.HasField("track_descriptor")]
    assert not any("\x1b" in track.name + track.process.process_name for track in described)


def test_a_clock_that_was_set_back(tmp_path):
    # GIVEN a wait that ended before it began, and operations that reach over their sample's end
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    main.operations("A")
    at = START_NS + 2 * MS
    main.batch(0, start_ns=at, samples=[Sample(0, 100, [("A", 500, 50)]), Sample(1, 9)], loader=0)
    main.wait(0, 0, 0, start_ns=START_NS + 5 * MS, end_ns=START_NS + MS)
    trace_packets, notes = packets(builder.end(), tmp_path)
    closed = slices(trace_packets)
    assert all(start <= end for _, _, start, end, _, _ in closed)
    assert any("ended before they began" in note for note in notes)
    assert any("cut off" in note for note in notes)
    assert sums(closed)["operation"][0] == 1


def test_a_machine_that_has_been_up_for_years(tmp_path):
    # GIVEN times that a float does not tell to the nanosecond
    late = (1 << 55) + 1
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, late, late + MS, [])
    for batch in range(9):
        at = late + 2 * MS + batch * (MS + 7)
        made(main, batch, at, collate_ns=3, loader=0)
        main.wait(0, 0, batch, start_ns=at - 100, end_ns=at + 101)
    path = builder.end()
    trace_packets, notes = packets(path, tmp_path)
    assert notes == []
    assert sums(slices(trace_packets)).items() >= durations(load(path)).items()
    assert len([n for p in trace_packets for n in p.track_event.terminating_flow_ids]) == 9


def test_a_run_without_a_loader(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    builder.process(100)
    trace_packets, notes = packets(builder.end(), tmp_path)
    assert slices(trace_packets) == []
    assert any("no loader was iterated" in note for note in notes)


def test_one_batch_that_nobody_took_and_lost_records(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=1)
    main.iterator(0, 0, START_NS, START_NS + MS, [101])
    worker = builder.process(101, ppid=100, start_ns=START_NS)
    worker.worker(0, ready_ns=START_NS + MS)
    made(worker, 0, START_NS + 2 * MS, collate_ns=5)
    worker.data += b"half a frame"
    trace_packets, notes = packets(builder.end(), tmp_path)
    assert sums(slices(trace_packets))["collate"] == (1, 5)
    assert not [n for p in trace_packets for n in p.track_event.flow_ids]
    assert any("records were lost" in note for note in notes)


def test_a_worker_whose_maker_left_no_record(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    worker = builder.process(101, ppid=100, start_ns=START_NS)
    worker.worker(0, ready_ns=START_NS + MS)
    made(worker, 0, START_NS + 2 * MS)
    trace_packets, _ = packets(builder.end(), tmp_path)
    described = [p.track_descriptor.name for p in trace_packets if p.HasField("track_descriptor")]
    assert "worker 0 (pid 101)" in described
    assert sums(slices(trace_packets))["fetch"][0] == 1


def test_memory_that_was_not_read_is_no_memory_of_0(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    worker = builder.process(101, ppid=100, start_ns=START_NS)
    worker.worker(0, ready_ns=START_NS + MS)
    for second, pss in enumerate((500, 0, 700)):
        worker.resources(START_NS + second * 1000 * MS, pss=pss, rss=0, shm=0)
    trace_packets, _ = packets(builder.end(), tmp_path)
    tracks = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace_packets}
    values = {}
    for event in (p.track_event for p in trace_packets):
        if event.type == schema.TrackEvent.TYPE_COUNTER:
            name = tracks[event.track_uuid].rpartition(": ")[2]
            values.setdefault(name, []).append(event.double_counter_value)
    assert values == {"pss": [500, 700], "shm": [0, 0, 0]}


def test_threads_and_spans_have_tracks_of_their_own(tmp_path):
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(100)
    main.loader(0, num_workers=0)
    main.iterator(0, 0, START_NS, START_NS + MS, [])
    main.operations("thread", "forward")
    at = START_NS + 2 * MS
    # An operation on another thread reaches over two batches; a span lies outside of both.
    main.batch(
        0, start_ns=at, samples=[Sample(0, 100)], loader=0, loose=[("thread", at, 5 * MS, 777)]
    )
    made(main, 1, at + 2 * MS, loader=0)
    for batch in (0, 1):
        begin = at + batch * 2 * MS - 100
        main.wait(0, 0, batch, start_ns=begin, end_ns=begin + 1000)
    main.loose(("forward", at + 2 * MS + 50, 10 * MS))
    path = builder.end()
    trace_packets, notes = packets(path, tmp_path)
    assert sums(slices(trace_packets))["operation"] == (2, 15 * MS)
    assert notes == []
    names = [p.track_descriptor.name for p in trace_packets if p.HasField("track_descriptor")]
    assert {"thread 777: spans", "main thread: spans"} <= set(names)


def test_numbers_are_read_as_they_were_written():
    values = np.array([0, 1, 127, 128, 1 << 40, (1 << 62) - 1])
    parts = protobuf.shaped(1, [*protobuf.slot(8, "time", 9), protobuf.number(10, 1)])
    data = protobuf.render(parts, len(values), {"time": values}).tobytes()
    trace = schema.Trace()
    assert trace.ParseFromString(data)
    assert [packet.timestamp for packet in trace.packet] == values.tolist()
    assert protobuf.number(1, -1) == b"\x08" + b"\xff" * 9 + b"\x01"

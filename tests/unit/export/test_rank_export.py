"""Synchronisations in timelines, and ranks by steps as files."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.ranks.rank_steps import long_table, rank_steps
from lotus.export import formats
from lotus.export.export_request import ExportRequest
from lotus.export.profiles import flame_graphs
from lotus.reading.run import Run, load
from tests.logs import MS, RunBuilder
from tests.simulation import simulate

schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
HOSTS = ("a", "b")


def quiet(done: int, whole: int) -> None:
    pass


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two ranks, each with a synchronisation a step."""
    builder = RunBuilder(tmp_path / "run")
    for rank in range(2):
        simulate(tmp_path, builder=builder, rank=rank, first_pid=100 + 100 * rank, batches=6)
    path = builder.end()
    loaded = load(path)
    waits = loaded.waits
    taken = waits["start_ns"] + waits["wait_ns"]
    syncs = pd.DataFrame(
        {
            **{name: waits[name] for name in ("rank", "local_rank", "world_size", "host", "pid")},
            "step": waits["batch"],
            "start_ns": taken + MS,
            "ready_ns": taken + 2 * MS,
            "end_ns": taken + 4 * MS,
            "exposed_ns": 2 * MS,
        }
    )
    loaded.__dict__["syncs"] = syncs
    return loaded


def written(run: Run, format: str, folder: Path, **options: Any) -> tuple[Path, list[str]]:
    output = folder / f"export.{format}"
    done = formats.export(run, ExportRequest(format, output, **options), quiet)
    return output, done.notes


def test_perfetto_has_each_synchronisation_in_the_process_of_its_rank(
    run: Run, tmp_path: Path
) -> None:
    trace = schema.Trace()
    path, _ = written(run, "perfetto", tmp_path)
    assert trace.ParseFromString(path.read_bytes())
    categories: dict[int, str] = {}
    notes: dict[int, str] = {}
    tracks, begun, took = {}, {}, Counter[tuple[str, int]]()
    steps = []
    for packet in sorted(trace.packet, key=lambda packet: packet.timestamp):
        categories |= {
            interned.iid: interned.name for interned in packet.interned_data.event_categories
        }
        notes |= {
            interned.iid: interned.name for interned in packet.interned_data.debug_annotation_names
        }
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        event = packet.track_event
        if event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            begun[event.track_uuid] = packet
        elif event.type == schema.TrackEvent.TYPE_SLICE_END and event.track_uuid in begun:
            track = tracks[event.track_uuid]
            if track.name != "gradients":
                continue
            first = begun[event.track_uuid]
            kind = categories[first.track_event.category_iids[0]]
            took[kind, tracks[track.parent_uuid].process.pid] += packet.timestamp - first.timestamp
            values = {notes[a.name_iid]: a.int_value for a in first.track_event.debug_annotations}
            steps.append((kind, values["step"]))
    # The two ranks are two processes, on one clock.
    assert took == {
        (kind, pid): 6 * (1 if kind == "backward" else 2) * MS
        for kind in ("backward", "sync")
        for pid in (100, 200)
    }
    assert Counter(steps) == {(kind, k): 2 for kind in ("backward", "sync") for k in range(6)}


def test_chrome_has_them_too(run: Run, tmp_path: Path) -> None:
    path, _ = written(run, "chrome", tmp_path)
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    syncs = [event for event in events if event["cat"] == "sync"]
    assert Counter(sync["pid"] for sync in syncs) == {100: 6, 200: 6}
    assert sorted(sync["args"]["step"] for sync in syncs) == sorted([*range(6)] * 2)
    assert {sync["dur"] for sync in syncs} == {2000.0}


def test_flames_count_a_step_once(run: Run) -> None:
    with_syncs = b"".join(flame_graphs.pieces(run, ExportRequest("folded"), [], quiet))
    run.__dict__["syncs"] = run.syncs.iloc[:0]
    assert b"".join(flame_graphs.pieces(run, ExportRequest("folded"), [], quiet)) == with_syncs


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_ranks_by_steps_are_a_table(run: Run, tmp_path: Path, format: str) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    path, notes = written(run, format, tmp_path)
    assert notes == []
    read = pd.read_csv if format == "csv" else pd.read_parquet
    table = read(path / f"rank_steps.{format}")
    steps = rank_steps(run)
    assert steps is not None
    wanted = long_table(steps)
    assert list(table) == list(wanted)
    for name in ("rank", "step", "wait_ns", "step_ns", "sync_ns", "late_ns"):
        np.testing.assert_allclose(table[name].astype(float), wanted[name], rtol=1e-6)
    assert len(read(path / f"syncs.{format}")) == 12
    written(run, format, tmp_path, force=True)  # they are known to be lotus's own


def test_the_error_of_the_clocks_is_told(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "two")
    for rank, host in enumerate(HOSTS):
        builder.process(100, rank=rank, world_size=2, host=host)
    path = builder.end(hosts=[{"host": host, "error_ns": 100_000} for host in HOSTS])
    _, notes = written(load(path), "perfetto", tmp_path)
    assert "the run is of several machines, whose clocks may be 200 µs apart at most" in notes
    (path / "run.json").write_text(
        json.dumps(json.loads((path / "run.json").read_text()) | {"hosts": []})
    )
    _, notes = written(load(path), "perfetto", tmp_path, force=True)
    assert any("clocks are not aligned" in note for note in notes)

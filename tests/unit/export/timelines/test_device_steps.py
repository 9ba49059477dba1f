"""When a device worked on each step: placed on the run's clock, and exported."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np

from lotus.export import formats
from lotus.export.export_request import ExportRequest
from lotus.export.profiles import flame_graphs
from lotus.export.timelines.device_steps import place_steps
from lotus.reading.run import load
from tests.logs import MS, RunBuilder
from tests.simulation import simulate


def quiet(done: int, whole: int) -> None:
    pass


def placed(start: list[float], idle: list[float], busy: list[float]) -> list[tuple[float, float]]:
    """Begin and end of steps whose batches were handed over 1 ms after they were asked for."""
    begin, gap, took = (np.array(values) * MS for values in (start, idle, busy))
    steps = place_steps(begin, np.full(len(begin), 1.0 * MS), gap, took)
    assert steps.rows.tolist() == np.flatnonzero(~np.isnan(took)).tolist()
    return list(zip((steps.start_ns / MS).tolist(), (steps.end_ns / MS).tolist(), strict=True))


def test_a_device_that_had_nothing_to_do_begins_with_the_batch() -> None:
    assert placed([0, 10, 20], [1, 1, 1], [9, 9, 9]) == [(1, 10), (11, 20), (21, 30)]


def test_a_device_that_lags_behind_goes_on_where_it_was() -> None:
    # The program asks every 4 ms for the next one, and each takes the device 10.
    assert placed([0, 4, 8], [1, 0, 0], [10, 10, 10]) == [(1, 11), (11, 21), (21, 31)]


def test_after_a_step_that_was_not_timed_it_begins_with_the_batch_again() -> None:
    nan = float("nan")
    assert placed([0, 4, 8], [1, nan, 0], [10, nan, 10]) == [(1, 9), (9, 19)]


def test_clocks_that_drift_never_make_steps_overlap() -> None:
    steps = placed([0, 10, 20], [1, 1, 1], [10.5, 10.5, 10.5])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(steps))


def test_the_exported_timeline_has_a_track_for_the_device(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run")
    simulate(tmp_path, builder=builder, batches=6)
    run = load(builder.end())
    without = b"".join(flame_graphs.pieces(run, ExportRequest("folded"), [], quiet))
    waits = run.waits
    waits["device_idle_ns"], waits["device_busy_ns"] = waits["wait_ns"], waits["step_ns"]
    path = tmp_path / "trace.json"
    formats.export(run, ExportRequest("chrome", path), quiet)
    written = json.loads(path.read_text())["traceEvents"]
    steps = [event for event in written if event.get("cat") == "device"]
    assert [event["args"]["batch"] for event in steps] == waits["batch"].tolist()
    handed = (waits["start_ns"] + waits["wait_ns"]).to_numpy() / 1e3
    assert np.allclose([event["ts"] for event in steps], handed - handed[0] + steps[0]["ts"])
    (name,) = [
        event["args"]["name"]
        for event in written
        if event["name"] == "thread_name" and event["tid"] == steps[0]["tid"]
    ]
    assert name == "device, at most"
    # What the device does meanwhile is no time of the program's.
    assert b"".join(flame_graphs.pieces(run, ExportRequest("folded"), [], quiet)) == without

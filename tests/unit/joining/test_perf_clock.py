"""What a run knows of its processes, and recordings brought onto its clock."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import lotus
from lotus.joining import perf_clock
from native_map.errors import UnusableError
from tests.logs import MS, START_NS, RunBuilder, Sample
from tests.unit.joining.test_sample_join import recording

OFFSET = 7_000_000_000_123


@pytest.fixture
def run(tmp_path):
    """Two workers, that begin and end within a millisecond of what their maker knows."""
    builder = RunBuilder(tmp_path / "run")
    main = builder.process(pid=100)
    main.loader(0, num_workers=2)
    main.iterator(0, 0, start_ns=START_NS, end_ns=START_NS + 2 * MS, workers=[101, 102])
    for number, pid in enumerate((101, 102)):
        worker = builder.process(pid=pid, ppid=100, start_ns=START_NS + MS)
        worker.worker(number)
        worker.batch(number, start_ns=START_NS + 5 * MS, samples=[Sample(1, 50, [("Decode", 5)])])
        worker.worker_end(START_NS + 80 * MS)
    return lotus.load(builder.end(end_ns=START_NS + 81 * MS))


def theirs(clock="default"):
    """The same processes on another clock."""
    events = pd.DataFrame(
        {"pid": [101, 102], "ppid": [100, 100], "tid": [101, 102], "ptid": [100, 100]}
    )
    begun = events.assign(time_ns=np.int64([START_NS + MS // 2, START_NS + MS // 2]) + OFFSET)
    ended = events.assign(time_ns=np.int64([START_NS + 80 * MS + MS // 2] * 2) + OFFSET)
    times = START_NS + OFFSET + np.arange(10) * MS
    made = recording(times, clock=clock)
    return dataclasses.replace(made, forks=begun, exits=ended)


def test_processes_of_a_run_are_between_two_moments(run):
    events = perf_clock.process_events(run)
    assert sorted(zip(events["pid"], events["kind"], strict=True)) == [
        (101, "exit"), (101, "fork"), (102, "exit"), (102, "fork"),
    ]  # fmt: skip
    assert (events["earliest_ns"] <= events["latest_ns"]).all()
    forks = events[events["kind"] == "fork"]
    assert (forks["earliest_ns"] == START_NS).all()
    assert (events.loc[events["kind"] == "exit", "earliest_ns"] == START_NS + 80 * MS).all()


def test_a_recording_is_brought_onto_the_clock_of_the_run(run):
    original = theirs()
    aligned, words = perf_clock.aligned(run, original)
    assert aligned.clock == "monotonic"
    shift = original.samples["time_ns"] - aligned.samples["time_ns"]
    assert (shift - OFFSET).abs().max() <= 2 * MS
    assert (original.forks["time_ns"] - aligned.forks["time_ns"] - OFFSET).abs().max() <= 2 * MS
    # A mapping that never ends does not begin to.
    assert aligned.mappings["until_ns"].tolist() == original.mappings["until_ns"].tolist()
    assert len(aligned) == len(original) == len(aligned.samples)
    assert "clock" in words or "aligned" in words
    assert original.clock == "default"


def test_no_common_events_no_alignment(run):
    with pytest.raises(UnusableError, match="CLOCK_MONOTONIC"):
        perf_clock.aligned(run, recording([1, 2, 3], clock="default"))

"""Samples joined with a run's intervals and held against its counts; all of them synthetic."""

import numpy as np
import pandas as pd
import pytest

import lotus
from lotus.analysis.counters.function_profile import summarise_map
from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from lotus.joining import sample_join
from native_map.recording.perf_header import EventAttr
from native_map.recording.perf_recording import PerfRecording
from tests.logs import MS, START_NS, RunBuilder, Sample

AT = START_NS + 10 * MS
NEVER = np.iinfo(np.int64).max
CPU_CLOCK = {"name": "cpu-clock", "type": 1, "config": 0}


def recording(times, tid=100, period=MS, clock="monotonic", **attributes):
    """One event, sampled at these times on one thread of one mapped library."""
    times = np.asarray(times, np.int64)
    size = len(times)
    columns = {
        "time_ns": times,
        "pid": np.full(size, 100, np.int32),
        "tid": np.full(size, tid, np.int32),
        "event": np.zeros(size, np.int16),
        "ip": np.full(size, 0x1500, np.uint64),
        "period": np.full(size, period, np.uint64),
        "cpu_mode": np.full(size, 2, np.int8),
    }
    mappings = pd.DataFrame(
        {"pid": np.int32([100]), "start": np.uint64([0x1000]), "end": np.uint64([0x2000]),
         "offset": np.uint64([0]), "time_ns": np.int64([0]), "until_ns": np.int64([NEVER]),
         "path": ["/nowhere/libwork.so"], "build_id": [""], "executable": [True]}
    )  # fmt: skip

    def empty(names):
        return pd.DataFrame({name: np.empty(0, np.int64) for name in names.split()})

    event = {**CPU_CLOCK, "sample_type": 7, "sample_id_all": True, "period": period, **attributes}
    fields = {"frequency": 0, "clock": clock, **event}
    return PerfRecording(
        path="made.data",
        events=[fields["name"]],
        attrs=[EventAttr(**fields)],
        mappings=mappings,
        comms=empty("pid tid time_ns exec").assign(comm=np.empty(0, object)),
        forks=empty("pid ppid tid ptid time_ns"),
        exits=empty("pid ppid tid ptid time_ns"),
        lost=empty("time_ns event count").assign(kind=np.empty(0, object)),
        throttles=empty("time_ns pid tid cpu event throttle"),
        clock=clock,
        facts={"hostname": "elsewhere"},
        counted={"sample": size},
        sampled=[size],
        pieces=lambda: iter([columns] if size else []),
    )


@pytest.fixture
def builder(tmp_path):
    return RunBuilder(tmp_path / "run")


def batch(main, counted=True, flags="uk"):
    """A fetch of 60 ms: Decode 40 ms, Flip 10 ms, collate 5 ms; task_clock is all of it."""
    if counted:
        event = {"name": "task_clock", "type": 1, "config": 1, "config1": 0, "flags": flags}
        main.event(
            "counters", tid=100, time_ns=AT, pinned=False, read_ns=1,
            events=[{**event, "group": 0, "read_count": 0}],
        )  # fmt: skip
        readings = [(1, at, at, at) for at in (0, 40 * MS, 50 * MS, 51 * MS, 56 * MS, 60 * MS)]
        main.counts(AT, readings, [(0, 1), (1, 2)], (3, 4))
    sample = Sample(7, 51 * MS, [("Decode", 40 * MS), ("Flip", 10 * MS)])
    main.batch(0, start_ns=AT, samples=[sample], collate_ns=5 * MS)


def every_ms(first=AT, count=50):
    return first + np.arange(count) * MS + MS // 2


def test_samples_fall_into_the_operations_that_ran(builder):
    batch(builder.process(pid=100))
    # One before and one after: only what was sampled from end to end is compared.
    times = [AT - MS, *every_ms(), AT + 70 * MS]
    joined = sample_join.map_run(lotus.load(builder.end()), recording(times))
    rows = joined.operations.set_index("operation")
    assert rows["samples"].to_dict()["Decode"] == 40
    assert rows["samples"].to_dict()["Flip"] == 10
    assert rows.loc["Decode", "exact"] == 40 * MS
    assert rows.loc["Decode", "count"] == pytest.approx(40 * MS)
    functions = joined.functions.set_index("operation")
    assert functions.loc["Decode", "library"] == "libwork.so"
    assert functions["samples"].sum() == 52
    (book,) = joined.books.to_dict("records")
    assert (book["attributed"], book["unattributed"], book["recorded"]) == (50, 2, 52)
    (decode,) = joined.compared[joined.compared["operation"] == "Decode"].to_dict("records")
    assert decode["exact"] == 40 * MS
    assert decode["within_ci"]


def test_intervals_of_a_defective_clock_are_told(builder):
    # GIVEN a run, and the same with an operation that begins in the one before, and one reversed
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    sound = sample_join.map_run(run, recording(every_ms()))
    flip, collate = (run.intervals[name] == what for name, what in
                     (("operation", "Flip"), ("kind", "collate")))  # fmt: skip
    run.intervals.loc[flip, "start_ns"] -= 10 * MS
    run.intervals.loc[collate, "end_ns"] -= 30 * MS
    # WHEN samples are joined, THEN only the notes of the latter say so
    broken = sample_join.map_run(run, recording(every_ms()))
    told = [[note for note in each.notes if "defective" in note] for each in (sound, broken)]
    assert told[0] == []
    assert told[1][0].startswith("a clock is defective: 2 of the run's intervals ")


def test_the_time_in_which_the_kernel_throttled_sampling_is_kept(builder):
    batch(builder.process(pid=100))
    made = recording([AT - MS, *every_ms(), AT + 70 * MS])
    rows = [(AT + 5 * MS, True), (AT + 8 * MS, False), (AT + 50 * MS, True)]
    made.throttles = pd.DataFrame(rows, columns=["time_ns", "throttle"]).assign(
        pid=100, tid=100, cpu=0, event=0
    )
    result = sample_join.map_run(lotus.load(builder.end()), made)
    # 3 ms, and from 50 ms to the end of the last interval at 56 ms.
    assert result.calibration["throttled_ns"].tolist() == [9 * MS]


def test_what_was_not_sampled_from_end_to_end_is_not_compared(builder):
    batch(builder.process(pid=100))
    late = [*every_ms(AT + 20 * MS, 30), AT + 70 * MS]
    joined = sample_join.map_run(lotus.load(builder.end()), recording(late))
    assert np.isnan(joined.operations.set_index("operation").loc["Decode", "exact"])
    assert "Decode" not in set(joined.compared["operation"])
    assert "Flip" in set(joined.compared["operation"])


def test_samples_of_other_threads_and_times_are_kept_outside(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    later = sample_join.map_run(run, recording(every_ms(AT + 10_000 * MS)))
    assert later.books[["attributed", "unattributed"]].to_numpy().tolist() == [[0, 50]]
    assert later.functions["samples"].sum() == 50
    assert any("no sample fell into an operation" in note for note in later.notes)
    assert any("elsewhere" in note for note in later.notes)
    other = sample_join.map_run(run, recording(every_ms(), tid=999))
    assert (
        set(other.operations["kind"]).isdisjoint({"operation", "collate", "fetch"})
        or (other.operations.loc[other.operations["kind"] == "operation", "helper_of"] != "").all()
    )
    assert other.functions["samples"].sum() == 50


@pytest.mark.parametrize(
    ("sampled", "flags", "partner"),
    [
        (CPU_CLOCK, "uk", "task_clock"),
        ({**CPU_CLOCK, "name": "cpu-clock:u"}, "uk", None),  # the count has the kernel's work
        ({"name": "page-faults", "type": 1, "config": 2}, "uk", None),
        ({"name": "task-clock", "type": 1, "config": 1}, "uk", "task_clock"),
    ],
)
def test_only_the_same_event_is_compared(builder, sampled, flags, partner):
    batch(builder.process(pid=100), flags=flags)
    run = lotus.load(builder.end())
    notes = []
    partners = sample_join.exact_partners(run, recording(every_ms(), **sampled), notes)
    assert partners == ({sampled["name"]: partner} if partner else {})
    assert bool(notes) == (sampled["name"] == "cpu-clock:u")


def test_without_counts_nothing_is_compared_or_calibrated(builder):
    batch(builder.process(pid=100), counted=False)
    joined = sample_join.map_run(lotus.load(builder.end()), recording(every_ms()))
    assert joined.compared.empty
    assert joined.calibration.empty
    assert joined.operations["samples"].sum() == 50


def test_without_samples_of_the_kernel_its_names_cannot_be_given(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    missing = "no sample is of the kernel"
    assert any(
        missing in note for note in sample_join.map_run(run, recording(every_ms()), True).notes
    )
    assert not any(
        missing in note for note in sample_join.map_run(run, recording(every_ms())).notes
    )


def test_a_recording_without_samples_is_refused(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    with pytest.raises(LotusError, match=r"made\.data holds no samples"):
        sample_join.map_run(run, recording([]))
    with pytest.raises(LotusError, match="there are no samples"):
        sample_join.map_run(run)
    assert sample_join.map_if_sampled(run) is None


def test_why_perf_did_not_sample_is_said(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end(recorders={"perf": {"problem": "perf may not sample here"}}))
    with pytest.raises(LotusError, match=r"no samples in .*run: perf may not sample here; then"):
        sample_join.map_run(run)
    assert sample_join.problem_of(run) == "perf may not sample here"
    assert "sampling failed: perf may not sample here" in summarise_map(run, None).notes


def test_a_file_that_was_named_and_is_none_is_named(tmp_path):
    with pytest.raises(LotusError, match=r"cannot read .*nope: No such file"):
        sample_join.read(tmp_path / "nope")
    (tmp_path / "text").write_text("hello " * 50)
    with pytest.raises(
        LotusError, match=r"text: not a perf\.data file.*; record one with: perf re"
    ):
        sample_join.read(tmp_path / "text")


def test_another_clock_without_common_events_is_refused(builder):
    batch(builder.process(pid=100))
    run = lotus.load(builder.end())
    with pytest.raises(LotusError, match="perf record -k CLOCK_MONOTONIC"):
        sample_join.map_run(run, recording(every_ms(), clock="default"))


def test_a_run_of_a_lotus_that_did_not_count(builder):
    """Its logs describe no frame of counts, and their operations name no lines."""
    frames = [frame for frame in log_format.description() if frame["kind"] != log_format.COUNTS]
    assert len(frames) == len(log_format.description()) - 1
    batch(builder.process(pid=100, frames=frames), counted=False)
    run = lotus.load(builder.end())
    assert len(run.ops) == 2
    assert run.counters.empty
    assert run.counted_events == []
    assert run.python_functions.empty
    assert len(run.exact) == len(run.intervals)
    joined = sample_join.map_run(run, recording(every_ms()))
    assert joined.operations["samples"].sum() == 50
    assert run.lost.empty

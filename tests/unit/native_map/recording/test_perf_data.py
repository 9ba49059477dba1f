"""perf.data: what is read is what `perf script` prints."""

import gzip
import re
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from native_map.recording import perf_data, perf_records, perf_tasks
from native_map.recording.perf_data import read
from native_map.recording.perf_header import NeedsPerfError, read_header
from native_map.recording.perf_recording import PerfRecording
from tests.unit.perf_files import BOTH_WAYS, DIRECT, THROUGH_PERF, TRACES, needs_perf

TRACE = [
    *DIRECT,
    *(pytest.param(name, marks=needs_perf) for name in THROUGH_PERF),
]
MODES = {"K": 1, "U": 2}
COLUMNS = list(perf_records.SAMPLE_COLUMNS)


def truth(name: str) -> list[str]:
    return gzip.open(TRACES / f"{name}.txt.gz", "rt").read().splitlines()


def true_samples(name: str, events: list[str]) -> pd.DataFrame:
    rows = []
    for line in truth(name):
        if "PERF_RECORD_" in line:
            continue
        who, *misc, time, period, event, ip = line.split()
        pid, tid = who.split("/")
        seconds, nanos = time.rstrip(":").split(".")
        rows.append(
            (
                int(seconds) * 10**9 + int(nanos),
                int(pid),
                int(tid),
                events.index(event.rstrip(":")),
                int(ip, 16),
                int(period),
                MODES[misc[0]],
            )
        )
    return pd.DataFrame(rows, columns=COLUMNS).astype(perf_records.SAMPLE_COLUMNS)


def ordered(samples: pd.DataFrame) -> pd.DataFrame:
    return samples.sort_values(COLUMNS, ignore_index=True)


@pytest.mark.parametrize("name", TRACE)
def test_the_samples_are_those_that_perf_script_prints(name: str) -> None:
    recording = read(TRACES / f"{name}.data")
    expected = true_samples(name, recording.events)
    assert len(expected) > 100
    pd.testing.assert_frame_equal(ordered(recording.samples), ordered(expected))
    assert len(recording) == recording.counted["sample"] == len(expected)
    assert recording.sampled == np.bincount(expected["event"]).tolist()
    assert recording.unreadable == recording.unread == 0
    assert recording.damage == []


@pytest.mark.parametrize("name", TRACE)
def test_processes_and_mappings_are_those_that_perf_script_prints(name: str) -> None:
    recording = read(TRACES / f"{name}.data")
    lines = [line for line in truth(name) if "PERF_RECORD_" in line]
    for table, pattern in (
        (recording.forks, r"RECORD_FORK\((-?\d+):(-?\d+)\):\((-?\d+):(-?\d+)\)"),
        (recording.exits, r"RECORD_EXIT\((-?\d+):(-?\d+)\):\((-?\d+):(-?\d+)\)"),
    ):
        printed = [tuple(map(int, m.groups())) for line in lines if (m := re.search(pattern, line))]
        rows = table[["pid", "tid", "ppid", "ptid"]].itertuples(index=False, name=None)
        assert sorted(rows) == sorted(printed)
        assert printed
    pattern = r"RECORD_COMM( exec)?: (.*):(\d+)/(\d+)$"
    printed = [m.groups() for line in lines if (m := re.search(pattern, line))]
    rows = recording.comms.itertuples(index=False)
    assert sorted((r.comm, r.pid, r.tid, r.exec) for r in rows) == sorted(
        (name, int(pid), int(tid), bool(is_exec)) for is_exec, name, pid, tid in printed
    )
    pattern = r"RECORD_MMAP2? (-?\d+)/\d+: \[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)"
    pattern += r".*\]: (\S+) (.+)"
    printed = set()
    for line in lines:
        if m := re.search(pattern, line):
            pid, start, size, offset = int(m[1]), int(m[2], 16), int(m[3], 16), int(m[4], 16)
            printed.add((pid, start, start + size, offset, "x" in m[5], m[6]))
    rows = recording.mappings.itertuples(index=False)
    ours = {(r.pid, r.start, r.end, r.offset, r.executable, r.path) for r in rows}
    assert printed <= ours
    # All others are inherited: of a mapping that another process has.
    assert {row[1:] for row in ours - printed} <= {row[1:] for row in printed}


@needs_perf
@pytest.mark.parametrize("name", [*BOTH_WAYS, *THROUGH_PERF])
def test_as_many_samples_as_the_perf_of_this_machine_prints_lines(name: str) -> None:
    path = TRACES / f"{name}.data"
    command = ["perf", "script", "-G", "-f", "-i", str(path), "-F", "pid,tid,time,event,ip,period"]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    recording = read(path)
    assert len(recording) + recording.unreadable == len(printed.splitlines()) > 0


@needs_perf
@pytest.mark.parametrize("name", BOTH_WAYS)
def test_both_ways_of_reading_agree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    direct = read(TRACES / f"{name}.data")

    def refuse(path: Path) -> PerfRecording:
        with path.open("rb") as file:
            raise NeedsPerfError("told so", read_header(file, path.stat().st_size))

    monkeypatch.setattr(perf_data, "_read_direct", refuse)
    other = read(TRACES / f"{name}.data")
    assert (direct.reader, other.reader) == ("direct", "perf script")
    assert "told so" in other.notes[0]
    assert (direct.events, direct.clock, direct.facts) == (other.events, other.clock, other.facts)
    pd.testing.assert_frame_equal(ordered(direct.samples), ordered(other.samples))
    columns = ["pid", "start", "end", "offset", "time_ns", "until_ns", "path", "executable"]
    mine, theirs = (
        r.mappings.sort_values([*columns, "build_id"], ignore_index=True) for r in (direct, other)
    )
    pd.testing.assert_frame_equal(mine[columns], theirs[columns])
    for table in ("forks", "exits", "comms"):
        kinds = list(perf_tasks.COLUMNS["comms" if table == "comms" else "forks"])
        mine, theirs = (
            getattr(r, table).sort_values(kinds, ignore_index=True) for r in (direct, other)
        )
        pd.testing.assert_frame_equal(mine, theirs)


@pytest.mark.parametrize("name", DIRECT)
def test_every_user_sample_lies_in_one_executable_mapping_of_its_process(name: str) -> None:
    recording = read(TRACES / f"{name}.data")
    samples, maps = recording.samples, recording.mappings
    maps = maps[maps["executable"]]
    user = samples[samples["cpu_mode"] == 2]
    assert len(user) > 50
    for row in user.itertuples():
        covering = maps[
            (maps["pid"] == row.pid)
            & (maps["start"] <= row.ip)
            & (row.ip < maps["end"])
            & (maps["time_ns"] <= row.time_ns)
            & (row.time_ns < maps["until_ns"])
        ]
        assert len(covering) == 1


def test_the_clock_and_the_machine_are_read() -> None:
    clocks = {name: read(TRACES / f"{name}.data").clock for name in DIRECT}
    assert clocks.pop("compressed", "monotonic") == "monotonic"
    assert clocks == {
        "two_events": "monotonic",
        "fixed_period": "monotonic",
        "mixed": "monotonic",
        "default_clock": "default",
        "raw_clock": "other:monotonic_raw",
        "paired_default": "default",
        "arm64_cycles": "monotonic",
        "arm64_newer": "monotonic",
    }
    facts = read(TRACES / "two_events.data").facts
    assert (facts["hostname"], facts["arch"], facts["version"][:2]) == ("demo", "x86_64", "6.")
    assert facts["nr_cpus"] == 2
    assert facts["cmdline"].endswith("two_events.data ./demo")
    assert facts["osrelease"]
    assert facts["cpudesc"]
    facts = read(TRACES / "arm64_cycles.data").facts
    assert (facts["hostname"], facts["arch"], facts["cpuid"]) == (
        *("demo", "aarch64"),
        "0x00000000000f0510",  # MIDR_EL1
    )


def test_a_build_id_comes_from_the_mapping_or_the_header() -> None:
    in_mappings = read(TRACES / "mixed.data").mappings
    libm = in_mappings[in_mappings["path"].str.contains("libm.so")]["build_id"].unique()
    assert [len(build_id) for build_id in libm] == [40]
    in_header = read(TRACES / "two_events.data").mappings
    assert set(in_header[in_header["path"].str.contains("libm.so")]["build_id"]) == set(libm)


def test_chunks_are_the_whole_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read(TRACES / "mixed.data")
    monkeypatch.setattr(perf_data, "KEPT", 0)  # as if the file were large: read again for chunks
    monkeypatch.setattr(perf_records, "BLOCK", 4096)
    large = read(TRACES / "mixed.data")
    chunks = list(large.chunks(100))
    assert {len(chunk) for chunk in chunks[:-1]} == {100}
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), whole.samples)
    pd.testing.assert_frame_equal(pd.concat(whole.chunks(7), ignore_index=True), whole.samples)
    pd.testing.assert_frame_equal(large.samples, whole.samples)
    assert large.counted == whole.counted
    pd.testing.assert_frame_equal(large.mappings, whole.mappings)


@needs_perf
def test_a_large_file_through_perf_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from native_map.recording import perf_script

    kept = read(TRACES / "compressed.data")
    monkeypatch.setattr(perf_script, "KEPT", 0)
    monkeypatch.setattr(perf_script, "ROWS", 50)
    recording = read(TRACES / "compressed.data")
    assert [len(chunk) for chunk in recording.chunks(60)][:2] == [60, 60]
    pd.testing.assert_frame_equal(recording.samples, kept.samples)

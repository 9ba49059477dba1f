"""perf.data: what is read is what `perf script` prints, and what cannot be read is told."""

import gzip
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from native_map import perf_data, perf_records, perf_tasks
from native_map.errors import Unusable
from native_map.perf_data import Recording, in_time_order, read
from native_map.perf_header import NeedsPerf, read_header

TRACES = Path(__file__).parents[2] / "traces" / "perf"
BOTH_WAYS = (
    *("two_events", "fixed_period", "mixed", "default_clock", "raw_clock", "paired_default"),
    "arm64_cycles",
)
DIRECT = (*BOTH_WAYS, "arm64_newer")  # which perf 6.1 refuses
THROUGH_PERF = ("compressed", "pipe")
needs_perf = pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
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


# ---- files made by hand: what is rare on a quiet machine ----------------------------------------

IP_TID_TIME_CPU_PERIOD = 1 | 2 | 4 | 1 << 7 | 1 << 8
IDENTIFIER = 1 << 16
SAMPLE_ID_ALL, USE_CLOCKID = 1 << 18, 1 << 25


def attr(config: int = 0, sample_type: int = IP_TID_TIME_CPU_PERIOD, period: int = 7) -> bytes:
    flags = SAMPLE_ID_ALL | USE_CLOCKID
    head = struct.pack("<IIQQQQQ", 1, 128, config, period, sample_type, 0, flags)
    return (head + bytes(92 - len(head)) + struct.pack("<i", 1)).ljust(128, b"\0")


def record(kind: int, body: bytes, misc: int = 2) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def sample(time: int, ip: int = 0x1000, pid: int = 5, tid: int = 5, period: int = 1) -> bytes:
    return record(9, struct.pack("<QiiQIIQ", ip, pid, tid, time, 0, 0, period))


def trailer(time: int, pid: int = 5, cpu: int = 0) -> bytes:
    return struct.pack("<iiQII", pid, pid, time, cpu, 0)


def mmap(time: int, pid: int, start: int, path: str, size: int = 0x1000) -> bytes:
    name = path.encode() + b"\0"
    name += bytes(-len(name) % 8)
    return record(1, struct.pack("<iiQQQ", pid, pid, start, size, 0) + name + trailer(time, pid))


def fork(time: int, pid: int, ppid: int, misc: int = 0) -> bytes:
    return record(7, struct.pack("<iiiiQ", pid, ppid, pid, ppid, time) + trailer(time), misc)


def comm(time: int, pid: int, name: str, misc: int = 0) -> bytes:
    text = name.encode().ljust(16, b"\0")
    return record(3, struct.pack("<ii", pid, pid) + text + trailer(time, pid), misc)


def write(
    path: Path, records: bytes, *, attrs: list[bytes] | None = None, size: int | None = None
) -> Path:
    """A perf.data file; event number n has the ids n + 1 and n + 101."""
    attrs = attrs or [attr()]
    ids_at = 104
    table_at = ids_at + 16 * len(attrs)
    data_at = table_at + 144 * len(attrs)
    ids = b"".join(struct.pack("<QQ", n + 1, n + 101) for n in range(len(attrs)))
    table = b"".join(one + struct.pack("<QQ", ids_at + 16 * n, 16) for n, one in enumerate(attrs))
    size = len(records) if size is None else size
    head = (
        b"PERFILE2"
        + struct.pack("<8Q", 104, 144, table_at, len(table), data_at, size, 0, 0)
        + bytes(32)
    )
    path.write_bytes(head + ids + table + records)
    return path


# ---- against perf -------------------------------------------------------------------------------


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
        found = [tuple(map(int, m.groups())) for line in lines if (m := re.search(pattern, line))]
        rows = table[["pid", "tid", "ppid", "ptid"]].itertuples(index=False, name=None)
        assert sorted(rows) == sorted(found)
        assert found
    pattern = r"RECORD_COMM( exec)?: (.*):(\d+)/(\d+)$"
    found = [m.groups() for line in lines if (m := re.search(pattern, line))]
    rows = recording.comms.itertuples(index=False)
    assert sorted((r.comm, r.pid, r.tid, r.exec) for r in rows) == sorted(
        (name, int(pid), int(tid), bool(is_exec)) for is_exec, name, pid, tid in found
    )
    pattern = r"RECORD_MMAP2? (-?\d+)/\d+: \[0x([0-9a-f]+)\(0x([0-9a-f]+)\) @ (?:0x)?([0-9a-f]+)"
    pattern += r".*\]: (\S+) (.+)"
    found = set()
    for line in lines:
        if m := re.search(pattern, line):
            pid, start, size, offset = int(m[1]), int(m[2], 16), int(m[3], 16), int(m[4], 16)
            found.add((pid, start, start + size, offset, "x" in m[5], m[6]))
    rows = recording.mappings.itertuples(index=False)
    ours = {(r.pid, r.start, r.end, r.offset, r.executable, r.path) for r in rows}
    assert found <= ours
    # All others are inherited: of a mapping that another process has.
    assert {row[1:] for row in ours - found} <= {row[1:] for row in found}


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

    def refuse(path: Path) -> Recording:
        with path.open("rb") as file:
            raise NeedsPerf("told so", read_header(file, path.stat().st_size))

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


def test_a_build_id_comes_from_the_mapping_or_the_header(tmp_path: Path) -> None:
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


def test_time_order_keeps_the_order_of_the_file_within_one_time(tmp_path: Path) -> None:
    records = sample(9, ip=1) + sample(5, ip=2) + sample(9, ip=3) + sample(5, ip=4)
    samples = read(write(tmp_path / "f", records)).samples
    assert samples["ip"].tolist() == [1, 2, 3, 4]
    assert in_time_order(samples)["ip"].tolist() == [2, 4, 1, 3]


# ---- rare records -------------------------------------------------------------------------------


def test_a_fork_copies_mappings_and_an_exec_drops_them(tmp_path: Path) -> None:
    exec_flag = 1 << 13
    records = b"".join(
        [
            mmap(10, 5, 0x1000, "/bin/a"),
            fork(40, 8, 7),  # written by another CPU: earlier in the file than in time
            fork(20, 7, 5),
            mmap(30, 5, 0x9000, "/lib/late"),  # after the fork: not the child's
            mmap(35, 7, 0x5000, "/lib/own"),
            comm(50, 7, "renamed"),  # no exec: nothing is dropped
            comm(60, 8, "other", exec_flag),
            mmap(70, 8, 0x1000, "/bin/b"),
            fork(80, 9, 5, exec_flag),  # found running by perf: its own mappings follow
            sample(90),
        ]
    )
    recording = read(write(tmp_path / "f", records))
    maps = recording.mappings
    never = perf_tasks.FOREVER
    assert {tuple(row) for row in maps[["pid", "path", "time_ns", "until_ns"]].to_numpy()} == {
        (5, "/bin/a", 10, never),
        (5, "/lib/late", 30, never),
        (7, "/bin/a", 20, never),
        (7, "/lib/own", 35, never),
        (8, "/bin/a", 40, 60),
        (8, "/lib/own", 40, 60),
        (8, "/bin/b", 70, never),
    }
    assert recording.comms["exec"].tolist() == [False, True]


def test_a_number_used_again_starts_with_its_new_parents_mappings(tmp_path: Path) -> None:
    records = mmap(10, 5, 0x1000, "/bin/a") + mmap(10, 7, 0x1000, "/bin/old") + fork(20, 7, 5)
    maps = read(write(tmp_path / "f", records)).mappings
    mine = maps[maps["pid"] == 7][["path", "time_ns", "until_ns"]].to_numpy().tolist()
    assert mine == [["/bin/old", 10, 20], ["/bin/a", 20, perf_tasks.FOREVER]]


def test_forks_without_end_cost_a_bounded_number_of_mappings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_tasks, "MOST_MAPPINGS", 50)
    records = b"".join(mmap(1, 5, 0x1000 * n, "/lib/a") for n in range(1, 21))
    records += b"".join(fork(10, 100 + n, 5) for n in range(10))
    recording = read(write(tmp_path / "f", records))
    assert len(recording.mappings) == 40
    assert recording.damage == ["too many mappings: 9 processes are without their parent's"]


def test_losses_and_throttling_are_tables(tmp_path: Path) -> None:
    two = [
        attr(0, IDENTIFIER | IP_TID_TIME_CPU_PERIOD),
        attr(1, IDENTIFIER | IP_TID_TIME_CPU_PERIOD),
    ]

    def end(time: int, identifier: int) -> bytes:
        return trailer(time, cpu=3) + struct.pack("<Q", identifier)

    records = b"".join(
        [
            record(2, struct.pack("<QQ", 102, 40) + end(10, 102)),
            record(13, struct.pack("<Q", 3) + end(20, 101)),
            record(5, struct.pack("<QQQ", 30, 102, 0) + end(31, 102)),
            record(6, struct.pack("<QQQ", 40, 1, 0) + end(41, 1)),
            record(68, b""),
        ]
    )
    recording = read(write(tmp_path / "f", records, attrs=two))
    assert recording.lost.to_numpy().tolist() == [[10, 1, 40, "records"], [20, 0, 3, "samples"]]
    assert recording.throttles.to_numpy().tolist() == [
        [31, 5, 5, 3, 1, True],
        [41, 5, 5, 3, 0, False],
    ]
    assert recording.counted == {
        "lost": 1,
        "throttle": 1,
        "unthrottle": 1,
        "lost_samples": 1,
        "finished_round": 1,
    }
    assert len(recording.samples) == 0


def test_without_trailers_processes_have_the_times_of_their_own(tmp_path: Path) -> None:
    plain = bytearray(attr())
    struct.pack_into("<Q", plain, 40, 0)  # neither sample_id_all nor a chosen clock
    records = record(7, struct.pack("<iiiiQ", 7, 5, 7, 5, 20))
    records += record(5, struct.pack("<QQQ", 30, 1, 0))
    recording = read(write(tmp_path / "f", records, attrs=[bytes(plain)]))
    assert recording.clock == "default"
    assert recording.forks.to_numpy().tolist() == [[7, 5, 7, 5, 20]]
    assert recording.throttles.to_numpy().tolist() == [[30, -1, -1, -1, 0, True]]


def test_samples_of_unknown_events_are_counted(tmp_path: Path) -> None:
    kind = IDENTIFIER | 1 | 2 | 4

    def one(identifier: int) -> bytes:
        return record(9, struct.pack("<QQiiQ", identifier, 0x1000, 5, 5, 1))

    records = one(1) + one(102) + one(77) + one(0) + record(9, bytes(8)) + record(9, b"")
    recording = read(write(tmp_path / "f", records, attrs=[attr(0, kind), attr(1, kind, 9)]))
    assert recording.samples["event"].tolist() == [0, 1, 0]  # id 0 is the first, as for perf
    assert recording.samples["period"].tolist() == [7, 9, 7]  # not in the sample: the attr's
    assert recording.counted["sample"] == len(recording) + recording.unreadable == 6
    assert recording.sampled == [2, 1]
    assert "3 samples are of no known event or too short" in recording.damage[-1]


def test_large_ids_are_found_too(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"", attrs=[attr(0, IDENTIFIER | 7), attr(1, IDENTIFIER | 7)])
    raw = bytearray(path.read_bytes())
    for place, identifier in enumerate((2**63, 5, 2**40, 9)):
        struct.pack_into("<Q", raw, 104 + 8 * place, identifier)
    for identifier in (2**63, 2**40, 6, 2**64 - 1, 0):
        raw += record(9, struct.pack("<QQiiQ", identifier, 0, 5, 5, 1))
    struct.pack_into("<Q", raw, 48, 5 * 40)
    path.write_bytes(raw)
    recording = read(path)
    assert recording.samples["event"].tolist() == [0, 1, 0]
    assert recording.unreadable == 2


def test_records_of_ever_changing_size_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = [8 * int(n) for n in rng.integers(0, 9, 3000)] + [0] * 500 + [64] * 700 + [8, 0] * 200
    records = b"".join(sample(n) + record(14, bytes(size)) for n, size in enumerate(sizes))
    recording = read(write(tmp_path / "f", records))
    assert recording.samples["time_ns"].tolist() == list(range(len(sizes)))
    assert recording.counted == {"sample": len(sizes), "switch": len(sizes)}
    assert recording.damage == []


# ---- files that are not whole -------------------------------------------------------------------


def test_a_truncated_file_gives_all_that_is_there(tmp_path: Path) -> None:
    whole = TRACES / "two_events.data"
    samples = read(whole).samples
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:15_003])
    recording = read(cut)
    assert 100 < len(recording) < len(samples)
    pd.testing.assert_frame_equal(recording.samples, samples[: len(recording)])
    told = " ".join(recording.damage)
    assert "truncated" in told
    assert "facts about the machine" in told
    assert f"{recording.unread} bytes from there are not read" in told
    assert recording.events == ["cpu-clock", "task-clock"]  # from the attrs, not the lost names


def test_a_recording_that_was_killed_is_read_to_the_end(tmp_path: Path) -> None:
    recording = read(write(tmp_path / "f", sample(1) + sample(2), size=0))
    assert len(recording.samples) == 2
    assert recording.damage == ["perf record did not end properly: read to the end of the file"]


@pytest.mark.parametrize(
    "bad",
    [struct.pack("<IHH", 9, 0, 12), struct.pack("<IHH", 9, 0, 0), struct.pack("<IHH", 999, 0, 8)],
)
def test_behind_a_damaged_record_nothing_is_guessed(tmp_path: Path, bad: bytes) -> None:
    records = sample(1) + bad + sample(2)
    recording = read(write(tmp_path / "f", records))
    assert recording.samples["time_ns"].tolist() == [1]
    assert recording.unread == len(bad) + len(sample(2))
    assert len(recording.damage) == 1


def test_no_samples_are_no_error(tmp_path: Path) -> None:
    recording = read(write(tmp_path / "f", record(68, b"")))
    assert len(recording) == 0
    assert recording.samples.dtypes.astype(str).to_dict() == perf_records.SAMPLE_COLUMNS
    assert list(recording.chunks()) == []
    for table in ("mappings", "comms", "forks", "exits", "lost", "throttles"):
        assert len(getattr(recording, table)) == 0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"\x7fELF" + bytes(200), "not a perf.data file"),
        (b"PERFILE2" + struct.pack("<Q", 104), "ends within its header"),
        (b"PERFILE2" + struct.pack("<Q", 104) + bytes(88), "no event"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(Unusable, match=told):
        read(tmp_path / "f")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"cannot read .*none: No such file"):
        read(tmp_path / "none")
    with pytest.raises(Unusable, match="Is a directory"):
        read(tmp_path)


def test_samples_without_time_name_the_command_that_has_it(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"", attrs=[attr(0, 1 | 2)])
    with pytest.raises(Unusable, match="carry no time: record with `perf record -T"):
        read(path)


@pytest.mark.parametrize("name", THROUGH_PERF)
def test_without_perf_its_files_are_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(Unusable, match=r"no-such-perf.*install it, or record into a file"):
        read(TRACES / f"{name}.data", perf="no-such-perf")


@needs_perf
def test_a_file_of_the_other_byte_order_goes_to_perf(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"2ELIFREP" + bytes(200))
    with pytest.raises(Unusable, match=r"other byte order.*which says: "):
        read(tmp_path / "f")


@needs_perf
def test_a_recording_of_the_other_byte_order_is_read_by_perf(tmp_path: Path) -> None:
    flags = SAMPLE_ID_ALL | USE_CLOCKID
    bits = bytes(int(f"{byte:08b}"[::-1], 2) for byte in flags.to_bytes(8, "little"))
    one = struct.pack(">IIQQQQ", 1, 128, 0, 7, IP_TID_TIME_CPU_PERIOD, 0) + bits
    one = (one + bytes(92 - len(one)) + struct.pack(">i", 1)).ljust(128, b"\0")
    body = struct.pack(">QiiQIIQ", 0x1234, 5, 6, 1_000_000_007, 0, 0, 9)
    records = (struct.pack(">IHH", 9, 2, 8 + len(body)) + body) * 3
    head = struct.pack(">8Q", 104, 144, 120, 144, 264, len(records), 0, 0) + bytes(32)
    table = one + struct.pack(">QQ", 104, 16)
    (tmp_path / "f").write_bytes(b"2ELIFREP" + head + struct.pack(">QQ", 1, 2) + table + records)
    recording = read(tmp_path / "f")
    assert recording.reader == "perf script"
    assert "other byte order" in recording.notes[0]
    expected = [[1_000_000_007, 5, 6, 0, 0x1234, 9, 2]] * 3
    assert recording.samples.to_numpy().tolist() == expected
    assert [name.split(":")[0] for name in recording.events] == ["cpu-clock"]


@needs_perf
def test_a_large_file_through_perf_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from native_map import perf_script

    kept = read(TRACES / "compressed.data")
    monkeypatch.setattr(perf_script, "KEPT", 0)
    monkeypatch.setattr(perf_script, "ROWS", 50)
    asked = read(TRACES / "compressed.data")
    assert [len(chunk) for chunk in asked.chunks(60)][:2] == [60, 60]
    pd.testing.assert_frame_equal(asked.samples, kept.samples)

"""Records of perf.data that are rare on a quiet machine: files made by hand."""

import struct
from pathlib import Path

import numpy as np
import pytest

from native_map.recording import perf_tasks
from native_map.recording.perf_data import read
from tests.unit.perf_files import (
    IDENTIFIER,
    IP_TID_TIME_CPU_PERIOD,
    attr,
    comm,
    fork,
    mmap,
    record,
    sample,
    trailer,
    write,
)


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
    assert recording.damage == ["too many mappings: 9 processes lack those of their parent"]


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

    def sample_of(identifier: int) -> bytes:
        return record(9, struct.pack("<QQiiQ", identifier, 0x1000, 5, 5, 1))

    records = (
        sample_of(1)
        + sample_of(102)
        + sample_of(77)
        + sample_of(0)
        + record(9, bytes(8))
        + record(9, b"")
    )
    recording = read(write(tmp_path / "f", records, attrs=[attr(0, kind), attr(1, kind, 9)]))
    assert recording.samples["event"].tolist() == [0, 1, 0]  # id 0 is the first, as for perf
    assert recording.samples["period"].tolist() == [7, 9, 7]  # not in the sample: the attr's
    assert recording.counted["sample"] == len(recording) + recording.unreadable == 6
    assert recording.sampled == [2, 1]
    assert "3 samples have an unknown event or are too short" in recording.damage[-1]


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

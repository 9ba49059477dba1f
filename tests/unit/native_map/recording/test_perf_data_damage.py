"""perf.data that is not whole or not ours to read: what is there is given, what is not is told."""

import struct
from pathlib import Path

import pandas as pd
import pytest

from native_map.errors import UnusableError
from native_map.recording import perf_records
from native_map.recording.perf_data import read
from tests.unit.perf_files import (
    IP_TID_TIME_CPU_PERIOD,
    SAMPLE_ID_ALL,
    THROUGH_PERF,
    TRACES,
    USE_CLOCKID,
    attr,
    needs_perf,
    record,
    sample,
    write,
)


def test_a_truncated_file_gives_all_that_is_there(tmp_path: Path) -> None:
    whole = TRACES / "two_events.data"
    samples = read(whole).samples
    cut = tmp_path / "cut"
    cut.write_bytes(whole.read_bytes()[:15_003])
    recording = read(cut)
    assert 100 < len(recording) < len(samples)
    pd.testing.assert_frame_equal(recording.samples, samples[: len(recording)])
    damage = " ".join(recording.damage)
    assert "truncated" in damage
    assert "facts about the machine" in damage
    assert f"{recording.unread} bytes from there are not read" in damage
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
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\x7fELF" + bytes(200), "not a perf.data file"),
        (b"PERFILE2" + struct.pack("<Q", 104), "ends within its header"),
        (b"PERFILE2" + struct.pack("<Q", 104) + bytes(88), "no event"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(UnusableError, match=message):
        read(tmp_path / "f")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match=r"cannot read .*none: No such file"):
        read(tmp_path / "none")
    with pytest.raises(UnusableError, match="Is a directory"):
        read(tmp_path)


def test_samples_without_time_name_the_command_that_has_it(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"", attrs=[attr(0, 1 | 2)])
    with pytest.raises(UnusableError, match="carry no time: record with `perf record -T"):
        read(path)


@pytest.mark.parametrize("name", THROUGH_PERF)
def test_without_perf_its_files_are_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(UnusableError, match=r"no-such-perf.*install it, or record into a file"):
        read(TRACES / f"{name}.data", perf="no-such-perf")


@needs_perf
def test_a_file_of_the_other_byte_order_goes_to_perf(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"2ELIFREP" + bytes(200))
    with pytest.raises(UnusableError, match=r"other byte order.*which says: "):
        read(tmp_path / "f")


@needs_perf
def test_a_recording_of_the_other_byte_order_is_read_by_perf(tmp_path: Path) -> None:
    flags = SAMPLE_ID_ALL | USE_CLOCKID
    bits = bytes(int(f"{byte:08b}"[::-1], 2) for byte in flags.to_bytes(8, "little"))
    attribute = struct.pack(">IIQQQQ", 1, 128, 0, 7, IP_TID_TIME_CPU_PERIOD, 0) + bits
    attribute = (attribute + bytes(92 - len(attribute)) + struct.pack(">i", 1)).ljust(128, b"\0")
    body = struct.pack(">QiiQIIQ", 0x1234, 5, 6, 1_000_000_007, 0, 0, 9)
    records = (struct.pack(">IHH", 9, 2, 8 + len(body)) + body) * 3
    head = struct.pack(">8Q", 104, 144, 120, 144, 264, len(records), 0, 0) + bytes(32)
    table = attribute + struct.pack(">QQ", 104, 16)
    (tmp_path / "f").write_bytes(b"2ELIFREP" + head + struct.pack(">QQ", 1, 2) + table + records)
    recording = read(tmp_path / "f")
    assert recording.reader == "perf script"
    assert "other byte order" in recording.notes[0]
    expected = [[1_000_000_007, 5, 6, 0, 0x1234, 9, 2]] * 3
    assert recording.samples.to_numpy().tolist() == expected
    assert [name.split(":")[0] for name in recording.events] == ["cpu-clock"]

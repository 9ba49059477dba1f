"""One event log: what is in it, and what is lost where it is damaged."""

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from lotus.reading.logs import frame_scanner as frames
from lotus.reading.logs.event_log import EventLog, ForeignError
from tests.logs import ProcessLog, Sample, pack_event, pack_frame, pack_header


def small_log(path: Path) -> ProcessLog:
    """Three batches, two waits, an event, a loose frame, a resources frame: every kind."""
    log = ProcessLog(path, pid=101)
    log.worker(0, ready_ns=2_000)
    log.operations("Loader", "ToTensor")
    for batch in range(3):
        samples = [
            Sample(10 * batch + place, 100 + place, [("Loader", 60), ("ToTensor", 30)])
            for place in range(2)
        ]
        sends = [(0, batch - 1, 4_000, 10, 5, 80)] if batch else []
        log.batch(batch, start_ns=5_000 * (batch + 1), samples=samples, sends=sends)
    log.wait(0, 0, 0, start_ns=1, end_ns=2, pins=[(0, 5, 6), (1, 7, 8)])
    log.wait(0, 0, 1, start_ns=3, end_ns=4)
    log.loose(("epoch", 1, 2))
    log.resources(9, rss=1 << 20)
    return log


def read(path: Path, data: bytes) -> EventLog:
    path.write_bytes(data)
    return EventLog(str(path.parent), path.name)


def frame_offsets(data: bytes, start: int) -> list[int]:
    """Where each frame begins, and the end of the last."""
    offsets = [start]
    while offsets[-1] < len(data):
        _, _, _, length, _ = log_format.FRAME_HEADER.unpack_from(data, offsets[-1])
        offsets.append(offsets[-1] + log_format.FRAME_HEADER.size + length)
    return offsets


def number_of_frames(log: EventLog) -> int:
    return sum(len(rows) for rows in log.fixed.values())


def test_rows_copied_run_by_run_are_those_copied_one_by_one(tmp_path, monkeypatch):
    contents = read(tmp_path / "a.ltr", small_log(tmp_path / "a.ltr").data)
    names = ["samples", "index", "index64", "ops", "sends", "loose"]
    one_by_one = contents.arrays("batch", names)
    monkeypatch.setattr(frames, "_LONG_RUNS", 0)
    by_runs = contents.arrays("batch", names)
    for name in names:
        assert by_runs[name].tolist() == one_by_one[name].tolist(), name
        assert by_runs[name].flags.writeable == one_by_one[name].flags.writeable, name
    assert len(by_runs["ops"]) == 12


def test_reads_every_field_and_array(tmp_path):
    # GIVEN a log with every kind of frame
    log = small_log(tmp_path / "a.ltr")
    # WHEN it is read
    contents = read(log.path, bytes(log.data))
    # THEN nothing is lost, and fixed fields, eager and lazy arrays hold what was written
    assert contents.lost == []
    assert contents.pid == 101
    batch = contents.fixed["batch"]
    assert batch["batch"].tolist() == [0, 1, 2]
    assert batch["fetch_start_ns"].tolist() == [5_000, 10_000, 15_000]
    assert contents.samples_ns.tolist() == [201, 201, 201]
    assert contents.sends["batch"].tolist() == [0, 1]
    assert contents.sends["write_ns"].tolist() == [80, 80]
    assert contents.pins["end_ns"].tolist() == [6, 8]
    assert contents.fixed["resources"]["rss"].tolist() == [1 << 20]
    assert [event["event"] for event in contents.events[:3]] == [
        "worker",
        "worker_ready",
        "operations",
    ]
    arrays = contents.arrays("batch", ["index", "ops", "samples"])
    assert arrays["index"]["sample"].tolist() == [0, 1, 10, 11, 20, 21]
    assert arrays["ops"]["operation"].tolist() == [1, 2] * 6
    assert arrays["ops"]["start_low"].tolist()[:4] == [5_000, 5_060, 5_100, 5_160]
    assert arrays["ops"]["end_low"].tolist()[:4] == [5_060, 5_090, 5_160, 5_190]
    assert arrays["samples"]["duration_ns"].tolist() == [100, 101] * 3
    assert contents.arrays("loose", ["loose"])["loose"]["duration_ns"].tolist() == [2]


def test_reads_by_the_description_in_the_file(tmp_path):
    # GIVEN a log whose header describes one more field and one more array than we know of,
    # with its fields in another order
    described = log_format.description()
    wait = next(frame for frame in described if frame["name"] == "wait")
    wait["fields"] = [["novel", "H"], *reversed(wait["fields"]), ["n_extra", "B"]]
    wait["arrays"].insert(0, ["extra", [["x", "B"], ["y", "d"]]])
    values = {"batch": 7, "start_ns": 11, "end_ns": 13, "n_pins": 1, "n_extra": 3}
    fixed = b"".join(struct.pack("<" + code, values.get(name, 0)) for name, code in wait["fields"])
    payload = fixed + b"\xff" * 27 + struct.pack("<QQQ", 7, 12, 13)
    data = pack_header(frames=described) + log_format.frame(log_format.WAIT, payload)
    # WHEN it is read
    contents = read(tmp_path / "a.ltr", data)
    # THEN our fields are found where the file says they are
    assert contents.lost == []
    assert contents.fixed["wait"]["batch"].tolist() == [7]
    assert contents.fixed["wait"]["end_ns"].tolist() == [13]
    assert contents.pins["start_ns"].tolist() == [12]


def test_truncation_at_every_byte_is_counted(tmp_path):
    # GIVEN a log
    log = small_log(tmp_path / "a.ltr")
    data = bytes(log.data)
    offsets = frame_offsets(data, log.header_size)
    for size in range(len(data)):
        # WHEN it is cut short anywhere
        try:
            contents = read(log.path, data[:size])
        except ForeignError:
            # THEN without its header it is a counted loss
            assert size < log.header_size
            continue
        # THEN all whole frames are there, and the rest is one loss with its size
        whole = [end for end in offsets if end <= size]
        assert number_of_frames(contents) == len(whole) - 1
        rest = size - whole[-1]
        assert [(loss.what, loss.count, loss.bytes) for loss in contents.lost] == (
            [("truncated tail", 1, rest)] if rest else []
        )


def test_every_flipped_bit_is_counted(tmp_path):
    # GIVEN a log
    log = small_log(tmp_path / "a.ltr")
    data = bytes(log.data)
    offsets = frame_offsets(data, log.header_size)
    for at in range(log.header_size, len(data)):
        frame = int(np.searchsorted(offsets, at, side="right")) - 1
        size = offsets[frame + 1] - offsets[frame]
        in_header = at - offsets[frame] < log_format.FRAME_HEADER.size
        for bit in range(8) if in_header else [at % 8]:
            # WHEN one bit of one frame is wrong
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            contents = read(log.path, bytes(damaged))
            # THEN just that frame is lost, with its size, and told
            assert number_of_frames(contents) == len(offsets) - 2
            assert [(loss.count, loss.bytes) for loss in contents.lost] == [(1, size)]


def test_flipped_bits_of_the_header_never_crash(tmp_path):
    # GIVEN a log
    log = small_log(tmp_path / "a.ltr")
    data = bytes(log.data)
    for at in range(log.header_size):
        damaged = bytearray(data)
        damaged[at] ^= 1 << (at % 8)
        # WHEN one bit of its header is wrong
        try:
            contents = read(log.path, bytes(damaged))
        except (ForeignError, LotusError):
            continue
        # THEN it is refused, or every frame was still found or counted
        lost = sum(loss.count for loss in contents.lost)
        assert number_of_frames(contents) + lost >= 1


def test_goes_on_after_a_damaged_frame(tmp_path):
    # GIVEN a log with rubbish (in it a false magic number) between two frames
    log = ProcessLog(tmp_path / "a.ltr")
    log.wait(0, 0, 0, start_ns=1, end_ns=2)
    rubbish = (
        b"\x00" * 9 + log_format.FRAME_HEADER.pack(log_format.FRAME_MAGIC, 2, 0, 40, 0) + b"xyz"
    )
    log.data += rubbish
    log.wait(0, 0, 1, start_ns=3, end_ns=4)
    log.data += b"\xff" * 33
    # WHEN it is read
    contents = read(log.path, bytes(log.data))
    # THEN both frames are there and each gap is one loss
    assert contents.fixed["wait"]["batch"].tolist() == [0, 1]
    assert [(loss.what, loss.bytes) for loss in contents.lost] == [
        ("corrupt frame", len(rubbish)),
        ("corrupt frame", 33),
    ]


@pytest.mark.parametrize("window", [64, 200, 1000])
def test_frames_that_pass_the_window(tmp_path, monkeypatch, window):
    # GIVEN a log far larger than what is held in memory at once, with a gap in it
    log = small_log(tmp_path / "a.ltr")
    log.data += b"LTF" * 50
    for batch in range(3, 30):
        samples = [Sample(batch * 100 + place, 50, [("Loader", 40)]) for place in range(batch)]
        log.batch(batch, start_ns=1_000 * batch, samples=samples)
    whole = read(log.path, bytes(log.data))
    # WHEN it is read through a small window
    monkeypatch.setattr(frames, "WINDOW", window)
    contents = read(log.path, bytes(log.data))
    # THEN the result is the same
    assert contents.lost == whole.lost
    assert len(whole.lost) == 1
    for name, rows in whole.fixed.items():
        assert np.array_equal(contents.fixed[name], rows)
    names = ["samples", "index", "ops"]
    expected = whole.arrays("batch", names)
    for name, rows in contents.arrays("batch", names).items():
        assert np.array_equal(rows, expected[name])
    assert len(expected["ops"]) == 12 + sum(range(3, 30))


def test_a_frame_that_contradicts_itself_is_counted(tmp_path):
    # GIVEN sound CRCs around a frame that claims more rows than it has, one that is shorter than
    # its fixed fields, and one of a kind that the header does not know
    fixed = log_format.FIXED[log_format.LOOSE].pack(3, 0)
    data = pack_header() + log_format.frame(log_format.LOOSE, fixed + b"\0" * 32)
    data += log_format.frame(log_format.BATCH, b"\0" * 10) + log_format.frame(999, b"\0" * 4)
    data += pack_event({"event": "note", "text": "x"})
    # WHEN it is read
    contents = read(tmp_path / "a.ltr", data)
    # THEN they are counted with their size, and the frame after them is read
    assert len(contents.events) == 1
    assert len(contents.fixed["loose"]) == 0
    assert [(loss.count, loss.bytes) for loss in contents.lost] == [(3, 3 * 16 + 40 + 10 + 4)]


def test_operations_outside_of_samples_are_counted(tmp_path):
    # GIVEN a batch whose samples claim fewer operations than it has
    arrays = {"samples": [(5, 10, 1)], "ops": [(0, 3, 1), (3, 3, 1), (6, 3, 1)]}
    data = pack_header() + pack_frame(log_format.BATCH, {"size": 1}, arrays)
    # WHEN it is read
    contents = read(tmp_path / "a.ltr", data)
    # THEN the operations that cannot be placed are counted
    (loss,) = contents.lost
    assert (loss.what, loss.count) == ("operation outside of the samples of its batch", 2)


def test_unreadable_events_are_counted(tmp_path):
    # GIVEN event frames that hold no JSON object with a name, and JSON nested without end
    texts = [b"{", b"[1]", b'{"event": 3}', b"[" * 100_000, b"\xff\xfe", b'{"event": "note"}']
    data = pack_header()
    for text in texts:
        fixed = log_format.FIXED[log_format.EVENT].pack(0, len(text))
        data += log_format.frame(log_format.EVENT, fixed + text)
    # WHEN it is read
    contents = read(tmp_path / "a.ltr", data)
    # THEN all but the last are counted
    assert [event["event"] for event in contents.events] == ["note"]
    assert sum(loss.count for loss in contents.lost) == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"L",
        b"LTR",
        b"LTR1",
        b"LTR1\xff\xff\xff\xff",
        b"LTR1\x10\x00\x00\x00",
        b"LTR1\x02\x00\x00\x00[]",
        b"LTR1\x04\x00\x00\x00null",
        b"\x7fELF and so on",
        b"x" * 100_000,
        pack_header(schema=None),
        pack_header(schema=0),
        pack_header(schema=True),
        pack_header(frames=None),
        pack_header(frames=[]),
        pack_header(frames=[{"kind": 1}]),
        pack_header(frames="frames"),
    ],
)
def test_foreign_files_are_refused(tmp_path, data):
    # GIVEN a file that is not an event log, or one without a sound header
    # WHEN it is read, THEN it says so
    with pytest.raises(ForeignError):
        read(tmp_path / "a.ltr", data)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame["fields"].pop(0),
        lambda frame: frame["arrays"].pop(0),
        lambda frame: frame["fields"].append(["start_ns", "Q"]),
        lambda frame: frame["fields"].append(["x", "O"]),
        lambda frame: frame["fields"].append(["x", "1000000s"]),
        lambda frame: frame["arrays"].append(["uncounted", [["x", "B"]]]),
        lambda frame: frame["arrays"].append(["empty", []]),
        lambda frame: frame.update(name="batch"),
        lambda frame: frame.update(kind=1),
        lambda frame: frame.update(kind=None),
    ],
)
def test_damaged_descriptions_are_refused(tmp_path, change):
    # GIVEN a header whose description of a frame lacks what is needed, or is not sound
    described = log_format.description()
    change(next(frame for frame in described if frame["name"] == "wait"))
    # WHEN it is read, THEN it says so
    with pytest.raises(ForeignError):
        read(tmp_path / "a.ltr", pack_header(frames=described))


def test_newer_schema(tmp_path):
    # GIVEN a log of a version to come
    data = pack_header(schema=log_format.SCHEMA + 1)
    # WHEN it is read, THEN one line says so and what to do
    with pytest.raises(LotusError, match=r"schema 2 .*with the lotus that recorded it") as raised:
        read(tmp_path / "a.ltr", data)
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)


def test_links_are_not_followed(tmp_path):
    # GIVEN a link in place of a log, and a pipe, at which reading would wait for ever
    log = small_log(tmp_path / "real.ltr")
    log.save()
    (tmp_path / "link.ltr").symlink_to(log.path)
    os.mkfifo(tmp_path / "pipe.ltr")
    # WHEN they are read, THEN neither is taken for a log
    with pytest.raises(OSError, match="link"):
        EventLog(str(tmp_path), "link.ltr")
    with pytest.raises((OSError, ForeignError)):
        EventLog(str(tmp_path), "pipe.ltr")


def test_a_log_that_shrinks_after_the_scan(tmp_path):
    # GIVEN a log that was scanned, and cut since
    log = small_log(tmp_path / "a.ltr")
    contents = read(log.path, bytes(log.data))
    log.path.write_bytes(bytes(log.data[: log.header_size]))
    # WHEN its arrays are asked for, THEN one line says so
    with pytest.raises(LotusError, match="changed while it was read"):
        contents.arrays("batch", ["ops"])


def test_a_file_made_to_be_slow_is_given_up(tmp_path, monkeypatch):
    # GIVEN a file of overlapping frames, each of which looks sound until its CRC is computed
    monkeypatch.setattr(frames, "WINDOW", 1 << 16)
    count, size = 2_000, 32
    data = bytearray(pack_header())
    end = len(data) + count * size
    checked = 0

    def counting(data: bytes, *start: int, crc32=frames.zlib.crc32) -> int:
        nonlocal checked
        checked += len(data)
        return crc32(data, *start)

    monkeypatch.setattr(frames.zlib, "crc32", counting)
    while len(data) < end:
        length = end - len(data) - 16
        text = length - log_format.FIXED[log_format.EVENT].size
        frame = log_format.FRAME_HEADER.pack(log_format.FRAME_MAGIC, log_format.EVENT, 0, length, 0)
        data += (frame + log_format.FIXED[log_format.EVENT].pack(0, max(text, 0)))[:size].ljust(
            size
        )
    # WHEN it is read
    contents = read(tmp_path / "a.ltr", bytes(data))
    # THEN all is lost, and the work is in proportion to the file
    assert sum(loss.bytes for loss in contents.lost) == count * size
    assert checked < 20 * len(data) + (1 << 18)


@settings(max_examples=60, deadline=None)
@given(
    cuts=st.lists(
        st.tuples(st.integers(0, 10_000), st.integers(0, 300), st.binary(max_size=80)), max_size=4
    )
)
def test_any_damage_is_survived_and_told(tmp_path_factory, cuts):
    # GIVEN a log in which stretches were cut out and others put in
    path = tmp_path_factory.mktemp("logs") / "a.ltr"
    log = small_log(path)
    data = bytes(log.data)
    frames = data[log.header_size :]
    for at, size, inserted in cuts:
        at %= len(frames) + 1
        frames = frames[:at] + inserted + frames[at + size :]
    # WHEN it is read
    contents = read(path, data[: log.header_size] + frames)
    # THEN each frame is an original one, and all other bytes are counted as lost
    original = read(path, data)
    kept = sum(len(frames[start:stop]) for start, stop in sound_frames(frames))
    assert kept + sum(loss.bytes for loss in contents.lost) == len(frames)
    assert set(contents.fixed["batch"]["batch"].tolist()) <= set(
        original.fixed["batch"]["batch"].tolist()
    )


def sound_frames(data: bytes) -> list[tuple[int, int]]:
    """(start, stop) of good frames, found the slow way: at every byte."""
    ranges, at = [], 0
    while at + 16 <= len(data):
        _, kind, flags, length, _ = log_format.FRAME_HEADER.unpack_from(data, at)
        frame = data[at : at + 16 + length]
        if frame == log_format.frame(kind, frame[16:], flags):
            ranges.append((at, at + 16 + length))
            at += 16 + length
        else:
            at += 1
    return ranges


def test_headers_need_not_be_ascii(tmp_path):
    # GIVEN a log of a program in a folder with a name in another script
    data = pack_header(argv=["データ/train.py"], host="größe")
    # WHEN it is read, THEN the names are there
    contents = read(tmp_path / "a.ltr", data)
    assert contents.header["argv"] == ["データ/train.py"]
    assert json.dumps(contents.header)


@pytest.mark.parametrize(
    ("field", "code"), [("n_samples", "Q"), ("n_samples", "d"), ("n_ops", "i"), ("fetch_ns", "d")]
)
def test_a_description_with_other_numbers_than_lotus_writes_is_refused(tmp_path, field, code):
    """2**61 rows of 24 bytes are none to arithmetic of 64 bits, and would be made room for."""
    frames = log_format.description()
    batch = next(frame for frame in frames if frame["name"] == "batch")
    batch["fields"] = [[name, code if name == field else own] for name, own in batch["fields"]]
    packed = struct.Struct("<" + "".join(one for _, one in batch["fields"]))
    values = [2**61 if name == field and code == "Q" else 0 for name, _ in batch["fields"]]
    data = pack_header(frames=frames) + log_format.frame(batch["kind"], packed.pack(*values))
    with pytest.raises(ForeignError, match="header is damaged"):
        read(tmp_path / "one.ltr", data)

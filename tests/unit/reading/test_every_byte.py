"""A small log, damaged at every single byte: what is read is right, what is not is told."""

import json
import re

import numpy as np
import pytest

from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from lotus.reading.logs.event_log import EventLog, ForeignError
from lotus.reading.run import load
from tests.simulation import simulate

NAMES = [name for name, _, _ in log_format.FRAMES.values()]


@pytest.fixture
def log(tmp_path):
    """(folder, bytes of a worker's log, offsets of its frames and of its end)."""
    path = simulate(tmp_path / "run", workers=1, batches=2, batch_size=2)
    file = max((path / "events").iterdir())
    data = file.read_bytes()
    at = log_format.FILE_HEADER.size + log_format.FILE_HEADER.unpack_from(data)[1]
    places = []
    while at < len(data):
        places.append(at)
        at += log_format.FRAME_HEADER.size + log_format.FRAME_HEADER.unpack_from(data, at)[3]
    assert len(places) >= 4
    return tmp_path, data, [*places, at]


def read(folder, data):
    (folder / "one.ltr").write_bytes(data)
    return EventLog(str(folder), "one.ltr")


def frames(contents):
    """All that was read, a set of frames."""
    rows = {(name, row.tobytes()) for name in NAMES for row in contents.fixed[name]}
    for name in NAMES:
        arrays = [
            array for array, _ in dict(zip(NAMES, log_format.FRAMES.values(), strict=True))[name][2]
        ]
        for array, values in contents.arrays(name, arrays).items():
            rows |= {(name, array, row.tobytes()) for row in values}
    return rows | {json.dumps(event, sort_keys=True) for event in contents.events}


def test_a_flipped_bit_loses_its_frame_and_no_other(log):
    folder, data, places = log
    whole = read(folder, data)
    known = frames(whole)
    number = sum(len(whole.fixed[name]) for name in NAMES)
    damaged_headers = 0
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        try:
            contents = read(folder, bytes(damaged))
        except (ForeignError, LotusError):
            assert at < places[0]  # only the description of a file is needed for all of it
            continue
        if at < places[0]:
            # What the process was is told to be damaged, or only its check is.
            what = [loss.what for loss in contents.lost]
            damaged_headers += what == ["description of a process, damaged"]
            names = set(whole.header) - {"crc"}
            same = all(contents.header.get(name) == whole.header[name] for name in names)
            assert what == ["description of a process, damaged"] or (not what and same)
            assert frames(contents) == known
        else:
            assert frames(contents) <= known
            assert sum(len(contents.fixed[name]) for name in NAMES) == number - 1
            (lost,) = contents.lost
            place = int(np.searchsorted(places, at, side="right")) - 1
            assert (lost.count, lost.bytes) == (1, places[place + 1] - places[place])
    assert damaged_headers > places[0] / 4


def test_a_log_cut_anywhere_has_all_frames_before(log):
    folder, data, places = log
    for end in range(len(data)):
        try:
            contents = read(folder, data[:end])
        except ForeignError as error:
            assert end < places[0]
            assert re.search("cut short|empty|foreign", str(error))  # noqa: PT017 - an answer too
            continue
        before = int(np.searchsorted(places, end, side="right")) - 1
        assert sum(len(contents.fixed[name]) for name in NAMES) == before
        assert [lost.bytes for lost in contents.lost] == [end - places[before]] * (
            end > places[before]
        )
        assert all(lost.what == "truncated tail" for lost in contents.lost)


def test_whatever_byte_of_a_run_is_damaged_its_tables_are_made(tmp_path):
    """Each byte of the files that are no log, through all that is read of a run."""
    path = simulate(tmp_path / "run", workers=1, batches=1, batch_size=1)
    for file in (path / "run.json", path / "processes.jsonl"):
        data = file.read_bytes()
        for at in range(len(data)):
            damaged = bytearray(data)
            damaged[at] ^= 1 << at % 8
            file.write_bytes(damaged)
            try:
                run = load(path)
            except LotusError as error:
                assert "\n" not in str(error)  # noqa: PT017 - an answer too
                continue
            assert len(run.samples) == 1
        file.write_bytes(data)

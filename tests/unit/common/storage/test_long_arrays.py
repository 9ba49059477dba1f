"""Long arrays are what they were, in files that nobody finds and that end with them."""

import errno
import os

import numpy as np
import pytest

from lotus.common.storage import long_arrays

ROWS = np.dtype([("number", "<u4"), ("time_ns", "<u8")])


@pytest.fixture(autouse=True)
def every_array_is_long(monkeypatch, tmp_path):
    monkeypatch.setattr(long_arrays, "LEAST", 1)
    monkeypatch.setattr(long_arrays, "_open", [])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def is_in_file(values: np.ndarray) -> bool:
    """Whether the array's bytes are in a mapped file, which has no name."""
    address = values.__array_interface__["data"][0]
    with open("/proc/self/maps") as file:
        for line in file:
            place, _, _, _, inode, *path = line.split(maxsplit=5)
            first, last = (int(edge, 16) for edge in place.split("-"))
            if first <= address < last:
                return inode != "0" and "(deleted)" in path[0]
    return False


@pytest.mark.parametrize(
    "values",
    [
        np.arange(100.0),
        np.arange(12, dtype=np.int32).reshape(3, 4),
        np.array([(1, 2), (3, 4)], ROWS),
        np.arange(10)[::2],
    ],
)
def test_what_is_kept_is_the_same_and_in_a_file(values):
    kept = long_arrays.kept(values)
    assert kept.dtype == values.dtype
    np.testing.assert_array_equal(kept, values)
    assert is_in_file(kept)
    assert not is_in_file(values)


def test_a_short_array_stays_where_it_is(monkeypatch):
    monkeypatch.setattr(long_arrays, "LEAST", 1 << 18)
    values = np.arange(100)
    assert long_arrays.kept(values) is values


def test_what_is_soon_gone_stays_in_memory():
    values = np.arange(100)
    with long_arrays.short_lived():
        assert long_arrays.kept(values) is values
        assert not is_in_file(long_arrays.joined([values, values], values.dtype))
    assert is_in_file(long_arrays.kept(values))


def test_parts_are_joined_in_their_order():
    parts = [np.array([(number, 10)], ROWS) for number in range(5)]
    joined = long_arrays.joined(parts, ROWS)
    assert joined["number"].tolist() == [0, 1, 2, 3, 4]


def test_values_stay_when_their_memory_is_given_back():
    kept = long_arrays.kept(np.arange(1000))
    kept[0] = 7
    long_arrays.let_go()
    assert kept[:3].tolist() == [7, 1, 2]


def bytes_in_memory(values: np.ndarray) -> int:
    """How much of the file of an array is mapped into memory."""
    address = values.__array_interface__["data"][0]
    with open("/proc/self/smaps") as file:
        mine = False
        for line in file:
            place, *rest = line.split()
            if "-" in place and len(rest) >= 4:
                first, last = (int(edge, 16) for edge in place.split("-"))
                mine = first <= address < last
            elif mine and place == "Rss:":
                return int(rest[0]) * 1024
    raise AssertionError("the array is not mapped")


def test_who_reads_gives_back_what_is_mapped_when_it_is_much(monkeypatch):
    monkeypatch.setattr(long_arrays, "MOST_READ", 1 << 24)
    kept = long_arrays.kept(np.arange(1 << 20))
    long_arrays.let_go()
    total = kept.sum()
    for mapped in (True, True, False):  # at 8 MiB a time
        assert kept.sum() == total
        long_arrays.keep_few(kept)
        assert (bytes_in_memory(kept) > 0) == mapped
    assert kept.sum() == total


def test_all_rows_are_in_one_of_the_parts(monkeypatch):
    monkeypatch.setattr(long_arrays, "_STEP", 1 << 10)
    for count in (0, 1, 100, 1000):
        parts = list(long_arrays.parts(np.arange(count)))
        assert np.concatenate(parts).tolist() == list(range(count))
        assert all(part.nbytes <= 1 << 10 for part in parts)


def test_arrays_of_one_file_do_not_meet(monkeypatch):
    monkeypatch.setattr(long_arrays, "REGION", 1 << 12)
    arrays = [np.full(50, number) for number in range(40)]
    kept = [long_arrays.kept(values) for values in arrays]
    for before, after in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(after, before)


def test_a_child_of_this_process_writes_to_another_file():
    long_arrays.kept(np.arange(10))  # opens a file
    mine = long_arrays.kept(np.arange(10))
    child = os.fork()
    if not child:
        code = 1
        try:
            long_arrays.kept(np.zeros(1000))
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    theirs = long_arrays.kept(np.arange(10, 20))
    assert mine.tolist() == list(range(10))
    assert theirs.tolist() == list(range(10, 20))


def test_files_end_with_their_arrays(tmp_path):
    def descriptors() -> int:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sum(name.startswith(str(tmp_path)) for name in names)

    long_arrays._open.clear()
    before = descriptors()
    values = long_arrays.kept(np.arange(10))
    assert descriptors() > before
    assert os.listdir(tmp_path) == []
    del values
    long_arrays._open.clear()
    assert descriptors() == before


def test_without_room_arrays_stay_in_memory(monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    kept = long_arrays.kept(np.arange(10))
    assert kept.tolist() == list(range(10))
    assert not is_in_file(kept)


@pytest.mark.parametrize("shape", [(600,), (200, 3), (20, 10, 3)])
def test_what_is_written_in_pieces_is_written_whole(shape, monkeypatch):
    """As by a disk that is nearly full: it takes a part of what it is given."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:7], at))
    values = np.arange(600).reshape(shape)
    kept = long_arrays.kept(values)
    assert is_in_file(kept)
    assert (kept == values).all()
    rows = np.zeros(50, ROWS)
    rows["number"] = np.arange(50)
    assert (long_arrays.kept(rows) == rows).all()

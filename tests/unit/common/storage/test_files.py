"""Files that are written whole or not at all, read without following links, and their JSON."""

import json
import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from lotus.common.errors import LotusError
from lotus.common.storage import files


def test_a_file_is_replaced_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "out.html"
    target.write_text("old")
    target.chmod(0o640)
    files.replace(target, ["né", b"w"])
    assert target.read_bytes() == "néw".encode()
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["out.html"]


def test_what_fails_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def pieces():
        yield "new"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.replace(target, pieces())
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_leaves_the_old_file_and_is_said() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no /dev/shm")
    target = folder / f"lotus-test-{os.getpid()}"
    target.write_text("old")
    whole = os.statvfs(folder).f_frsize * os.statvfs(folder).f_blocks
    if whole > 64 << 30:
        target.unlink()
        pytest.skip("/dev/shm is too large to be filled")
    try:
        refused = pytest.raises(LotusError, match="No space left on device; -o names another file")
        with refused, files.replacing(target) as file:
            os.posix_fallocate(file.fileno(), 0, whole + (1 << 30))  # refused, nothing is taken
        assert target.read_text() == "old"
    finally:
        target.unlink()


def test_a_link_keeps_pointing_where_it_did(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to("real")
    files.replace(link, b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    files.writable(pipe)
    files.replace(pipe, "through")
    reader.join()
    assert got == ["through"]
    assert pipe.is_fifo()


def test_where_nothing_can_be_written_is_said_before(tmp_path: Path) -> None:
    with pytest.raises(LotusError, match="is a directory; --html names a file"):
        files.writable(tmp_path, "--html")
    with pytest.raises(LotusError, match="No such file or directory; -o names another file"):
        files.writable(tmp_path / "none" / "out")
    with pytest.raises(LotusError, match="No such file or directory"):
        files.replace(tmp_path / "none" / "out", "text")
    (tmp_path / "file").write_text("")
    with pytest.raises(LotusError, match="Not a directory"):
        files.writable(tmp_path / "file" / "out")
    (tmp_path / "file").unlink()
    for name in ("", "-"):
        with pytest.raises(LotusError, match="--html must name a file"):
            files.writable(Path(name), "--html")
    files.writable(tmp_path / "new")
    assert not os.listdir(tmp_path)


def test_an_atomic_file_takes_the_place_of_a_link_or_leaves_it(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to("real")
    with pytest.raises(ZeroDivisionError), files.atomic(link) as file:
        file.write(b"half" * (1 // 0))
    assert link.is_symlink()
    with files.atomic(link, 0o600, sync=True) as file:
        file.write(b"new")
    assert not link.is_symlink()
    assert (link.read_text(), real.read_text()) == ("new", "old")
    assert link.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]
    with pytest.raises(FileNotFoundError), files.atomic(tmp_path / "none" / "out"):
        pass


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert files.read(tmp_path / "file", 2) == b"te"
    assert files.read(tmp_path / "link", 9, follow=True) == b"text"
    with pytest.raises(OSError, match="symbolic links"):
        files.open_plain(tmp_path / "link")
    with pytest.raises(OSError, match="not a plain file"):
        files.open_plain(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        files.open_plain(tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with open(files.open_plain("file", folder=folder), "rb") as file:
            assert file.read() == b"text"
    finally:
        os.close(folder)


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    with files.open_new(tmp_path / "new") as file:
        file.write(b"text")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        files.open_new(tmp_path / "new")
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(FileExistsError):
        files.open_new(tmp_path / "link")


def test_json_holds_null_for_what_is_not_finite_and_plain_numbers_for_numpys() -> None:
    value = {
        1: [math.nan, -math.inf, 0.1, (True, None)],
        "é\udcff": np.array([1.5, np.nan]),
        "n": {"count": np.int64(3), "share": np.float32("nan"), "is": np.bool_(True)},
    }
    text = files.json_text(value)
    assert text.isascii()
    assert text.startswith('{\n  "1": [\n')
    assert json.loads(text) == {
        "1": [None, None, 0.1, [True, None]],
        "é\udcff": [1.5, None],
        "n": {"count": 3, "share": None, "is": True},
    }
    assert files.json_text({"a": [1 / 3, 2]}, indent=None, digits=3) == '{"a":[0.333,2]}'


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    files.write_json(path, {"rate": math.inf, "names": ["é"]}, mode=0o600)
    assert path.read_bytes().endswith(b"}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert files.read_json(path) == {"rate": None, "names": ["é"]}
    with pytest.raises(ValueError, match="it is larger than"):
        files.read_json(path, 10)
    for damaged in ("{", "[" * 100_000, "\xff"):
        path.write_bytes(damaged.encode("latin-1"))
        with pytest.raises(ValueError, match="it is not JSON"):
            files.read_json(path)

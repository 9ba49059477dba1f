"""Files that are written whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from lotus import files
from lotus.errors import LotusError


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
        said = pytest.raises(LotusError, match="No space left on device; -o names another file")
        with said, files.replacing(target) as file:
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

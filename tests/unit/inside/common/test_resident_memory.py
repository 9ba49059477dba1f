"""What is read of a process's memory from /proc/PID/statm."""

import mmap
import os
import subprocess
from pathlib import Path

import pytest

from lotus.inside.common.resident_memory import resident_and_shared_bytes, resident_bytes
from tests.waiting import wait_until

SIZE = 64 << 20


def test_the_second_and_third_number_are_pages(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("9000 500 20 1 0 800 0\n")
    page = os.sysconf("SC_PAGE_SIZE")
    assert resident_and_shared_bytes(7, str(tmp_path)) == (500 * page, 20 * page)
    assert resident_bytes(7, str(tmp_path)) == 500 * page


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_memory_that_was_written_to_is_resident(flags: int) -> None:
    resident, shared = resident_and_shared_bytes("self")
    with mmap.mmap(-1, SIZE, mmap.MAP_ANONYMOUS | flags) as block:
        block.write(bytes(SIZE // 2))
        grown, more_shared = resident_and_shared_bytes(os.getpid())
    assert grown - resident > SIZE // 4
    assert (more_shared - shared > SIZE // 4) == (flags == mmap.MAP_SHARED)


def test_a_process_that_is_gone_is_an_error() -> None:
    child = subprocess.Popen(["true"])
    wait_until(lambda: resident_bytes(child.pid) == 0)  # it has ended, and is not waited for
    child.wait()
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        resident_bytes(child.pid)


@pytest.mark.parametrize("text", ["", "9000", "9000 500", "a b c"])
def test_an_incomplete_file_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text(text)
    with pytest.raises(ValueError, match=r"not enough values|invalid literal"):
        resident_bytes(7, str(tmp_path))

"""Files of the kernel, as a whole and a count in them."""

from pathlib import Path

import pytest

from lotus.common.machine.kernel_files import contents, count_of

TEXT = b"total_cache 4\ncache 5\nlimit max\nempty\nlast 77"


@pytest.mark.parametrize(
    ("name", "count"),
    [
        (b"cache", 5),
        (b"total_cache", 4),
        (b"last", 77),
        (b"limit", None),
        (b"empty", None),
        (b"las", None),
    ],
)
def test_a_count_is_that_of_the_whole_name(name: bytes, count: int | None) -> None:
    assert count_of(TEXT, name) == count
    assert count_of(b"", name) is None


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * 200_001)
    assert contents(str(tmp_path / "long")) == b"x" * 200_001
    assert b"MemTotal" in contents("/proc/meminfo")
    with pytest.raises(OSError, match="missing"):
        contents(str(tmp_path / "missing"))

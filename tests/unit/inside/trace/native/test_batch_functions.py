"""What is done once a batch in C (`_batch.c`) is what the functions in Python do."""

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lotus.inside.trace.log import log_format, log_writer, rusage
from lotus.inside.trace.native import native_hooks

C = native_hooks.MODULE
BATCH = log_format.FIXED[log_format.BATCH].format


@pytest.fixture(params=["python", "c"])
def append(request: pytest.FixtureRequest) -> Callable[..., int]:
    if request.param == "c" and C is None:
        pytest.skip("the hooks in C are not built for this Python")
    function: Callable[..., int] = log_writer.append if request.param == "python" else C.append
    return function


@pytest.mark.skipif(C is None, reason="the hooks in C are not built for this Python")
@pytest.mark.parametrize(
    ("codes", "fields"),
    [
        ("<iIqQ", [-(1 << 31), 0, -(1 << 63), 0]),
        ("<iIqQ", [(1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1]),
        ("<iIqQ", [True, False, -1, 1 << 30]),
        (BATCH, list(range(len(BATCH) - 1))),
        ("<I", [1 << 32]),
        ("<I", [-1]),
        ("<i", [1 << 31]),
        ("<q", [1 << 63]),
        ("<Q", [1 << 64]),
        ("<Q", [2.5]),
        ("<Q", []),
        ("", [1]),
    ],
)
def test_frames_are_the_same(codes: str, fields: list[Any]) -> None:
    for arrays in ((), (b"", b"1234567"), (bytes(range(256)), b"x" * 1001)):
        made = []
        for record in (log_format.record, C.record):
            try:
                made.append(record(log_format.BATCH, codes, fields[:], arrays))
            except Exception:  # of other classes: struct's errors are its own
                made.append(None)
        assert made[0] == made[1]
        assert (made[0] is None) == (fields in ([1 << 32], [-1], [1 << 31], [1 << 63], [1 << 64],
                                                [2.5], [], [1]))  # fmt: skip


@pytest.mark.parametrize("spent", ["python", "c"])
def test_what_was_spent_is_told_in_one_order(spent: str) -> None:
    if spent == "c" and C is None:
        pytest.skip("the hooks in C are not built for this Python")
    function = rusage.spent if spent == "python" else C.spent
    first = rusage.reading()
    second = function((0,) * 8)
    third = rusage.reading()
    delay, process, cpu, minor, major, blocks, voluntary, involuntary = first
    least = (cpu, minor, major, blocks * 512, voluntary, involuntary, delay, process)
    delay, process, cpu, minor, major, blocks, voluntary, involuntary = third
    most = (cpu, minor, major, blocks * 512, voluntary, involuntary, delay, process)
    assert all(low <= value <= high for low, value, high in zip(least, second, most, strict=True))
    unmeasured = (log_format.UNMEASURED, *[0] * 7)
    assert function(unmeasured)[6] == log_format.UNMEASURED


def test_a_log_is_appended_to_only_while_it_is_ours(
    tmp_path: Path, append: Callable[..., int]
) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    fd = os.open(path, flags)
    try:
        identity = log_writer.identity(fd)
        assert identity is not None
        assert append(fd, *identity, b"one") == 1
        os.link(path, tmp_path / "second")
        assert append(fd, *identity, b"two") == 2
        assert append(fd, *identity, b"") == 2
        os.dup2(os.open(other, flags), fd)
        assert append(fd, *identity, b"three") == -1
        os.dup2(os.open(path, flags), fd)
        os.unlink(tmp_path / "second")
        os.link(path, tmp_path / "kept")
        os.unlink(path)
        assert append(fd, *identity, b"four") == 1
        text = (tmp_path / "kept").read_bytes()
        os.unlink(tmp_path / "kept")
        assert append(fd, *identity, b"five") == 0
        assert os.fstat(fd).st_size == len(text)
    finally:
        os.close(fd)
    assert append(fd, *identity, b"six") == -1
    assert append(-1, *identity, b"six") == -1
    assert (text, other.read_bytes()) == (b"onetwofour", b"")


def test_a_full_disk_is_an_error(append: Callable[..., int]) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        identity = log_writer.identity(fd)
        assert identity is not None
        with pytest.raises(OSError, match="No space left"):
            append(fd, *identity, b"one")
    finally:
        os.close(fd)


def test_a_limit_of_files_sends_the_program_no_signal(
    tmp_path: Path, append: Callable[..., int]
) -> None:
    log = log_writer.Log(str(tmp_path), "op", append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        log.write(b"one")
        (path,) = (tmp_path / "events").iterdir()
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 3, before[1]))
        log.write(b"two")
        with pytest.raises(OSError, match=rf"may not grow past {size + 3:,} bytes"):
            log.write(b"3")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.close()
    assert path.stat().st_size == size + 3

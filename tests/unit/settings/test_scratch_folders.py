"""Folders in which `lotus plan` caches samples meanwhile: what remains of them."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lotus import cli
from lotus.settings import sample_caches, scratch_folders

HOLD = """
import sys, time
from pathlib import Path
from lotus.settings import scratch_folders
with scratch_folders.made(Path(sys.argv[1])) as folder:
    (folder / "0" / "cache").mkdir(parents=True)
    (folder / "0" / "cache" / "sample").write_bytes(bytes(100_000))
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sample_caches, "roots", lambda: [tmp_path / "samples"])
    return tmp_path / "samples"


def held(root: Path) -> tuple["subprocess.Popen[str]", Path]:
    """Start a process that has a folder below `root`."""
    words = [sys.executable, "-c", HOLD, str(root)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def ended(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_nothing_remains_of_one_that_ends(root: Path) -> None:
    with scratch_folders.made(root) as folder:
        (folder / "sample").write_text("x")
        assert not scratch_folders.is_abandoned(folder)
        assert sample_caches.listed() == []
    assert not root.exists()
    root.mkdir()
    with pytest.raises(KeyboardInterrupt), scratch_folders.made(root):
        raise KeyboardInterrupt
    assert list(root.iterdir()) == []


def test_what_a_killed_one_left_is_listed_and_removed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process, folder = held(root)
    # WHILE it lives, nobody lists or removes it
    assert cli.main(["cache", "rm", "--all"]) == 0
    assert capsys.readouterr().out == "removed nothing\n"
    ended(process)
    assert cli.main(["cache", "ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["caches"]
    assert (row["folder"], row["samples"]) == (str(folder), 0)
    assert row["bytes"] >= 100_000
    assert cli.main(["cache", "ls"]) == 0
    assert "dropped: a `lotus plan` that was killed left it" in capsys.readouterr().out
    assert cli.main(["cache", "rm", "--all"]) == 0
    assert "removed 1 cache: " in capsys.readouterr().out
    assert not folder.exists()


def test_the_next_one_removes_what_killed_ones_left_and_nothing_else(root: Path) -> None:
    left, left_folder = held(root)
    living, living_folder = held(root)
    ended(left)
    try:
        (root / "cache").mkdir()
        link = living_folder.with_name(living_folder.name + "-link")
        link.symlink_to(root / "cache")
        with scratch_folders.made(root) as folder:
            names = {path.name for path in root.iterdir()}
            assert names == {"cache", link.name, folder.name, living_folder.name}
        assert not left_folder.exists()
    finally:
        ended(living)


def test_one_that_cannot_be_locked_is_not_taken_for_abandoned(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    # GIVEN a living one on a file system without locks
    with monkeypatch.context() as without:
        without.setattr(fcntl, "flock", refuses)
        living = scratch_folders.made(root)
        folder = living.__enter__()
    try:
        # THEN nobody takes it for abandoned, also where the lock is free
        with scratch_folders.made(root):
            assert folder.exists()
        assert sample_caches.listed() == []
    finally:
        living.__exit__(None, None, None)
    assert not folder.exists()


@pytest.mark.parametrize("other", ["0b8f9f4e-another-boot", None])
def test_one_of_another_machine_is_not_taken_for_abandoned(
    root: Path, monkeypatch: pytest.MonkeyPatch, other: str | None
) -> None:
    # GIVEN one whose lock is not seen here, as that of another machine may not be
    process, _ = held(root)
    ended(process)
    (folder,) = root.iterdir()
    assert scratch_folders.is_abandoned(folder)
    # WHERE the boot is another one, or not known, it stays
    monkeypatch.setattr(scratch_folders, "boot_id", lambda: other)
    with scratch_folders.made(root) as own:
        assert folder.exists()
        assert not scratch_folders.is_abandoned(own)
    assert sample_caches.listed() == []

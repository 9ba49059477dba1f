"""The types of file systems, by what mountinfo says."""

import os
from pathlib import Path

from lotus.recording.looks.mounts import Mounts

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw master:1 - autofs auto rw
31 30 0:41 / /data rw - nfs4 server:/data rw
32 22 0:42 / /my\040disk rw - xfs /dev/sdb rw
33 22 0:43 / /one/file.bin rw - tmpfs tmpfs rw
34 22 broken
"""


def stand_in(folder: Path, mounts: str | None = MOUNTS) -> Mounts:
    """The mounts of this process, and of the process 8 in another namespace."""
    for process, namespace in (("self", "mnt:[1]"), ("7", "mnt:[1]"), ("8", "mnt:[2]")):
        (folder / process / "ns").mkdir(parents=True)
        (folder / process / "ns" / "mnt").symlink_to(namespace)
    if mounts is not None:
        (folder / "self" / "mountinfo").write_text(mounts)
    result = Mounts(str(folder))
    for pid in (7, 8, 9):
        result.note(pid)
    return result


def test_the_longest_mount_point_tells(tmp_path: Path) -> None:
    mounts = stand_in(tmp_path)
    types = {
        "/database/x": "ext4",
        "/data/train/": "nfs4",  # the last one that was mounted there
        "/data": "nfs4",
        "/my disk/a": "xfs",
        "/one/file.bin": "tmpfs",
        "/one/other.bin": "ext4",
        "/a": "ext4",
        "10.0.0.1:80": "",
        "": "",
    }
    assert {path: mounts.type_of(7, path) for path in types} == types


def test_a_path_of_another_namespace_is_not_known(tmp_path: Path) -> None:
    mounts = stand_in(tmp_path)
    assert [mounts.type_of(pid, "/data/x") for pid in (8, 9, 10)] == ["", "", ""]


def test_without_mountinfo_nothing_is_known(tmp_path: Path) -> None:
    assert stand_in(tmp_path, None).type_of(7, "/data/x") == ""


def test_this_process_sees_its_own_mounts() -> None:
    mounts = Mounts()
    mounts.note(os.getpid())
    assert mounts.type_of(os.getpid(), "/proc/self/stat") == "proc"

"""Readings of this machine: they grow with what it does, and their number is bounded."""

import os
from pathlib import Path

import pytest

from lotus.common.machine import memory_headroom
from lotus.common.machine.memory_headroom import Headroom
from lotus.recording.readings import machine_load
from lotus.recording.readings.machine_load import MachineLoad


def test_a_reading_has_what_the_kernel_tells() -> None:
    load = MachineLoad()
    load.read(now=True)
    load.read(now=True)
    first, last = load.rows
    assert last[0] > first[0]
    assert last[1] >= first[1] >= 0  # busy since the boot, in ticks
    assert first[2] >= 0
    assert first[5] == -1 or first[5] > 0
    assert last[6] >= first[6] >= -1  # held back by a quota
    assert last[7] >= first[7] >= -1  # waited for memory


@pytest.mark.parametrize(
    ("room", "row"),
    [(Headroom(5, "why", 9), [5, 9]), (Headroom(5, "why"), [5, 0]), (None, [-1, -1])],
)
def test_a_reading_says_which_limit_leaves_so_much_memory(
    monkeypatch: pytest.MonkeyPatch, room: Headroom | None, row: list[int]
) -> None:
    monkeypatch.setattr(memory_headroom, "memory_of", lambda folders: room)
    load = MachineLoad()
    load.read(now=True)
    assert [load.rows[0][5], load.rows[0][8]] == row


def test_a_reading_is_made_only_when_it_is_due() -> None:
    load = MachineLoad()
    load.read()
    load.read()
    assert len(load.rows) == 1


def test_the_cores_are_those_that_the_program_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a program that binds itself to one of two CPUs, beside another program on the other
    THEN what lies between the readings is of that CPU alone."""
    times, allowed = {0: [100, 50, 0], 1: [300, 10, 5]}, {0: {0, 1}, 7: {0, 1}, 8: {0}}
    monkeypatch.setattr(machine_load, "_times_of_cpus", lambda: {**times})
    monkeypatch.setattr(os, "sched_getaffinity", allowed.__getitem__)
    load = MachineLoad()
    load.read(now=True)
    times = {0: [110, 60, 0], 1: [320, 10, 5]}
    load.read((7, 8), now=True)
    allowed[7] = {0}
    times = {0: [111, 79, 2], 1: [340, 10, 9]}
    load.read((7, 8), now=True)
    assert [row[1:4] for row in load.rows] == [[400, 60, 5], [430, 70, 5], [431, 89, 7]]


def test_a_long_run_has_no_more_readings_than_a_day_of_them() -> None:
    load = MachineLoad()
    for _ in range(5000):
        load.read(now=True)
    assert len(load.rows) < 2100
    times = [row[0] for row in load.rows]
    assert times == sorted(times)


def test_only_devices_count_as_disks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GIVEN a disk with a partition, a loop device, and what the kernel tells of them."""
    for name in ("sda/device", "nvme0n1/device", "loop0", "dm-0"):
        (tmp_path / name).mkdir(parents=True)
    lines = [
        b"8 0 sda 5 0 100 0 3 0 20 0",
        b"8 1 sda1 5 0 100 0 3 0 20 0",
        b"259 0 nvme0n1 1 0 7 0 1 0 1 0",
        b"7 0 loop0 9 0 900 0 9 0 900 0",
        b"253 0 dm-0 9 0 900 0 9 0 900 0",
    ]
    monkeypatch.setattr(machine_load, "_BLOCK", tmp_path)
    told = {"/proc/diskstats": b"\n".join(lines)}
    monkeypatch.setattr(machine_load, "contents", lambda path: told[path])
    disks = machine_load._local_disks()
    assert machine_load._disk_bytes(disks) == [107 * 512, 21 * 512]
    assert machine_load._disk_bytes(set()) == [-1, -1]
    told["/proc/diskstats"] = b"8 0 sda 5"
    assert machine_load._disk_bytes(disks) == [-1, -1]


def test_the_frequency_is_a_mean_of_few_cpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine_load, "_CPUS", tmp_path)
    assert machine_load._frequency({0, 1}) == -1
    for cpu in range(64):
        folder = tmp_path / f"cpu{cpu}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{1_000_000 + cpu}\n")
    assert machine_load._frequency({3}) == 1_000_003
    assert machine_load._frequency(set(range(64))) == 1_000_028


def test_the_cgroups_are_those_that_the_program_has_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN a program that enters a group with a quota, which has held other threads back before
    THEN the quota is known, and only what it held back since then counts."""
    groups = {"self": b"0::/", "7": b"0::/", "8": b"0::/inner"}
    held = {"/group": 5_000_000_000, "/group/inner": 9_000_000_000}
    quotas = {"self": None, "7": 0.5}

    def folders(root: Path, controller: str, process: str) -> list[Path]:
        return [Path(f"/group/{groups[process].decode().removeprefix('0::/')}")]

    monkeypatch.setattr(machine_load, "_cgroups_of", lambda process: groups.get(process, b""))
    monkeypatch.setattr(machine_load.host, "cgroups", folders)
    monkeypatch.setattr(machine_load.host, "cpu_quota", lambda process: quotas[process])
    monkeypatch.setattr(
        MachineLoad, "_throttled", lambda self: max(held[str(folder)] for folder in self._groups)
    )
    load = MachineLoad()
    load.read(now=True)
    load.read((8, 7), now=True)  # the first process is the program's, and has not moved
    groups["7"] = b"0::/inner"
    load.read((7, 8), now=True)
    held["/group/inner"] += 3
    load.read((7, 8), now=True)
    load.read((9,), now=True)  # has ended
    assert [row[6] for row in load.rows] == [0, 0, 0, 3, 3]
    assert [row[14] for row in load.rows] == [0, 0, 500, 500, 500]

"""The use of the machine's cores and memory while a program ran, read about once a second."""

import contextlib
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path

from lotus.common.machine import host, memory_headroom
from lotus.common.machine.kernel_files import contents, count_of
from lotus.inside.common.process_stat import TICK_NS

_MOST = 2048  # readings; then every second one is dropped, and they are made half as often
_PERIOD_NS = 1_000_000_000
_BLOCK, _CPUS = Path("/sys/block"), Path("/sys/devices/system/cpu")
_SECTOR = 512  # bytes: the unit of /proc/diskstats, whatever the disk's own
_MOST_CPUS = 8  # whose frequency is read: on some machines, each reading interrupts that CPU


class MachineLoad:
    """Readings of /proc (the CPUs that the program may use, memory) and of a process's cgroups.

    `rows` holds [time, busy, idle, stolen (all ns, summed over the CPUs; what lies between two
    readings is of those that the program could use then), bytes swapped in and out,
    bytes available (in the cgroup as well), ns for which a CPU quota held threads back (summed over
    the CPUs), ns in which threads waited for memory (PSI, some), the memory limit of the cgroup
    that leaves the fewest bytes (0: the machine itself leaves fewer), ns in which threads waited
    for a CPU and for disks (PSI, some), bytes read from and written to local disks, mean frequency
    of the CPUs in kHz, CPU quota in thousandths of a core (0: none)]; what is not known is -1.
    """

    def __init__(self, process: str = "self") -> None:
        self.rows: list[list[int]] = []
        self._cpus = _allowed((0,))  # that the program may use, if known
        self._times: dict[int, list[int]] = {}  # of each CPU at the last reading
        self._sums = [0, 0, 0]
        self._throttled_ns = -1
        self._enter(process)
        self._disks = _local_disks()
        self._period_ns, self._last_ns = _PERIOD_NS, 0

    def read(self, processes: Iterable[int] = (), now: bool = False) -> None:
        """Make a reading if it is due, or `now`.

        `processes`: those of the program, which may use other CPUs than lotus, or fewer.
        """
        time_ns = time.monotonic_ns()
        if not now and time_ns - self._last_ns < self._period_ns:
            return
        self._last_ns = time_ns
        if len(self.rows) >= _MOST:
            del self.rows[1::2]
            self._period_ns *= 2
        with contextlib.suppress(OSError, ValueError, IndexError, AttributeError):
            known = tuple(processes)
            self._cpus = _allowed(known) or self._cpus
            if known:
                self._follow(min(known))
            available, limit = self._available()
            self._add_cores()
            row = [time_ns, *self._sums, _swapped(), available]
            row += [self._held_back(), _stalled("memory"), limit, _stalled("cpu"), _stalled("io")]
            self.rows.append([*row, *_disk_bytes(self._disks), _frequency(self._cpus), self._quota])

    def _enter(self, process: str) -> None:
        """Find the cgroups of a process."""
        self._member_of = _cgroups_of(process)
        self._groups = host.cgroups(Path("/"), "cpu", process)
        self._memory_groups = host.cgroups(Path("/"), "memory", process)
        self._quota = round(1000 * (host.cpu_quota(process=process) or 0.0))
        self._longest = self._throttled()

    def _follow(self, process: int) -> None:
        """Find the cgroups anew if this process is in others than before.

        A program, or what starts it, may enter a group of its own.
        """
        if _cgroups_of(str(process)) not in (b"", self._member_of):
            self._enter(str(process))

    def _add_cores(self) -> None:
        """Add what the program's CPUs did since the last reading; at the first, since the boot."""
        before, self._times = self._times, _times_of_cpus()
        for cpu in self._cpus & self._times.keys():
            was = before.get(cpu, self._times[cpu] if before else [0, 0, 0])
            for place, (since, now) in enumerate(zip(was, self._times[cpu], strict=True)):
                self._sums[place] += max(now - since, 0)

    def _available(self) -> tuple[int, int]:
        room = memory_headroom.memory_of(self._memory_groups)
        return (-1, -1) if room is None else (room.free, room.limit)

    def _held_back(self) -> int:
        """Return for how long a quota held threads back since the first reading, ns; -1: unknown.

        Each group counts from when it was made.
        """
        before, self._longest = self._longest, self._throttled()
        if self._longest >= 0:
            self._throttled_ns = max(self._throttled_ns, 0) + max(self._longest - before, 0)
        return self._throttled_ns

    def _throttled(self) -> int:
        """Return the longest throttling of its cgroup and those above it, ns; -1: unknown."""
        most = -1
        for folder in self._groups:
            with contextlib.suppress(OSError, ValueError):
                text = contents(f"{folder}/cpu.stat")
                for name, unit_ns in ((b"throttled_usec", 1000), (b"throttled_time", 1)):  # v2, v1
                    count = count_of(text, name)
                    most = most if count is None else max(most, unit_ns * count)
        return most


def _allowed(processes: Iterable[int]) -> set[int]:
    """Return the CPUs that any of these may use."""
    cpus: set[int] = set()
    for pid in processes:
        with contextlib.suppress(OSError, AttributeError):
            cpus |= os.sched_getaffinity(pid)
    return cpus


def _times_of_cpus() -> dict[int, list[int]]:
    """Return [busy, idle, stolen] of each CPU since the boot, ns."""
    times = {}
    for line in contents("/proc/stat").splitlines():
        if not line.startswith(b"cpu"):
            break  # the CPUs come first
        name, *ticks = line.split()
        if name != b"cpu":
            # user nice system idle iowait irq softirq steal
            counts = [int(count) * TICK_NS for count in ticks[:8]]
            counts += [0] * (8 - len(counts))
            busy = sum(counts[:3]) + sum(counts[5:7])
            times[int(name[3:])] = [busy, counts[3] + counts[4], counts[7]]
    return times


def _stalled(resource: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        kind, *_, total = contents(f"/proc/pressure/{resource}").splitlines()[0].split()
        if kind == b"some":
            return 1000 * int(total.removeprefix(b"total="))
    return -1


def _cgroups_of(process: str) -> bytes:
    """Return the cgroups of a process as the kernel lists them; b"": it has ended."""
    with contextlib.suppress(OSError):
        return contents(f"/proc/{process}/cgroup")
    return b""


def _local_disks() -> set[bytes]:
    """Return the names of disks that are devices: no partitions, and none made of other disks."""
    with contextlib.suppress(OSError):
        return {os.fsencode(each.name) for each in _BLOCK.iterdir() if (each / "device").exists()}
    return set()


def _disk_bytes(disks: set[bytes]) -> list[int]:
    """Return the bytes read from and written to these disks since the boot; -1: not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        rows = [line.split() for line in contents("/proc/diskstats").splitlines()]
        known = [(int(row[5]), int(row[9])) for row in rows if row[2] in disks]
        if known:
            return [_SECTOR * sum(sectors) for sectors in zip(*known, strict=True)]
    return [-1, -1]


def _frequency(cpus: set[int]) -> int:
    """Return the mean frequency in kHz of at most `_MOST_CPUS` of these CPUs; -1: not known."""
    chosen = sorted(cpus)[:: max(len(cpus) // _MOST_CPUS, 1)][:_MOST_CPUS]
    frequencies = []
    for cpu in chosen:
        with contextlib.suppress(OSError, ValueError):
            frequencies.append(int(contents(f"{_CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq")))
    return sum(frequencies) // len(frequencies) if frequencies else -1


def _swapped() -> int:
    with contextlib.suppress(OSError, ValueError):
        text = contents("/proc/vmstat")
        pages = (count_of(text, b"pswpin") or 0) + (count_of(text, b"pswpout") or 0)
        return pages * resource.getpagesize()
    return -1

"""The tables of a run that its launcher made from outside of the program."""

from functools import cached_property
from pathlib import Path

import pandas as pd

from lotus.reading.launcher import launcher_readings, launcher_record


class LauncherTables:
    """What the launcher observed; `path` is the run directory."""

    path: Path

    @cached_property
    def _launcher_record(self) -> launcher_record.LauncherRecord:
        return launcher_record.read(self.path)

    @property
    def no_stacks(self) -> str:
        """Why `own_code` has no stacks: "absent" (no py-spy), "forbidden"; "": not known."""
        return self._launcher_record.no_stacks

    @cached_property
    def machine(self) -> pd.DataFrame:
        """The state of the machine, about once a second: time_ns; since boot, busy_ns, idle_ns,
        stolen_ns (sums over the CPUs that the program could use), swapped_bytes (in and out),
        throttled_ns (by a CPU quota, all CPUs), memory_stall_ns, cpu_stall_ns and io_stall_ns (some
        thread waited for memory, a CPU, a disk), disk_read_bytes and disk_written_bytes (of local
        disks); frequency_khz (mean of the CPUs); quota_millicores (of the program's cgroups, 0:
        none); available_bytes of memory, of the machine or of a cgroup (container, job) that leaves
        less, whose limit is memory_limit_bytes then, else 0. -1 if unknown."""
        return launcher_readings.table(self._launcher_record, launcher_readings.MACHINE)

    @property
    def program_cpu_ns(self) -> float:
        """CPU time of the program with all that it started and waited for; NaN: not known."""
        return self._launcher_record.program_cpu_ns

    @cached_property
    def children(self) -> pd.DataFrame:
        """What the program's processes used: pid, worker (-1: a main process), cpu_ns (of those
        that it started and had waited for when it was last found blocked). Of all its threads,
        within own_ns: own_cpu_ns, own_system_ns (in the kernel), own_minor_faults,
        own_copied_bytes and own_copies (read and written, by so many calls); kept_cpu_ns of
        processes that it started and that make no batches; delay_before_ns of a main process that
        was ready to run without a core, before its first loop. -1: not known."""
        return launcher_readings.table(self._launcher_record, launcher_readings.CHILDREN)

    @cached_property
    def memory(self) -> pd.DataFrame:
        """Readings of the program's processes by the launcher, every few seconds.

        time_ns, pid, worker (-1: a main process), and in bytes rss, pss, private and shared (pages
        that were written to, and that no other process uses, or another one too), anonymous (pages
        of no file); descriptor_limit (descriptors that it may have open; -1: no limit, or unknown).
        """
        return launcher_readings.table(self._launcher_record, launcher_readings.MEMORY)

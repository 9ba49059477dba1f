"""The state of the machine while a loader was iterated, as the launcher read it once a second."""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import float_column, ratio
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.machine.machine_readings import within_loops


@dataclass(frozen=True)
class MachineState:
    """What the machine did in the loops. NaN: not known, which is not 0.

    `own_share`, `others_share` and `stolen_share` are of the time of the `cores` that the program
    may use, 0 to 1; the rest was idle. Stalls are shares of the loops in which some thread of the
    machine waited for a CPU, a disk or memory (the kernel's PSI, "some"). `disk_read_bytes_per_s`
    and `disk_written_bytes_per_s` are of local disks and of all programs, as are swapped bytes. The
    frequency is that of the CPUs, in MHz.
    """

    cores: float
    own_share: float
    others_share: float
    stolen_share: float
    cpu_stall_share: float
    io_stall_share: float
    memory_stall_share: float
    throttled_ns: float  # by a CPU quota, summed over the CPUs
    disk_read_bytes_per_s: float
    disk_written_bytes_per_s: float
    swapped_bytes: float
    available_bytes: float  # of memory, at the reading with the least
    least_mhz: float
    most_mhz: float


def machine_state(scope: Scope, use: CoreUse) -> MachineState:
    """Return the state of the machine in the loops of a loader; `use`: that of its cores."""
    epochs = scope.epochs
    loops_ns = float(np.nansum(float_column(epochs, "end_ns") - float_column(epochs, "start_ns")))

    def grown(name: str) -> float:
        known = (float_column(scope.machine, name) >= 0).sum() >= 2 and loops_ns > 0
        return within_loops(scope, name) if known else math.nan

    def share(name: str) -> float:
        return min(ratio(grown(name), loops_ns), 1.0)

    available, frequency = (
        values[values >= 0]
        for values in (
            float_column(scope.machine, name) for name in ("available_bytes", "frequency_khz")
        )
    )
    return MachineState(
        cores=scope.cores,
        own_share=use.own_share,
        others_share=use.programs_share,
        stolen_share=use.stolen_share if math.isfinite(grown("stolen_ns")) else math.nan,
        cpu_stall_share=share("cpu_stall_ns"),
        io_stall_share=share("io_stall_ns"),
        memory_stall_share=share("memory_stall_ns"),
        throttled_ns=grown("throttled_ns"),
        disk_read_bytes_per_s=ratio(grown("disk_read_bytes"), loops_ns / 1e9),
        disk_written_bytes_per_s=ratio(grown("disk_written_bytes"), loops_ns / 1e9),
        swapped_bytes=grown("swapped_bytes"),
        available_bytes=float(available.min()) if available.size else math.nan,
        least_mhz=float(frequency.min()) / 1000 if frequency.size else math.nan,
        most_mhz=float(frequency.max()) / 1000 if frequency.size else math.nan,
    )

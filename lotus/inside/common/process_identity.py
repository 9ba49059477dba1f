"""What this process is to others: its rank, its cores, its clock."""

import os
import sys

from .guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rank_of_process() -> tuple[int | None, int | None, int | None]:
    """(rank, local rank, world size) from the job's environment or torch.distributed, or Nones."""
    found: list[int | None] = []
    for names in (
        ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
        found.append(int(values[0]) if values else None)
    distributed = sys.modules.get("torch.distributed")
    with quiet(Exception):  # the program may be half-way through its own set-up
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found[0], found[2] = distributed.get_rank(), distributed.get_world_size()
    return found[0], found[1], found[2]


def cores() -> int | None:
    """On how many cores this process may run; None: not told."""
    with quiet(OSError):
        return len(os.sched_getaffinity(0))
    return None


def clock_id() -> str:
    """What tells clocks apart: the boot, and the time name space where that has its own clock."""
    shift = ""
    with quiet(OSError, ValueError), open("/proc/self/timens_offsets") as file:
        for line in file:
            name, seconds, nanoseconds = line.split()
            if name == "monotonic" and (int(seconds) or int(nanoseconds)):
                shift = f"+{seconds}.{int(nanoseconds):09}"
    return (boot_id() or "") + shift


def boot_id() -> str | None:
    """The kernel's id of this boot, by which clocks of two logs can be known to be the same."""
    with quiet(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return None


def is_worker() -> bool:
    """Whether this process is a DataLoader's worker, or may have no children for another reason."""
    multiprocessing: Any = sys.modules.get("multiprocessing")
    return multiprocessing is not None and bool(multiprocessing.current_process().daemon)

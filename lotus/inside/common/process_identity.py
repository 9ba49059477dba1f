"""Identifies this process: its rank, cores and clock."""

import os
import sys

from .guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def rank_of_process() -> tuple[int | None, int | None, int | None]:
    """Return (rank, local rank, world size), each None if unknown.

    They come from the job's environment and from torch.distributed.
    """
    place: list[int | None] = []
    for names in (
        ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
        place.append(int(values[0]) if values else None)
    distributed = sys.modules.get("torch.distributed")
    with quiet(Exception):  # the program may be initializing it right now
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            place[0], place[2] = distributed.get_rank(), distributed.get_world_size()
    return place[0], place[1], place[2]


def cores() -> int | None:
    """Return the number of cores on which this process may run; None: unknown."""
    with quiet(OSError):
        return len(os.sched_getaffinity(0))
    return None


def clock_id() -> str:
    """Return an id of the clock: the boot id and the offset of a time namespace."""
    shift = ""
    with quiet(OSError, ValueError), open("/proc/self/timens_offsets") as file:
        for line in file:
            name, seconds, nanoseconds = line.split()
            if name == "monotonic" and (int(seconds) or int(nanoseconds)):
                shift = f"+{seconds}.{int(nanoseconds):09}"
    return (boot_id() or "") + shift


def boot_id() -> str | None:
    """Return the kernel's id of this boot; logs with the same id share a clock."""
    with quiet(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return None


def is_worker() -> bool:
    """Return whether this process is a worker of a DataLoader, or daemonic for another reason."""
    multiprocessing: Any = sys.modules.get("multiprocessing")
    return multiprocessing is not None and bool(multiprocessing.current_process().daemon)

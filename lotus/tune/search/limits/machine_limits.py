"""Reads the limits of a program: cores, memory, /dev/shm and file descriptors."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lotus.common.machine import host, memory_headroom
from lotus.common.machine.memory_headroom import Headroom
from lotus.common.text.formatting import size
from lotus.inside.common import process_stat
from lotus.inside.tune.session.core_share import LOCAL_WORLDS


@dataclass(frozen=True)
class MachineLimits:
    """The limits of one rank; memory and /dev/shm are its share of what is free now."""

    cores: float
    cores_why: str
    memory: Headroom | None  # None: not known
    shm: Headroom | None  # None: there is no /dev/shm
    descriptors: int | None  # that one process may still open; None: no limit


def read(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ, pid: int = 0
) -> MachineLimits:
    """Return the limits of process `pid` (0: this one), which must be in this process's cgroup.

    `root` is the directory that contains /proc, /sys and /dev. Swap does not count.
    """
    ranks = local_ranks(environment)
    affinity = os.sched_getaffinity(pid)
    count, why = cores(
        logical=os.cpu_count() or 1,
        affinity=len(affinity),
        quota=host.cpu_quota(root),
        ranks=ranks,
        bound=ranks > 1 and affinity < _affinity_of_parent(pid),
    )
    return MachineLimits(
        cores=count,
        cores_why=why,
        memory=shared(memory_headroom.memory(root), ranks),
        shm=shared(shared_memory(root / "dev/shm"), ranks),
        descriptors=descriptors(pid),
    )


def local_ranks(environment: Mapping[str, str]) -> int:
    """Return how many ranks the launcher runs on this machine; 1 without a job."""
    texts = [environment[name] for name in LOCAL_WORLDS if environment.get(name)]
    # "4(x2),3": tasks on each machine; if they differ, the largest number is assumed.
    slurm = environment.get("SLURM_STEP_TASKS_PER_NODE") or ""
    if environment.get("SLURM_PROCID"):
        texts += [part.partition("(")[0] for part in slurm.split(",")]
    counts = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 7]
    return max([1, *counts])


def cores(
    *, logical: int, affinity: int, quota: float | None, ranks: int = 1, bound: bool = False
) -> tuple[float, str]:
    """Return (cores that one rank may use at once, why): the lower of affinity and quota.

    The ranks of a machine share the quota, and the affinity unless each is `bound` to its own.
    """
    among = f", shared by {ranks} local ranks" if ranks > 1 else ""
    own = affinity if bound else affinity / ranks
    whole = f"affinity: {affinity} of {logical} CPUs" if affinity < logical else f"{logical} CPUs"
    limits = [(own, whole + ("" if bound else among))]
    if quota is not None:
        limits.append((quota / ranks, f"CPU quota of the cgroup: {quota:g}{among}"))
    return min(limits, key=lambda limit: limit[0])


def _affinity_of_parent(pid: int) -> set[int]:
    """Return the affinity of the launcher, which binds each rank after starting it."""
    try:
        parent = os.getppid() if pid == 0 else process_stat.read(pid).parent
        return os.sched_getaffinity(parent) if parent > 0 else set()
    except OSError:
        return set()


def shared(room: Headroom | None, ranks: int) -> Headroom | None:
    """Return one rank's share of what all ranks of the machine share."""
    if room is None or ranks == 1:
        return room
    return Headroom(room.free // ranks, f"{room.why}, shared by {ranks} local ranks")


def shared_memory(path: Path) -> Headroom | None:
    """Return the free space in the file system of POSIX shared memory; None without one."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    free, whole = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    return Headroom(free, f"/dev/shm has {size(free)} free of {size(whole)}")


def descriptors(pid: int = 0) -> int | None:
    """Return how many descriptors a process may still open (RLIMIT_NOFILE); None: no limit."""
    limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    return max(limit - len(os.listdir(f"/proc/{pid or 'self'}/fd")), 0)

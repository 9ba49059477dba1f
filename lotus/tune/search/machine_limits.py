"""What a program may use: cores, memory, /dev/shm and descriptors, less what is in use already."""

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lotus.common import host
from lotus.common.formatting import size
from lotus.inside.tune.pausing import LOCAL_WORLDS

_NO_LIMIT = 1 << 62  # cgroup v1 writes the largest whole pages where v2 writes "max"


@dataclass(frozen=True)
class Headroom:
    """How many bytes may still be taken, and in words who says so."""

    free: int
    why: str


@dataclass(frozen=True)
class Limits:
    """What one rank may use. Memory and /dev/shm are what is free now, its share of it."""

    cores: float
    cores_why: str
    memory: Headroom | None  # None: the system does not tell
    shm: Headroom | None  # None: there is no /dev/shm
    descriptors: int | None  # that may still be opened in one process; None: without a limit
    local_ranks: int = 1


def read(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ, pid: int = 0
) -> Limits:
    """Return the limits of process `pid` (0: this one), which must be in this one's cgroup.

    `root` is where /proc, /sys and /dev are looked for. Swap counts for nothing.
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
    return Limits(
        cores=count,
        cores_why=why,
        memory=shared(memory(root), ranks),
        shm=shared(shared_memory(root / "dev/shm"), ranks),
        descriptors=descriptors(pid),
        local_ranks=ranks,
    )


def local_ranks(environment: Mapping[str, str]) -> int:
    """How many ranks of the job run on this machine, by the launcher's word; 1 without a job."""
    texts = [environment[name] for name in LOCAL_WORLDS if environment.get(name)]
    # "4(x2),3": tasks on each machine; where they differ the largest share of ranks is assumed.
    slurm = environment.get("SLURM_STEP_TASKS_PER_NODE") or ""
    if environment.get("SLURM_PROCID"):
        texts += [part.partition("(")[0] for part in slurm.split(",")]
    counts = [int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 7]
    return max([1, *counts])


def cores(
    *, logical: int, affinity: int, quota: float | None, ranks: int = 1, bound: bool = False
) -> tuple[float, str]:
    """(cores that one rank may use at once, why), the least of what affinity and quota allow.

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
    """That of the process that started the rank, as a launcher binds each rank after its start."""
    try:
        parent = os.getppid() if pid == 0 else _parent(pid)
        return os.sched_getaffinity(parent) if parent > 0 else set()
    except (OSError, ValueError, IndexError):
        return set()


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def shared(room: Headroom | None, ranks: int) -> Headroom | None:
    """One rank's share of what all ranks of the machine have together."""
    if room is None or ranks == 1:
        return room
    return Headroom(room.free // ranks, f"{room.why}, shared by {ranks} local ranks")


def memory(root: Path = Path("/")) -> Headroom | None:
    """Memory that may still be taken: the least that the system and the cgroups leave.

    The cgroups are this process's and those above it, v1 or v2; file pages that were not used
    lately count as free. Of parents that a container hides v1 tells the limit, v2 nothing.
    """
    rooms = [_left(folder) for folder in host.cgroups(root, "memory")]
    available = host.available_memory(root)
    if available is not None:
        rooms.append(Headroom(available, f"{size(available)} of the system's memory are free"))
    return min((room for room in rooms if room), key=lambda room: room.free, default=None)


def _left(folder: Path) -> Headroom | None:
    """What a cgroup still allows; None where it sets no limit."""
    stat = _table(folder / "memory.stat")
    version2 = (folder / "memory.current").exists()
    names = ("memory.max", "memory.high") if version2 else ("memory.limit_in_bytes",)
    limits = [_number(folder / name) for name in names]
    if not version2:
        limits.append(stat.get("hierarchical_memory_limit"))
    limit = min(
        (value for value in limits if value is not None and value < _NO_LIMIT), default=None
    )
    if limit is None:
        return None
    used = _number(folder / ("memory.current" if version2 else "memory.usage_in_bytes")) or 0
    # v1's own numbers leave out the cgroups below, its total_ ones hold them as usage does.
    used -= min(stat.get("inactive_file" if version2 else "total_inactive_file", 0), used)
    why = f"the cgroup's memory limit is {size(limit)} and {size(used)} are in use"
    return Headroom(max(limit - used, 0), why)


def _number(path: Path) -> int | None:
    """The whole number in a file; None for "max", and where there is none."""
    try:
        return int(path.read_text(encoding="ascii", errors="replace"))
    except (OSError, ValueError):
        return None


def _table(path: Path) -> dict[str, int]:
    """The lines `name number` of a file; empty where there is none."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def shared_memory(path: Path) -> Headroom | None:
    """What is free in the file system of POSIX shared memory; None where there is none."""
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    free, whole = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    return Headroom(free, f"/dev/shm has {size(free)} free of {size(whole)}")


def descriptors(pid: int = 0) -> int | None:
    """How many descriptors a process may still open (RLIMIT_NOFILE); None: without a limit."""
    limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return None
    return max(limit - len(os.listdir(f"/proc/{pid or 'self'}/fd")), 0)

"""The memory that may still be used, by the system and by the cgroups of a container or job."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus.common.machine import host, kernel_files
from lotus.common.machine.kernel_files import count_of
from lotus.common.text.formatting import size

_NO_LIMIT = 1 << 62  # cgroup v1 writes the largest whole pages where v2 writes "max"


@dataclass(frozen=True)
class Headroom:
    """The bytes that may still be used, and the limit that says so.

    `limit`: of the cgroup that says so, bytes; 0: no cgroup does.
    """

    free: int
    why: str
    limit: int = 0


def memory(root: Path = Path("/"), process: str = "self") -> Headroom | None:
    """Return the memory that may still be used: the least that system and cgroups allow.

    The cgroups are a process's and those above them, v1 or v2; inactive file pages count as free.
    If a container hides the parents, only v1 reports their limit.
    """
    return memory_of(host.cgroups(root, "memory", process), root)


def memory_of(folders: Sequence[Path], root: Path = Path("/")) -> Headroom | None:
    """Return the same for these folders of cgroups, which `host.cgroups` has found."""
    rooms = [_left(folder) for folder in folders]
    available = host.available_memory(root)
    if available is not None:
        rooms.append(Headroom(available, f"the system has {size(available)} of memory free"))
    return min((room for room in rooms if room), key=lambda room: room.free, default=None)


def limit(root: Path = Path("/"), process: str = "self") -> int | None:
    """Return the least memory limit of a process's cgroups at which the kernel kills, in bytes.

    None without one.
    """
    folders = host.cgroups(root, "memory", process)
    limits = (_limit(folder, "memory.max", "memory.limit_in_bytes") for folder in folders)
    return min((each for each in limits if each is not None), default=None)


def killed(root: Path = Path("/"), process: str = "self") -> int | None:
    """Return how many processes of a process's own cgroup the kernel has killed, as memory was
    full, since the cgroup was made; None where it does not count them."""
    for folder in host.cgroups(root, "memory", process):
        for name in ("memory.events", "memory.oom_control"):  # v2, v1
            count = count_of(_text(folder, name), b"oom_kill")
            if count is not None:
                return count
    return None


def _left(folder: Path) -> Headroom | None:
    """Return the memory that a cgroup still allows; None without a limit."""
    stat = _text(folder, "memory.stat")
    most = _least(folder, stat, "memory.max", "memory.high", "memory.limit_in_bytes")
    if most is None:
        return None
    version2 = (folder / "memory.current").exists()
    used = _number(folder, "memory.current" if version2 else "memory.usage_in_bytes") or 0
    # In v1 only the total_ numbers include child cgroups, as the usage does.
    inactive = count_of(stat, b"inactive_file" if version2 else b"total_inactive_file")
    used -= min(inactive or 0, used)
    why = f"the cgroup's memory limit is {size(most)} and {size(used)} are in use"
    return Headroom(max(most - used, 0), why, most)


def _limit(folder: Path, *names: str) -> int | None:
    """Return the least of a cgroup's limits of these names; None without one.

    In v1, where a cgroup tells those of its parents too, also the least of these.
    """
    return _least(folder, _text(folder, "memory.stat"), *names)


def _least(folder: Path, stat: bytes, *names: str) -> int | None:
    """Return the same of a cgroup whose memory.stat was read."""
    limits = [_number(folder, name) for name in names]
    limits.append(count_of(stat, b"hierarchical_memory_limit"))
    return min((each for each in limits if each is not None and each < _NO_LIMIT), default=None)


def _number(folder: Path, name: str) -> int | None:
    """Return the integer in a file; None for "max" or a missing file."""
    try:
        return int(kernel_files.contents(f"{folder}/{name}"))
    except (OSError, ValueError):
        return None


def _text(folder: Path, name: str) -> bytes:
    """Return a file of lines `name number`; empty if it is missing."""
    try:
        return kernel_files.contents(f"{folder}/{name}")
    except OSError:
        return b""

"""The machine, and how much of it this process may use."""

import os
from pathlib import Path
from typing import Any


def facts(root: Path = Path("/")) -> dict[str, Any]:
    """Return the host facts of run.json; what the system does not tell is None.

    `root` is where /proc and /sys are looked for.
    """
    return {
        "boot_id": _line(root / "proc/sys/kernel/random/boot_id"),
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "cpu": {
            "model": _cpu_model(root),
            "logical": os.cpu_count(),
            "affinity": len(os.sched_getaffinity(0)),
            "quota": cpu_quota(root),
        },
        "memory_bytes": _memory(root, "MemTotal"),
    }


def shared_memory(root: Path = Path("/")) -> int | None:
    """Return the size of /dev/shm in bytes, by which workers send batches; None if unknown."""
    try:
        size = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return size.f_blocks * size.f_frsize


def cpu_quota(root: Path = Path("/"), process: str = "self") -> float | None:
    """Return how many cores a process's cgroup may use at once, or None without a limit.

    The tightest limit between the cgroup and the root of its tree counts (cgroup v1 and v2).
    """
    quotas = []
    for folder in cgroups(root, "cpu", process):
        limit = _line(folder / "cpu.max")
        if limit is not None:
            quota, _, period = limit.partition(" ")
        else:
            quota = _line(folder / "cpu.cfs_quota_us") or ""
            period = _line(folder / "cpu.cfs_period_us") or ""
        try:
            cores = int(quota) / int(period or 100_000)
        except (ValueError, ZeroDivisionError):
            continue  # "max"
        if cores > 0:
            quotas.append(cores)
    return min(quotas, default=None)


def cgroups(root: Path, controller: str, process: str = "self") -> list[Path]:
    """Return the folders of a process's cgroups under `controller` and of those above them.

    Its own comes first (v1 and v2, as mounted). What a container hides is not among them.
    """
    paths = {}  # a v1 controller, "" for v2 -> the cgroup's path
    for line in (_text(root / "proc" / process / "cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller_name in controllers.split(","):
            paths[controller_name] = path
    folders = []
    for line in (_text(root / "proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            own = paths.get("")
        elif kind[0] == "cgroup" and controller in kind[2].split(","):
            own = paths.get(controller)
        else:
            continue
        if own is None:
            continue
        mount_root, mount = fields[3], root / fields[4].lstrip("/")
        # In a container the path may be the host's while the mount shows only a part of it.
        if mount_root != "/" and own.startswith(mount_root):
            own = own[len(mount_root) :]
        inner = [part for part in own.split("/") if part not in ("", "..")]
        folders += [mount.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
    return folders


def _cpu_model(root: Path) -> str | None:
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu"):
            return value.strip()
        if not key.strip():
            break
    return os.uname().machine


def available_memory(root: Path = Path("/")) -> int | None:
    """Return how many bytes could be used without swapping, as the kernel estimates it."""
    return _memory(root, "MemAvailable")


def _memory(root: Path, what: str) -> int | None:
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _line(path: Path) -> str | None:
    content = _text(path)
    return content.strip() if content is not None else None

"""CPU time of processes that the program keeps beside its workers, such as a manager's, read from
outside.
"""

import contextlib
from collections.abc import Container

from lotus.common.machine.kernel_files import beginning
from lotus.recording.readings.orphans import Orphans
from lotus.recording.readings.process_times import cpu_ns

_MOST = 64  # processes of one parent; of more, the first
_DEEP = 3  # generations


class KeptChildren:
    """Reads the processes that a process of the program started, and what those started.

    Processes that make batches are read by themselves, and are none of these.
    """

    def __init__(self, orphans: Orphans | None = None) -> None:
        """`orphans`: those of the whole program; the main process that is read first has them."""
        self._orphans = orphans
        self._adopter: tuple[int, int] | None = None
        # (pid, worker) of the parent -> pid of the child -> CPU time at its first and last reading
        self._used: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}

    def read(self, parent: tuple[int, int], others: Container[int]) -> None:
        """Read how much the children of a process have used by now; `others` make batches."""
        used = self._used.setdefault(parent, {})
        found = _descendants([parent[0]], others)
        if self._orphans is not None and parent[1] < 0 and self._adopter in (None, parent):
            self._adopter = parent
            orphans = [pid for pid in self._orphans.find() if pid not in others]
            found += [*orphans, *_descendants(orphans, others)]
        for child in found:
            with contextlib.suppress(OSError):
                now = cpu_ns(child)
                first, last = used.get(child, (now, now))
                # Less than before: the pid was given to another process.
                used[child] = (first, now) if now >= last else (now, now)
        if parent[1] >= 0:  # those that have ended are in the worker's own count of its children
            for child in set(used).difference(found):
                del used[child]

    def cpu_ns(self, parent: tuple[int, int], others: Container[int]) -> int:
        """Return the CPU time between first and last reading, ns; -1: nothing was read."""
        used = self._used.get(parent)
        if used is None:
            return -1
        return sum(last - first for child, (first, last) in used.items() if child not in others)


def _descendants(parents: list[int], others: Container[int]) -> list[int]:
    """Return children of processes' main threads, and theirs; none if the kernel does not tell."""
    found: list[int] = []
    for _ in range(_DEEP):
        # Processes that make batches are read by themselves, with those that they keep.
        children = [
            child for parent in parents for child in _children(parent) if child not in others
        ]
        found += children
        parents = children[:_MOST]
        if len(found) >= _MOST or not parents:
            break
    return found[:_MOST]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in beginning(f"/proc/{pid}/task/{pid}/children").split()]
    except (OSError, ValueError):
        return []

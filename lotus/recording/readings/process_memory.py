"""The memory of the program's processes, read from outside every few seconds."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterable

from lotus.inside.common.resident_memory import resident_bytes

_FIELDS = (b"Rss:", b"Pss:", b"Private_Dirty:", b"Shared_Dirty:", b"Anonymous:")
# From a process's first reading to its second; each later distance is twice the one before it, up
# to the longest, so that the 0.1 s is not spent in the first second of a loop.
_FIRST_NS, _LONGEST_NS = 1_000_000_000, 4_000_000_000
_AGAIN_NS = 200_000_000
# Reading walks all pages of a process: 8 ms for 600 MB.
_AT_ONCE_NS, _SHARE, _NS_PER_BYTE = 100_000_000, 0.003, 0.0133
_MOST = 4096  # readings; then every second one is dropped, and they are made half as often


class ProcessMemory:
    """Readings of /proc/PID/smaps_rollup; they take about 0.1 s and 0.3 % of a core at most.

    `rows` holds [time, pid, worker (-1: main process), rss, pss, private, shared, anonymous,
    descriptor limit] in ns and bytes. private, shared: pages that were written to, and that no
    other process uses, or that another one uses too; anonymous: pages of no file.
    """

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._due_ns: dict[int, int] = {}  # pid -> when it is read next
        self._distance_ns: dict[int, int] = {}  # pid -> from that reading to the next one
        self._begun_ns, self._cost_ns = time.monotonic_ns(), 0
        self._saves_until_ns = 0  # for a reading that costs more than is left
        self._times = 1  # readings are made so many times as rarely, once some were dropped

    def read(self, processes: Iterable[tuple[int, int]]) -> None:
        """Read the one of these processes (pid, worker) that has been due for longest."""
        now = time.monotonic_ns()
        credit = _AT_ONCE_NS + _SHARE * (now - self._begun_ns) - self._cost_ns
        if credit < 0 or now < self._saves_until_ns:
            return
        due, pid, worker = min(
            ((self._due_ns.get(pid, 0), pid, worker) for pid, worker in processes),
            default=(now + 1, 0, 0),
        )
        if now < due:
            return
        begun_ns = time.thread_time_ns()
        first_ns = _FIRST_NS if worker >= 0 else _LONGEST_NS  # it is workers that grow
        distance_ns = self._distance_ns.get(pid, first_ns)
        self._due_ns[pid] = now + distance_ns * self._times
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            expected_ns = resident_bytes(pid) * _NS_PER_BYTE
            if expected_ns <= credit:
                self.rows.append([now, pid, worker, *_sizes(pid), _descriptor_limit(pid)])
                self._distance_ns[pid] = min(2 * distance_ns, _LONGEST_NS)
            elif expected_ns <= _AT_ONCE_NS:
                # Smaller processes would use up what a large one needs.
                self._due_ns[pid], self._saves_until_ns = due, now + _AGAIN_NS
        self._cost_ns += time.thread_time_ns() - begun_ns
        if len(self.rows) >= _MOST:
            self.rows = _thinned(self.rows)
            self._times *= 2


def _thinned(rows: list[list[int]]) -> list[list[int]]:
    """Return every second row of each process, its first among them."""
    seen: Counter[int] = Counter()
    kept = []
    for row in rows:
        if seen[row[1]] % 2 == 0:
            kept.append(row)
        seen[row[1]] += 1
    return kept


def _sizes(pid: int) -> tuple[int, ...]:
    """Return the sizes of `_FIELDS`, bytes. Raises OSError, ValueError, KeyError."""
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b" ")
            if name in _FIELDS:
                sizes[name] = int(rest.split()[0]) * 1024
    return tuple(sizes[name] for name in _FIELDS)


def _descriptor_limit(pid: int) -> int:
    """Return how many descriptors it may have open; -1: no limit, or not known."""
    quiet = contextlib.suppress(OSError, ValueError, IndexError)
    with quiet, open(f"/proc/{pid}/limits", "rb") as file:
        for line in file:
            if line.startswith(b"Max open files"):
                return int(line.split()[3])
    return -1

"""How much memory the program's processes hold, read from outside every few seconds."""

import contextlib
import math
import resource
import time
from collections import Counter
from collections.abc import Iterable

_FIELDS = (b"Rss:", b"Pss:", b"Private_Dirty:", b"Shared_Dirty:", b"Anonymous:")
_PERIOD_NS = 500_000_000
# Reading walks all pages of a process: 8 ms for 600 MB.
_AT_ONCE_NS, _SHARE, _NS_PER_BYTE = 100_000_000, 0.003, 0.0133
_LEAST_NS = 200_000  # what a reading takes besides
_LARGE = 64 << 20  # bytes; a reading of less does not tell what a byte takes
_MOST_SAVED_NS = 100_000_000  # for one reading, while others wait
_MOST = 4096  # readings; then every second one is dropped, and they are made half as often


class ProcessMemory:
    """Readings of /proc/PID/smaps_rollup; by default they take about 0.1 s and 0.3 % of a core.

    `rows` holds [time, pid, worker (-1: main process), rss, pss, private, shared, anonymous,
    descriptor limit] in ns and bytes. private, shared: pages that were written to, and that no
    other process uses, or that another one uses too; anonymous: pages of no file.
    """

    def __init__(self, share: float = _SHARE, at_once_ns: int = _AT_ONCE_NS) -> None:
        """`share`: of a core, for readings beyond the `at_once_ns` that they may take at first."""
        self.rows: list[list[int]] = []
        self.wanted_ns = 0.0  # what the next reading takes, if that is more than it may take now
        self._share, self._at_once_ns, self._ns_per_byte = share, at_once_ns, _NS_PER_BYTE
        self._read_ns: dict[int, int] = {}  # pid -> when it was read last
        self._begun_ns, self._cost_ns = time.monotonic_ns(), 0
        self._period_ns = _PERIOD_NS

    def credit_ns(self) -> float:
        """Return how long a reading may take now."""
        passed_ns = time.monotonic_ns() - self._begun_ns
        return self._at_once_ns + self._share * passed_ns - self._cost_ns

    def read(self, processes: Iterable[tuple[int, int]], most_ns: float = math.inf) -> None:
        """Read the one of these processes (pid, worker) that was not read for longest.

        `most_ns`: how long that may take, besides what all readings may.
        """
        credit = min(self.credit_ns(), most_ns)
        if credit < 0 or credit < self.wanted_ns:
            return
        now, self.wanted_ns = time.monotonic_ns(), 0.0
        last, pid, worker = min(
            ((self._read_ns.get(pid, 0), pid, worker) for pid, worker in processes),
            default=(now, 0, 0),
        )
        if now - last < self._period_ns:
            return
        begun_ns = time.thread_time_ns()
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            resident = _resident(pid)
            expected_ns = _LEAST_NS + resident * self._ns_per_byte
            if credit < expected_ns <= _MOST_SAVED_NS:
                self.wanted_ns = expected_ns
            elif expected_ns <= credit:
                self.rows.append([now, pid, worker, *_sizes(pid), _descriptor_limit(pid)])
                per_byte = (time.thread_time_ns() - begun_ns) / max(resident, _LARGE)
                self._ns_per_byte = max(_NS_PER_BYTE, per_byte)
        if not self.wanted_ns:
            self._read_ns[pid] = now
        self._cost_ns += time.thread_time_ns() - begun_ns
        if len(self.rows) >= _MOST:
            self.rows = _thinned(self.rows)
            self._period_ns *= 2


def _thinned(rows: list[list[int]]) -> list[list[int]]:
    """Every second row of each process, its first among them."""
    seen: Counter[int] = Counter()
    kept = []
    for row in rows:
        if seen[row[1]] % 2 == 0:
            kept.append(row)
        seen[row[1]] += 1
    return kept


def _resident(pid: int) -> int:
    """Bytes. Raises OSError, ValueError, IndexError."""
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _sizes(pid: int) -> tuple[int, ...]:
    """The sizes of `_FIELDS`, bytes. Raises OSError, ValueError, KeyError."""
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b" ")
            if name in _FIELDS:
                sizes[name] = int(rest.split()[0]) * 1024
    return tuple(sizes[name] for name in _FIELDS)


def _descriptor_limit(pid: int) -> int:
    """How many descriptors it may have open; -1: no limit, or not known."""
    quiet = contextlib.suppress(OSError, ValueError, IndexError)
    with quiet, open(f"/proc/{pid}/limits", "rb") as file:
        for line in file:
            if line.startswith(b"Max open files"):
                return int(line.split()[3])
    return -1

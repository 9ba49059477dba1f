"""How much memory the program's processes hold, read from outside every few seconds."""

import contextlib
import time
from collections.abc import Iterable

_FIELDS = (b"Rss:", b"Pss:", b"Shared_Dirty:", b"Private_Clean:", b"Private_Dirty:")
_PERIOD_NS = 500_000_000
# Reading walks all pages of a process: 8 ms for 600 MB.
_AT_ONCE_NS, _SHARE = 100_000_000, 0.003
_MOST = 4096  # readings; then every second one is dropped, and they are made half as often


class ProcessMemory:
    """Readings of /proc/PID/smaps_rollup; they take at most 0.1 s and 0.3 % of a core.

    `rows` holds [time, pid, worker (-1: main process), rss, pss, private, shared] in ns and bytes;
    shared: pages that were written to, and that another process still uses as well.
    """

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._read_ns: dict[int, int] = {}  # pid -> when it was read last
        self._begun_ns, self._cost_ns = time.monotonic_ns(), 0
        self._period_ns = _PERIOD_NS

    def read(self, processes: Iterable[tuple[int, int]]) -> None:
        """Read the one of these processes (pid, worker) that was not read for longest."""
        now = time.monotonic_ns()
        if self._cost_ns > _AT_ONCE_NS + _SHARE * (now - self._begun_ns):
            return
        last, pid, worker = min(
            ((self._read_ns.get(pid, 0), pid, worker) for pid, worker in processes),
            default=(now, 0, 0),
        )
        if now - last < self._period_ns:
            return
        self._read_ns[pid] = now
        with contextlib.suppress(OSError, ValueError, KeyError):
            self.rows.append([now, pid, worker, *_sizes(pid)])
        self._cost_ns += time.monotonic_ns() - now
        if len(self.rows) >= _MOST:
            del self.rows[1::2]
            self._period_ns *= 2


def _sizes(pid: int) -> tuple[int, int, int, int]:
    """(rss, pss, private, shared and written), bytes. Raises OSError, ValueError, KeyError."""
    sizes: dict[bytes, int] = {}
    with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            name, _, rest = line.partition(b" ")
            if name in _FIELDS:
                sizes[name] = int(rest.split()[0]) * 1024
    rss, pss, shared, clean, dirty = (sizes[name] for name in _FIELDS)
    return rss, pss, clean + dirty, shared

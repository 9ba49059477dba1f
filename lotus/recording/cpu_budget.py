"""The share of a core that a thread may use, by its own CPU clock."""

import time
from collections.abc import Callable

_MOST_SAVED_NS = 50_000_000  # so that a long time without work permits no long time of much work


class CpuBudget:
    """Counts all that the thread that creates it has used since then, whatever it was used for.

    `share`: of a core, 0 to 1; `cpu_ns`, `wall_ns`: the clocks.
    """

    def __init__(
        self,
        share: float,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
        wall_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._share, self._cpu_ns, self._wall_ns = share, cpu_ns, wall_ns
        self._cpu_begun_ns, self._last_ns = cpu_ns(), wall_ns()
        self._earned_ns = 0.0

    def used_ns(self) -> int:
        """Return what the thread has used."""
        return self._cpu_ns() - self._cpu_begun_ns

    def left_ns(self, reserved_ns: float = 0.0) -> float:
        """Return what may be used now; less than 0: what has been used too early.

        `reserved_ns`: what is saved for something else, and not left.
        """
        now, used = self._wall_ns(), self.used_ns()
        earned = self._earned_ns + self._share * (now - self._last_ns)
        self._earned_ns = min(earned, used + _MOST_SAVED_NS + reserved_ns)
        self._last_ns = now
        return self._earned_ns - used - reserved_ns

    def wait_s(self, left_ns: float) -> float:
        """Return in how many seconds as much as that is there, if it is less than 0."""
        return max(-left_ns, 0.0) / 1e9 / self._share

"""Which workers of this process's loaders a signal ended, such as SIGKILL for lack of memory.

Nothing is reaped here, so that torch and multiprocessing find what they find untraced.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_AT_END = (signal.SIGINT, signal.SIGTERM)  # Python, torch and the user end workers by these


class KilledWorkers:
    """The workers that were started, until their loader ends them."""

    def __init__(self) -> None:
        self._started: dict[int, int] = {}  # numbers of workers, by their pid

    def started(self, pids: Iterable[int]) -> None:
        """Watch the workers of an iterator."""
        for number, pid in enumerate(pids):
            self._started[pid] = number

    def clear(self) -> None:
        """Forget all, as in a forked child, whose workers these are not."""
        self._started.clear()

    def take(self, processes: Iterable[Any] = (), is_last: bool = False) -> list[dict[str, object]]:
        """Return an event for each worker that a signal has ended, once.

        `processes`: those of an iterator, which know the ends of workers that torch has reaped.
        `is_last`: when this process ends, and ends its workers.
        """
        codes = {}
        for process in processes:
            handle = getattr(process, "_popen", None)  # a thread has none
            codes[getattr(handle, "pid", None)] = getattr(handle, "returncode", None)
        events = []
        for pid, worker in list(self._started.items()):
            number = _signal(pid, codes.get(pid))
            if number > 0 and number != signal.SIGINT and not (is_last and number in _AT_END):
                del self._started[pid]
                events.append(
                    {
                        "event": "worker_killed",
                        "worker": worker,
                        "worker_pid": pid,
                        "signal": number,
                    }
                )
        return events

    def ended(self, processes: Iterable[Any]) -> None:
        """Forget workers that their loader has ended."""
        for process in processes:
            self._started.pop(getattr(process, "pid", -1), None)


def _signal(pid: int, code: int | None) -> int:
    """Return the signal that ended a child, 0 if it runs, ended otherwise or is not known.

    `code` is its exit code as multiprocessing has it; None: it has not looked.
    """
    if code is not None:
        return max(-code, 0)
    try:
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:  # it was reaped, or the child of a fork server
        return 0
    return end.si_status if end is not None and end.si_code != os.CLD_EXITED else 0

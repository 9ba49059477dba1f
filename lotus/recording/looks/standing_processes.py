"""How long processes have stood at one point, from looks at them.

A point is the last thing that a process began, as its state page tells.
"""

import time
from collections import Counter
from typing import Any

from lotus.common.text import redaction
from lotus.recording.looks.look_counts import IN_NEXT

LEAST_NS = 5_000_000_000  # at one point: less is no standstill
_MOST_ROWS = 256


class _Stand:
    """`since_ns`, `seen_ns`: CLOCK_MONOTONIC, of the point and of the last look."""

    def __init__(self, since_ns: int) -> None:
        self.since_ns, self.seen_ns, self.operation = since_ns, since_ns, 0
        self.reasons: Counter[str] = Counter()
        self.place = ""

    @property
    def is_long(self) -> bool:
        return self.seen_ns - self.since_ns >= LEAST_NS


class Standing:
    """Where each process, by (pid, worker), was last found making or awaiting a batch."""

    def __init__(self) -> None:
        self._stands: dict[tuple[int, int], _Stand] = {}

    def look(self, process: tuple[int, int], at: tuple[int, int], reason: str, place: str) -> None:
        """Note a look; `at`: the operation in hand, and when the process came to this point, ns."""
        operation, since_ns = at
        stand = self._stands.get(process)
        if stand is None or stand.since_ns != since_ns:
            stand = self._stands[process] = _Stand(since_ns)
        stand.seen_ns, stand.operation = time.monotonic_ns(), operation
        stand.reasons[reason] += 1
        stand.place = place or stand.place

    def forget_if_short(self, pid: int) -> None:
        """Drop a process that has ended, unless it stood for long until then."""
        for process in [each for each in self._stands if each[0] == pid]:
            if not self._stands[process].is_long:
                del self._stands[process]

    def longest(self, running: set[int]) -> tuple[int, int] | None:
        """Return the process of `running` that has stood for longest; None: none for long.

        One that awaits a batch waits for the others, and is none of them.
        """
        long = [
            (stand.since_ns, process)
            for process, stand in self._stands.items()
            if stand.is_long and stand.operation != IN_NEXT and process[0] in running
        ]
        return min(long)[1] if long else None

    def rows(self) -> list[dict[str, Any]]:
        """Return those that stood for long until the last look at them.

        `alike`: of the `looks`, those that found it in the state `reason`, the most frequent one.
        """
        return [
            {
                "pid": pid,
                "worker": worker,
                "operation": stand.operation,
                "reason": stand.reasons.most_common(1)[0][0],
                "alike": stand.reasons.most_common(1)[0][1],
                "looks": stand.reasons.total(),
                "place": redaction.text(stand.place),
                "since_ns": stand.since_ns,
                "seen_ns": stand.seen_ns,
            }
            for (pid, worker), stand in self._stands.items()
            if stand.is_long
        ][:_MOST_ROWS]

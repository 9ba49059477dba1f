"""Which fetches, calls of `next` and training steps had a full collection of garbage.

Such a collection looks at every object of the process. The number of collections is read before and
after each of these. A callback of `gc` would tell their times, but the program sees it, and it
costs two calls in each collection, however small.
"""

from __future__ import annotations

import gc
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .recorder import Recorder

FETCH, NEXT, STEP = "fetch", "next", "step"
MOST = 200  # of each of these that had one, and that a process records
_recorded: dict[tuple[int, str], int] = {}  # by pid, so that a forked child begins anew
_counts: tuple[int, ...] = ()
_number = 0


def number() -> int:
    """Return how many full collections this process has had.

    To read that costs 11,000 instructions. Each collection, of whatever generation, changes the
    counts of the older generations, and to read these, with the rest here, costs 3,000.
    """
    global _counts, _number
    counts = gc.get_count()[1:]
    if counts != _counts or not any(counts):
        _counts, _number = counts, gc.get_stats()[-1]["collections"]
    return _number


def log(recorder: Recorder, during: str, begin_ns: int, count: int) -> None:
    """Record that what began then had this many; none are not recorded."""
    if count <= 0:
        return
    key = os.getpid(), during
    recorded = _recorded[key] = _recorded.get(key, 0) + 1
    if recorded <= MOST:
        recorder.event(
            {"event": "full_collections", "during": during, "time_ns": begin_ns, "count": count}
        )
